"""Match messages against the indexes of quadtrees, whichever way one of them goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import Seen, Tokens
from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.token_filter import clear_filter, set_filter
from nearcast.indexes.quadtrees.iq_match import match_in_cells
from nearcast.indexes.quadtrees.lists import BY_TOKEN, Quad, borrow_quad, home
from nearcast.indexes.quadtrees.scan import (
    EXAMINED,
    FOUND,
    LISTS,
    VISITED,
    Output,
    Scratch,
    borrow_scratch,
)
from nearcast.indexes.quadtrees.trie_match import match_in_trie

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

TOP = np.int64(0)
"""The owner of what a message looks up first: the directory of an iq-tree, the root of a trie."""


@kernel
def match_messages(
    quad: Quad,
    clauses: Tokens,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: Scratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match the messages of a part; return where the room ended, the examined and the visited.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start`` of the first says where to begin.
    """
    quad = borrow_quad(quad)
    clauses = Tokens(borrow(clauses.token_start), borrow(clauses.token))
    scratch = borrow_scratch(scratch)
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    tally = scratch.tally
    tally[:] = 0
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(quad.slot, home(quad.slot, TOP, np.int64(token[i])))
        examined, visited = tally[EXAMINED], tally[VISITED]
        seen = Seen(token[begin:end], box[m], scratch.token_filter)
        set_filter(scratch.token_filter, seen.tokens)
        tally[FOUND], tally[LISTS] = 0, 0
        output = Output(match[match_start[m] :], tally)
        if quad.state[BY_TOKEN]:
            match_in_cells(quad, clauses, seen, scratch, output)
        else:
            match_in_trie(quad, clauses, seen, scratch, output)
        clear_filter(scratch.token_filter, seen.tokens)
        if tally[FOUND] < 0:
            return m, examined, visited
        match_start[m + 1] = match_start[m] + tally[FOUND]
    return part[1], tally[EXAMINED], tally[VISITED]
