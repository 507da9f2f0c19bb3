"""Runs the code blocks of a page of the documentation, from top to bottom, in one folder.

- A block with ``>>>``: pytest runs it as a doctest, so it is left out here.
- ``python``: run as it stands; the blocks of a page share their names.
- Any block with ``title="alerts.py"``: written to that file.
- ``console``: each line is a command, which must succeed, or ``NAME=$(command)``.
- ``text`` right after a ``console`` block: what its commands print; ``...`` stands for anything.

A comment in the line before a block changes this:

- ``<!-- test: with --messages 100 -->`` adds arguments to each command, which makes it small enough
  for a test.
- ``<!-- test: skip REASON -->`` leaves the block out.
- ``<!-- test: server -->``: the command is ``nearcast serve``. It runs until the end of the page,
  on a free port; ``$NEARCAST_URL`` and ``$NEARCAST_KEY`` are its address and its first key, and
  ``$NEARCAST_CODE`` is the code of the link that it prints.
- ``<!-- test: background -->``: the command runs until the end of the page.
- ``<!-- test: arrives -->``: a ``text`` block that the command in the background prints by and by.
- ``<!-- test: fails -->``: the command must fail.

What curl prints may be broken into lines anywhere.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from nearcast.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["PAGES", "ROOT", "Block", "is_about_kafka", "is_about_spark", "read_blocks", "run_page"]

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:[ ]*<!-- test: (?P<note>.*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_VERBS = {"", "arrives", "background", "fails", "server", "skip", "with"}
_PROGRAMS = {"python", "cat", "curl", "head", "ls", "cp", "mkdir"}
_CURL = "silent\nshow-error\nfail-with-body\nmax-time = 60\n"
_WAIT_S = 400.0


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    title: str | None
    verb: str
    arguments: list[str]
    line: int

    @property
    def skip(self) -> bool:
        """Whether it is left out."""
        return self.verb == "skip"


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        verb, _, rest = (found["note"] or "").partition(" ")
        assert verb in _VERBS, f"{page}: unknown comment {found['note']!r}"
        assert rest or verb not in ("skip", "with"), f"{page}: {verb} needs a reason or arguments"
        title = re.search(r'title="([^"]+)"', found["options"])
        code = re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
        yield Block(
            found["language"],
            code,
            title[1] if title else None,
            verb,
            [] if verb == "skip" else shlex.split(rest),
            text.count("\n", 0, found.start("language")) + 1,
        )


def is_about_spark(page: Path) -> bool:
    """Return whether a page needs Spark."""
    blocks = [block.code for block in read_blocks(page) if not block.skip]
    return any(re.search(r"nearcast spark|nearcast\.spark|examples/spark", code) for code in blocks)


def is_about_kafka(page: Path) -> bool:
    """Return whether a page needs a Kafka broker."""
    return any("kafka" in block.code for block in read_blocks(page) if not block.skip)


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
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        runner = _Runner(stack, folder)
        for block in read_blocks(page):
            code = block.code
            for old, new in (replace or {}).items():
                code = code.replace(old, new)
            runner.run(block, code, f"{page.relative_to(ROOT)}:{block.line}")
        return runner.count


class _Runner:
    """Runs the blocks of a page; what runs in the background ends with the stack."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed: str | None = None
        self._of_curl = False
        self._arriving: Path | None = None
        self.count = 0

    def run(self, block: Block, code: str, where: str) -> None:
        """Run a block."""
        printed, self._printed = self._printed, None
        if block.skip or ">>>" in code:
            return
        self.count += 1
        if block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(code)
        elif block.language == "python":
            exec(compile(code, where, "exec"), self._names)
        elif block.language == "console" and block.verb in ("server", "background"):
            [command] = _commands(code)
            serves = block.verb == "server"
            self._printed = (self._serve if serves else self._background)(command, where)
        elif block.language == "console":
            fails = block.verb == "fails"
            commands = [one for one in _commands(code) if not self._assign(one, where)]
            ran = [_run(one, block.arguments, where, fails=fails) for one in commands]
            self._printed = "".join(ran)
            self._of_curl = all(one.startswith("curl") for one in commands)
        elif block.language == "text" and block.verb == "arrives" and self._arriving is not None:
            wanted = f"...{_joined(code)}..."
            _await(self._arriving, lambda text: _is_shown(wanted, _joined(text)), where)
        elif block.language == "text" and printed is not None:
            _compare(code, printed, where, joined=self._of_curl)
        else:
            raise AssertionError(f"{where}: a block of {block.language!r} that nothing runs")

    def _serve(self, command: str, where: str) -> str:
        """Start a server, and wait until it listens."""
        words = shlex.split(command)
        assert words[:2] == ["nearcast", "serve"], f"{where}: {command} is no server"
        output = self._start([sys.executable, "-m", "nearcast.cli", *words[1:], "--port", "0"])
        printed = _await(output, lambda text: "Ctrl-C stops it" in text, where)
        url, key = re.search(r"http://\S+", printed), re.search(r"nc_\S+", printed)
        code = re.search(r"#code=(\S+)", printed)
        assert url is not None
        assert key is not None
        assert code is not None
        home = self._folder / ".curl"
        home.mkdir(exist_ok=True)
        (home / ".curlrc").write_text(_CURL)
        found = {"NEARCAST_URL": url[0], "NEARCAST_KEY": key[0], "CURL_HOME": str(home)}
        found["NEARCAST_CODE"] = code[1]
        for name, value in found.items():
            self._set(name, value)
        return printed

    def _assign(self, command: str, where: str) -> bool:
        """Set a variable of the shell for all later commands, if this is what a command does."""
        found = re.fullmatch(r"(\w+)=\$\((.*)\)", command, re.DOTALL)
        if found is not None:
            self._set(found[1], _run(found[2], [], where).strip())
        return found is not None

    def _set(self, name: str, value: str) -> None:
        self._stack.callback(_restore, name, os.environ.get(name))
        os.environ[name] = value

    def _background(self, command: str, where: str) -> None:
        """Start a command that goes on, and wait for the first line that it prints."""
        assert command.split()[0] == "curl", f"{where}: cannot run {command}"
        self._arriving = self._start(["bash", "-c", f"exec {command}"])
        _await(self._arriving, lambda text: "\n" in text, where)

    def _start(self, words: list[str]) -> Path:
        """Start a program; return the file of what it prints."""
        output = self._folder / f".output-{self.count}"
        errors = output.with_suffix(".errors")
        with output.open("wb") as file, errors.open("wb") as error_file:
            process = subprocess.Popen(words, stdout=file, stderr=error_file)
        self._stack.callback(process.wait, _WAIT_S)
        self._stack.callback(process.send_signal, signal.SIGINT)
        return output


def _restore(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def _await(output: Path, done: Callable[[str], bool], where: str) -> str:
    """Wait until what a program has printed is as expected, and return it."""
    end = time.monotonic() + _WAIT_S
    while not done(text := output.read_text()):
        errors = output.with_suffix(".errors").read_text()
        assert time.monotonic() < end, f"{where}: this is all that came:\n{text}\n{errors}"
        time.sleep(0.02)
    return text


def _commands(code: str) -> list[str]:
    """Return the commands of a block: lines, joined after a backslash and within quotes."""
    commands: list[str] = []
    waiting = ""
    for line in code.replace("\\\n", " ").splitlines():
        if not waiting and (not line.strip() or line.lstrip().startswith("#")):
            continue
        waiting += line if not waiting else f"\n{line}"
        with contextlib.suppress(ValueError):  # a quotation is open
            shlex.split(waiting, comments=True)
            commands.append(waiting)
            waiting = ""
    assert not waiting, f"a quotation is never closed: {waiting}"
    return commands


def _run(command: str, arguments: list[str], where: str, *, fails: bool = False) -> str:
    name, *words = shlex.split(command, comments=True)
    if name == "nearcast":
        done = CliRunner().invoke(app, [*words, *arguments], env={"COLUMNS": "100"})
        assert done.exit_code == 0, f"{where}: {command}\n{done.output}\n{done.exception!r}"
        return done.stdout
    assert name in _PROGRAMS, f"{where}: cannot run {command}"
    line = f"{shlex.quote(sys.executable)} {command[len(name) :]}" if name == "python" else command
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONSAFEPATH": "", "PATH": programs}
    ran = subprocess.run(
        line, shell=True, capture_output=True, text=True, env=environment, check=False
    )
    assert (ran.returncode != 0) == fails, f"{where}: {command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def _compare(wanted: str, printed: str, where: str, *, joined: bool) -> None:
    matches = _is_shown(wanted, printed)
    if not matches and not (joined and _is_shown(_joined(wanted), _joined(printed))):
        raise AssertionError(f"{where}: shows\n{wanted}\nbut this was printed:\n{printed}")


def _is_shown(wanted: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, printed, _OPTIONS)


def _joined(text: str) -> str:
    """Return a text without white space."""
    return re.sub(r"\s+", "", text)
