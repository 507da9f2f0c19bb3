"""What the design asks of the default moving index, compared with the measurements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearcast.indexes.moving import registry

__all__ = ["PRINTED_LABEL", "Target", "judge_targets"]

PRINTED_LABEL = "ap+-tree as printed"
"""The ap+-tree with the paper's options; ``ap+-tree`` has our default options."""

_AP_TREES = ("ap+-tree", "ap+k-tree", "ap+s-tree")


class Target(NamedTuple):
    """A target, what was measured, and whether that reaches it."""

    name: str
    wanted: str
    measured: float
    unit: str
    reached: bool

    @classmethod
    def at_least(cls, name: str, bound: float, measured: float, unit: str) -> Target:
        """Return a target that large values reach."""
        return cls(name, f"at least {bound:,.10g} {unit}", measured, unit, measured >= bound)

    @classmethod
    def at_most(cls, name: str, bound: float, measured: float, unit: str) -> Target:
        """Return a target that small values reach."""
        return cls(name, f"at most {bound:,.10g} {unit}", measured, unit, measured <= bound)


def judge_targets(
    results: list[dict[str, Any]], engine: dict[str, Any] | None = None
) -> list[Target]:
    """Compare the default index, and the engine if it was measured, with the targets."""
    by_label = {one["series"]: one for one in results}
    targets = []
    own = by_label.get(registry.DEFAULT)
    if own is not None:
        targets += _kernel_targets(own)
        ours = [by_label[name] for name in _AP_TREES if name in by_label]
        if ours:
            targets += _ratios(own, ours, 4, "the best of our ap+-trees")
        if PRINTED_LABEL in by_label:
            targets += _ratios(own, [by_label[PRINTED_LABEL]], 10, "the ap+-tree as printed")
    if engine is not None:
        targets += [
            Target.at_least(
                "move_table, integer ids",
                300_000,
                1e6 / engine["us_per_table_move"]["median"],
                "moves/s",
            ),
            Target.at_most("Engine.move", 100, engine["single_move_us"]["median"], "µs"),
        ]
    return targets


def _kernel_targets(own: dict[str, Any]) -> list[Target]:
    subscription = own["bytes_per_subscription"]
    tokens = own["bytes_of_tokens_per_subscription"]
    return [
        Target.at_least("moves", 1e6, 1e6 / _median(own, "us_per_move"), "moves/s"),
        Target.at_most("publish", 3, _median(own, "us_per_publish"), "µs"),
        Target.at_most("a subscription, all", 100, subscription, "bytes"),
        Target.at_most("a subscription, without tokens", 100, subscription - tokens, "bytes"),
        Target.at_most("a living message", 400, own["bytes_per_message"], "bytes"),
    ]


def _ratios(
    own: dict[str, Any], others: list[dict[str, Any]], bound: float, name: str
) -> list[Target]:
    targets = []
    for what, key in (("moves", "us_per_move"), ("whole ticks", "tick_s")):
        best = min(_median(other, key) for other in others)
        ratio = best / _median(own, key)
        targets.append(Target.at_least(f"{what}, relative to {name}", bound, ratio, "x"))
    return targets


def _median(result: dict[str, Any], key: str) -> float:
    return float(np.median(result[key]))
