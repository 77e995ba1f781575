"""A server for the grpc expander in this process, on the loopback interface with TLS.

Its messages are made by google.protobuf from the descriptor below: what kscale writes is read by another hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import trustme
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {"string": 9, "int32": 5, "bytes": 12, "message": 11}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="expander.proto", package="grpcplugin", syntax="proto3")

    def message(name: str, *fields: tuple[int, str, str, bool]) -> Any:
        created = file.message_type.add(name=name)
        for number, member, type_, repeated in fields:
            scalar = type_ in _TYPES
            added = created.field.add(name=member, number=number, label=3 if repeated else 1)
            added.type = _TYPES[type_ if scalar else "message"]
            if not scalar:
                added.type_name = f".grpcplugin.{type_}"
        return created

    message(
        "Option",
        (1, "nodeGroupId", "string", False),
        (2, "nodeCount", "int32", False),
        (3, "debug", "string", False),
        (5, "podBytes", "bytes", True),
    )
    message("BestOptionsResponse", (1, "options", "Option", True))
    request = message(
        "BestOptionsRequest",
        (1, "options", "Option", True),
        (3, "nodeBytesMap", "BestOptionsRequest.NodeBytesMapEntry", True),
    )
    entry = request.nested_type.add(name="NodeBytesMapEntry")
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=12)
    entry.options.map_entry = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Option", "BestOptionsRequest", "BestOptionsResponse")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpcplugin.{name}")) for name in names}


MESSAGES = _messages()
Answer = Callable[[Any, Any], Any]


def names(*groups: str) -> Answer:
    """An answer that names groups, whatever is asked."""
    options = [MESSAGES["Option"](nodeGroupId=group) for group in groups]
    return lambda request, context: MESSAGES["BestOptionsResponse"](options=options)


@dataclass
class Server:
    """``requests``: what was asked, decoded."""

    url: str
    answer: Answer
    requests: list[Any] = field(default_factory=list)


@contextmanager
def serving(answer: Answer, issuer: trustme.CA, *, host: str = "127.0.0.1") -> Iterator[Server]:
    """A server whose certificate is for ``host``."""
    result = Server("", answer)

    def best_options(request: Any, context: Any) -> Any:
        result.requests.append(request)
        return result.answer(request, context)

    def encoded(response: Any) -> bytes:
        return response if isinstance(response, bytes) else response.SerializeToString()

    method = grpc.unary_unary_rpc_method_handler(
        best_options, request_deserializer=MESSAGES["BestOptionsRequest"].FromString, response_serializer=encoded
    )
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(2), options=limits)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpcplugin.Expander", {"BestOptions": method}),)
    )
    own = issuer.issue_cert(host)
    pair = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
    result.url = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', grpc.ssl_server_credentials([pair]))}"
    server.start()
    try:
        yield result
    finally:
        server.stop(None).wait()


def certificate_of(issuer: trustme.CA, folder: Path, name: str = "expander.pem") -> Path:
    """The file that a client is given."""
    issuer.cert_pem.write_to_path(folder / name)
    return folder / name
