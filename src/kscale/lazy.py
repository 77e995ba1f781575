"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["import_on_use"]


def import_on_use(package: str, modules: Mapping[str, Iterable[str]]) -> None:
    """Import the public names of a package when they are first used, so that a program imports only what it runs.

    Parameters
    ----------
    package : str
        The package, ``__name__`` in its ``__init__``.
    modules : mapping of str to iterable of str
        Module below the package (``.target``: beside it) -> the names that it defines. A module without names is a
        public name itself.
    """
    homes = {name: f".{module}" for module, names in modules.items() for name in names}
    own = {module: f".{module}" for module, names in modules.items() if not names}

    class Package(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name in homes:
                value = getattr(import_module(homes[name], package), name)
            elif name in own:
                value = import_module(own[name], package)
            else:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            self.__dict__[name] = value
            return value

        def __setattr__(self, name: str, value: object) -> None:
            # The import system binds each submodule to its name. A function of the same name is the public one.
            if name not in homes or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted(self.__dict__["__all__"])

    sys.modules[package].__class__ = Package
