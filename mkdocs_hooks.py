"""What MkDocs adds to the pages of `docs/`: the command reference, documents and examples.

The command reference comes from the commands themselves. ARCHITECTURE, CHANGELOG, CONTRIBUTING,
SECURITY and the examples, scripts and notebooks, are pages of the site, too. Links between them and
the pages of `docs/` lead to the right place in the repository and on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    "SECURITY.md": "project/security.md",
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
    parts = ["# Commands", _INTRODUCTION]
    for path, command in _commands("nearcast", typer.main.get_command(app)):
        level = "##" if hasattr(command, "commands") or path.count(" ") == 1 else "###"
        parts += [f"{level} {path}", _help(command.help or "")]
        if getattr(command, "commands", None):
            parts.append(_contents(path, command))
        parts += _examples(command.epilog or "")
        parts += _parameters(command)
    return "\n\n".join(part for part in parts if part) + "\n"


_INTRODUCTION = """
Every command prints its part of this page with `--help`.

- Results go to stdout, progress and errors to stderr. `--json` prints the result as JSON.
- An option such as `--tokens A-B` takes a range (`6-20`) or a single number (`6`).
- `FILE|FOLDER|PATTERN` is a file, a folder with all files in it, or a quoted pattern such as
  `'day/*.csv'`.
- Exit codes: 0 success, 1 an error (one line on stderr has the reason), 2 wrong usage, 3 success,
  but rows were rejected (with `--strict`).
""".strip()


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and those below it, single commands before groups."""
    yield path, command
    children = getattr(command, "commands", {}).items()
    for name, child in sorted(children, key=lambda item: hasattr(item[1], "commands")):
        yield from _commands(f"{path} {name}", child)


def _contents(path: str, group: Any) -> str:
    rows = []
    for name, child in group.commands.items():
        anchor = f"{path} {name}".replace(" ", "-")
        rows.append(
            f"| [`{name}`](#{anchor}) | {_cell((child.help or '').split(chr(10) * 2)[0])} |"
        )
    return "\n".join(["| command | |", "|---|---|", *rows])


def _examples(epilog: str) -> list[str]:
    lines = [line.strip() for line in epilog.splitlines()[1:]]
    return ["```console\n" + "\n".join(lines) + "\n```"] if lines else []


def _parameters(command: Any) -> list[str]:
    """Return a table of the arguments, and one of the options of each panel of the help."""
    arguments = [p for p in command.params if p.param_type_name == "argument" and not p.hidden]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    options = [option for option in options if option.name != "help"]
    parts = []
    if arguments:
        rows = [f"| `{a.metavar or a.name.upper()}` | {_cell(a.help)} |" for a in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    panels: dict[str, list[str]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "Options", []).append(_option(option))
    for name, rows in panels.items():
        if len(panels) > 1:
            parts.append(f"**{name}**")
        parts.append("\n".join(["| option | default | |", "|---|---|---|", *rows]))
    return parts


def _option(option: Any) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    names += "".join(f", `{name}`" for name in option.secondary_opts)
    default = ""
    if option.required:
        default = "required"
    elif isinstance(option.show_default, str):
        default = _cell(option.show_default)
    elif not option.is_flag and option.default not in (None, "", (), []):
        default = f"`{getattr(option.default, 'value', option.default)}`"
    return f"| {names} | {default} | {_cell(option.help)}{_limits(option)} |"


def _limits(option: Any) -> str:
    """Return the smallest and the largest value in words."""
    low, high = option.min, option.max
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f" At least {low:,}." if high is None else f" At most {high:,}."
    return f" From {low:,} to {high:,}."


def _help(text: str) -> str:
    """Return a help text: paragraphs, with options as code."""
    plain = re.sub(r"<(?=[!/\w])", "&lt;", text.strip())
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", plain)


def _cell(text: str | None) -> str:
    return _help(" ".join((text or "").split())).replace("|", "\\|")
