"""The results of calls, as `componentize-py` names them, for a method that runs as a process of its own."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E")


@dataclass
class Ok(Generic[T]):
    """The success case of a result."""

    value: T


@dataclass(frozen=True)
class Err(Exception, Generic[E]):
    """The failure case of a result, which is raised."""

    value: E
