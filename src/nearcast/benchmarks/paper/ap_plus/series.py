"""The scenes, series and figures of section 5.2 of the ap-tree paper.

TWEETS is ``tweets`` here. GN is replaced by ``places`` with messages of seven tokens and the
paper's subscriptions, as in `nearcast.benchmarks.paper.ap_tree`. The road maps of a city (6,000
nodes) and a county (18,000) are generated. Speeds are the medium ones of the generator that the
paper uses.

The marks of the defaults in table 3 are lost. These are likely: a million subscriptions of 0.01 to
1 % of the space (as in section 5.1), half a million living messages of which a tenth arrives in a
tick, medium speed, 40 % of the subscriptions move.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nearcast.benchmarks.moving.targets import PRINTED_LABEL as PRINTED
from nearcast.benchmarks.paper.figures import Figure, Point, Sweep
from nearcast.benchmarks.paper.moving import TICK, MovingSeries, Scene
from nearcast.indexes.moving import ap_plus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.benchmarks.paper.figures import Line

__all__ = [
    "AP",
    "APK",
    "APS",
    "ARRIVALS",
    "CIRCLES",
    "EXISTING",
    "FIGURES",
    "GN_CITY",
    "GN_COUNTY",
    "IQ",
    "KK",
    "LIFETIMES",
    "LIVES",
    "MOBILITIES",
    "NOTE",
    "PRINTED",
    "RANGES",
    "RQ",
    "SCENES",
    "SERIES",
    "SETS",
    "SIZES",
    "SS",
    "TWEETS_CITY",
    "TWEETS_COUNTY",
    "TWIN",
    "VELOCITIES",
    "arriving",
    "circled",
    "fast",
    "mobile",
    "ranged",
    "sized",
]

NOTE = "CPU time, after a tick to warm up"

TWIN = "twin-lists"
"""Our default, which is not in the paper."""

AP, APK, APS = "ap+-tree", "ap+k-tree", "ap+s-tree"
SS, KK, IQ, RQ = "ss-index", "kk-index", "iq+-tree", "rq+-tree"

EXISTING = (SS, KK, IQ, RQ)
COMPARED = (*EXISTING, PRINTED, AP, TWIN)
SWEPT = (*EXISTING, AP, TWIN)
"""The lines of sweeps: the ap+-tree as printed is slower than with our options throughout."""

SERIES: dict[str, MovingSeries] = {
    **{name: MovingSeries(name) for name in (TWIN, AP, APK, APS)},
    PRINTED: MovingSeries(AP, ap_plus.PRINTED),
    **{name: MovingSeries(name) for name in EXISTING},
}

TWEETS_CITY, TWEETS_COUNTY = "tweets, city", "tweets, county"
GN_CITY, GN_COUNTY = "like GN, city", "like GN, county"
SETS = (TWEETS_CITY, TWEETS_COUNTY, GN_CITY, GN_COUNTY)

MOBILITIES = (0.1, 0.2, 0.4, 0.6, 0.8)
VELOCITIES = (0.5, 1.0, 2.0, 4.0)
RANGES = (1e-6, 1e-4, 0.01, 1.0, 10.0)
"""Areas of subscriptions in percent of the space."""

SIZES = (0.5, 1.0, 1.5, 2.0, 2.5)
"""Millions of subscriptions, and of living messages."""

CIRCLES = (0.01, 0.05, 0.1, 0.5, 1.0)
"""Subscriptions of figure 26, relative to a million."""

ARRIVALS = (0.01, 0.02, 0.03, 0.04, 0.05)
"""Arrivals of figure 27, relative to a million living messages."""

LIVES = (1, 2, 5, 10, 20, 50, 100)
LIFETIMES = "lifetimes"
_LIFETIME_SIZE = 0.02
"""A hundred lifetimes are a thousand ticks: they are run in a fiftieth of the size."""

_GN = {"message_tokens": (7, 7), "keywords": (1, 5)}

_SETS = {
    TWEETS_CITY: Scene(apart=True),
    TWEETS_COUNTY: Scene(county=True),
    GN_CITY: Scene("places", _GN),
    GN_COUNTY: Scene("places", _GN, county=True),
}


def mobile(share: float) -> str:
    """Return the scene in which this share of the subscriptions moves in a tick."""
    return TWEETS_CITY if share == 0.4 else f"{TWEETS_CITY}, mobility {share:g}"


def fast(scene: str, velocity: float) -> str:
    """Return a scene with another velocity."""
    return scene if velocity == 1.0 else f"{scene}, velocity {velocity:g}"


def ranged(percent: float) -> str:
    """Return the scene in which all subscriptions have one size."""
    return f"{TWEETS_CITY}, range {percent:g} %"


def sized(factor: float) -> str:
    """Return the scene with as many living messages as subscriptions, in some size."""
    return f"{TWEETS_CITY}, {factor:g} M of both"


def circled(share: float) -> str:
    """Return the scene of circles with this share of a million subscriptions."""
    return f"circles, {share:g} x"


def arriving(share: float) -> str:
    """Return the scene of circles in which this share of the messages arrives in a tick."""
    return f"circles, arrivals {share:g}"


_BASE = replace(_SETS[TWEETS_CITY], apart=False)
_CIRCLES = Scene(messages=2.0, arrivals=0.05, mobility=1.0, circles=True)

SCENES: dict[str, Scene] = {
    **{mobile(share): replace(_BASE, mobility=share) for share in MOBILITIES},
    **{
        fast(name, velocity): replace(_SETS[name], velocity=velocity, apart=False)
        for name in (TWEETS_CITY, GN_COUNTY)
        for velocity in VELOCITIES
    },
    **{
        ranged(percent): replace(_BASE, box_share=(percent / 100, percent / 100))
        for percent in RANGES
    },
    **{
        sized(factor): replace(_BASE, subscriptions=factor, messages=factor * 2) for factor in SIZES
    },
    **_SETS,
    **{circled(share): replace(_CIRCLES, subscriptions=share) for share in CIRCLES},
    **{arriving(share): replace(_CIRCLES, subscriptions=0.1, arrivals=share) for share in ARRIVALS},
    LIFETIMES: replace(
        _BASE, subscriptions=_LIFETIME_SIZE, messages=_LIFETIME_SIZE, lifetimes=LIVES
    ),
}


def _lines(labels: tuple[str, ...], scenes: Mapping[float, str]) -> dict[str, Line]:
    """Return one line per series over scenes, by the varied parameter."""
    return {
        label: {value: Point(name, label, TICK) for value, name in scenes.items()}
        for label in labels
    }


_OWN = (*EXISTING, APK, APS, PRINTED, AP, TWIN)
_CIRCLED = (AP, TWIN)

FIGURES = (
    Figure(
        "apart",
        "Storing a message, and updating a location (VLDB Journal 2015, figure 19)",
        "datasets",
        _OWN,
        (TWEETS_CITY,),
        (TICK,),
        measures=("mi", "slu"),
    ),
    Figure(
        "variants",
        "Where messages are stored (VLDB Journal 2015, figure 20)",
        "datasets",
        (APK, APS, PRINTED, AP, TWIN),
        (TWEETS_CITY,),
        (TICK,),
        measures=("imm", "msp"),
    ),
    Figure(
        "datasets",
        "Four data sets (VLDB Journal 2015, figure 21)",
        "datasets",
        COMPARED,
        SETS,
        (TICK,),
        measures=("imm", "msp", "total_bytes"),
    ),
    Sweep(
        "mobility",
        "Share of subscriptions that move in a tick (VLDB Journal 2015, figure 22)",
        "mobility",
        {TWEETS_CITY: _lines(SWEPT, {share: mobile(share) for share in MOBILITIES})},
        ("total_msp", "imm"),
    ),
    Sweep(
        "velocity",
        "Velocity (VLDB Journal 2015, figure 23)",
        "velocity, relative to medium",
        {
            name: _lines(SWEPT, {velocity: fast(name, velocity) for velocity in VELOCITIES})
            for name in (TWEETS_CITY, GN_COUNTY)
        },
        ("msp",),
    ),
    Sweep(
        "range",
        "Size of subscriptions (VLDB Journal 2015, figure 24)",
        "% of the space",
        {TWEETS_CITY: _lines(SWEPT, {percent: ranged(percent) for percent in RANGES})},
        ("msp",),
    ),
    Sweep(
        "scale",
        "Number of subscriptions and of living messages (VLDB Journal 2015, figure 25)",
        "millions of subscriptions",
        {TWEETS_CITY: _lines(SWEPT, {factor: sized(factor) for factor in SIZES})},
        ("msp", "imm", "total_bytes"),
    ),
    Sweep(
        "circles",
        "Circles, all of which move (VLDB Journal 2015, figure 26)",
        "millions of subscriptions",
        {"circles": _lines(_CIRCLED, {share: circled(share) for share in CIRCLES})},
        ("tick", "quiet"),
    ),
    Sweep(
        "arrivals",
        "Circles by arrivals of a tick (VLDB Journal 2015, figure 27)",
        "arrivals, as a share of the living messages",
        {"circles": _lines(_CIRCLED, {share: arriving(share) for share in ARRIVALS})},
        ("tick", "quiet"),
    ),
    Figure(
        "ticks",
        "Whole ticks and memory (ours)",
        "datasets",
        _OWN,
        (TWEETS_CITY,),
        (TICK,),
        measures=("ticks", "bytes", "message_bytes", "copies"),
    ),
    Sweep(
        "lifetimes",
        "Memory over lifetimes of messages (ours)",
        "lifetimes",
        {
            LIFETIMES: {
                label: {lives: Point(LIFETIMES, label, str(lives)) for lives in LIVES}
                for label in _OWN
            }
        },
        ("total_bytes",),
    ),
)
