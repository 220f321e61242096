"""What a method in Python is written with: the contract's functions, operators on tensors, settings, losses.

A name is looked up where it stands when it is first asked for, so a method's component imports the
interfaces that the method names, and no other: `from tunebox import weights` is what asks for weights.
"""

from importlib import import_module

#: The interfaces of the contract to which nothing is added here.
_PLAIN = ("types", "data", "learn", "optimizer", "sample", "reward", "teacher", "hidden", "patch", "weights",
          "text")

#: Where the other names of an ordinary method stand.
_HOMES = {
    "tunebox.errors": ("Error", "Refused"),
    "tunebox.declaration": ("environment", "method", "verifier"),
    "tunebox.model": ("Scores", "Taps", "View", "policy", "reference", "score", "score_for_learning", "snapshot"),
    "tunebox.pair": ("Pair",),
    "tunebox.run": ("add_metric", "log", "metric"),
    "tunebox.settings": ("setting",),
    "tunebox.tensor": ("Scope", "Tensor", "where"),
    "wit_world.imports.data": ("Batch", "Rows"),
    "wit_world.imports.learn": ("backward_from", "backward", "update"),
    "wit_world.imports.reward": ("judge",),
    "wit_world.imports.sample": ("Completions", "Sampler", "generate"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _PLAIN:
        return import_module(f"wit_world.imports.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"`tunebox` has no `{name}`")


def __dir__() -> list[str]:
    return sorted([*_PLAIN, *_HOME, "loss", "run", "tensor", "model"])
