"""An engine on disk: one folder with the segments, the vocabulary and the living messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import indexes
from nearcast.columns import Scoring
from nearcast.engine.moving.stored import StoredLive
from nearcast.engine.rows import StoredSegment
from nearcast.errors import NearcastError, StorageError
from nearcast.indexes.statistics import Statistics
from nearcast.segments import Scorer
from nearcast.storage import (
    nested,
    prefixed,
    read_arrays,
    subscriptions_from_arrays,
    subscriptions_to_arrays,
    write_arrays,
)
from nearcast.text import Vocabulary, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.engine.segment import LiveSegment, State
    from nearcast.indexes import Builder

    Arrays = Mapping[str, NDArray[Any]]

__all__ = ["Snapshot", "stored"]

KIND = "engine"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that an engine keeps on disk.

    ``tokenizer`` is the name of the tokenizer; see `nearcast.text.tokenizer`. ``keep_words`` says
    whether words are kept as they are given.
    """

    builder: Builder
    scorer: Scorer
    segments: Sequence[StoredSegment]
    vocabulary: Vocabulary
    live: StoredLive
    tokenizer: str
    keep_words: bool = True

    def write(self, folder: str | Path) -> None:
        """Write a folder, replacing what an engine wrote there before."""
        arrays: dict[str, NDArray[Any]] = {
            **prefixed("vocabulary", self.vocabulary.arrays()),
            **prefixed("weights", self.scorer.weights.arrays()),
            **prefixed("live", self.live.arrays()),
        }
        for number, segment in enumerate(self.segments):
            arrays |= prefixed(f"segment{number}", _segment_to_arrays(segment))
        meta: dict[str, Any] = {
            "index": self.builder.index.name,
            "options": self.builder.stored_options(),
            "tokenizer": self.tokenizer,
            "keep_words": self.keep_words,
            "similarity": self.scorer.scoring.similarity,
            "distance": self.scorer.scoring.distance,
            "fixed": self.scorer.fixed,
            "indexed": [segment.indexed for segment in self.segments],
            "live": self.live.meta(),
        }
        weighed = self.scorer.weights.vocabulary
        if weighed is not self.vocabulary:  # it was replaced since the weights were counted
            arrays |= prefixed("weights.vocabulary", weighed.arrays())
        statistics = self.builder.statistics()
        if statistics is not None:
            arrays |= prefixed("statistics", statistics.arrays())
            meta["statistics"] = statistics.numbers()
        write_arrays(folder, KIND, arrays, meta)

    @classmethod
    def read(cls, folder: str | Path, *, verify: bool) -> Snapshot:
        """Read a folder; arrays are memory-mapped."""
        arrays, meta = read_arrays(folder, KIND, verify=verify)
        try:
            builder = indexes.create(meta["index"], **meta["options"])
            if "statistics" in meta:
                own = nested("statistics", arrays)
                statistics = Statistics.from_arrays(own, meta["statistics"], str(folder))
                builder = builder.with_statistics(statistics)
            vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
            scoring = Scoring(meta["similarity"], meta["distance"])
            weights = _weights(vocabulary, nested("weights", arrays))
            scorer = Scorer(weights, scoring, fixed=bool(meta.get("fixed", False)))
            reading = _Reading(builder, scorer, vocabulary, verify)
            segments = [
                reading.segment(nested(f"segment{number}", arrays), indexed)
                for number, indexed in enumerate(meta["indexed"])
            ]
            return cls(
                builder,
                scorer,
                segments,
                vocabulary,
                StoredLive.read(nested("live", arrays), meta["live"]),
                meta.get("tokenizer", "words"),
                bool(meta.get("keep_words", True)),
            )
        except StorageError as error:
            raise StorageError(f"{folder}: {error}") from error
        except (KeyError, TypeError, ValueError, NearcastError) as error:
            raise StorageError(
                f"{folder}: holds an engine that this version cannot read "
                f"({type(error).__name__}: {error}); save it again"
            ) from error


def stored(segment: LiveSegment, state: State) -> StoredSegment:
    """Return what is to be saved of a segment."""
    return StoredSegment(
        segment.subscriptions, segment.index, segment.alive(state.version), segment.indexed
    )


def _segment_to_arrays(segment: StoredSegment) -> dict[str, NDArray[Any]]:
    return {
        **subscriptions_to_arrays(segment.subscriptions),
        **prefixed("index", segment.index.arrays()),
        "alive": segment.alive,
    }


def _weights(vocabulary: Vocabulary, arrays: Arrays) -> Weights:
    """Return stored weights; they have a vocabulary of their own, or share that of the engine."""
    own = nested("vocabulary", arrays)
    return Weights.from_arrays(Vocabulary.from_arrays(own) if own else vocabulary, arrays)


@dataclass(frozen=True)
class _Reading:
    """Reads stored segments."""

    builder: Builder
    scorer: Scorer
    vocabulary: Vocabulary
    verify: bool

    def segment(self, arrays: Arrays, indexed: bool) -> StoredSegment:
        """Return a stored segment."""
        columns = subscriptions_from_arrays(arrays)
        alive = arrays["alive"].astype(np.bool_)
        if len(alive) != len(columns):
            problem = f"{len(alive)} marks for {len(columns)} subscriptions; save it again"
            raise StorageError(problem)
        content = self.scorer.content(columns, self.vocabulary)
        if not indexed:
            return StoredSegment(columns, self.builder.build_small(content), alive, indexed)
        index = self.builder.restore(content, nested("index", arrays))
        if self.verify:
            index.check_structure()
        return StoredSegment(columns, index, alive, indexed)
