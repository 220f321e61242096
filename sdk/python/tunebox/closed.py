"""Inside a component there are no files. What would look for one is refused here, before Python asks a system that is not
there, which would end the component without a word."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter


class _Closed(MetaPathFinder):
    """A module finder that refuses every module by name."""

    def find_spec(self, name, path=None, target=None):
        raise ImportError(f"`{name}` was not loaded when the component was built; import it at the top of the file")


def _refuse_files(event: str, arguments: tuple) -> None:
    """An audit hook: Python opens the file of a faulty line, say, to show it."""
    if event == "open":
        raise FileNotFoundError(f"`{arguments[0]}`: there are no files")


def close() -> None:
    """Stops searching for modules and opening files."""
    # Those need no files; Python itself loads some of them late.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, _Closed()]
    sys.addaudithook(_refuse_files)
