"""Token numbers of one vocabulary to those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.compiled.jit import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["renumber_tokens"]


@kernel
def renumber_tokens(
    start: NDArray[np.int64], number: NDArray[np.int32], token: NDArray[np.int32]
) -> None:
    """Replace every token by ``number[token]``, and sort the tokens of each clause again.

    ``start`` int64[clauses + 1] and ``token`` int32[...] are those of the clauses; ``number``
    int32[vocabulary] gives the new numbers. Clauses are short: they are sorted by insertion.
    """
    for clause in range(len(start) - 1):
        begin = start[clause]
        for i in range(begin, start[clause + 1]):
            new = number[token[i]]
            j = i
            while j > begin and token[j - 1] > new:
                token[j] = token[j - 1]
                j -= 1
            token[j] = new
