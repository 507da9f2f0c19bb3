"""Runs the code blocks of a page of the documentation, from top to bottom, in one folder.

- A block with ``>>>``: pytest runs it as a doctest, so it is left out here.
- ``python``: run as it stands; the blocks of a page share their names.
- Any block with ``title="alerts.py"``: written to that file.
- ``console``: each line is a command, which must succeed.
- ``text`` right after a ``console`` block: what its commands print; ``...`` stands for anything.

A comment in the line before a block changes this: ``<!-- test: with --messages 100 -->`` adds
arguments to each command, which makes it small enough for a test; ``<!-- test: skip REASON -->``
leaves the block out.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from nearcast.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PAGES", "ROOT", "Block", "is_about_kafka", "is_about_spark", "read_blocks", "run_page"]

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:[ ]*<!-- test: (?P<note>.*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    title: str | None
    skip: str | None
    arguments: list[str]
    line: int


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        verb, _, rest = (found["note"] or "").partition(" ")
        assert verb in ("", "skip", "with"), f"{page}: unknown comment {found['note']!r}"
        assert not verb or rest, f"{page}: {verb} needs a reason or arguments"
        title = re.search(r'title="([^"]+)"', found["options"])
        code = re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
        yield Block(
            found["language"],
            code,
            title[1] if title else None,
            rest if verb == "skip" else None,
            shlex.split(rest) if verb == "with" else [],
            text.count("\n", 0, found.start("language")) + 1,
        )


def is_about_spark(page: Path) -> bool:
    """Return whether a page needs Spark."""
    blocks = [block.code for block in read_blocks(page) if block.skip is None]
    return any(re.search(r"nearcast spark|nearcast\.spark|examples/spark", code) for code in blocks)


def is_about_kafka(page: Path) -> bool:
    """Return whether a page needs a Kafka broker."""
    return any("kafka" in block.code for block in read_blocks(page) if block.skip is None)


def run_page(page: Path, folder: Path, replace: Mapping[str, str] | None = None) -> int:
    """Run the blocks of a page in a folder, and return how many ran.

    Parameters
    ----------
    page
        The page.
    folder
        An empty folder, the current one while the blocks run.
    replace
        Texts of the blocks that are replaced, such as the address of a broker.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    count = 0
    with contextlib.chdir(folder):
        for block in read_blocks(page):
            where = f"{page.relative_to(ROOT)}:{block.line}"
            code = block.code
            for old, new in (replace or {}).items():
                code = code.replace(old, new)
            if block.skip is not None or ">>>" in code:
                printed = None
                continue
            count += 1
            if block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(code)
            elif block.language == "python":
                exec(compile(code, where, "exec"), names)
            elif block.language == "console":
                printed = "".join(_run(c, block.arguments, where) for c in _commands(code))
                continue
            elif block.language == "text" and printed is not None:
                _compare(code, printed, where)
            else:
                raise AssertionError(f"{where}: a block of {block.language!r} that nothing runs")
            printed = None
    return count


def _commands(code: str) -> list[str]:
    lines = code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _run(command: str, arguments: list[str], where: str) -> str:
    name, *words = shlex.split(command, comments=True)
    if name == "nearcast":
        done = CliRunner().invoke(app, [*words, *arguments], env={"COLUMNS": "100"})
        assert done.exit_code == 0, f"{where}: {command}\n{done.output}\n{done.exception!r}"
        return done.stdout
    assert name in {"python", "cat", "head", "ls", "cp", "mkdir"}, f"{where}: cannot run {command}"
    line = f"{shlex.quote(sys.executable)} {command[len(name) :]}" if name == "python" else command
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    ran = subprocess.run(
        line, shell=True, capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 0, f"{where}: {command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def _compare(wanted: str, printed: str, where: str) -> None:
    if not doctest.OutputChecker().check_output(wanted, printed, _OPTIONS):
        raise AssertionError(f"{where}: shows\n{wanted}\nbut this was printed:\n{printed}")
