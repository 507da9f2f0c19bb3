"""Match messages against keyword-first lists: look up the lists of the tokens, scan each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    SIZE,
    START,
    ScanScratch,
    scan_lists,
)
from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.messages import MessageView, known_tokens
from nearcast.compiled.token_filter import clear_filter, set_filter
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.keyword_first.lists import Lists, find_list, home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens
    from nearcast.compiled.messages import MessageArrays, Output


@kernel
def collect_lists(lists: Lists, tokens: NDArray[np.int32], found: NDArray[np.int64]) -> Number:
    """Look up the lists of a message's tokens and prefetch their starts; return how many."""
    count = np.int64(0)
    known = known_tokens(tokens)
    for i in range(known + 1):
        at = find_list(lists.slot, np.int64(tokens[i]) if i < known else NO_TOKEN)
        start, size = np.int64(lists.slot[at, START]), np.int64(lists.slot[at, SIZE])
        if size == 0:
            continue
        found[count, 0], found[count, 1] = start, size
        found[count, 2] = lists.slot[at, CAPACITY]
        count += 1
        # The boxes of the first block are four cache lines, each nearly three entries long.
        for line in range(0, min(size, np.int64(10)), 3):
            prefetch(lists.entry, start + line)
    return count


@kernel
def match_messages(
    lists: Lists,
    clauses: ClauseTokens,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: ScanScratch,
    output: Output,
) -> tuple[Number, Number]:
    """Match a part of the messages.

    Return the message at which the output was full (or the end), and the clauses examined.
    """
    lists, clauses, scratch = borrow(lists), borrow(clauses), borrow(scratch)
    flat = borrow(lists.entry.reshape(-1))
    token, box = borrow(messages.token), borrow(messages.box)
    match_start, match = borrow(output)
    examined = np.int64(0)
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(lists.slot, home(lists.slot, np.int64(token[i])))
        message = MessageView(token[begin:end], box[m], scratch.token_filter)
        count = collect_lists(lists, message.tokens, scratch.lists)
        set_filter(scratch.token_filter, message.tokens)
        start = match_start[m]
        found, more = scan_lists(flat, clauses, message, scratch, None, count, match[start:])
        clear_filter(scratch.token_filter, message.tokens)
        if found < 0:
            return m, examined
        examined += more
        match_start[m + 1] = start + found
    return part[1], examined
