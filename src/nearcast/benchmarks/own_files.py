"""Subscriptions and messages of one's own files, to compare indexes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import Messages, Scoring
from nearcast.errors import UnsupportedFile
from nearcast.intake import Reading, load_messages, load_subscriptions
from nearcast.segments import Part, Scorer
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nearcast.columns import Clauses, Ranked

__all__ = ["GROUP", "FileLoad", "OwnFiles"]

GROUP = "own"
"""The group of messages that come from a file."""


@dataclass(frozen=True)
class FileLoad:
    """What was read: subscriptions of one kind, messages, rejected rows, and names of the files."""

    content: Clauses | Ranked
    messages: Messages
    kind: str
    rejected: dict[str, int]
    names: dict[str, str]
    options: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the names of the files, how they were read, and how many rows were rejected."""
        return {"names": self.names, "options": [*self.options], "rejected": self.rejected}


@dataclass(frozen=True)
class OwnFiles:
    """Two files, and how ranked subscriptions score.

    Parameters
    ----------
    subscriptions, messages
        The files, in any format that ``nearcast match`` reads.
    max_subscriptions, max_messages
        How many to take at most, from the beginning; all if left out.
    scoring
        The similarity and the distance.
    readings, options
        How the files are read, by ``subscriptions`` and ``messages``, and the options of the
        command that say so.
    """

    subscriptions: Path
    messages: Path
    max_subscriptions: int | None = None
    max_messages: int | None = None
    scoring: Scoring = field(default_factory=Scoring)
    readings: Mapping[str, Reading] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the load in reports."""
        return self.subscriptions.name.partition(".")[0]

    def load(self) -> FileLoad:
        """Read both files.

        Raises
        ------
        UnsupportedFile
            When nothing is left of one of them, or the subscriptions are of several kinds.
        """
        vocabulary = Vocabulary()
        columns, rejects = load_subscriptions(
            self.subscriptions, vocabulary, reading=self._reading("subscriptions")
        )
        columns = columns.take(np.arange(len(columns))[: self.max_subscriptions])
        if not len(columns):
            problem = f"has no valid subscription; {len(rejects):,} were rejected"
            raise UnsupportedFile(f"{self.subscriptions}: {problem}")
        if len(columns.kinds) > 1:
            kinds = " and ".join(columns.kinds)
            problem = f"has {kinds} subscriptions; indexes are compared on one kind"
            raise UnsupportedFile(f"{self.subscriptions}: {problem}, write one file for each")
        scorer = Scorer.counted(Part(columns, vocabulary), self.scoring)
        parts, count = [], 0
        now_us, reading = time.time_ns() // 1000, self._reading("messages")
        for batch, wrong in load_messages(self.messages, now_us=now_us, reading=reading):
            weight = scorer.text_weight(batch.words)
            parts.append(batch.number(vocabulary, text_weight=weight))
            count += len(wrong)
        messages = Messages.concatenate(parts)
        messages = messages.take(np.arange(len(messages))[: self.max_messages])
        if not len(messages):
            raise UnsupportedFile(f"{self.messages}: has no valid message; {count:,} were rejected")
        rejected = {"subscriptions": len(rejects), "messages": count}
        content = scorer.content(columns, vocabulary)
        names = {"subscriptions": str(self.subscriptions), "messages": str(self.messages)}
        return FileLoad(content, messages, columns.kinds[0], rejected, names, self.options)

    def _reading(self, kind: str) -> Reading:
        return self.readings.get(kind, Reading())
