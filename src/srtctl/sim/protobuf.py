"""Protobuf messages and gRPC services from tables: no protoc, no generated code.

A message is written as one field per entry, `"<number> <type> <name>"`. Types: the proto3 scalars, the name of another
message or enum of the same package, `Struct`; with a prefix: `*` repeated, `?` optional (has presence),
`oneof:<group>:`; or `map<key,value>` of two scalars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_SCALARS = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
_FIELD = re.compile(
    r"(?P<number>\d+) (?:oneof:(?P<oneof>\w+):)?(?P<label>[*?]?)"
    r"(?:map<(?P<key>\w+),(?P<value>\w+)>|(?P<type>\w+)) (?P<name>\w+)"
)

Messages = Mapping[str, Any]


def build(
    package: str, messages: Mapping[str, Sequence[str]], enums: Mapping[str, Mapping[str, int]] | None = None
) -> Messages:
    """Message classes by name. A pool of its own per call, so that two tables may describe the same package.

    Raises ValueError for an entry that does not follow the notation.
    """
    enums = enums or {}
    file = FileDescriptorProto(name=package.replace(".", "/") + ".proto", package=package, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for label, number in values.items():
            enum.value.add(name=label, number=number)
    for name, fields in messages.items():
        _message(file.message_type.add(name=name), package, fields, enums)
    pool = descriptor_pool.DescriptorPool()
    struct_file = descriptor_pb2.FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(struct_file)
    pool.Add(struct_file)
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _message(message: DescriptorProto, package: str, fields: Sequence[str], enums: Mapping[str, object]) -> None:
    oneofs: dict[str, int] = {}
    optional: list[FieldDescriptorProto] = []
    for text in fields:
        match = _FIELD.fullmatch(text)
        if match is None:
            raise ValueError(f"{package}.{message.name}: not a field: {text!r}")
        field = message.field.add(name=match["name"], number=int(match["number"]))
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if match["label"] == "*" or match["key"]:
            field.label = FieldDescriptorProto.LABEL_REPEATED
        if match["key"]:
            _map_field(message, package, field, match["key"], match["value"])
        else:
            _typed(field, package, match["type"], enums)
        if group := match["oneof"]:
            if group not in oneofs:
                oneofs[group] = len(message.oneof_decl)
                message.oneof_decl.add(name=group)
            field.oneof_index = oneofs[group]
        if match["label"] == "?":
            field.proto3_optional = True
            optional.append(field)
    for field in optional:  # presence is a synthetic oneof, and those must follow the real ones
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _typed(field: FieldDescriptorProto, package: str, kind: str, enums: Mapping[str, object]) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = ".google.protobuf.Struct" if kind == "Struct" else f".{package}.{kind}"


def _map_field(message: DescriptorProto, package: str, field: FieldDescriptorProto, key: str, value: str) -> None:
    entry = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        part.type = _SCALARS[kind]
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{package}.{message.name}.{entry.name}"


def service(
    name: str,
    messages: Messages,
    methods: Mapping[str, Callable[..., Any]],
    streaming: frozenset[str] = frozenset(),
    names: Mapping[str, tuple[str, str]] | None = None,
) -> grpc.GenericRpcHandler:
    """A handler for the service `name`: RPC `X` takes `XRequest`, answers `XResponse` (a stream if in `streaming`).

    `names` are request and response of the RPCs that are named otherwise.
    """
    table = {}
    for rpc, function in methods.items():
        wrap = grpc.unary_stream_rpc_method_handler if rpc in streaming else grpc.unary_unary_rpc_method_handler
        request, response = (names or {}).get(rpc, (f"{rpc}Request", f"{rpc}Response"))
        table[rpc] = wrap(
            function,
            request_deserializer=messages[request].FromString,
            response_serializer=messages[response].SerializeToString,
        )
    return grpc.method_handlers_generic_handler(name, table)
