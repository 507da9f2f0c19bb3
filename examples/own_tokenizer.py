"""A tokenizer of your own: names of programming languages stay as they are.

The default tokenizer reads C++ and C# as c, so subscriptions to them are refused. This one keeps
them. It has a name, module:function, so a saved engine finds it again.

Run it: python examples/own_tokenizer.py
"""

import re
import tempfile

from nearcast import Engine, Message, Rect, Subscription
from nearcast.errors import NearcastError

_WORD = re.compile(r"[\w+#]+")
EUROPE = Rect(-10, 36, 30, 60)
TEXTS = ["Senior C++ engineer, remote", "We teach c# and Java", "Vitamin C, 100 tablets"]


def languages(text: str) -> list[str]:
    """Return words in lower case, with the signs of C++ and C#."""
    return _WORD.findall(text.lower())


def show(engine: Engine) -> None:
    """Print who gets each text."""
    for number, text in enumerate(TEXTS):
        found = engine.publish(Message(number, (11.6, 48.1), text))
        print(f"{text}: {', '.join(str(m.subscription_id) for m in found) or 'nobody'}")


if __name__ == "__main__":
    try:
        Engine().subscribe(Subscription("ann", EUROPE, ["C++"]))
    except NearcastError as error:
        print(f"words: {error}")
    engine = Engine(tokenizer=languages)
    engine.subscribe(Subscription("ann", EUROPE, ["C++"]))
    engine.subscribe(Subscription("ben", EUROPE, expression='"c# and java" OR rust*'))
    show(engine)
    with tempfile.TemporaryDirectory() as folder:
        engine.save(f"{folder}/engine")
        try:
            Engine.open(f"{folder}/engine", tokenizer="words")
        except NearcastError as error:
            print(str(error).partition(": ")[2])
        # Without the argument it would be loaded as __main__:languages, which works here too.
        show(Engine.open(f"{folder}/engine", tokenizer=languages))
