"""The command of `make attack`: runs attacks, prints the table, and returns 1 if one succeeded."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from attack import callers, generated, receivers, strangers
from attack.judging import TRIES, Verdict, is_slow, judged, table
from attack.measuring import Target, measure
from attack.sending import Attack, Effort

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ATTACKS", "main"]

ATTACKS = {
    attack.name: attack
    for module in (strangers, callers, receivers, generated)
    for attack in module.ATTACKS
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run attacks; return 1 if a server did what it must not."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=ATTACKS, default=[*ATTACKS])
    parser.add_argument("--long", action="store_true", help="ten times as many generated requests")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("NEARCAST_TEST_SEED", "0")))
    parser.add_argument("--list", action="store_true", help="tell what the attacks do, and end")
    given = parser.parse_args(arguments)
    if given.list:
        print(*(f"{attack.name:20} {attack.what}" for attack in ATTACKS.values()), sep="\n")
        return 0
    begin = time.monotonic()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shared: Target | None = None
        for name in given.only:
            attack = ATTACKS[name]
            if attack.has_own_server:
                with Target(Path(folder) / name, attack) as own:
                    verdict = _tried(attack, own, given.long, given.seed)
            else:
                if shared is None or shared.has_ended():
                    shared = stack.enter_context(Target(Path(folder) / f"before-{name}"))
                verdict = _tried(attack, shared, given.long, given.seed)
            print(*table([verdict])[bool(verdicts) :], sep="\n", flush=True)
            verdicts.append(verdict)
    failed = [verdict.name for verdict in verdicts if verdict.faults]
    outcome = f"failed: {', '.join(failed)}" if failed else "the server survived all of them"
    print(f"\n{len(verdicts)} attacks in {time.monotonic() - begin:.0f} s; {outcome}")
    return 1 if failed else 0


def _tried(attack: Attack, target: Target, long: bool, seed: int) -> Verdict:
    """Run an attack, and twice more if it seems to be too slow: that may be the machine."""
    tries = []
    for _ in range(TRIES):
        effort = Effort(long, random.Random(f"{attack.name}-{seed}"))
        tries.append(measure(attack, target, effort))
        if not is_slow(tries[0]) or target.has_ended():
            break
    verdict = judged(attack.name, tries)
    if target.has_ended():
        print(*target.live.output[-20:], sep="", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
