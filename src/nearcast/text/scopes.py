"""The scopes of messages: one more token of each, after its words."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import frozen
from nearcast.compiled.jit import Number, kernel
from nearcast.model.derived import scope_token
from nearcast.text.keys import strings_as_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.text.byte_table import Keys
    from nearcast.text.splitting import WordBuffers

__all__ = ["SCOPE_BYTE", "Scopes", "append_scopes", "insert_scopes"]

SCOPE_BYTE = 0x1D


class Scopes(NamedTuple):
    """The scopes of rows: the tokens of all distinct ones, and which of them each row has.

    ``code`` int32[rows] is -1 for a row without one.
    """

    keys: Keys
    code: NDArray[np.int32]

    @classmethod
    def of(cls, names: pa.Array | Sequence[str | None]) -> Scopes:
        r"""Return the scopes with these names, None for rows without one.

        Examples
        --------
        >>> scopes = Scopes.of(["acme", None, "acme"])
        >>> scopes.keys.byte.tobytes(), scopes.code.tolist()
        (b'\x1dacme', [0, -1, 0])
        """
        if isinstance(names, pa.Array):
            coded = names.dictionary_encode()
            distinct = coded.dictionary.to_pylist()
            code = pc.fill_null(coded.indices, -1).to_numpy()
        else:
            number: dict[str | None, int] = {None: -1}
            code = np.array([number.setdefault(name, len(number) - 1) for name in names], np.int32)
            distinct = [*number][1:]
        if len(distinct) == 1:
            return cls(_key_of(distinct[0]), frozen(code))
        return cls(_keys_of(distinct), frozen(code))


def _keys_of(names: Sequence[str]) -> Keys:
    return strings_as_keys([*map(scope_token, names)], "scope")


@lru_cache(maxsize=1024)
def _key_of(name: str) -> Keys:
    """Return the token of one scope: all messages of a call are often of the same one."""
    return _keys_of([name])


@kernel
def append_scopes(
    word_start: NDArray[np.int64], keys: Keys, scopes: Scopes, out: WordBuffers
) -> None:
    """Write the words of each row, followed by the token of its scope."""
    name, code = scopes
    word, written = np.int64(0), np.int64(0)
    for row in range(len(code)):
        out.word_start[row] = word
        first, last = word_start[row], word_start[row + 1]
        begin, end = keys.byte_start[first], keys.byte_start[last]
        for i in range(first, last):
            out.byte_start[word + i - first] = keys.byte_start[i] - begin + written
            out.tag[word + i - first] = keys.tag[i]
        for b in range(end - begin):
            out.byte[written + b] = keys.byte[begin + b]
        word += last - first
        written += end - begin
        if code[row] >= 0:
            out.byte_start[word] = written
            out.tag[word] = name.tag[code[row]]
            word += 1
            for b in range(name.byte_start[code[row]], name.byte_start[code[row] + 1]):
                out.byte[written] = name.byte[b]
                written += 1
    out.word_start[len(code)] = word
    out.byte_start[word] = written


@kernel
def insert_scopes(
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
    number: NDArray[np.int32],
    code: NDArray[np.int32],
    out_start: NDArray[np.int64],
    out: NDArray[np.int32],
) -> Number:
    """Write the ascending tokens of each row, that of its scope among them; return their number.

    ``number`` int32[scopes] has the tokens of scopes, -1 for unknown ones, and ``code``
    int32[rows] the scope of each row.
    """
    count = np.int64(0)
    for row in range(len(code)):
        out_start[row] = count
        first, last = token_start[row], token_start[row + 1]
        scope = np.int32(-1) if code[row] < 0 else number[code[row]]
        if scope < 0:
            for i in range(last - first):
                out[count + i] = token[first + i]
            count += last - first
            continue
        below = np.int64(0)  # without branches: where the scope belongs cannot be predicted
        for i in range(last - first):
            above = np.int64(token[first + i] > scope)
            out[count + i + above] = token[first + i]
            below += 1 - above
        out[count + below] = scope
        count += last - first + 1
    out_start[len(code)] = count
    return count
