"""The kernel of `nearcast.indexes.boolean.Linear`: compare every clause, with nothing to build.

`Linear` is the form that all boolean indexes take for a few subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.messages import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseColumns
    from nearcast.compiled.messages import MessageArrays, Output


@kernel
def has_tokens(clauses: ClauseColumns, clause: Number, tokens: NDArray[np.int32]) -> Number:
    """Tell whether all tokens of a clause are among ascending tokens."""
    for i in range(clauses.token_start[clause], clauses.token_start[clause + 1]):
        if not contains(tokens, clauses.token[i]):
            return False
    return True


@kernel
def scan_clauses(
    clauses: ClauseColumns, messages: MessageArrays, part: tuple[Number, Number], output: Output
) -> tuple[Number, Number]:
    """Find the clauses of the messages in a part, until the output is full.

    Returns the message whose clauses did not fit (or the end), and the number of clauses whose
    boxes overlap a message.
    """
    start, found = output
    examined = np.int64(0)
    for message in range(part[0], part[1]):
        west, south = messages.box[message, 0], messages.box[message, 1]
        east, north = messages.box[message, 2], messages.box[message, 3]
        tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
        count = start[message]
        overlaps = np.int64(0)
        for clause in range(len(clauses.box)):
            box = clauses.box[clause]
            if box[0] <= east and box[2] >= west and box[1] <= north and box[3] >= south:
                overlaps += 1
                if has_tokens(clauses, clause, tokens):
                    if count == len(found):
                        return message, examined
                    found[count] = clause
                    count += 1
        start[message + 1] = count
        examined += overlaps
    return part[1], examined
