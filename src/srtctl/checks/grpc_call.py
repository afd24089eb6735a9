"""One unary gRPC call, request and answer in bytes."""

from __future__ import annotations

import importlib

from srtctl.checks.net import NetError


class NoGrpcError(NetError):
    """This Python has no module grpc."""


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
            raise NetError(f"{host}:{port} {method.rpartition('/')[2]}: {error.code().name}") from None
    return answer
