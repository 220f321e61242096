"""Makes the modules `wit_world.imports.…` of the contract: classes for its types, and requests behind its functions."""

import sys
from contextlib import suppress
from dataclasses import make_dataclass
from enum import Enum, Flag
from functools import reduce
from importlib import import_module
from operator import or_
from types import ModuleType
from typing import Any

from componentize_py_types import Err

from tunebox.arguments import camel, check_module, located, snake, with_parameters
from tunebox.contract import FUNCTIONS, TYPES
from tunebox_native.connection import Connection, HostEnded, present, request
from tunebox_native.values import encoder


class Resource:
    """Something of the host's, by its number; given back when it is no longer used, or at the end of a `with` block."""

    _drop: str
    handle: int | None = None
    #: The connection that it belongs to; None if it is lent for a call.
    _owner: Connection | None = None

    @classmethod
    def _of(cls, handle: int, is_lent: bool) -> Any:
        made = cls.__new__(cls)
        made._take(handle, is_lent)
        return made

    def _take(self, handle: int | None, is_lent: bool) -> None:
        self.handle, self._owner = handle, None if is_lent else present()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        handle, owner = self.handle, self._owner
        self.handle = self._owner = None
        if handle is not None and owner is not None:
            owner.give_back(self._drop, handle)

    def __del__(self) -> None:
        # At the end of the process the modules may be gone.
        if not sys.is_finalizing():
            # A connection that ends by this says so at the next request.
            with suppress(HostEnded):
                self.__exit__()


def fill(module: ModuleType, interface: str) -> None:
    """Puts the types and functions of an interface into its module. Imports the modules whose types they use."""
    for other in sorted(_used(FUNCTIONS[interface]) | _used(TYPES[interface])):
        if other != interface:
            setattr(module, snake(other), import_module(f"wit_world.imports.{snake(other)}"))
    for name, (kind, members) in TYPES[interface].items():
        for made in _classes(interface, name, kind, members):
            made.__module__ = module.__name__
            setattr(module, made.__name__, made)
        if kind == "variant":
            cases = [getattr(module, f"{camel(name)}_{camel(case)}") for case, _ in members]
            setattr(module, camel(name), reduce(or_, cases))
    for key, parameters, result in FUNCTIONS[interface]:
        home, name = located(module, key)
        setattr(home, name, _function(f"{interface}/{key}", name, parameters, result))
    # Whichever module of a test is imported first.
    check_module(module, interface)


def _used(kind: Any) -> set[str]:
    """The interfaces of all named types and handles inside a type, or a table of types."""
    match kind:
        case ("named" | "handle", interface, _):
            return {interface}
        case dict():
            return _used(list(kind.values()))
        case list() | tuple():
            return set().union(*map(_used, kind))
    return set()


def _classes(interface: str, name: str, kind: str, members: Any) -> list[Any]:
    """The classes of a type: one, or one for each case of a variant."""
    match kind:
        case "resource":
            return [type(camel(name), (Resource,), {"_drop": f"{interface}/[resource-drop]{name}"})]
        case "enum":
            return [Enum(camel(name), [(snake(case).upper(), number) for number, case in enumerate(members)])]
        case "flags":
            return [Flag(camel(name), [(snake(flag).upper(), 1 << bit) for bit, flag in enumerate(members)])]
        case "record":
            return [make_dataclass(camel(name), [snake(field) for field, _ in members])]
    return [make_dataclass(f"{camel(name)}_{camel(case)}", ["value"] if ty else []) for case, ty in members]


def _function(path: str, name: str, parameters: list[Any], result: Any) -> Any:
    """A function of the contract that sends a request, and raises what the host refuses; a constructor takes the handle."""
    names = [snake(parameter) for parameter, _ in parameters]
    encoders = [encoder(kind) for _, kind in parameters]
    is_constructor = name == "__init__"

    def call(*arguments: Any) -> Any:
        made, output = None, bytearray()
        if is_constructor:
            made, *arguments = arguments
        for encode, value in zip(encoders, arguments, strict=True):
            encode(value, output)
        answer = request(path, bytes(output), result)
        if isinstance(answer, Err):
            raise answer
        if made is None:
            return answer
        made._take(answer.handle, False)
        answer._owner = None
        return None

    return with_parameters(name, ["self", *names] if is_constructor else names, call)
