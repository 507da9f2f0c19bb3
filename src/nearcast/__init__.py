"""Nearcast: location-aware publish/subscribe.

Subscriptions say what and where; messages carry text, a place and a time; an engine delivers every
message to every subscription it matches.

>>> import nearcast
>>> engine = nearcast.Engine()
>>> engine.subscribe(nearcast.Subscription("ann", nearcast.Rect(11, 48, 12, 49), "ipad discount"))
>>> engine.publish(nearcast.Message(1, (11.57, 48.14), "Discount today: iPad Air"))
[Match(message_id=1, subscription_id='ann', score=None)]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcast import errors, indexes
    from nearcast.engine import Engine
    from nearcast.model import (
        Circle,
        Explanation,
        Match,
        Message,
        Overlap,
        OwnedMatch,
        Point,
        Polygon,
        Proximity,
        Rect,
        Region,
        Subscription,
        Update,
        region,
    )

__version__ = "0.1.0"

__all__ = [
    "Circle",
    "Engine",
    "Explanation",
    "Match",
    "Message",
    "Overlap",
    "OwnedMatch",
    "Point",
    "Polygon",
    "Proximity",
    "Rect",
    "Region",
    "Subscription",
    "Update",
    "__version__",
    "errors",
    "indexes",
    "region",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line starts without the engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("errors", "indexes"):
        return import_module(f"{__name__}.{name}")
    module = "engine" if name == "Engine" else "model"
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
