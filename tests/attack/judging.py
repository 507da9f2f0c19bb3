"""What an attack may do to a server, and the table of what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["HEALTH_MS", "KEPT_MB", "TRIES", "Measured", "Verdict", "is_slow", "judged", "table"]

HEALTH_MS = 100.0
"""How long an answer of ``/healthz`` may take, beside what it waits for a processor.

On a machine that others use, all answers do; that says nothing about the server.
"""

KEPT_MB = 50.0
"""How much more memory a server may have after an attack than before it."""

TRIES = 3
"""How often a slow attack is tried: machines are noisy, and the median counts."""

_RIGHT_5XX = (503, 507)
"""A server that is full may say so; any other 5xx is a fault of its own."""


@dataclass(frozen=True)
class Measured:
    """What one run of an attack did.

    Parameters
    ----------
    requests
        How many requests were sent.
    statuses
        How many answers had each status.
    health_ms, own_ms
        How long the slowest answer of ``/healthz`` took, and without waiting for a processor.
    before_mb, most_mb, after_mb
        The memory of the server.
    ended
        Whether the process of the server has ended.
    notes
        What else is worth telling.
    wrong
        What the attack itself found wrong.
    """

    requests: int
    statuses: dict[int, int]
    health_ms: float
    own_ms: float
    before_mb: float
    most_mb: float
    after_mb: float
    ended: bool = False
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def server_errors(self) -> int:
        """How many answers were 5xx."""
        return sum(count for status, count in self.statuses.items() if status >= 500)


@dataclass(frozen=True)
class Verdict:
    """What all tries of an attack did together, and what of that is not allowed."""

    name: str
    tries: tuple[Measured, ...]
    health_ms: float
    own_ms: float
    faults: tuple[str, ...]


def is_slow(measured: Measured) -> bool:
    """Return whether an attack has to be tried again, to know whether it was the machine."""
    return measured.own_ms > HEALTH_MS and not measured.ended


def judged(name: str, tries: Sequence[Measured]) -> Verdict:
    """Return the verdict about an attack."""
    health_ms = float(np.median([one.health_ms for one in tries]))
    own_ms = float(np.median([one.own_ms for one in tries]))
    faults = []
    if own_ms > HEALTH_MS:
        taken = ", ".join(f"{one.own_ms:.0f}" for one in tries)
        faults.append(f"/healthz took {taken} ms at worst; at most {HEALTH_MS:.0f} are allowed")
    for one in tries:
        for status, count in sorted(one.statuses.items()):
            if status >= 500 and status not in _RIGHT_5XX:
                faults.append(f"{count:,} answers were {status}")
        if one.ended:
            faults.append("the server has ended")
        elif one.after_mb > one.before_mb + KEPT_MB:
            kept = one.after_mb - one.before_mb
            faults.append(f"{kept:.0f} MB were kept; at most {KEPT_MB:.0f} are allowed")
        faults += one.wrong
    return Verdict(name, tuple(tries), health_ms, own_ms, tuple(dict.fromkeys(faults)))


def table(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the lines of a table of all attacks."""
    lines = [
        f"{'attack':22} {'requests':>8} {'5xx':>5} {'/healthz ms':>11} {'own':>5} "
        f"{'MB before':>9} {'at most':>7} {'after':>5}"
    ]
    for verdict in verdicts:
        first = verdict.tries[0]
        most = max(one.most_mb for one in verdict.tries)
        lines.append(
            f"{verdict.name:22} {sum(one.requests for one in verdict.tries):8,} "
            f"{sum(one.server_errors for one in verdict.tries):5,} {verdict.health_ms:11.1f} "
            f"{verdict.own_ms:5.1f} "
            f"{first.before_mb:9.0f} {most:7.0f} {first.after_mb:5.0f}"
        )
        if len(verdict.tries) > 1:
            taken = ", ".join(f"{one.health_ms:.0f} ({one.own_ms:.0f})" for one in verdict.tries)
            lines.append(f"    /healthz in {len(verdict.tries)} tries: {taken} ms")
        lines += [f"    {note}" for one in verdict.tries for note in one.notes]
        lines += [f"    FAILED: {fault}" for fault in verdict.faults]
    return lines
