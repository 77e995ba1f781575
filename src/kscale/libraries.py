"""Optional libraries: each comes with an extra, and is imported on first use."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from kscale.errors import MissingExtraError

__all__ = ["EXTRAS", "import_aiohttp_without_authorities", "library"]

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
    of its import. kscale has TLS contexts of its own. Only for a process of kscale's own: aiohttp's default contexts
    trust nobody afterwards.
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
