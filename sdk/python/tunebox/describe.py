"""`python -m tunebox.describe MODULE`: what the source of a folder says about it, as JSON, for `tunebox build`.

Runs on the author's machine, where no host answers a function of the contract. Prints the manifest's entries and
the interfaces that the source names, or the line that cannot be read.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tunebox import closed, errors

#: What the own code of a method's component uses.
_ALWAYS = {"types", "run", "tensor", "data"}

#: Modules that the method's own may not stand before, beside Python's.
_TAKEN = {"tunebox", "tunebox_entry", "tunebox_native", "wit_world"}


def describe(module: str, root: str) -> dict[str, Any]:
    """Imports `module` from the folder `root`; returns the manifest's entries and the interfaces that it imports."""
    for path in sorted(Path(root).iterdir()):
        if path.stem in sys.stdlib_module_names | _TAKEN:
            raise errors.Error(f"`src/{path.name}` has the name of a module of Python or of `tunebox`; call it another")
    sys.path.append(root)
    closed.guard(root)
    import_module(module)
    from tunebox.declaration import declared

    found = declared()
    prefix = "wit_world.imports."
    named = {name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)}
    if found.world == "method":
        named |= _ALWAYS
    elif named:
        names = ", ".join(f"`{name}`" for name in sorted(named))
        raise errors.Error(f"the module uses {names} of the contract: a component of `@{found.world}` can ask the host for nothing")
    return {"manifest": found.manifest(), "world": found.world, "interfaces": sorted(named)}


def fault(root: str, error: Exception) -> dict[str, Any]:
    """The message of an error of the source, with file, line and column; a syntax error has its own position."""
    file, line, column = errors.place(root, error)
    if isinstance(error, SyntaxError) and (own := errors.own_file(root, error.filename or "")):
        return {"message": error.msg, "file": own, "line": error.lineno or 0, "column": error.offset or 1}
    return {"message": errors.words(error), "file": file, "line": line, "column": column}


def main() -> None:
    """Prints one JSON object for the module and source folder on the command line: its description, or its `fault`."""
    module, root = sys.argv[1:]
    # The answer stands alone: what the source prints goes beside it.
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = describe(module, root)
    except Exception as error:  # noqa: BLE001  whatever the author's module raises is told
        answer = {"fault": fault(root, error)}
    answers.write(f"\n{json.dumps(answer)}\n")
    answers.flush()


if __name__ == "__main__":
    main()
