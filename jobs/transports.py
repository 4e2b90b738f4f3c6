"""Echo servers by several transports: what a parameter server could be built on, without one."""

from __future__ import annotations

import multiprocessing
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

#: Sends an array there and gets it back.
Echo = Callable[[np.ndarray], Any]
_LENGTH = struct.Struct("<q")
TOKEN = bytes(32)


@contextmanager
def echoes(names: list[str]) -> Iterator[dict[str, str]]:
    """A server process each; addresses by name."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        addresses = {}
        for name in names:
            here, there = context.Pipe()
            process = context.Process(target=TRANSPORTS[name][0], args=(there,), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
            addresses[name] = here.recv()
        yield addresses


def available() -> list[str]:
    return [name for name in TRANSPORTS if name != "pyzmq" or find_spec("zmq")]


def client(name: str, address: str) -> Echo:
    """To be called in the process and thread that uses it."""
    echo: Echo = TRANSPORTS[name][1](address)
    return echo


def _serve_sockets(pipe: Any) -> None:
    import threading

    def converse(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = np.empty(0, np.uint8)
        while head := sock.recv(_LENGTH.size, socket.MSG_WAITALL):
            (size,) = _LENGTH.unpack(head)
            if len(buffer) < size:
                buffer = np.empty(size, np.uint8)
            _fill(sock, buffer[:size].data)
            sock.sendall(head)
            sock.sendall(buffer[:size].data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(f"127.0.0.1:{listener.getsockname()[1]}")
        while True:
            threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


def _sockets(address: str) -> Echo:
    host, port = address.split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def echo(array: np.ndarray) -> np.ndarray:
        sock.sendall(_LENGTH.pack(array.nbytes))
        sock.sendall(array.view(np.uint8).data)
        sock.recv(_LENGTH.size, socket.MSG_WAITALL)
        back = np.empty_like(array)
        _fill(sock, back.view(np.uint8).data)
        return back

    return echo


def _fill(sock: socket.socket, view: memoryview) -> None:
    while view:
        view = view[sock.recv_into(view) :]


def _serve_wire(pipe: Any) -> None:
    import threading

    from sparkdml.server.wire import Limits, Security, serve

    listening = serve(lambda op, header, arrays, peer: ({}, arrays), "127.0.0.1", 0, Security(TOKEN), Limits())
    pipe.send(listening.address)
    threading.Event().wait()


def _wire(address: str) -> Echo:
    from sparkdml.server.wire import Security, connect

    connection = connect(address, Security(TOKEN), 60.0)
    return lambda array: connection.call("echo", {}, [array])


def _serve_zmq(pipe: Any) -> None:
    import zmq

    sock = zmq.Context().socket(zmq.ROUTER)
    pipe.send(f"127.0.0.1:{sock.bind_to_random_port('tcp://127.0.0.1')}")
    while True:
        sock.send_multipart(sock.recv_multipart(copy=False), copy=False)


def _zmq(address: str) -> Echo:
    import zmq

    sock = zmq.Context().socket(zmq.DEALER)
    sock.connect(f"tcp://{address}")

    def echo(array: np.ndarray) -> Any:
        sock.send_multipart([b"", array.data], copy=False)
        return sock.recv_multipart(copy=False)[1].buffer

    return echo


def _serve_flight(pipe: Any) -> None:
    import pyarrow as pa
    import pyarrow.flight as flight

    class Server(flight.FlightServerBase):
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            writer.begin(pa.schema([("values", pa.float32())]))
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return
                writer.write_batch(chunk.data)

    server = Server("grpc://127.0.0.1:0")
    pipe.send(f"127.0.0.1:{server.port}")
    server.serve()


def _flight(address: str) -> Echo:
    import pyarrow as pa
    import pyarrow.flight as flight

    connection = flight.connect(f"grpc://{address}")
    writer, reader = connection.do_exchange(flight.FlightDescriptor.for_path("echo"))
    schema = pa.schema([("values", pa.float32())])
    writer.begin(schema)

    def echo(array: np.ndarray) -> Any:
        assert connection is not None  # which the stream needs alive
        writer.write_batch(pa.record_batch([pa.array(array)], schema=schema))
        return reader.read_chunk().data.column(0).to_numpy()

    return echo


TRANSPORTS: dict[str, tuple[Callable[[Any], None], Callable[[str], Echo]]] = {
    "bare sockets": (_serve_sockets, _sockets),
    "wire": (_serve_wire, _wire),
    "pyzmq": (_serve_zmq, _zmq),
    "Flight": (_serve_flight, _flight),
}
