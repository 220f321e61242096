"""`@method`, `@verifier`, `@environment`: the class of a folder, and what its manifest says about it."""

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
    """The class of a folder as it was declared. `world` is the kind of component that is made of it."""

    kind: type
    shape: str
    metrics: list[str]
    paper: str | None = None
    batch: str = "micro"
    update: str = "host"
    world: str = "method"

    def manifest(self) -> dict[str, Any]:
        """The manifest's entries that do not come from `pyproject.toml`. Leaves out defaults of those that have one."""
        entries = {"shape": self.shape, "settings": settings.manifest(self.kind), "metrics": self.metrics}
        if self.paper is not None:
            entries["paper"] = self.paper
        for name, default in (("batch", "micro"), ("update", "host"), ("world", "method")):
            if (value := getattr(self, name)) != default:
                entries[name] = value
        return entries | {"interface": INTERFACE}


#: The class of this component.
_declared: list[Declared] = []


def _declare(kind: type, function: str, **entries: Any) -> type:
    """Keeps a class, which has to have `function`, as the one of this folder. Makes a dataclass of it."""
    if _declared:
        raise Error(f"`{kind.__name__}` is a second class: a folder holds one, here `{declared().kind.__name__}`")
    name = function.partition("(")[0]
    if not callable(getattr(kind, name, None)):
        raise Error(f"`{kind.__name__}` has no `{function}`")
    if "__dataclass_fields__" not in kind.__dict__:
        kind = dataclass(kind)
    _declared.append(Declared(kind, **entries))
    return kind


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

    entries = {"shape": shape, "metrics": list(metrics), "paper": paper, "batch": batch, "update": update}
    return lambda kind: _declare(kind, "step(self, batch)", **entries)


def verifier(kind: type) -> type:
    """Declares a class as the verifier of this folder and makes a dataclass of it; its fields are its settings.

    The class has `verify(self, prompt, completion, answer)`, three texts, which returns a number, usually 0 to 1, or None
    where it cannot judge. `answer` is the record's reference answer. An exception means that it could not judge.
    """
    return _declare(kind, "verify(self, prompt, completion, answer)", shape="prompts", metrics=[], world="verifier")


def environment(kind: type) -> type:
    """Declares a class as the environment of this folder and makes a dataclass of it; its fields are its settings.

    The class has `respond(self, prompt, answer, turns)`. `turns` is the episode so far, a list of texts: a completion, then
    a message and a completion for every earlier answer. It returns a text, the next message to the model; or a number, the
    reward with which the episode ends; or None, which ends an episode that cannot be judged.
    """
    return _declare(kind, "respond(self, prompt, answer, turns)", shape="prompts", metrics=[], world="environment")


def declared() -> Declared:
    """The declared class. Raises `Error` if none was declared."""
    if not _declared:
        names = "`@method(shape=…, metrics=[…])`, `@verifier` or `@environment`"
        raise Error(f"the module declares no method: put {names} before its class")
    return _declared[0]
