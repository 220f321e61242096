"""Settings: the fields of a dataclass, each with its text, default and range.

They become the manifest's list, which `run.toml`, `--help` and the schema read without running the method.
A field is a `bool`, `int`, `float`, `str`, or a `Literal` of a few texts; `label_smoothing` is set as
`label-smoothing`, and `lambda_`, a word that Python keeps, as `lambda`. The host fills in defaults and checks ranges before the method sees a value.
"""

from dataclasses import MISSING, Field, field, fields
from operator import ge, gt, le, lt
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tunebox.errors import Error

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "text"}

#: What a bound asks of a value, and its words.
_RULES = {"low": (ge, "at least"), "high": (le, "at most"), "above": (gt, "above"), "below": (lt, "below")}


def setting(
    default: Any = MISSING,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A setting; `low` and `high` are inclusive, `above`, `below` exclusive. Without a default the run must set it."""
    bounds = {"low": low, "high": high, "above": above, "below": below}
    given = {name: float(bound) for name, bound in bounds.items() if bound is not None}
    if type(default) in (int, float):
        for name, bound in given.items():
            fits, words = _RULES[name]
            if not fits(default, bound):
                raise Error(f"the default is {default}, it must be {words} {bound}")
    return field(default=default, metadata={"doc": doc, "bounds": given})


def manifest(method: type) -> list[dict[str, Any]]:
    """The settings of a method as its manifest lists them, in the order of the fields."""
    hints = get_type_hints(method)
    return [_entry(own, hints[own.name]) for own in fields(method) if own.init]


def values(method: type, given: list[tuple[str, Any]]) -> dict[str, Any]:
    """The field values of a method by field name, from the names and values of settings that the host passes."""
    by_name = {name: value.value for name, value in given}
    return {own.name: by_name[_name(own)] for own in fields(method) if own.init}


def _name(own: Field) -> str:
    return own.name.removesuffix("_").replace("_", "-")


def _entry(own: Field, kind: Any) -> dict[str, Any]:
    if "doc" not in own.metadata:
        raise Error(f"the field `{own.name}` is no setting: give it `setting(…, doc=…)`, or `field(init=False)`")
    entry = {"name": _name(own), "doc": own.metadata["doc"]}
    if get_origin(kind) is Literal:
        entry |= {"kind": "text", "choices": [str(choice) for choice in get_args(kind)]}
    elif kind in _KINDS:
        entry["kind"] = _KINDS[kind]
    else:
        raise Error(f"the setting `{own.name}` is a `{kind}`; it can be bool, int, float, str or a Literal")
    if own.default is not MISSING:
        entry["default"] = float(own.default) if kind is float else own.default
    return entry | own.metadata["bounds"]
