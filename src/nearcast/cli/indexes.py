"""``nearcast indexes``: list the available indexes."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from nearcast.cli.output import show_json, show_table

__all__ = ["indexes"]


def indexes(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the indexes with a description and their options with defaults."""
    from nearcast import indexes as registry

    found = [_describe(registry.get(name)) for name in registry.names()]
    if as_json:
        show_json(found)
        return
    rows = [
        [
            f["name"] + (" (default)" if f["default"] else ""),
            f["summary"],
            ", ".join(f"{name}={value}" for name, value in f["options"].items()) or "none",
        ]
        for f in found
    ]
    show_table("indexes", ["name", "description", "options"], rows)


def _describe(index: Any) -> dict[str, Any]:
    from nearcast.indexes import DEFAULT

    defaults = index.Options()
    return {
        "name": index.name,
        "summary": index.summary,
        "options": {field.name: getattr(defaults, field.name) for field in fields(defaults)},
        "default": index.name == DEFAULT,
    }
