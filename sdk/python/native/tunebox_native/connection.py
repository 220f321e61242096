"""The connection to the host: messages with their length before them, and the requests that go over it.

A process has one connection at a time. `sdk/rust/src/native/frame.rs` lists the kinds of messages.
"""

import socket
import struct
from typing import Any

from tunebox_native.values import Reader, decode, text

CALL, ANSWER, STOP, END, REPORT = range(5)
REQUEST, RETURN, PANICKED, NEXT = range(4)

#: How the reason begins if the connection broke.
GONE = "the host is gone"


class HostEnded(BaseException):
    """The host ended the method, or is gone. No `Exception`, so that a method does not go on."""


class Connection:
    """A socket to the host, and whether it still works."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        #: Why nothing more comes; empty while it works.
        self.ended = ""
        #: The exception with which the method ended.
        self.fault: BaseException | None = None
        #: Whether a request waits for its answer, and what Python gave up meanwhile: function and handle.
        self._is_waiting = False
        self._given_up: list[tuple[str, int]] = []

    def send(self, message: bytes) -> None:
        """Sends a message. Raises `HostEnded` if the connection has ended or ends by that."""
        self._work(lambda: self._stream.sendall(struct.pack("<I", len(message)) + message))

    def receive(self) -> bytes:
        """Waits for a message. Raises `HostEnded` if the connection has ended or ends by that."""
        return self._work(lambda: self._take(struct.unpack("<I", self._take(4))[0]))

    def exchange(self, message: bytes) -> Reader:
        """Sends a request and returns its answer, after the kind. Raises `HostEnded` if the host ends the method."""
        self._is_waiting = True
        try:
            self.send(message)
            reader = Reader(self.receive())
        finally:
            self._is_waiting = False
        kind = reader.number("u8")
        if kind != ANSWER:
            raise self.end(reader.text() if kind == STOP else "the host does not speak this version of the contract")
        while self._given_up:
            self.give_back(*self._given_up.pop())
        return reader

    def give_back(self, function: str, handle: int) -> None:
        """Asks the host to drop a resource; if a request waits for its answer, after that. Does nothing if ended."""
        if self._is_waiting:
            self._given_up.append((function, handle))
        elif not self.ended:
            self.exchange(bytes([REQUEST]) + text(function) + struct.pack("<I", handle))

    def end(self, why: str) -> HostEnded:
        """Closes the connection and makes the exception that says why; the first reason stays."""
        self.ended = self.ended or why
        self._stream.close()
        return HostEnded(self.ended)

    def _work(self, work: Any) -> Any:
        if self.ended:
            raise HostEnded(self.ended)
        try:
            return work()
        except OSError as error:
            raise self.end(f"{GONE}: {error}") from None

    def _take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._stream.recv(count - len(data))
            if not part:
                raise ConnectionError("it closed the connection")
            data += part
        return bytes(data)


#: The connection of the process.
_present: Connection | None = None


def present() -> Connection | None:
    """The connection of the process, unless there is none or it has ended."""
    return _present if _present is not None and not _present.ended else None


def connect(stream: socket.socket) -> Connection:
    """Makes a socket the connection of the process. Raises `RuntimeError` if it has one that works."""
    global _present
    if present() is not None:
        raise RuntimeError("this process has a bench already; end its `with` block first")
    _present = Connection(stream)
    return _present


def request(function: str, arguments: bytes, result: Any) -> Any:
    """Calls a function of the host, named as in `tensor/[method]tensor.exp`, and returns what it gives.

    Raises `Err` with the host's error if the result is a failure, and `HostEnded` if the host ends the method.
    """
    connection = _present
    if connection is None:
        raise RuntimeError("no host listens here: functions of the contract work in a call of the host or in a `Bench`")
    return decode(result, connection.exchange(bytes([REQUEST]) + text(function) + arguments))
