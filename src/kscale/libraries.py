"""Optional libraries: each comes with an extra, and is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from kscale.errors import MissingExtraError

__all__ = ["EXTRAS", "library"]

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
