"""What MkDocs adds to the pages of `docs/`: the command reference, documents and examples.

The command reference comes from the commands themselves. ARCHITECTURE, CHANGELOG, CONTRIBUTING and
the examples, scripts and notebooks, are pages of the site, too. Links between them and the pages of
`docs/` lead to the right place in the repository and on the site.
"""

from __future__ import annotations

import posixpath
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import typer
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

from nearcast.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["command_reference", "notebook_page", "on_files", "on_page_markdown"]

ROOT = Path(__file__).parent
DOCUMENTS = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
"""Documents at the top of the repository, and their pages on the site."""

EXAMPLES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/**/*.py"))
NOTEBOOKS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.ipynb"))
PAGES = DOCUMENTS | {name: f"{posixpath.splitext(name)[0]}.md" for name in EXAMPLES + NOTEBOOKS}
"""What is outside of `docs/`, and its pages on the site."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    for name, page in DOCUMENTS.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for name in EXAMPLES:
        code = (ROOT / name).read_text()
        page = f"# {name}\n\n```python\n{code}```\n"
        files.append(File.generated(config, PAGES[name], content=page))
    for name in NOTEBOOKS:
        page, pictures = notebook_page(ROOT / name)
        files.append(File.generated(config, PAGES[name], content=page))
        for path, content in pictures.items():
            uri = posixpath.join(posixpath.dirname(name), path)
            files.append(File.generated(config, uri, content=content))
    files.append(File.generated(config, "reference/commands.md", content=command_reference()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    here = page.file.src_uri
    on_disk = {uri: name for name, uri in PAGES.items()}.get(here, f"docs/{here}")

    def link(found: re.Match[str]) -> str:
        path, hash, anchor = found[1].partition("#")
        if not path or ":" in path:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(on_disk), path))
        uri = PAGES.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{hash}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", link, markdown)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by their paths beside it."""
    resources = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    exporter = MarkdownExporter()  # type: ignore[no-untyped-call]
    page, found = exporter.from_filename(str(path), resources=resources)
    return page.replace("![png](", "![The picture that this cell draws]("), found["outputs"]


def command_reference() -> str:
    """Return a page with all commands, their arguments and options."""
    parts = [
        "# Commands",
        "Every command prints this with `--help`. Results go to stdout, progress and errors to "
        "stderr; `--json` prints a summary as JSON. Exit codes: 0 success, 1 an error, 2 wrong "
        "usage, 3 success, but rows were rejected (with `--strict`).",
    ]
    for path, command in _commands("nearcast", typer.main.get_command(app)):
        parts += [f"## {path}", _sentences(command.help or "")]
        parts += _parameters(command)
    return "\n\n".join(part for part in parts if part) + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from _commands(f"{path} {name}", child)


def _parameters(command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument" and not p.hidden]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    options = [option for option in options if option.name != "help"]
    parts = []
    if arguments:
        rows = [f"| `{a.name.upper()}` | {_cell(a.help)} |" for a in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    if options:
        hints = get_type_hints(command.callback)
        rows = [_option(option, hints[option.name]) for option in options]
        parts.append("\n".join(["| option | default | |", "|---|---|---|", *rows]))
    return parts


def _option(option: Any, kind: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    help, _, default = (option.help or "").partition("[default:")
    if default:
        default = default.rstrip("] ").strip()
    elif option.required:
        default = "required"
    elif option.default not in (None, False, (), []) and not callable(option.default):
        value = getattr(option.default, "value", option.default)
        default = f"`{value}`"
    for choices in (kind, *get_args(kind)):
        if isinstance(choices, type) and issubclass(choices, Enum):
            listed = ", ".join(f"`{choice.value}`" for choice in choices)
            help = f"{help.rstrip()} One of {listed}."
    return f"| {names} | {_cell(default)} | {_cell(help)} |"


def _sentences(help: str) -> str:
    return re.sub(r"[ \t]*\n(?!\n)[ \t]*", " ", help.partition("\f")[0]).strip()


def _cell(text: str | None) -> str:
    plain = " ".join((text or "").split())
    return re.sub(r"<(?=[!/\w])", "&lt;", plain).replace("|", "\\|")
