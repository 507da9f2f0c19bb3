"""Caps, digests and quiet hours, simulated; the checks share no code with what they judge."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvalidInput
from nearcast.server.delivery.pacing import Cap, Digest, Pacing, PacingSettings, QuietHours

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ZONES = ["UTC", "Europe/Helsinki", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]


def _us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def _is_quiet(hours: QuietHours, time_us: int) -> bool:
    """Return whether the clock on the wall shows a quiet time."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    wall = moment.astimezone(ZoneInfo(hours.zone))
    minute = wall.hour * 60 + wall.minute
    if hours.start_minute < hours.end_minute:
        return hours.start_minute <= minute < hours.end_minute
    return minute >= hours.start_minute or minute < hours.end_minute


@st.composite
def quiet_hours(draw: st.DrawFn) -> QuietHours:
    start, length = draw(st.integers(0, 1439)), draw(st.integers(1, 1439))
    return QuietHours(start, (start + length) % 1440, draw(st.sampled_from(ZONES)))


@st.composite
def times(draw: st.DrawFn) -> int:
    """Draw a time of 2026, often near a change of the clocks."""
    near = [
        _us("2026-03-29T01:00+00:00"),
        _us("2026-10-25T01:00+00:00"),
        _us("2026-03-08T07:00+00:00"),
        _us("2026-11-01T06:00+00:00"),
        _us("2026-04-04T15:00+00:00"),
        _us("2026-10-03T15:30+00:00"),
    ]
    start = draw(st.sampled_from(near) | st.integers(near[0], near[0] + 300 * DAY))
    return start + draw(st.integers(-26 * 60, 26 * 60)) * MINUTE + draw(st.integers(0, 2)) * 499_999


PERIODS = st.sampled_from([MINUTE, 10 * MINUTE, HOUR, DAY]) | st.integers(SECOND, 2 * DAY)
SETTINGS = st.builds(
    PacingSettings,
    st.lists(st.builds(Cap, st.integers(1, 4), PERIODS), max_size=2).map(tuple),
    st.none() | st.builds(Digest, PERIODS, times()),
    st.none() | quiet_hours(),
)


@given(quiet_hours(), times())
def test_quiet_hours_follow_the_clock_on_the_wall(hours: QuietHours, time_us: int) -> None:
    assert hours.contains(time_us) == _is_quiet(hours, time_us)
    end_us = hours.end_us(time_us)
    if not _is_quiet(hours, time_us):
        assert end_us == time_us
        return
    assert not _is_quiet(hours, end_us)
    # The end is a whole minute, and every minute before it is quiet.
    assert end_us % MINUTE == 0
    minutes = range(time_us, end_us, MINUTE)
    assert all(_is_quiet(hours, minute) for minute in [*minutes, end_us - 1])


@pytest.mark.parametrize(
    ("start", "end", "time", "expected"),
    [
        ("22:00", "07:00", "2026-06-01T21:59:59", "2026-06-01T21:59:59"),
        ("22:00", "07:00", "2026-06-01T22:00:00", "2026-06-02T07:00:00"),
        ("22:00", "07:00", "2026-06-02T06:59:59", "2026-06-02T07:00:00"),
        ("12:00", "13:00", "2026-06-02T12:30:00", "2026-06-02T13:00:00"),
        ("22:00", "07:00", "2026-03-28T23:00:00", "2026-03-29T07:00:00"),  # an hour less
        ("22:00", "07:00", "2026-10-24T23:00:00", "2026-10-25T07:00:00"),  # an hour more
        ("22:00", "03:30", "2026-03-28T23:00:00", "2026-03-29T04:00:00"),  # 03:30 does not exist
        ("22:00", "03:30", "2026-10-24T23:00:00", "2026-10-25T03:30:00"),  # the first 03:30
    ],
)
def test_nights_in_helsinki(start: str, end: str, time: str, expected: str) -> None:
    def minute(text: str) -> int:
        return int(text[:2]) * 60 + int(text[3:])

    zone = "Europe/Helsinki"
    hours = QuietHours(minute(start), minute(end), zone)
    assert hours.end_us(_us(time, zone)) == _us(expected, zone)


def _simulate(pacing: Pacing, arrivals: list[int]) -> list[tuple[int, list[int]]]:
    """Send events as early as allowed; return the times, and the numbers of the events."""
    sends = []
    sent: tuple[int, ...] = ()
    now, done = 0, 0
    while done < len(arrivals):
        now = max(now, arrivals[done])
        release = pacing.next_release(arrivals[done], now, sent)
        now = max(now, release)
        there = [time for time in arrivals[done:] if time <= now]
        count = pacing.count_together(there, sent)
        assert count >= 1
        sent = pacing.remember(sent, now, count)
        sends.append((now, list(range(done, done + count))))
        done += count
    return sends


@given(SETTINGS, times(), st.lists(st.integers(0, 3 * HOUR // SECOND), min_size=1, max_size=12))
def test_events_are_sent_once_in_order_and_only_when_allowed(
    settings: PacingSettings, start: int, gaps: list[int]
) -> None:
    arrivals = []
    for gap in gaps:
        start += gap * SECOND
        arrivals.append(start)
    sends = _simulate(Pacing(settings), arrivals)

    assert [event for _, events in sends for event in events] == list(range(len(arrivals)))
    times_of_events = [time for time, events in sends for _ in events]
    assert all(sent >= arrival for sent, arrival in zip(times_of_events, arrivals, strict=True))
    quiet = settings.quiet_hours
    if quiet is not None:
        assert not any(_is_quiet(quiet, time) for time in times_of_events)
    for cap in settings.caps:
        for time in times_of_events:
            window = [other for other in times_of_events if time <= other < time + cap.period_us]
            assert len(window) <= cap.events
    if settings.digest is not None:
        for time in times_of_events:
            assert _is_mark(settings.digest, quiet, time)


def _is_mark(digest: Digest, quiet: QuietHours | None, time: int) -> bool:
    """Return whether a time is a mark, or the end of quiet hours that contain a mark."""
    since = (time - digest.origin_us) % digest.interval_us
    if since == 0:
        return True
    if quiet is None or _is_quiet(quiet, time) or not _is_quiet(quiet, time - 1):
        return False
    mark = time - since
    minutes = range(mark, time, MINUTE)
    return all(_is_quiet(quiet, minute) for minute in minutes)


@given(SETTINGS, times(), st.lists(st.integers(0, 100), min_size=1, max_size=6), st.data())
def test_a_late_server_keeps_to_quiet_hours_and_loses_nothing(
    settings: PacingSettings, start: int, gaps: list[int], data: st.DataObject
) -> None:
    pacing = Pacing(settings)
    sent: tuple[int, ...] = ()
    now = start
    for gap in gaps:
        event = start + gap * MINUTE
        now = max(now, event) + data.draw(st.integers(0, 2 * DAY))
        release = pacing.next_release(event, now, sent)
        now = max(now, release)
        assert pacing.next_release(event, now, sent) <= now  # when the time has come, it stays so
        assert settings.quiet_hours is None or not _is_quiet(settings.quiet_hours, now)
        sent = pacing.remember(sent, now)
        assert len(sent) <= max((cap.events for cap in settings.caps), default=0)


def test_without_settings_events_go_at_once() -> None:
    pacing = Pacing(PacingSettings())
    assert pacing.next_release(100, 200, ()) <= 200
    assert pacing.next_release(300, 200, ()) <= 200  # the clock was set back
    assert pacing.count_together([100, 101], ()) == 1
    assert pacing.remember((1, 2), 3) == ()


def test_a_digest_holds_the_events_of_one_mark() -> None:
    pacing = Pacing(PacingSettings(digest=Digest(interval_us=HOUR, origin_us=10 * MINUTE)))
    first = 7 * HOUR + 10 * MINUTE
    arrivals = [first - 20 * MINUTE, first - 1, first, first + 1, first + HOUR]
    assert _simulate(pacing, arrivals) == [(first, [0, 1, 2]), (first + HOUR, [3, 4])]


def test_a_cap_cuts_a_digest() -> None:
    settings = PacingSettings(caps=(Cap(2, 90 * MINUTE),), digest=Digest(HOUR))
    arrivals = [MINUTE * minute for minute in range(1, 6)]
    expected = [(HOUR, [0, 1]), (3 * HOUR, [2, 3]), (5 * HOUR, [4])]
    assert _simulate(Pacing(settings), arrivals) == expected


def test_a_digest_of_the_night_comes_in_the_morning() -> None:
    settings = PacingSettings(
        digest=Digest(DAY, _us("2026-01-01T03:00")), quiet_hours=QuietHours(22 * 60, 7 * 60, "UTC")
    )
    sends = _simulate(Pacing(settings), [_us("2026-05-05T12:00"), _us("2026-05-06T02:00")])
    assert sends == [(_us("2026-05-06T07:00"), [0, 1])]
    times = [time for time, _ in _simulate(Pacing(settings), [_us("2026-05-06T05:00")])]
    assert times == [_us("2026-05-07T07:00")]
    assert all(earlier < later for earlier, later in pairwise([sends[0][0], *times]))


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("cap.events", lambda: Cap(0, HOUR)),
        ("cap.events", lambda: Cap(1_001, HOUR)),
        ("cap.period", lambda: Cap(1, SECOND - 1)),
        ("cap.period", lambda: Cap(1, 367 * DAY)),
        ("digest.interval", lambda: Digest(0)),
        ("quietHours.from", lambda: QuietHours(-1, 60, "UTC")),
        ("quietHours.to", lambda: QuietHours(0, 1440, "UTC")),
        ("quietHours.to", lambda: QuietHours(60, 60, "UTC")),
        ("quietHours.timeZone", lambda: QuietHours(0, 60, "Europe/Atlantis")),
        ("quietHours.timeZone", lambda: QuietHours(0, 60, "Europe")),
        ("quietHours.timeZone", lambda: QuietHours(0, 60, "../../etc/passwd")),
        ("quietHours.timeZone", lambda: QuietHours(0, 60, "")),
    ],
)
def test_invalid_settings(field: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == field
