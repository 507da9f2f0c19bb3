"""The scopes of messages: one more token of each, after its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import kernel
from nearcast.text.byte_table import HASH_SEED, hash_byte, hash_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.text.byte_table import Keys
    from nearcast.text.splitting import WordBuffers

__all__ = ["SCOPE_BYTE", "append_scopes"]

SCOPE_BYTE = 0x1D


@kernel
def append_scopes(
    word_start: NDArray[np.int64],
    keys: Keys,
    scope_start: NDArray[np.int64],
    scope: NDArray[np.uint8],
    out: WordBuffers,
) -> None:
    """Write the words of each row, followed by the token of its scope.

    The scope of row ``i`` is ``scope[scope_start[i]:scope_start[i + 1]]``; if that is empty, it
    has none.
    """
    word, written = np.int64(0), np.int64(0)
    for row in range(len(word_start) - 1):
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
        begin, end = scope_start[row], scope_start[row + 1]
        if begin < end:
            out.byte_start[word] = written
            out.byte[written] = SCOPE_BYTE
            written += 1
            state = hash_byte(HASH_SEED, np.uint8(SCOPE_BYTE))
            for b in range(begin, end):
                out.byte[written] = scope[b]
                state = hash_byte(state, scope[b])
                written += 1
            out.tag[word] = hash_end(state)
            word += 1
    out.word_start[len(word_start) - 1] = word
    out.byte_start[word] = written
