"""`@method`: the class that trains, and what its manifest says about it."""

from dataclasses import dataclass
from typing import Any

from tunebox import settings
from tunebox.errors import Error

#: The version of `tunebox:method` that this package speaks.
INTERFACE = "0.2.0"

#: The shapes of records that a method can learn from.
SHAPES = ("supervised", "preference", "unpaired", "prompts", "instructions", "contrast")


@dataclass(frozen=True)
class Declared:
    """A method as it was declared."""

    kind: type
    shape: str
    metrics: list[str]
    paper: str | None
    batch: str
    update: str

    def manifest(self) -> dict[str, Any]:
        """The manifest's entries that do not come from `pyproject.toml`. Leaves out default `paper`, `batch` and `update`."""
        entries = {"shape": self.shape, "settings": settings.manifest(self.kind), "metrics": self.metrics}
        if self.paper is not None:
            entries["paper"] = self.paper
        if self.batch != "micro":
            entries["batch"] = self.batch
        if self.update != "host":
            entries["update"] = self.update
        return entries | {"interface": INTERFACE}


#: The method of this component.
_declared: list[Declared] = []


def method(*, shape: str, metrics: list[str], paper: str | None = None, batch: str = "micro", update: str = "host"):
    """Declares a class as the method of this folder and makes a dataclass of it; its fields are its settings.

    The class has `step(self, batch)`; `finish(self)`, `save_state(self)` and `load_state(self, state)` where it
    needs them, and `__post_init__(self)` to refuse settings that do not go together. `shape` is the shape of the
    records, one of `SHAPES`; `metrics` are the names of the numbers that it reports; `batch` is `"micro"` or
    `"window"`; `update` is `"host"` or `"method"`, for a method that updates the parameters itself.
    """
    if shape not in SHAPES:
        known = ", ".join(f"`{name}`" for name in SHAPES)
        raise Error(f"no record has the shape `{shape}`; a shape is one of {known}")

    def declare(kind: type) -> type:
        if _declared:
            raise Error(f"`{kind.__name__}` is a second method: a folder holds one, here `{declared().kind.__name__}`")
        if not callable(getattr(kind, "step", None)):
            raise Error(f"`{kind.__name__}` has no `step(self, batch)`")
        if "__dataclass_fields__" not in kind.__dict__:
            kind = dataclass(kind)
        _declared.append(Declared(kind, shape, list(metrics), paper, batch, update))
        return kind

    return declare


def declared() -> Declared:
    """The declared method. Raises `Error` if no class was declared with `@method`."""
    if not _declared:
        raise Error("the module declares no method: put `@method(shape=…, metrics=[…])` before its class")
    return _declared[0]
