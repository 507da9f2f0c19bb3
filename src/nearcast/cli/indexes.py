"""``nearcast indexes``: list the available indexes."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from nearcast.cli.output import show_json, show_table

__all__ = ["indexes"]

_MOVING = "moving"
"""The kind of indexes for subscriptions that move and messages that live for a while."""


def indexes(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List all indexes: the kinds of subscriptions that each takes, and its options with defaults.

    Give the name to --index and options to --option NAME=VALUE of nearcast match. Indexes that
    change in place have insert and delete; an engine takes changes with every index.
    """
    from nearcast import indexes as registry
    from nearcast.indexes import moving

    found = [_describe(name) for name in registry.names()]
    found += [_describe_moving(name) for name in moving.names()]
    if as_json:
        show_json(found)
        return
    rows = [
        [
            f["name"],
            ", ".join(
                f"{kind} (default)" if kind in f["default_of"] else kind for kind in f["kinds"]
            ),
            "yes" if f["changes_in_place"] else "no",
            f["summary"],
            ", ".join(f"{name}={value}" for name, value in f["options"].items()) or "none",
        ]
        for f in found
    ]
    show_table("indexes", ["name", "kinds", "in place", "description", "options"], rows)


def _describe(name: str) -> dict[str, Any]:
    from nearcast import indexes as registry
    from nearcast.columns import KINDS

    builder = registry.create(name)
    forms = [builder, *(b for b in builder.others if b.index.name == name)]
    defaults = {"boolean": registry.DEFAULT, **dict.fromkeys(KINDS[1:], registry.RANKED_DEFAULT)}
    return {
        "name": name,
        "kinds": list(builder.kinds),
        "summary": builder.index.summary,
        "changes_in_place": all(issubclass(f.index, registry.UpdatableIndex) for f in forms),
        "options": {
            field.name: getattr(form.options, field.name)
            for form in forms
            for field in fields(form.options)
        },
        "default_of": [kind for kind in builder.kinds if defaults[kind] == name],
    }


def _describe_moving(name: str) -> dict[str, Any]:
    from nearcast.indexes import moving

    builder = moving.create(name)
    return {
        "name": name,
        "kinds": [_MOVING],
        "summary": builder.index.summary,
        "changes_in_place": True,
        "options": {f.name: getattr(builder.options, f.name) for f in fields(builder.options)},
        "default_of": [_MOVING] if name == moving.DEFAULT else [],
    }
