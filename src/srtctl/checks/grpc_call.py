"""One unary gRPC call, request and answer in bytes."""

from __future__ import annotations

import importlib

from srtctl.checks.net import NetError


class UnaskableError(NetError):
    """Nobody can tell, which is no fault of the deployment."""


class NoGrpcError(UnaskableError):
    """This Python has no module grpc."""


class UnimplementedError(UnaskableError):
    """The server has no such method."""


def ask(host: str, port: int, method: str, timeout: float, request: bytes = b"") -> bytes:
    """The answer of `/package.Service/Method` to `request`, an encoded message. Raises NetError."""
    try:
        grpc = importlib.import_module("grpc")
    except ImportError:
        raise NoGrpcError("this Python has no module 'grpc'") from None
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer: bytes = call(request, timeout=timeout)
        except grpc.RpcError as error:
            code, name = error.code().name, method.rpartition("/")[2]
            if code == "UNIMPLEMENTED":
                raise UnimplementedError(f"{host}:{port} has no {name}") from None
            raise NetError(f"{host}:{port} {name}: {code}: {error.details()}") from None
    return answer
