"""What Griffe does with docstrings before they become the reference on the site.

Entries for several parameters, such as ``lon, lat``, become one entry each, so that each has its
own type. Names in single backticks become links where they have a place on a reference page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe

from nearcast.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Reference", "documented", "split_entries"]

ROOT = Path(__file__).parent


class Reference(griffe.Extension):
    """Splits entries for several parameters, and links names."""

    def on_object(self, *, obj: griffe.Object, **arguments: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _linked(split_entries(obj.docstring.value), obj)

    def on_package(self, *, pkg: griffe.Module, **arguments: Any) -> None:
        """Show the methods of the clients that are made of functions as methods."""
        for where in ("client.blocking.Client", "client.asynchronous.AsyncClient"):
            if "client" in pkg.members:
                _make_methods(pkg, pkg[where])


def _make_methods(pkg: griffe.Module, client: griffe.Class) -> None:
    """Replace ``get = _method(subscriptions.get)`` by a method with that function's docstring."""
    for name, member in list(client.members.items()):
        made = re.fullmatch(r"_method\((\w+)\.(\w+)\)", str(getattr(member, "value", "")))
        if made is None:
            continue
        function = pkg[f"client.{made[1]}.{made[2]}"]
        own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_only)
        returns = function.returns
        method = griffe.Function(
            name,
            lineno=member.lineno,
            endlineno=member.endlineno,
            parameters=griffe.Parameters(own, *function.parameters),
            returns=returns.slice if isinstance(returns, griffe.ExprSubscript) else returns,
        )
        if client.name == "AsyncClient":
            method.labels.add("async")
        client.set_member(name, method)
        text = function.docstring
        if text is not None:
            method.docstring = griffe.Docstring(text.value, parent=method, parser=text.parser)


def split_entries(text: str) -> str:
    r"""Return a docstring with one entry per parameter.

    >>> print(split_entries("lon, lat\n    In degrees."))
    lon
        In degrees.
    lat
        In degrees.
    """
    entry = re.compile(r"^(\w+(?:, \w+)+)\n((?: {4}.*(?:\n|\Z))+)", re.MULTILINE)

    def split(found: re.Match[str]) -> str:
        content = found[2].rstrip("\n")
        ending = found[2][len(content) :]
        return "\n".join(f"{name}\n{content}" for name in found[1].split(", ")) + ending

    return entry.sub(split, text)


def documented() -> set[str]:
    """Return the names on the reference pages, as the pages write them."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


@cache
def _anchors() -> dict[str, str]:
    """Return the names on the reference pages and those of their members, by where they are."""
    found: dict[str, str] = {}
    for path in sorted(documented()):
        module, _, name = path.rpartition(".")
        found[path] = path
        if module.endswith(f".{name}"):  # a function with the name of its module
            found[module] = path
        try:
            value = getattr(importlib.import_module(module), name)
        except MissingExtra:
            continue
        if inspect.isclass(value):
            found[f"{value.__module__}.{name}"] = path
            found |= {member: f"{path}.{member.rpartition('.')[2]}" for member in _members(value)}
        elif inspect.isfunction(value):
            found[f"{value.__module__}.{name}"] = path
    return found


def _members(value: type) -> Iterator[str]:
    """Yield the public methods and properties of a class, by where they are defined."""
    inherits = value.__name__ == "Engine"
    for base in value.__mro__ if inherits else (value,):
        for name, member in vars(base).items():
            method = isinstance(member, property | classmethod) or inspect.isfunction(member)
            if not name.startswith("_") and method and member.__doc__:
                yield f"{base.__module__}.{base.__name__}.{name}"


def _linked(text: str, obj: griffe.Object) -> str:
    def link(found: re.Match[str]) -> str:
        anchor = _find(found[1], obj)
        return f"[`{found[1]}`][{anchor}]" if anchor else found[0]

    code = r"(?m)^ *>>>.*$|``[^`]+``|(?<!\[)`(\w[\w.]*)`"
    return re.sub(code, lambda found: link(found) if found[1] else found[0], text)


def _find(name: str, obj: griffe.Object) -> str | None:
    """Return the anchor of a name in a docstring: in its class, its module, or its package."""
    anchors = _anchors()
    package = obj.module.path
    for prefix in (obj.path, obj.path.rpartition(".")[0], package):
        if f"{prefix}.{name}" in anchors:
            return anchors[f"{prefix}.{name}"]
    while package:
        if f"{package}.{name}" in anchors:
            return anchors[f"{package}.{name}"]
        package = package.rpartition(".")[0]
    if name in anchors:
        return anchors[name]
    same = {anchor for anchor in anchors.values() if anchor.endswith(f".{name}")}
    return same.pop() if len(same) == 1 and name[0].isupper() else None
