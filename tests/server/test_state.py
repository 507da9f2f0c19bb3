"""The state over SQLite and PostgreSQL: the same tests, against dictionaries."""

from __future__ import annotations

import itertools
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from effort import examples
from nearcast.errors import StorageError, UnknownId
from nearcast.server.state import (
    ACTIVE,
    DELETED,
    EXPIRED,
    INACTIVE,
    MAX_ATTEMPTS,
    Attempt,
    Box,
    Change,
    Channel,
    DeadLetter,
    Idempotency,
    Key,
    Postgres,
    PutChannel,
    PutDefinition,
    PutIdempotency,
    PutKey,
    PutPlace,
    PutSink,
    PutSubscriber,
    PutTenant,
    RemoveSink,
    RevokeKey,
    SetStatus,
    Sink,
    SinkProgress,
    Sqlite,
    State,
    Subscriber,
    Tenant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearcast.server.state import Database, Definition
    from postgres import Postgres as Server


def put(seq: int, handle: int, **given: Any) -> PutDefinition:
    fields: dict[str, Any] = {
        "tenant": 0,
        "external_id": f"sub-{handle:x}",
        "subscriber": "default",
        "sink_id": None,
        "definition": f"definition {handle} of {seq}".encode(),
        "status": ACTIVE,
        "time_us": 1_000 * seq,
        "expires_us": None,
        "box": Box(1.5, 2.25, 3.0, 4.0),
        "kind": "boolean",
    }
    return PutDefinition(seq, handle, **(fields | given))


SINK = Sink("sink-1", 0, "ann", "https://a.example/x", ("s1", "s2"), {"x": "y"}, 7, 10, 1, 5)


_numbers = itertools.count()


def next_schema() -> str:
    """Return a new schema of the one database: after a crash, many databases recover slowly."""
    return f"state_{next(_numbers)}"


@pytest.fixture(params=["sqlite", "postgres"])
def open_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    """Return a function that opens one database, each time it is called."""
    if request.param == "sqlite":
        return lambda: Sqlite(tmp_path / "state.db")
    dsn = request.getfixturevalue("postgres").dsn
    schema = next_schema()
    return lambda: Postgres(dsn, schema=schema)


@pytest.fixture
def state(open_database: Callable[[], Database]) -> Iterator[State]:
    with closing(State(open_database())) as state:
        yield state


class TestDefinitions:
    def test_all_fields_come_back(self, state: State) -> None:
        given = put(3, 9, sink_id="sink-1", expires_us=77, subscriber="ann", kind="ranked")
        state.apply([given], 5)
        found = state.definition(0, "sub-9")
        assert found is not None
        assert found == state.definition_of(9)
        assert (found.handle, found.tenant, found.sink_id, found.expires_us) == (9, 0, "sink-1", 77)
        assert (found.version, found.created_us, found.updated_us) == (3, 3_000, 3_000)
        assert (found.west, found.south, found.east, found.north) == given.box
        assert (found.subscriber, found.kind, found.status) == ("ann", "ranked", ACTIVE)
        assert state.applied_seq == 5

    def test_another_tenants_rows_are_never_returned(self, state: State) -> None:
        state.apply([put(1, 0, tenant=1, external_id="a"), put(2, 1, tenant=2)], 2)
        assert state.definition(0, "a") is None
        assert state.definition(2, "a") is None
        assert state.external_ids(1, [0, 1]) == {0: "a"}
        assert [row.handle for row in state.definitions(2)] == [1]

    def test_an_external_id_is_free_after_deletion(self, state: State) -> None:
        state.apply([put(1, 0, external_id="a")], 1)
        state.apply([SetStatus(2, 0, DELETED, 5), put(3, 1, external_id="a")], 3)
        found = state.definition(0, "a")
        assert found is not None
        assert found.handle == 1
        deleted = state.definition_of(0)
        assert deleted is not None
        assert (deleted.status, deleted.version, deleted.updated_us) == (DELETED, 2, 5)

    def test_an_external_id_is_unique(self, state: State) -> None:
        with pytest.raises(StorageError):
            state.apply([put(1, 0, external_id="a"), put(2, 1, external_id="a")], 2)
        assert state.applied_seq == 0
        assert state.definition_of(0) is None

    def test_a_move_changes_place_and_box_until_the_next_definition(self, state: State) -> None:
        state.apply([put(1, 0)], 1)
        here, there = Box(10, 10, 11, 11), Box(20, 20, 21, 21)
        state.apply([PutPlace(5, 0, b"here", 5, here), PutPlace(6, 0, b"there", 6, there)], 6)
        row = state.definition_of(0)
        assert row is not None
        assert (row.place, row.version, row.west, row.defined_seq) == (b"there", 1, 20.0, 1)
        assert [r.handle for r in state.definitions(row.tenant, bbox=there)] == [0]
        assert state.definitions(row.tenant, bbox=here) == []
        at = {seq: state.definition_at(0, seq) for seq in (1, 4, 5, 6, 9)}
        places = {seq: found[1] for seq, found in at.items() if found is not None}
        assert places == {1: None, 4: None, 5: b"here", 6: b"there", 9: b"there"}
        state.forget_before(6)
        later = state.definition_at(0, 6)
        assert later is not None
        assert later[1] == b"there"
        state.apply([put(7, 0)], 7)
        again = state.definition_of(0)
        assert again is not None
        assert again.place is None
        before = state.definition_at(0, 6)
        assert before is not None
        assert before[1] == b"there"

    def test_a_failed_transaction_changes_nothing(self, state: State) -> None:
        with pytest.raises(StorageError, match="changes subscription 8"):
            state.apply([put(1, 0), SetStatus(2, 8, EXPIRED, 1)], 2)
        assert state.definition_of(0) is None
        state.apply([put(1, 0)], 2)
        assert state.definition_of(0) is not None

    def test_a_change_above_applied_seq_is_refused(self, state: State) -> None:
        with pytest.raises(ValueError, match="above applied_seq=2"):
            state.apply([put(3, 0)], 2)

    def test_boxes_across_the_antimeridian(self, state: State) -> None:
        state.apply([put(1, 0, box=Box(179.0, -1.0, -179.0, 1.0)), put(2, 1)], 2)
        for bbox in (Box(179.5, 0, 179.6, 0.1), Box(-179.6, 0, -179.5, 0.1), Box(178, 0, -178, 1)):
            assert [row.handle for row in state.definitions(0, bbox=bbox)] == [0]
        assert state.definitions(0, bbox=Box(-178, -1, 0, 1)) == []

    def test_many_definitions(self, state: State) -> None:
        state.apply([put(h + 1, h) for h in range(25_000)], 25_000)
        state.apply([put(25_001 + h, h, status=INACTIVE) for h in range(2_000)], 30_000)
        rows = list(state.each_definition())
        assert [row.handle for row in rows] == list(range(25_000))
        assert state.counts() == {0: {ACTIVE: 23_000, INACTIVE: 2_000}}
        assert len(state.external_ids(0, range(1_700))) == 1_700


class TestOthers:
    def test_rows_from_the_log(self, state: State) -> None:
        tenant = Tenant(1, "acme", {"subscriptions": 10, "rates": [1, 2.5]}, 3)
        key = Key("k1", 1, bytes(range(32)), ("publish", "admin"), None, "a key", 4)
        subscriber = Subscriber(1, "ann", 6, {"quiet": ["22:00", "07:00"]})
        channels = [Channel(6, 1, "ann"), Channel(7, 1, "ann", "sink-1")]
        answer = Idempotency(1, "abc", b"\x00\xff", 5, 9, b"{}", 1_000)
        changes: list[Change] = [
            PutTenant(1, tenant),
            PutKey(2, key),
            PutSubscriber(3, subscriber),
            *(PutChannel(4, channel) for channel in channels),
            PutSink(5, SINK),
            PutIdempotency(6, answer),
        ]
        for _ in range(2):
            state.apply(changes, 6)
            assert state.tenants() == [tenant]
            assert state.keys() == state.keys(1) == [key]
            assert state.keys(2) == []
            assert state.subscribers() == [subscriber] == state.subscribers(1)
            assert state.subscriber(1, "ann") == subscriber
            assert state.subscriber(2, "ann") is None
            assert state.channels() == channels
            assert state.sinks() == state.sinks(0) == [SINK]
            assert state.sink(1, "sink-1") is None
            assert state.idempotent(1, "abc") == answer
            assert state.idempotent(2, "abc") is None
        state.apply([RevokeKey(7, "k1", 99), RevokeKey(7, "unknown", 99)], 7)
        assert state.key("k1") == key._replace(revoked_us=99)
        state.forget_idempotency(1_000)
        assert state.idempotent(1, "abc") == answer
        state.forget_idempotency(1_001)
        assert state.idempotent(1, "abc") is None

    def test_secrets_are_made_once(self, open_database: Callable[[], Database]) -> None:
        with closing(State(open_database())) as state:
            made = state.secret("tokens")
            assert len(made) == 32
            assert state.secret("other") != made
        with closing(State(open_database())) as state:
            assert state.secret("tokens") == made

    def test_uses_of_keys(self, state: State) -> None:
        state.note_key_uses({"a": 1, "b": 2})
        state.note_key_uses({"a": 3})
        assert state.key_uses() == {"a": 3, "b": 2}

    def test_cursors(self, state: State) -> None:
        state.save_cursor(0, "ann", "phone", "5-10", 1)
        state.save_cursor(0, "ann", "phone", "5-11.2", 2)
        found = state.cursor(0, "ann", "phone")
        assert found is not None
        assert (found.value, found.updated_us) == ("5-11.2", 2)
        assert state.cursor(1, "ann", "phone") is None
        assert state.cursor(0, "bob", "phone") is None


class TestSinks:
    def test_progress(self, state: State) -> None:
        state.apply([PutSink(1, SINK), PutSink(2, SINK._replace(id="sink-2", channel=8))], 2)
        assert state.progress(SINK) == SinkProgress("sink-1", 10, 1)
        state.save_position("sink-1", (12, 3), 4, 1_000, (5, 6))
        saved = SinkProgress("sink-1", 12, 3, 4, 1_000, (5, 6))
        assert state.progress(SINK) == saved
        assert [sink.id for sink, _ in state.sinks_with_work(999)] == ["sink-2"]
        assert state.sinks_with_work(1_000)[0] == (SINK, saved)
        state.disable("sink-1", "410 Gone")
        state.save_position("sink-1", (13, 0))
        assert state.progress(SINK).reason == "410 Gone"
        assert [sink.id for sink, _ in state.sinks_with_work(1_000)] == ["sink-2"]
        state.apply([PutSink(3, SINK._replace(url="https://b.example"))], 3)
        assert state.progress(SINK).seq == 13
        state.enable("sink-1")
        assert state.progress(SINK) == SinkProgress("sink-1", 13, 0)

    def test_an_unknown_sink_is_an_error(self, state: State) -> None:
        with pytest.raises(UnknownId, match="no sink 'sink-9'"):
            state.enable("sink-9")

    def test_the_last_attempts_are_kept(self, state: State) -> None:
        sinks = [SINK._replace(id="a"), SINK._replace(id="b")]
        state.apply([PutSink(1, sink) for sink in sinks], 1)
        made = [Attempt("a", n, n, f"5-{n}", 500, None, 10) for n in range(MAX_ATTEMPTS + 30)]
        for start in range(0, len(made), 13):
            state.note_attempts(made[start : start + 13])
        other = Attempt("b", 1, 1, "5-1", None, "timed out", 10)
        state.note_attempts([other])
        assert state.attempts(0, "a") == made[: -MAX_ATTEMPTS - 1 : -1]
        assert state.attempts(0, "b") == [other]
        assert state.attempts(1, "b") == []

    def test_dead_letters(self, state: State) -> None:
        sinks = [SINK._replace(id="a"), SINK._replace(id="b")]
        state.apply([PutSink(1, sink) for sink in sinks], 1)
        made = [DeadLetter("a", s, k, f"5-{s}.{k}", "500", 1) for s in (3, 9, 20) for k in (0, 1)]
        state.add_dead([*made, DeadLetter("b", 3, 0, "5-3", "gone", 1)])
        assert state.dead(0, "a") == made
        assert state.dead(0, "a", after=(3, 0), limit=2) == made[1:3]
        state.remove_dead("a", [(3, 0), (20, 1)])
        assert state.dead(0, "a") == made[1:-1]
        assert len(state.dead(0, "b")) == 1
        assert state.dead(1, "b") == []

    def test_a_removed_sink_leaves_nothing(self, state: State) -> None:
        state.apply([PutSink(1, SINK)], 1)
        state.save_position("sink-1", (12, 3))
        state.note_attempts([Attempt("sink-1", 1, 1, "5-1", 200, None, 1)])
        state.add_dead([DeadLetter("sink-1", 1, 0, "5-1", "gone", 1)])
        state.apply([RemoveSink(2, "sink-1")], 2)
        assert (state.sinks(), state.attempts(0, "sink-1"), state.dead(0, "sink-1")) == ([], [], [])
        assert state.progress(SINK) == SinkProgress("sink-1", 10, 1)


def test_threads_read_while_one_writes(state: State) -> None:
    """Readers see each stretch whole: as many definitions as ``applied_seq`` says, or more."""
    failures: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            applied = state.applied_seq
            found = len(state.definitions(0, limit=1_000))
            if found < applied or found % 10:
                failures.append(f"{found} definitions at {applied}")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seq in range(0, 300, 10):
        state.apply([put(seq + i + 1, seq + i) for i in range(10)], seq + 10)
        state.save_cursor(0, "ann", "phone", str(seq), seq)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    State(Sqlite(tmp_path / "state.db")).close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(StorageError, match="other tables"):
        Sqlite(tmp_path / "state.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="not a database"):
        Sqlite(tmp_path / "state.db")


# ---- any sequence of changes, against dictionaries ----

LATTICE = st.integers(-18, 18).map(lambda i: i * 10.0)
LATITUDES = st.integers(-9, 9).map(lambda i: i * 10.0)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted((draw(LATITUDES), draw(LATITUDES)))
    return Box(draw(LATTICE), south, draw(LATTICE), north)


def overlap(one: Box, other: Box) -> bool:
    if one.south > other.north or other.south > one.north:
        return False
    return any(a.west <= b.east and b.west <= a.east for a in one.parts() for b in other.parts())


class StateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seq = 0
        self.next_handle = 0
        self.rows: dict[int, PutDefinition] = {}
        self.versions: dict[int, int] = {}
        self.history: dict[int, list[tuple[int, bytes]]] = {}
        self.forgotten = 0
        self.waiting: list[Change] = []
        self.log: list[Change] = []
        self.cursors: dict[tuple[int, str], str] = {}

    def open(self) -> State:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.state = self.open()

    def teardown(self) -> None:
        if hasattr(self, "state"):
            self.state.close()

    def living(self, tenant: int) -> list[PutDefinition]:
        rows = [row for row in self.rows.values() if row.tenant == tenant]
        return [row for row in rows if row.status != DELETED]

    def change(self, change: PutDefinition | SetStatus) -> None:
        self.waiting.append(change)
        if isinstance(change, PutDefinition):
            self.rows[change.handle] = change
            self.history.setdefault(change.handle, []).append((change.seq, change.definition))
        else:
            self.rows[change.handle] = self.rows[change.handle]._replace(status=change.status)
        self.versions[change.handle] = change.seq

    @rule(
        tenant=st.integers(0, 1),
        name=st.sampled_from("abcdef"),
        subscriber=st.sampled_from(["ann", "bob"]),
        box=boxes(),
        status=st.sampled_from([ACTIVE, INACTIVE]),
    )
    def put(self, tenant: int, name: str, subscriber: str, box: Box, status: str) -> None:
        self.seq += 1
        same = [row.handle for row in self.living(tenant) if row.external_id == name]
        handle = same[0] if same else self.next_handle
        self.next_handle = max(self.next_handle, handle + 1)
        self.change(
            put(
                self.seq,
                handle,
                tenant=tenant,
                external_id=name,
                subscriber=subscriber,
                box=box,
                status=status,
            )
        )

    @rule(data=st.data(), status=st.sampled_from([ACTIVE, INACTIVE, EXPIRED, DELETED]))
    def set_status(self, data: st.DataObject, status: str) -> None:
        living = [row.handle for tenant in (0, 1) for row in self.living(tenant)]
        if living:
            self.seq += 1
            handle = data.draw(st.sampled_from(living))
            self.change(SetStatus(self.seq, handle, status, 1_000 * self.seq))

    @rule(replayed=st.integers(0, 30), quiet=st.integers(0, 2))
    def apply(self, replayed: int, quiet: int) -> None:
        """Apply what waits, and before it some of what was applied earlier."""
        self.seq += quiet
        again = self.log[max(0, len(self.log) - replayed) :]
        self.state.apply([*again, *self.waiting], self.seq)
        self.log += self.waiting
        self.waiting = []

    @rule()
    def reopen(self) -> None:
        self.state.close()
        self.state = self.open()

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.apply(0, 0)
        self.forgotten = data.draw(st.integers(self.forgotten, self.seq + 1))
        self.state.forget_before(self.forgotten)
        for handle in list(self.rows):
            gone = self.versions[handle] < self.forgotten
            if self.rows[handle].status == DELETED and gone:
                del self.rows[handle]

    @rule(tenant=st.integers(0, 1), name=st.sampled_from("xy"), value=st.text("0123.-", max_size=5))
    def save_cursor(self, tenant: int, name: str, value: str) -> None:
        self.state.save_cursor(tenant, "ann", name, value, self.seq)
        self.cursors[tenant, name] = value

    @rule(
        tenant=st.integers(0, 1),
        subscriber=st.none() | st.sampled_from(["ann", "bob"]),
        status=st.none() | st.sampled_from([ACTIVE, INACTIVE, EXPIRED, DELETED]),
        bbox=st.none() | boxes(),
        after=st.integers(-1, 5),
        limit=st.integers(1, 10),
    )
    def search(
        self,
        tenant: int,
        subscriber: str | None,
        status: str | None,
        bbox: Box | None,
        after: int,
        limit: int,
    ) -> None:
        self.apply(0, 0)
        expected = [
            row.handle
            for row in sorted(self.rows.values(), key=lambda row: row.handle)
            if row.tenant == tenant
            and row.handle > after
            and subscriber in (None, row.subscriber)
            and (row.status == status if status else row.status != DELETED)
            and (bbox is None or overlap(row.box, bbox))
        ]
        found = self.state.definitions(
            tenant, subscriber=subscriber, status=status, bbox=bbox, after=after, limit=limit
        )
        assert [row.handle for row in found] == expected[:limit]

    @invariant()
    def same_as_model(self) -> None:
        if self.waiting or not hasattr(self, "state"):
            return
        stored = {row.handle: row for row in self.state.each_definition()}
        assert stored.keys() == self.rows.keys()
        for handle, row in self.rows.items():
            self.same(stored[handle], row)
            by_name = self.state.definition(row.tenant, row.external_id)
            if row.status != DELETED:
                assert by_name == stored[handle]
            versions = self.history[handle]
            for (first, definition), (following, _) in itertools.pairwise(
                [*versions, (self.seq + 1, b"")]
            ):
                for seq in {first, following - 1}:
                    if seq >= self.forgotten:
                        assert self.state.definition_at(handle, seq) == (definition, None)
            assert self.state.definition_at(handle, versions[0][0] - 1) is None
        for (tenant, name), value in self.cursors.items():
            cursor = self.state.cursor(tenant, "ann", name)
            assert cursor is not None
            assert cursor.value == value
        counted: dict[int, dict[str, int]] = {}
        for row in self.rows.values():
            of_tenant = counted.setdefault(row.tenant, {})
            of_tenant[row.status] = of_tenant.get(row.status, 0) + 1
        assert {t: c for t, c in self.state.counts().items() if c} == counted

    def same(self, stored: Definition, row: PutDefinition) -> None:
        assert stored.version == self.versions[row.handle]
        assert (stored.west, stored.south, stored.east, stored.north) == row.box
        assert (stored.tenant, stored.external_id, stored.subscriber, stored.definition) == (
            row.tenant,
            row.external_id,
            row.subscriber,
            row.definition,
        )
        assert stored.status == row.status
        assert stored.created_us == 1_000 * self.history[row.handle][0][0]


class SqliteMachine(StateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="nearcast-state-")

    def open(self) -> State:
        return State(Sqlite(Path(self.folder.name) / "state.db"))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestSqliteMachine = SqliteMachine.TestCase
TestSqliteMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)


def test_postgres_machine(postgres: Server) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    class PostgresMachine(StateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.schema = next_schema()

        def open(self) -> State:
            return State(Postgres(postgres.dsn, schema=self.schema))

    run_state_machine_as_test(
        PostgresMachine,
        settings=settings(
            max_examples=examples(8),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


# ---- crashes ----

KILLED = """
import sys
from pathlib import Path
from nearcast.server.state import Box, PutDefinition, Sqlite, State

state = State(Sqlite(Path(sys.argv[1])))
seq = state.applied_seq
while True:
    changes = [
        PutDefinition(seq + i + 1, seq + i, 0, f"sub-{seq + i}", "ann", None, b"x" * 50, "ACTIVE",
                      1, None, Box(0.0, 0.0, 1.0, 1.0), "boolean")
        for i in range(2_000)
    ]
    seq += 2_000
    state.apply(changes, seq)
    state.save_cursor(0, "ann", "phone", str(seq), 1)
    print(seq, flush=True)
"""


def test_a_killed_process_leaves_whole_stretches(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(3)][-1]
        process.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        process.stdout.close()
        process.wait()
        with closing(State(Sqlite(path))) as state:
            assert state.applied_seq in (acknowledged, acknowledged + 2_000)
            rows = list(state.each_definition())
            assert len(rows) == state.applied_seq
            cursor = state.cursor(0, "ann", "phone")
            assert cursor is not None
            assert int(cursor.value) >= acknowledged


def test_postgres_is_killed_in_the_middle(postgres: Server) -> None:
    """Transactions go on after a restart; each is there once, whether its answer came or not."""
    opened = Postgres(postgres.dsn, schema=next_schema())
    written = threading.Semaphore(0)
    stop = threading.Event()

    def write(state: State) -> None:
        for seq in itertools.count(0, 10):
            state.apply([put(seq + i + 1, seq + i) for i in range(10)], seq + 10)
            state.save_cursor(0, "ann", "phone", str(seq + 10), seq)
            written.release()
            if stop.is_set():
                return

    with closing(State(opened)) as state:
        writer = threading.Thread(target=write, args=[state])
        writer.start()
        for _ in range(3):
            for _ in range(20):
                assert written.acquire(timeout=60)
            postgres.kill()
            postgres.start()
        assert written.acquire(timeout=60)
        stop.set()
        writer.join()
        applied = state.applied_seq
        assert [row.handle for row in state.each_definition()] == list(range(applied))
        cursor = state.cursor(0, "ann", "phone")
        assert cursor is not None
        assert int(cursor.value) == applied
        assert state.counts() == {0: {ACTIVE: applied}}


def test_postgres_out_of_reach_is_an_error() -> None:
    with pytest.raises(StorageError, match="PostgreSQL"):
        Postgres("host=127.0.0.1 port=1 user=nobody", patience_s=0.1)


def test_a_damaged_row_of_postgres_is_an_error(postgres: Server) -> None:
    opened = Postgres(postgres.dsn, schema=next_schema())
    with closing(State(opened)) as state:
        state.apply([put(1, 0), put(2, 1)], 2)
        opened.write(
            lambda transaction: transaction.execute(
                "UPDATE definitions SET east = 9 WHERE handle = 1"
            ),
            durable=True,
        )
        assert state.definition_of(0) is not None
        with pytest.raises(StorageError, match="table definitions: the row handle=1"):
            state.definition_of(1)


# ---- damaged files ----

HANDLES = 40


def filled(path: Path) -> None:
    """Write a file with some rows of every table, all of it in the main file."""
    with closing(State(Sqlite(path))) as state:
        first = [
            put(
                h + 1,
                h,
                external_id=f"id-{h * 7 % HANDLES}",
                subscriber=f"user{h % 3}",
                box=Box(h * 2.5, h * 1.5, h * 2.5 + h % 4, h * 1.5 + 2.0),
            )
            for h in range(HANDLES)
        ]
        state.apply(
            [
                *first,
                put(50, 3, external_id="id-21", definition=b"replaced"),
                SetStatus(51, 5, DELETED, 7),
                PutTenant(52, Tenant(1, "acme", {"subscriptions": 10}, 3)),
                PutKey(53, Key("k1", 1, bytes(32), ("publish",), None, "key", 4)),
                PutSubscriber(54, Subscriber(1, "ann", 6, {})),
                PutChannel(55, Channel(6, 1, "ann")),
                PutSink(56, SINK),
                PutIdempotency(57, Idempotency(1, "abc", b"f", 5, 9, b"{}", 1_000)),
            ],
            60,
        )
        state.save_cursor(0, "ann", "phone", "5-10", 1)
        state.save_position("sink-1", (12, 3))
        state.note_attempts([Attempt("sink-1", 1, 1, "5-1", 200, None, 1)])
        state.add_dead([DeadLetter("sink-1", 1, 0, "5-1", "gone", 1)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def questions() -> list[Callable[[State], object]]:
    """Return lookups of every kind."""
    return [
        lambda state: state.applied_seq,
        *(lambda state, h=h: state.definition_of(h) for h in (0, 3, 5, 17, HANDLES)),
        *(lambda state, h=h: state.definition(0, f"id-{h}") for h in (0, 9, 21, 35, 39)),
        lambda state: state.definition_at(3, 10),
        lambda state: state.external_ids(0, range(HANDLES)),
        lambda state: state.definitions(0),
        lambda state: state.definitions(0, subscriber="user1"),
        lambda state: state.definitions(0, bbox=Box(10.0, 5.0, 30.0, 20.0)),
        lambda state: state.definitions(0, status=DELETED),
        lambda state: state.counts(),
        lambda state: list(state.each_definition()),
        lambda state: state.tenants(),
        lambda state: state.key("k1"),
        lambda state: state.subscriber(1, "ann"),
        lambda state: state.channels(),
        lambda state: state.sinks_with_work(0),
        lambda state: state.idempotent(1, "abc"),
        lambda state: state.cursor(0, "ann", "phone"),
        lambda state: state.attempts(0, "sink-1"),
        lambda state: state.dead(0, "sink-1"),
    ]


def rows_of(answer: object) -> set[object]:
    """Return the parts of an answer, to see whether one is a subset of another."""
    if isinstance(answer, dict):
        return set(map(repr, answer.items()))
    if isinstance(answer, list):
        return set(map(repr, answer))
    return set() if answer is None else {repr(answer)}


def test_flipped_bits_never_give_another_answer(tmp_path: Path) -> None:
    """A flipped bit is an error or harmless. A row that is not found is found by `State.check`."""
    path = tmp_path / "state.db"
    filled(path)
    whole = path.read_bytes()
    asked = questions()
    with closing(State(Sqlite(path))) as state:
        expected = [ask(state) for ask in asked]
    outcomes = {"error": 0, "same": 0, "missing": 0}
    # A prime step visits all parts of pages; the bit changes with the place.
    for place in range(0, len(whole), 127):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        outcomes[outcome(path, bytes(damaged), asked, expected)] += 1
    assert outcomes["error"] > 50
    assert outcomes["same"] > 50


def outcome(
    path: Path,
    damaged: bytes,
    asked: list[Callable[[State], object]],
    expected: list[object],
) -> str:
    for leftover in path.parent.glob("state.db*"):
        leftover.unlink()
    path.write_bytes(damaged)
    found = "same"
    try:
        state = State(Sqlite(path))
    except StorageError:
        return "error"
    with closing(state):
        for ask, right in zip(asked, expected, strict=True):
            try:
                answer = ask(state)
            except StorageError:
                found = "error"
                continue
            if answer != right:
                assert rows_of(answer) < rows_of(right), (answer, right)
                with pytest.raises(StorageError):
                    state.check()
                found = "missing"
    return found
