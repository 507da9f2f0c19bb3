"""What ``nearcast serve`` says while it starts."""

from __future__ import annotations

import threading

import pytest

from nearcast.cli import serve
from nearcast.compiled import cache


class Waits(threading.Event):
    """An event that is set when it was waited for a number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize(
    ("compiled", "doing"),
    [(0, "reading the log"), (12, "12 kernels compiled, once for this machine")],
)
def test_a_slow_start_shows_progress(
    compiled: int, doing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "_compiled", compiled)
    serve._show_progress(Waits(2))
    said = capsys.readouterr().err.splitlines()
    assert said == [f"Starting, for 0 s: {doing}."] * 2


def test_a_quick_start_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    serve._show_progress(Waits(0))
    assert capsys.readouterr().err == ""
