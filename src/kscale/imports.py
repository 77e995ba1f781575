"""Work on first use: imports of public names and of optional libraries (extras), and compiled regular expressions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, AnyStr, Final, cast

from kscale.errors import MissingExtraError

__all__ = ["EXTRAS", "import_aiohttp_without_authorities", "import_on_use", "lazy_pattern", "library"]


def import_on_use(package: str, modules: Mapping[str, Iterable[str]]) -> None:
    """Make a package import each of its public names when the name is first used.

    Replaces the class of the package's module, whose ``dir`` lists ``__all__`` afterwards. Names that ``modules`` does
    not contain still raise AttributeError.

    Parameters
    ----------
    package : str
        The package, ``__name__`` in its ``__init__``.
    modules : mapping of str to iterable of str
        Names that each module defines, by module relative to the package (``.target``: a module beside the package).
        A module without names is a public name itself.
    """
    module_of = {name: f".{module}" for module, names in modules.items() for name in names}
    own = {module: f".{module}" for module, names in modules.items() if not names}

    class Package(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name in module_of:
                value = getattr(import_module(module_of[name], package), name)
            elif name in own:
                value = import_module(own[name], package)
            else:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            self.__dict__[name] = value
            return value

        def __setattr__(self, name: str, value: object) -> None:
            # The import system binds each submodule to its name. A function of the same name is the public one.
            if name not in module_of or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted(self.__dict__["__all__"])

    sys.modules[package].__class__ = Package


class _LazyPattern:
    """A regular expression that is compiled when a method of it is first called."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._arguments), name)
        self.__dict__[name] = value  # found without this method from now on
        return value


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that :func:`re.compile` compiles on first use.

    An invalid pattern raises ``re.error`` on first use. Otherwise every start of kscale would compile a hundred
    expressions and use ten of them.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


EXTRAS: Final = {
    "aiohttp": "kube",
    "boto3": "aws",
    "botocore": "aws",
    "celpy": "dra",
    "distributed": "dask",
    "google": "grpc",
    "grpc": "grpc",
    "highspy": "solver",
    "matplotlib": "plots",
    "numba": "plugins",
    "prometheus_client": "metrics",
    "pyarrow": "data",
    "ray": "ray",
    "re2": "regex",
    "yaml": "yaml",
    "zstandard": "zstd",
}
"""Import name of a library -> the extra that installs it."""


def library(name: str, feature: str) -> Any:
    """Import and return a module of one of the libraries in :data:`EXTRAS`.

    Raises :class:`~kscale.errors.MissingExtraError`, whose text says that ``feature`` needs the extra, if the library
    is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(feature, EXTRAS[name.partition(".")[0]]) from None


def import_aiohttp_without_authorities() -> None:
    """Import aiohttp, if it is installed, without the certificates of the system's authorities.

    aiohttp reads the certificates twice when it is imported, for default TLS contexts, which takes longer than the rest
    of its import. kscale has TLS contexts of its own. Call this only in a process that runs kscale alone: aiohttp's
    default TLS contexts trust no authority afterwards.
    """
    variable = "SSL_CERT_FILE"  # names the file that OpenSSL reads instead of the system's
    value = os.environ.get(variable)
    os.environ[variable] = os.devnull
    try:
        with suppress(ImportError):
            import_module("aiohttp")
    finally:
        del os.environ[variable]
        if value is not None:
            os.environ[variable] = value
