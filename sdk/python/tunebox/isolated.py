"""What a verifier and an environment share: loading the module, its settings, results of the right type. Neither can ask the
host for anything, so what it prints is lost, and an exception ends the call without its words.

The module is loaded while the component is made; what is in memory then is what it starts with.
"""

import warnings
from collections.abc import Callable
from typing import Any

from componentize_py_types import Err

from tunebox import closed, errors, settings
from tunebox.declaration import declared

#: The declared class with its settings, once `init` has made it.
_running: Any = None


def load(name: str) -> None:
    """Imports the folder's module while the component is built. Fails if it declares nothing."""
    closed.guard()
    errors.import_with_log(name)
    declared()


def begin(given: list[tuple[str, Any]]) -> None:
    """Creates the declared class from the settings of the run, given as names and values by the host."""
    global _running
    closed.close()
    errors.print_to(lambda line: None)
    # What it prints is lost.
    warnings.simplefilter("ignore")
    kind = declared().kind
    try:
        _running = kind(**settings.values(kind, given))
    except Exception as error:  # noqa: BLE001  it is the answer to the settings
        raise Err(errors.words(error)) from None


def call(function: str, *arguments: Any) -> Any:
    """Calls a function of the running class."""
    work: Callable[..., Any] = getattr(_running, function)
    return work(*arguments)


def reward(value: Any, function: str) -> float | None:
    """A number of the author's, as the host takes it; a `bool` counts as 0 or 1."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return float(value)
    raise TypeError(f"{function}() gives a number or None, and this is a `{type(value).__name__}`")
