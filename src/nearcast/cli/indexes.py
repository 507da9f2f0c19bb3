"""``nearcast indexes``: list the available indexes."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from nearcast.cli.output import show_json, show_table

__all__ = ["indexes"]


def indexes(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the indexes with the kinds of subscriptions that they take, and their options."""
    from nearcast import indexes as registry

    found = [_describe(name) for name in registry.names()]
    if as_json:
        show_json(found)
        return
    rows = [
        [
            f["name"],
            ", ".join(
                f"{kind} (default)" if kind in f["default_of"] else kind for kind in f["kinds"]
            ),
            f["summary"],
            ", ".join(f"{name}={value}" for name, value in f["options"].items()) or "none",
        ]
        for f in found
    ]
    show_table("indexes", ["name", "kinds", "description", "options"], rows)


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
        "options": {
            field.name: getattr(form.options, field.name)
            for form in forms
            for field in fields(form.options)
        },
        "default_of": [kind for kind in builder.kinds if defaults[kind] == name],
    }
