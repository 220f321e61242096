"""What ends a step: the host's refusals, the method's own reasons, and the line that they come from."""

import io
import sys
from importlib import import_module
from itertools import islice
from types import CodeType, ModuleType

from componentize_py_types import Err as Refused

__all__ = ["Error", "Refused", "place"]

# The class is frozen, and Python's own `contextlib` sets `__traceback__`: its complaint would replace the refusal.
Refused.__setattr__ = BaseException.__setattr__  # type: ignore[method-assign]


class Error(Exception):
    """The method's own reason to stop: lower case, no full stop, values in backticks.

    `Refused` is the other kind: a call that the host could not do, with `error.value.code` to act on.
    """


class WrongResult(TypeError):
    """A function of the method, with this code, returned a value of another type than the host takes."""

    def __init__(self, what: str, code: CodeType) -> None:
        super().__init__(what)
        self.code = code


def place(root: str, error: BaseException) -> tuple[str, int, int]:
    """The innermost line of the method's own files: its path from the method's folder, line and column.

    `root` is the folder of the method's modules. Nothing is read: inside the component there are no files.
    """
    found, trace = ("", 0, 0), error.__traceback__
    if isinstance(error, WrongResult):
        return own_file(root, error.code.co_filename) or "", error.code.co_firstlineno, 1
    while trace is not None:
        code = trace.tb_frame.f_code
        file = own_file(root, code.co_filename)
        if file is not None:
            _, _, column, _ = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
            found = (file, trace.tb_lineno, (column or 0) + 1)
        trace = trace.tb_next
    return found


def own_file(root: str, path: str) -> str | None:
    """The path `src/…` of a file below `root`, the folder of the method's modules; None for any other file."""
    inside = path.removeprefix(root)
    if not root or inside == path or inside[:1] not in ("/", "\\"):
        return None
    return "src" + inside.replace("\\", "/")


def words(error: BaseException) -> str:
    """What an error says: the method's own words, else the exception's kind and text, which is the host's sentence for
    a refusal; without paths of the machine that builds."""
    if isinstance(error, Error):
        return str(error)
    if isinstance(error, ImportError):
        return str(error).partition(" (")[0]
    if isinstance(error, Refused):
        return f"Refused: {getattr(error.value, 'message', error.value)}"
    kind = "TypeError" if isinstance(error, WrongResult) else type(error).__name__
    text = f"{kind}: {error}" if str(error) else kind
    # Half a surrogate pair cannot be handed to the host.
    return text.encode("utf-8", "replace").decode()


class Log:
    """A stream whose lines go to the run's log, for `print` and for Python's own tracebacks."""

    encoding = "utf-8"

    def __init__(self, line) -> None:
        self.line = line
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self.line(line)
        return len(text)

    def flush(self) -> None:
        if self._begun:
            self.line(self._begun)
            self._begun = ""

    def isatty(self) -> bool:
        return False


class NoInput(io.TextIOBase):
    """Stands for stdin: reading raises, at the line that reads."""

    def read(self, size: int | None = -1, /) -> str:
        raise OSError("`sys.stdin`: there is no terminal")

    readline = read  # type: ignore[assignment]


#: Stdout and stderr of the component.
_log = Log(None)


def import_with_log(name: str) -> ModuleType:
    """Imports the module of a component that is built, with stand-ins for Python's streams under all of their names: a
    module may keep one, and the system behind it is gone once the component runs. What the module prints is shown."""
    shown = sys.stdout
    _log.line = lambda line: shown.write(f"{line}\n")
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = _log  # type: ignore[assignment, misc]
    sys.stdin = sys.__stdin__ = NoInput()  # type: ignore[assignment, misc]
    module = import_module(name)
    _log.flush()
    return module


def print_to(line) -> None:
    """Sends what is printed in a component to the function `line`, which gets one line at a time without its end."""
    _log.line = line
