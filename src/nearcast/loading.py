"""Classes and functions of users, by the name ``module:name``."""

from __future__ import annotations

import importlib
from typing import Any

from nearcast.errors import InvalidInput

__all__ = ["load_object"]


def load_object(field: str, name: str) -> Any:
    """Return what a module calls by a name; ``field`` is what users call it, for errors.

    Examples
    --------
    >>> load_object("tokenizer", "builtins:str.split")("old town")
    ['old', 'town']
    >>> load_object("tokenizer", "builtins:splitt")
    Traceback (most recent call last):
    ...
    nearcast.errors.InvalidInput: tokenizer: cannot be loaded (AttributeError: ...
    """
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        problem = (
            f"cannot be loaded ({type(error).__name__}: {error}); the module must be importable"
        )
        raise InvalidInput(field, name, problem) from error
    return found
