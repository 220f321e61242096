"""Checks what a method hands to the host, so that a wrong argument is an exception at its line of the source.

Unchecked, a value of another type than the contract has would stop the component without a line.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tunebox.contract import FUNCTIONS, TYPES

#: Returns a value as the bindings take it, or raises `_Unfit`.
Checker = Callable[[Any], Any]


class _Unfit(Exception):
    """A value of another type: what was expected, and perhaps what to do."""

    def __init__(self, expected: str, found: str = "") -> None:
        super().__init__(expected)
        self.expected, self.found = expected, found


def snake(name: str) -> str:
    """The name of a function, parameter, field or module: `log-ratio` is `log_ratio`."""
    return name.replace("-", "_")


def camel(name: str) -> str:
    """The name of a class: `error-code` is `ErrorCode`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("-"))


def check_calls() -> None:
    """Makes every function of the contract that the component imports check its arguments. Called once, before any is used."""
    for interface in FUNCTIONS:
        try:
            module = import_module(f"wit_world.imports.{snake(interface)}")
        except ImportError:
            continue  # the method does not name it
        check_module(module, interface)


def check_module(module: Any, interface: str) -> None:
    """Makes every function of an interface's module check its arguments; does nothing to one that does so already."""
    for key, parameters, _ in FUNCTIONS[interface]:
        home, name = located(module, key)
        function = getattr(home, name)
        if parameters and not hasattr(function, "is_checked"):
            setattr(home, name, _checked(function, name, parameters, key))


def located(module: Any, key: str) -> tuple[Any, str]:
    """Where a function of an interface's module is, and its name there, by its name in the contract."""
    kind, _, rest = key.rpartition("]")
    if kind == "[constructor":
        return getattr(module, camel(rest)), "__init__"
    owner, _, name = rest.rpartition(".")
    return (getattr(module, camel(owner)) if owner else module), snake(name)


def with_parameters(name: str, parameters: list[str], call: Callable[..., Any]) -> Any:
    """Makes a function with named parameters that hands them on to `call` by position."""
    scope = {"_call": call}
    listed = ", ".join(parameters)
    exec(f"def {name}({listed}):\n    return _call({listed})", scope)  # noqa: S102  names of the contract
    return scope[name]


def _checked(function: Callable[..., Any], name: str, parameters: list[Any], key: str) -> Any:
    """Makes a function with the parameters of `function` that checks each argument before it calls `function`."""
    names = [snake(parameter) for parameter, _ in parameters]
    checkers = [checker(kind) for _, kind in parameters]
    if key.startswith("[constructor]"):
        names, checkers = ["self", *names], [lambda value: value, *checkers]
    shown = key.rpartition("]")[2].rpartition(".")[2]
    listed = list(zip(names, checkers, strict=True))

    def call(*arguments: Any) -> Any:
        taken = []
        for (parameter, check), value in zip(listed, arguments, strict=True):
            try:
                taken.append(check(value))
            except _Unfit as unfit:
                found = unfit.found or f"not {_described(value)}"
                what = f"{snake(shown)}() takes {unfit.expected} as `{parameter}`, {found}"
                raise TypeError(what) from None
        return function(*taken)

    made = with_parameters(name, names, call)
    made.__doc__, made.__defaults__, made.is_checked = function.__doc__, function.__defaults__, True
    return made


def _described(value: Any) -> str:
    """A value in the message about it: its type, and the value itself if it is short."""
    name = getattr(value, "__name__", "")
    if isinstance(value, type):
        return f"the class `{name}`"
    if callable(value) and name:
        return f"the function `{name}`: `{name}()` calls it"
    shown = f" {value!r}" if isinstance(value, bool | int | float | str) else ""
    return "None" if value is None else f"`{type(value).__name__}`{shown if len(shown) < 40 else ''}"


def checker(kind: Any) -> Checker:
    """The check of a type of the contract, as `tunebox.contract` writes it."""
    match kind:
        case ("bool",):
            return _instance(bool, "a `bool`")
        case ("string",):
            return _text
        case ("bytes",):
            return _bytes
        case ("f32" | "f64",):
            return _number
        case ("option", item):
            return _option(checker(item))
        case ("list", item):
            return _list(checker(item))
        case ("tuple", *items):
            return _tuple([checker(item) for item in items])
        case ("handle", interface, name):
            return _handle(_class(interface, name))
        case ("named", interface, name):
            return _named(interface, name)
        case (integer,):
            return _integer(integer[0] == "s", int(integer[1:]))
    raise AssertionError(kind)


def _class(interface: str, name: str) -> Any:
    return getattr(sys.modules[f"wit_world.imports.{snake(interface)}"], camel(name))


def _instance(kind: Any, expected: str) -> Checker:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _Unfit(expected)
        return value

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit("a `str`")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unfit("a `str`", "and this one has half a surrogate pair") from None
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise _Unfit("`bytes`")
    return bytes(value)


def _number(value: Any) -> float:
    if not isinstance(value, float | int):
        raise _Unfit("a `float`")
    try:
        return float(value)
    except OverflowError:
        raise _Unfit("a `float`", "and this `int` is too large for one") from None


def _integer(signed: bool, bits: int) -> Checker:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def check(value: Any) -> int:
        if not isinstance(value, int):
            raise _Unfit("an `int`")
        if not low <= value <= high:
            raise _Unfit(f"an `int` from {low} to {high}")
        return value

    return check


def _option(check_item: Checker) -> Checker:
    return lambda value: None if value is None else check_item(value)


def _list(check_item: Checker) -> Checker:
    def check(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | range):
            raise _Unfit("a `list`")
        taken = []
        for place, item in enumerate(value):
            try:
                taken.append(check_item(item))
            except _Unfit as unfit:
                found = unfit.found or f"and item {place} is {_described(item)}"
                raise _Unfit(f"a `list` of which each is {unfit.expected}", found) from None
        return taken

    return check


def _tuple(checks: list[Checker]) -> Checker:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != len(checks):
            raise _Unfit(f"a `tuple` of {len(checks)}")
        return tuple(check(item) for check, item in zip(checks, value, strict=True))

    return check


def _handle(kind: Any) -> Checker:
    expected = f"a `{kind.__name__}`"

    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _Unfit(expected)
        if getattr(value, "handle", 0) is None:
            raise _Unfit(expected, "and this one was given back at the end of its `with` block or call")
        return value

    return check


def _named(interface: str, name: str) -> Checker:
    """The check of an enum, flags, a record with its fields, or a variant with what the case carries."""
    kind, members = TYPES[interface][name]
    if kind == "record":
        return _fields(_class(interface, name), [(snake(field), checker(ty)) for field, ty in members])
    if kind == "variant":
        return _instance(_class(interface, name), f"a `{camel(name)}`")
    cases = ", ".join(f"`{camel(name)}.{snake(case).upper()}`" for case in members[:3])
    return _instance(_class(interface, name), f"a `{camel(name)}` such as {cases}")


def _fields(kind: Any, fields: list[tuple[str, Checker]]) -> Checker:
    check_kind = _instance(kind, f"a `{kind.__name__}`")

    def check(value: Any) -> Any:
        check_kind(value)
        taken = {}
        for field, check_field in fields:
            given = getattr(value, field)
            try:
                taken[field] = check_field(given)
            except _Unfit as unfit:
                found = unfit.found or f"not {_described(given)}"
                raise _Unfit(f"a `{kind.__name__}` with {unfit.expected} as `{field}`", found) from None
        return kind(**taken)

    return check
