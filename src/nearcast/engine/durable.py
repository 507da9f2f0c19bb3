"""What an engine keeps on disk: copies of itself, and the journal of its changes."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Self

from nearcast.engine.journal import UNNOTED, has_journal
from nearcast.engine.opening import snapshot_of
from nearcast.errors import NearcastError, StorageError
from nearcast.storage import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nearcast.engine.journal import Call, Event, Journal
    from nearcast.engine.moving.live import Live
    from nearcast.engine.snapshot import Snapshot
    from nearcast.engine.store import Store
    from nearcast.text import Tokenizer

__all__ = ["Durable"]

_NOT_NOTED: AbstractContextManager[Event] = nullcontext(UNNOTED)


class Durable:
    """The part of an engine that saves it, journals its changes and closes it."""

    _store: Store
    _live: Live
    _tokenizer: Tokenizer
    _keep_words: bool

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._checkpointing = threading.Thread()
        self._saved: dict[str, int | None] = {}
        self._closed = False

    def save(self, folder: str | Path) -> None:
        """Write the engine as it is now into a folder, replacing what an engine wrote there.

        Parameters
        ----------
        folder
            The folder; it is made if it is not there.

        Raises
        ------
        StorageError
            When the folder cannot be written, or when another engine has saved there since this
            one was opened from it or saved to it.

        Examples
        --------
        >>> import tempfile
        >>> from nearcast import Engine, Rect, Subscription
        >>> folder = tempfile.mkdtemp()
        >>> engine = Engine()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> engine.save(folder)
        >>> "s1" in Engine.open(folder)
        True
        """
        if has_journal(folder):
            problem = "belongs to an engine with a journal; save elsewhere, or use checkpoint()"
            raise StorageError(f"{folder}: {problem}")
        where = os.path.realpath(folder)
        found = fingerprint(where)
        if found is not None and found != self._saved.get(where, found):
            problem = "another engine has saved here since this one did, or was opened from it"
            raise StorageError(f"{folder}: {problem}; save elsewhere, or open it again")
        self.snapshot().write(folder)
        self._note_saved(folder)

    def snapshot(self) -> Snapshot:
        """Return the engine as it is now; ``write(folder)`` saves that while the engine goes on.

        Examples
        --------
        >>> import tempfile
        >>> from nearcast import Engine, Rect, Subscription
        >>> folder, engine = tempfile.mkdtemp(), Engine()
        >>> empty = engine.snapshot()
        >>> engine.subscribe(Subscription("s1", Rect(0, 0, 1, 1), ["tea"]))
        >>> empty.write(folder)
        >>> len(Engine.open(folder))
        0
        """
        with self._store.merging, self._live.lock:
            return snapshot_of(self._store, self._live, self._tokenizer, self._keep_words)

    def checkpoint(self) -> None:
        """Write an engine with a journal as it is now, so that opening it has nothing to replay.

        This happens by itself, in the background, when the journal has become long.

        Raises
        ------
        NearcastError
            When the engine has no journal.
        """
        self._check_open()
        if self._journal is None:
            raise NearcastError("the engine has no journal; open it with journal=True, or save it")
        self._journal.make_checkpoint(self._taken_down)

    def close(self) -> None:
        """Stop merging in the background; the engine takes no more calls that change it.

        A ``with`` statement calls it.
        """
        self._closed = True
        if self._checkpointing.is_alive():
            self._checkpointing.join()
        self._store.close()
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _note_saved(self, folder: str | Path) -> None:
        """Remember what a folder holds, to notice when somebody else writes there."""
        where = os.path.realpath(folder)
        self._saved[where] = fingerprint(where)

    def _taken_down(self) -> tuple[int, Callable[[Path], None]]:
        """Return the last record that has happened, and what writes the engine as it is now."""
        assert self._journal is not None
        with self._store.merging, self._live.lock:
            snapshot = self.snapshot()
            return self._journal.log.enqueued_seq, snapshot.write

    def _checkpoint_later(self) -> None:
        if not self._checkpointing.is_alive():
            self._checkpointing = threading.Thread(target=self.checkpoint, name="checkpoint")
            self._checkpointing.start()

    def _event(self, call: Callable[[], Call]) -> AbstractContextManager[Event]:
        """Note a call that changes the engine, if there is a journal; wait until it is on disk."""
        return _NOT_NOTED if self._journal is None else self._noting(self._journal, call())

    @contextmanager
    def _noting(self, journal: Journal, call: Call) -> Iterator[Event]:
        with journal.noting(call) as event:
            yield event
        if journal.wants_checkpoint:
            self._checkpoint_later()

    def _check_open(self) -> None:
        if self._closed:
            raise NearcastError("the engine is closed; create a new one, or open a saved one")
