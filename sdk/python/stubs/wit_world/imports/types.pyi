"""The few plain types that several interfaces share."""

# Generated from `wit/types.wit` of tunebox.

from dataclasses import dataclass
from enum import Enum


@dataclass
class Error:
    """A failed call: a code to act on, a sentence to read."""

    #: Why the call failed. A later version may add codes: treat an unknown one like `internal`.
    #: `invalid-argument`: an argument is outside what the function's text allows.
    #: `shape-mismatch`: shapes cannot be combined; the message names the axis.
    #: `dtype-mismatch`: the element type is not one that the function takes.
    #: `unsupported`: this host, run, model or device does not offer it.
    #: `out-of-budget`: it would pass a limit that the method can stay below, as in bytes read back.
    #: `device-error`: the device failed.
    #: `internal`: a fault of the host.
    code: str
    message: str


@dataclass
class Value_Boolean:
    value: bool


@dataclass
class Value_Integer:
    value: int


@dataclass
class Value_Number:
    value: float


@dataclass
class Value_Text:
    value: str


@dataclass
class Value_Integers:
    value: list[int]


@dataclass
class Value_Numbers:
    value: list[float]


@dataclass
class Value_Texts:
    value: list[str]


Value = Value_Boolean | Value_Integer | Value_Number | Value_Text | Value_Integers | Value_Numbers | Value_Texts
"""The value of a setting."""


class Dtype(Enum):
    """Element types of tensors. Losses and masks are `f32`, ids `u32`, truth values `u8` (0 or 1)."""

    U8 = 0
    U32 = 1
    S64 = 2
    F16 = 3
    BF16 = 4
    F32 = 5
    F64 = 6
