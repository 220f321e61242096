"""The interfaces of the contract as modules, each made from `tunebox.contract` when it is first imported."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tunebox.contract import TYPES
from tunebox_native.interfaces import fill


class _Interfaces(MetaPathFinder, Loader):
    """Finds the modules of the interfaces and makes them."""

    def find_spec(self, name, path=None, target=None):
        home, _, interface = name.rpartition(".")
        return ModuleSpec(name, self) if home == __name__ and interface.replace("_", "-") in TYPES else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fill(module, module.__name__.rpartition(".")[2].replace("_", "-"))


sys.meta_path.insert(0, _Interfaces())
