"""Tokenizers by name: the name is stored with engines and indexes, so that the same one opens them.

====================  ==========================================================================
``words``             the default: folded runs of letters, marks, numbers and underscores
``stem:<language>``   their stems, by Snowball (needs PyStemmer)
``cjk``               pairs of Chinese, Japanese and Korean characters, words of other scripts
``module:function``   one's own: ``function`` of ``module``, from a text to its tokens
====================  ==========================================================================
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.loading import load_object
from nearcast.text.cjk import CjkBigrams
from nearcast.text.stemming import Stems
from nearcast.text.unicode_words import UnicodeWords, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearcast.text.unicode_words import Tokenizer

__all__ = ["NamedTokenizer", "check_same", "loadable_name", "name_of", "opened", "tokenizer"]

_FORMS = ("words", "stem:<language>", "cjk", "<module>:<function>")
_OLD_CUSTOM = "custom"


class NamedTokenizer:
    """A tokenizer of the user's that was loaded by its name.

    Examples
    --------
    >>> NamedTokenizer("builtins:str.split", str.split)("old town")
    ['old', 'town']
    """

    def __init__(self, name: str, function: Tokenizer) -> None:
        self.name = name
        self._function = function
        split = getattr(function, "split", None)
        if callable(split):
            self.split: Any = split

    def __call__(self, text: str, /) -> Iterable[str]:
        """Return the tokens of a text."""
        return self._function(text)

    def __repr__(self) -> str:
        return f"NamedTokenizer({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return tokenizer, (self.name,)


def tokenizer(chosen: str | Tokenizer) -> Tokenizer:
    """Return the tokenizer of a name.

    Parameters
    ----------
    chosen
        ``words``, ``stem:<language>``, ``cjk`` or ``module:function``; a tokenizer is returned as
        it is.

    Raises
    ------
    UnknownName
        If there is no such tokenizer.
    InvalidInput
        If the module or its function cannot be loaded.

    Examples
    --------
    >>> tokenizer("cjk")("東京都")
    ['東京', '京都']
    >>> tokenizer("builtins:str.split")("Old Town")
    ['Old', 'Town']
    """
    if not isinstance(chosen, str):
        if not callable(chosen):
            raise InvalidInput(
                "tokenizer",
                chosen,
                "must be the name of a tokenizer, or a function that takes a text",
            )
        return chosen
    return _by_name(chosen)


@functools.cache
def _by_name(name: str) -> Tokenizer:
    if name == "words":
        return words
    if name == "cjk":
        return CjkBigrams()
    family, colon, rest = name.partition(":")
    if family == "stem" and colon:
        return Stems(rest)
    if not (family and colon and rest):
        raise UnknownName("tokenizer", name, _FORMS)
    return NamedTokenizer(name, _loaded(name))


def _loaded(name: str) -> Tokenizer:
    found = load_object("tokenizer", name)
    if not callable(found) or isinstance(found, type):
        raise InvalidInput(
            "tokenizer", name, "must be a function that takes a text and returns its tokens"
        )
    return found  # type: ignore[no-any-return]


def name_of(chosen: Tokenizer) -> str:
    """Return the name of a tokenizer, which `tokenizer` may or may not be able to load.

    Parameters
    ----------
    chosen
        The tokenizer.

    Examples
    --------
    >>> name_of(words), name_of(str.split), name_of(lambda text: [text])
    ('words', 'builtins:str.split', 'nearcast.text.tokenizers:<lambda>')
    """
    if type(chosen) is UnicodeWords:
        return "words"
    name = getattr(chosen, "name", None)
    if isinstance(name, str):
        return name
    kind: Any = chosen if hasattr(chosen, "__qualname__") else type(chosen)
    module = getattr(kind, "__module__", None) or "builtins"
    return f"{module}:{kind.__qualname__}"


def loadable_name(chosen: str | Tokenizer) -> str:
    """Return the name by which another process can load a tokenizer.

    Parameters
    ----------
    chosen
        A tokenizer, or its name.

    Raises
    ------
    InvalidInput
        If it has none, as lambdas and functions within functions.

    Examples
    --------
    >>> loadable_name(words)
    'words'
    """
    found = tokenizer(chosen)
    name = name_of(found)
    if not _is_loadable(name, found):
        problem = "other processes cannot load it; define it at the top level of a module"
        raise InvalidInput("tokenizer", name, problem)
    return name


def _is_loadable(name: str, chosen: Tokenizer) -> bool:
    if name.startswith("__main__:"):
        return False
    try:
        found = _by_name(name)
    except (InvalidInput, UnknownName):
        return False
    same: Sequence[Any] = (found, getattr(found, "_function", None))
    return any(chosen is one for one in same) or type(chosen) is type(found)


def check_same(stored: str, chosen: str | Tokenizer, where: object) -> Tokenizer:
    """Return the tokenizer to open something with, or raise if it was made with another one.

    Parameters
    ----------
    stored
        The name of the tokenizer that it was made with.
    chosen
        The one that was asked for.
    where
        What is opened, for the message.
    """
    found = tokenizer(chosen)
    name = name_of(found)
    if name == stored or (_nobody_loads(stored) and name != "words"):
        return found
    raise StorageError(
        f"{where}: was created with the tokenizer {stored!r}, not {name!r}; "
        "open it with the same one, or leave it out"
    )


def opened(stored: str, chosen: str | Tokenizer | None, where: object) -> Tokenizer:
    """Return the tokenizer to open something with: the one asked for, or the stored one.

    Raises
    ------
    StorageError
        If it was made with another one, or nobody says which and the stored one cannot be loaded.
    """
    if chosen is not None:
        return check_same(stored, chosen, where)
    if _nobody_loads(stored):
        raise StorageError(
            f"{where}: was created with the tokenizer {stored!r}, which cannot be loaded by its "
            "name; open it with tokenizer=..."
        )
    try:
        return tokenizer(stored)
    except (InvalidInput, UnknownName) as error:
        raise StorageError(
            f"{where}: was created with the tokenizer {stored!r}: {error}; "
            "install it, or open it with tokenizer=..."
        ) from error


def _nobody_loads(name: str) -> bool:
    """Whether a name is that of a function without a name of its own."""
    return name == _OLD_CUSTOM or "<" in name
