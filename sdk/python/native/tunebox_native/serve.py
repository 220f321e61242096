"""Serving a host: doing what it calls until it is done."""

from typing import Any

from componentize_py_types import Err

from tunebox import component, errors
from tunebox.arguments import snake
from tunebox.contract import EXPORTS
from tunebox_native.connection import CALL, END, PANICKED, REPORT, RETURN, STOP, Connection, HostEnded
from tunebox_native.interfaces import Resource
from tunebox_native.values import Reader, decode, encoder, text


def serve(connection: Connection, method: Any) -> tuple[str, bytes] | None:
    """Answers calls of the host on the exports of `method` until the host ends (None) or reports.

    A report is its text, and the encoded result of the last call. Raises `HostEnded` if the host stops the method.
    """
    returned = b""
    while True:
        reader = Reader(connection.receive())
        kind = reader.number("u8")
        if kind == CALL:
            reply = _answer(connection, method, reader)
            connection.send(reply)
            returned = reply[1:]
        elif kind == REPORT:
            return reader.text(), returned
        elif kind == END:
            return None
        else:
            raise connection.end(reader.text() if kind == STOP else "a message that is no call")


def _answer(connection: Connection, method: Any, reader: Reader) -> bytes:
    """Runs one call and returns the message that answers it: the result, or the exception with its line."""
    name, parameters, result = EXPORTS[reader.number("u8")]
    arguments = [decode(kind, reader, is_lent=True) for _, kind in parameters]
    try:
        value = getattr(method, snake(name))(*arguments)
    except Err as refusal:
        # Only what the method says itself is a result: its text.
        if not isinstance(refusal.value, str):
            return _panic(connection, refusal)
        value = refusal
    except HostEnded:
        raise
    except BaseException as error:
        return _panic(connection, error)
    finally:
        for lent in arguments:
            if isinstance(lent, Resource):
                lent.handle = None
    output = bytearray([RETURN])
    encoder(result)(value, output)
    return bytes(output)


def _panic(connection: Connection, error: BaseException) -> bytes:
    """The message about an exception that ended a call: its words, file, line and column. The connection keeps it."""
    connection.fault = error
    file, *numbers = errors.place(component.root(), error)
    position = b"".join(number.to_bytes(4, "little") for number in numbers)
    return bytes([PANICKED]) + text(errors.words(error)) + text(file) + position
