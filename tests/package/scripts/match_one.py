"""Match one message, and say which Numba did."""

import numba

from nearcast import Circle, Engine, Message, Subscription

engine = Engine()
engine.subscribe(Subscription("ann", Circle(11.57, 48.14, radius_m=2000), "ipad discount"))
matches = engine.publish(Message(1, (11.57, 48.14), "iPad at a discount"))
print(f"numba>={numba.__version__}")  # noqa: T201
print([match.subscription_id for match in matches])  # noqa: T201
