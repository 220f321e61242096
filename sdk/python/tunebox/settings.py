"""Settings: the fields of a dataclass, each with its text, default and range.

They become the manifest's list, which `run.toml`, `--help` and the schema read without running the method.
A field is a `bool`, `int`, `float`, `str`, a `Literal` of a few texts, or a `list` of one of these but `bool`; `label_smoothing` is set as
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
    min_items: int | None = None,
    max_items: int | None = None,
) -> Any:
    """A setting; `low` and `high` are inclusive, `above`, `below` exclusive. Without a default the run must set it.

    Of a list these are the bounds of each item; `min_items` and `max_items` limit how many it has, at most 1,024.
    """
    bounds = {"low": low, "high": high, "above": above, "below": below}
    given = {name: float(bound) for name, bound in bounds.items() if bound is not None}
    for item in default if isinstance(default, list) else [default]:
        for name, bound in given.items() if type(item) in (int, float) else ():
            fits, words = _RULES[name]
            if not fits(item, bound):
                raise Error(f"the default is {default}, it must be {words} {bound}")
    counts = {"min-items": min_items, "max-items": max_items}
    given |= {name: count for name, count in counts.items() if count is not None}
    metadata = {"doc": doc, "bounds": given, "default": default}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


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
    is_list = get_origin(kind) is list and get_args(kind) != (bool,)
    item = get_args(kind)[0] if is_list else kind
    if get_origin(item) is Literal:
        entry |= {"kind": "text", "choices": [str(choice) for choice in get_args(item)]}
    elif item in _KINDS:
        entry["kind"] = _KINDS[item]
    else:
        known = "bool, int, float, str, a Literal, or a list of one of these but bool"
        raise Error(f"the setting `{own.name}` is a `{kind}`; it can be {known}")
    if is_list:
        entry["kind"] += "s"
    if (default := own.metadata["default"]) is not MISSING:
        entry["default"] = float(default) if kind is float else default
    return entry | own.metadata["bounds"]
