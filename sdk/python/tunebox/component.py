"""What the host calls, for the method that was declared. Runs inside the component only.

The method's modules are loaded while the component is made; what is in memory then is what it starts with.
Inside there are no files, so whatever is imported later is refused by name.
"""

import sys
import warnings

from componentize_py_types import Err

from tunebox.arguments import check_calls

# Before any module takes a function of the contract.
check_calls()

from wit_world import exports  # noqa: E402
from wit_world.imports import run  # noqa: E402

import tunebox.tensor  # noqa: E402, F401  defines the operators of tensors, also of those that the host returns
from tunebox import closed, errors, settings  # noqa: E402
from tunebox.declaration import declared  # noqa: E402

#: The folder of the method's modules, and the method once `init` has made it.
_root = ""
_running: object | None = None


def load(name: str) -> None:
    """Imports the method's module while the component is built. Fails if the module declares no method."""
    closed.guard()
    module = errors.import_with_log(name)
    root = (module.__spec__.origin or "").rpartition("/")[0]
    if module.__spec__.submodule_search_locations:
        root = root.rpartition("/")[0]
    set_root(root)
    declared()


def set_root(root: str) -> None:
    """Sets the folder of the method's modules, whose lines errors name."""
    global _root
    _root = root


def root() -> str:
    """The folder of the method's modules; empty before `load`."""
    return _root


def _settle() -> None:
    """Prepares a run: nothing asks for the system any more, and what is printed or warned of goes to the run's log."""
    closed.close()
    errors.print_to(run.log)
    warnings.formatwarning = _warning_line


def _warning_line(message, category, filename: str, lineno: int, line: str | None = None) -> str:
    """A warning of `warnings.warn` as a line of the run's log, with the file and line of the method."""
    return f"{errors.own_file(_root, filename) or filename}:{lineno}: {category.__name__}: {message}\n"


def _begin(given) -> None:
    """Creates the method from the settings of the run, given as names and values by the host."""
    global _running
    kind = declared().kind
    _running = kind(**settings.values(kind, given))


def _told(work):
    """Calls `work`, returns its result, and afterwards logs printed text that no line end follows."""
    try:
        return work()
    finally:
        sys.stdout.flush()


def _guarded(work):
    """Calls `work`. Raises `errors.Error` as `Err`; reports any other exception with its line, and raises it."""
    try:
        return _told(work)
    except errors.Error as error:
        raise Err(str(error)) from None
    except BaseException as error:
        # `sys.exit` and the like as well: whatever leaves the call stops the component without a line.
        run.fault(errors.words(error), *errors.place(_root, error))
        raise


def _saved_state() -> bytes:
    """Calls the method's `save_state`. Fails at its first line if it gives no bytes, which would stop the component."""
    save = getattr(_running, "save_state", None)
    state = b"" if save is None else save()
    if isinstance(state, bytes | bytearray):
        return bytes(state)
    raise errors.WrongResult(f"save_state() gives `bytes`, and this is a `{type(state).__name__}`", save.__code__)


class Training(exports.Training):
    """The export `training`."""

    def init(self, given) -> None:
        _settle()
        self.begin(given)

    def begin(self, given) -> None:
        """Creates the method from its settings; the part of `init` that is not about the process."""
        _guarded(lambda: _begin(given))

    def step(self, batch) -> None:
        _guarded(lambda: _running.step(batch))

    def finish(self) -> None:
        _guarded(getattr(_running, "finish", lambda: None))

    def save_state(self) -> bytes:
        return _guarded(_saved_state)

    def load_state(self, state: bytes) -> None:
        def refuse(state: bytes) -> None:
            if state:
                raise errors.Error("this method keeps no state, but the checkpoint has some")

        take = getattr(_running, "load_state", refuse)
        _guarded(lambda: take(state))
