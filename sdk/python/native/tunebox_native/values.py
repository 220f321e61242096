"""The bytes of values of the contract; `sdk/rust/src/native/codec.rs` says how each type is written."""

import struct
import sys
from collections.abc import Callable
from math import copysign, inf
from typing import Any

from componentize_py_types import Err

from tunebox.arguments import camel, snake
from tunebox.contract import TYPES

#: Appends a value to bytes.
Encoder = Callable[[Any, bytearray], None]

_NUMBERS = {
    "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "s8": "<b", "s16": "<h", "s32": "<i", "s64": "<q", "f32": "<f", "f64": "<d", "bool": "<?",
}  # fmt: skip


class Reader:
    """The unread rest of a message."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, count: int) -> bytes:
        """The next bytes. Raises `ValueError` if fewer are left."""
        end = self._place + count
        if end > len(self._data):
            raise ValueError(f"{count} bytes were announced, {len(self._data) - self._place} are there")
        taken, self._place = self._data[self._place : end], end
        return taken

    def number(self, kind: str) -> Any:
        """The next number of a kind such as `u32`."""
        return struct.unpack(_NUMBERS[kind], self.take(struct.calcsize(_NUMBERS[kind])))[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.number("u32")).decode()


def text(value: str) -> bytes:
    """A text as it is written."""
    data = value.encode("utf-8", "replace")
    return struct.pack("<I", len(data)) + data


def _number(kind: str) -> Encoder:
    form = _NUMBERS[kind]

    def encode(value: Any, output: bytearray) -> None:
        try:
            output += struct.pack(form, value)
        except OverflowError:
            # Too large for `f32`: infinite, as a component converts it.
            output += struct.pack(form, copysign(inf, value))

    return encode


def encoder(kind: Any) -> Encoder:
    """The function that writes values of a type of the contract, as `tunebox.contract` writes it."""
    match kind:
        case None:
            return lambda value, output: None
        case ("string",):
            return lambda value, output: output.extend(text(value))
        case ("bytes",):
            return lambda value, output: output.extend(struct.pack("<I", len(value)) + value)
        case ("option", item):
            return _optional(encoder(item))
        case ("list", item):
            return _list(encoder(item))
        case ("tuple", *items):
            return _together([encoder(item) for item in items], lambda value: value)
        case ("result", ok, _):
            return _result(encoder(ok), encoder(kind[2]))
        case ("handle", _, _):
            return lambda value, output: output.extend(struct.pack("<I", value.handle))
        case ("named", interface, name):
            return _named_encoder(interface, name)
    return _number(kind[0])


def _optional(item: Encoder) -> Encoder:
    def encode(value: Any, output: bytearray) -> None:
        output.append(value is not None)
        if value is not None:
            item(value, output)

    return encode


def _list(item: Encoder) -> Encoder:
    def encode(value: Any, output: bytearray) -> None:
        output += struct.pack("<I", len(value))
        for one in value:
            item(one, output)

    return encode


def _together(parts: list[Encoder], split: Callable[[Any], Any]) -> Encoder:
    def encode(value: Any, output: bytearray) -> None:
        for part, one in zip(parts, split(value), strict=True):
            part(one, output)

    return encode


def _result(ok: Encoder, error: Encoder) -> Encoder:
    def encode(value: Any, output: bytearray) -> None:
        output.append(isinstance(value, Err))
        (error if isinstance(value, Err) else ok)(value.value if isinstance(value, Err) else value, output)

    return encode


def _named_encoder(interface: str, name: str) -> Encoder:
    kind, members = TYPES[interface][name]
    if kind == "record":
        fields = [snake(field) for field, _ in members]
        return _together([encoder(ty) for _, ty in members], lambda value: [getattr(value, field) for field in fields])
    if kind == "variant":
        cases = [(class_of(interface, f"{camel(name)}_{camel(case)}"), encoder(ty)) for case, ty in members]

        def encode(value: Any, output: bytearray) -> None:
            number = next(number for number, (case, _) in enumerate(cases) if isinstance(value, case))
            output.append(number)
            cases[number][1](getattr(value, "value", None), output)

        return encode
    form = "<I" if kind == "flags" else "<B"
    return lambda value, output: output.extend(struct.pack(form, value.value))


def class_of(interface: str, name: str) -> Any:
    """A class of the module of an interface, which is imported."""
    return getattr(sys.modules[f"wit_world.imports.{snake(interface)}"], name)


def decode(kind: Any, reader: Reader, is_lent: bool = False) -> Any:
    """Reads a value of a type of the contract. A failed result is an `Err`; a handle that is lent is not given back."""
    match kind:
        case None:
            return None
        case ("string",):
            return reader.text()
        case ("bytes",):
            return reader.take(reader.number("u32"))
        case ("option", item):
            return decode(item, reader, is_lent) if reader.number("bool") else None
        case ("list", item):
            return [decode(item, reader, is_lent) for _ in range(reader.number("u32"))]
        case ("tuple", *items):
            return tuple(decode(item, reader, is_lent) for item in items)
        case ("result", ok, error):
            return Err(decode(error, reader)) if reader.number("bool") else decode(ok, reader, is_lent)
        case ("handle", interface, name):
            return class_of(interface, camel(name))._of(reader.number("u32"), is_lent)
        case ("named", interface, name):
            return _decode_named(interface, name, reader)
    return reader.number(kind[0])


def _decode_named(interface: str, name: str, reader: Reader) -> Any:
    kind, members = TYPES[interface][name]
    if kind == "record":
        return class_of(interface, camel(name))(*[decode(ty, reader) for _, ty in members])
    if kind == "variant":
        case, ty = members[reader.number("u8")]
        made = class_of(interface, f"{camel(name)}_{camel(case)}")
        return made() if ty is None else made(decode(ty, reader))
    return class_of(interface, camel(name))(reader.number("u32" if kind == "flags" else "u8"))
