"""The few plain types that several interfaces share."""

# Generated from `wit/types.wit` of tunebox.

from dataclasses import dataclass
from enum import Enum


class ErrorCode(Enum):
    """Why a call could not be done. Closed: no case is added within 0.1."""

    #: An argument is outside what the function's text allows.
    INVALID_ARGUMENT = 0
    #: Shapes cannot be combined; the message names the axis.
    SHAPE_MISMATCH = 1
    #: The element type is not one that the function takes.
    DTYPE_MISMATCH = 2
    #: This host, model or device does not offer it.
    UNSUPPORTED = 3
    #: The run does not grant it.
    NOT_GRANTED = 4
    #: It would pass a limit that the method can stay below, as in bytes read back.
    OUT_OF_BUDGET = 5
    #: The device failed.
    DEVICE_ERROR = 6
    #: The run is stopping.
    CANCELLED = 7
    #: A file or stream of the host failed.
    IO = 8
    #: A fault of the host's own.
    INTERNAL = 9


@dataclass
class Error:
    """A failed call: a code to act on, a sentence to read."""

    code: ErrorCode
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


Value = Value_Boolean | Value_Integer | Value_Number | Value_Text
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
