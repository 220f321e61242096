"""What a call of the host gives that it could not do."""

from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(frozen=True)
class Err(Exception, Generic[E]):
    """A refusal; `tunebox` calls it `Refused`."""

    value: E
