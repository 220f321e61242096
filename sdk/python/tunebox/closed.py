"""Inside a component there is no system: no files, clock or randomness. A call that needs one raises an exception here,
at its line of the source; unchecked, it would stop the component without a line."""

import os
import random
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter
from types import BuiltinFunctionType, FrameType
from typing import Any

from tunebox.errors import own_file

#: Functions of `os` that ask for nothing outside of the process.
_HARMLESS = {
    "cpu_count", "fspath", "getcwd", "getcwdb", "getpid", "process_cpu_count", "putenv", "strerror", "unsetenv",
}  # fmt: skip

#: Functions of `time` that convert a moment, and their arguments with it. With fewer they read the clock.
_CONVERSIONS = {"asctime": 1, "ctime": 1, "gmtime": 1, "localtime": 1, "mktime": 1, "strftime": 2, "strptime": 1}

_NO_CLOCK = "needs a clock, and the sandbox has none; `run.position()` is the number of finished steps"
_NO_RANDOMNESS = (
    "needs randomness of the system, and the sandbox has none; `random.seed(1)` takes a number, `tensor.randn` follows "
    "the run's seed"
)
_NO_FILES = "needs the operating system, and the sandbox has none: there are no files and no processes"

_seed = random.Random.seed

#: Whether the component runs, and the folder of the method's modules while they are imported only to be described.
_is_closed = False
_root = ""


class _Closed(MetaPathFinder):
    """A module finder that refuses every module by name."""

    def find_spec(self, name, path=None, target=None):
        raise ImportError(f"`{name}` was not loaded when the component was built; import it at the top of the file")


def _refuse(event: str, arguments: tuple) -> None:
    """An audit hook: Python opens the file of a faulty line, say, to show it."""
    if event == "open":
        raise FileNotFoundError(f"`{arguments[0]}`: there are no files")
    if event == "builtins.input" or event.startswith("socket."):
        raise OSError(f"`{event.removeprefix('builtins.')}`: there is no terminal and no network")


def _is_refused() -> bool:
    """Whether the component runs, or a module of the method makes the present call while it is imported."""
    frame: FrameType | None = sys._getframe(2) if _root else None
    # A module of Python or of a package may ask for the time when it is imported, as `logging` does.
    while frame is not None and "importlib" not in (file := frame.f_code.co_filename):
        if own_file(_root, file):
            return True
        frame = frame.f_back
    return _is_closed


def _refusing(function: Callable[..., Any], name: str, lack: str, least: int | None = None) -> Callable[..., Any]:
    """Makes a function that raises where the system is refused, unless it gets at least `least` arguments."""
    kind = FileNotFoundError if lack is _NO_FILES else RuntimeError

    def call(*given: Any, **named: Any) -> Any:
        is_enough = least is not None and sum(value is not None for value in given) >= least
        if not is_enough and (_is_closed if lack is _NO_FILES else _is_refused()):
            raise kind(f"`{name}` {lack}")
        return function(*given, **named)

    return call


def _seed_by_number(self: random.Random, a: Any = None, version: int = 2) -> None:
    """`Random.seed`, also for a new `Random`; raises where the system is refused and no number is given."""
    if a is None and _is_refused():
        raise RuntimeError(f"`random` without a seed {_NO_RANDOMNESS}")
    _seed(self, a, version)


def guard(root: str = "") -> None:
    """Replaces Python's functions that need the system, before the method's modules import them, by ones that raise
    once the component is closed. Those of clock and randomness also raise while a module below the folder `root` is
    imported: a component would keep the time or the seed of its build."""
    global _root
    _root = root
    for name in dir(os):
        function = getattr(os, name)
        if isinstance(function, BuiltinFunctionType) and name not in _HARMLESS:
            lack = _NO_RANDOMNESS if name in ("getrandom", "urandom") else _NO_FILES
            setattr(os, name, _refusing(function, f"os.{name}", lack))
    for name in dir(time):
        function = getattr(time, name)
        if isinstance(function, BuiltinFunctionType):
            setattr(time, name, _refusing(function, f"time.{name}", _NO_CLOCK, _CONVERSIONS.get(name)))
    random.Random.seed = _seed_by_number  # type: ignore[method-assign]
    random.seed = random._inst.seed  # type: ignore[attr-defined]
    random._urandom = os.urandom  # type: ignore[attr-defined]
    # Its compiled form reads the clock itself; that in Python calls `time`.
    sys.modules.setdefault("_datetime", None)  # type: ignore[arg-type]


def close() -> None:
    """Stops searching for modules and asking for files, clock and randomness, and seeds `random` with 0."""
    global _is_closed
    # Those need no files; Python itself loads some of them late.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, _Closed()]
    sys.addaudithook(_refuse)
    random.seed(0)
    _is_closed = True
