"""The help texts: every command explains itself, quickly, and is on the page of the site."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from nearcast.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", child)


COMMANDS = dict(commands("nearcast", typer.main.get_command(app)))


@pytest.fixture(scope="module")
def page() -> str:
    """The page of commands, as the site has it."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / "mkdocs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return str(hooks.command_reference())


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_says_what_it_does_in_a_sentence(path: str) -> None:
    first = COMMANDS[path].help.split("\n\n")[0]
    assert first[0].isupper() or path.split()[-1] == first.split(":")[0]
    assert first.endswith(".")


@pytest.mark.parametrize("path", COMMANDS)
def test_an_option_says_what_it_does_in_a_sentence(path: str) -> None:
    for option in COMMANDS[path].params:
        assert option.help, option.name
        assert option.help.endswith("."), option.name
        assert "[default" not in option.help  # would be taken for markup, and not be shown
        assert option.is_flag if option.param_type_name == "option" and not option.metavar else True


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_use_options_that_exist(path: str) -> None:
    for line in (COMMANDS[path].epilog or "").splitlines()[1:]:
        words = line.split()
        name = " ".join(word for word in words[:4] if word.isidentifier() or word in path.split())
        found = max((p for p in COMMANDS if f"{name} ".startswith(f"{p} ")), key=len)
        known = {opt for option in COMMANDS[found].params for opt in option.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("path", COMMANDS)
def test_the_page_has_every_command_and_option(path: str, page: str) -> None:
    command = COMMANDS[path]
    _, heading, rest = f"\n{page}\n".partition(f"# {path}\n")
    assert heading
    section = rest.partition("\n#")[0]
    for option in command.params:
        if option.name == "help" or option.hidden:
            continue
        names = option.opts if option.param_type_name == "option" else [option.metavar]
        for name in names:
            assert f"`{name}" in section, (path, name)
    for line in (command.epilog or "").splitlines()[1:]:
        assert line.strip() in section


def test_the_help_imports_no_large_module() -> None:
    program = "import sys, nearcast.cli; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    large = {"numpy", "pyarrow", "numba", "shapely", "pyspark", "matplotlib", "pandas"}
    assert not large & set(run.stdout.split())
