"""The choice of tests for changed files, in a small checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import changed
import pytest

FILES = {
    "conftest.py": 'pytest_plugins = ["plugin"]\n',
    "pyproject.toml": "",
    "README.md": ">>> 1\n1\n",
    "docs/page.md": "no examples\n",
    "src/nearcast/__init__.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nearcast.engine import Engine
def __getattr__(name): ...
""",
    "src/nearcast/engine/__init__.py": "from nearcast.engine.engine import Engine\n",
    "src/nearcast/engine/engine.py": "from nearcast.engine.rows import Row\n",
    "src/nearcast/engine/rows.py": '"""\n>>> 1\n1\n"""\nclass Row: ...\n',
    "src/nearcast/registry.py": 'KNOWN = {"pyramid": "pyramid:Pyramid"}\n',
    "src/nearcast/pyramid.py": "from __future__ import annotations\n",
    "src/nearcast/server.py": "from nearcast import Engine\n",
    "tests/plugin.py": """
import pytest
@pytest.fixture
def server():
    import nearcast.server
""",
    "tests/shared.py": "SIZE = 1\n",
    "tests/engine/test_engine_rows.py": "from nearcast.engine.rows import Row\n",
    "tests/engine/test_engine_calls.py": "from nearcast import Engine\n",
    "tests/test_registry.py": "from nearcast import registry\nfrom shared import SIZE\n",
    "tests/test_server.py": "def test_it_runs(server): ...\n",
    "tests/test_types.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nearcast.engine import Engine
""",
    "tests/test_files.py": 'CHILD = "started.py"\nMAKE = "Makefile"\n',
    "tests/started.py": "from nearcast import pyramid\n",
    "tests/test_documents.py": "",
    "tests/spark/test_match.py": "from nearcast.engine.rows import Row\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def chosen(checkout: Path, *files: str) -> list[str]:
    found: list[str] = changed.choose([Path(file) for file in files], root=checkout).chosen
    return found


def test_the_nearest_tests_come_first(checkout: Path) -> None:
    assert chosen(checkout, "src/nearcast/engine/rows.py") == [
        "src/nearcast/engine/rows.py",  # its doctests
        "tests/engine/test_engine_rows.py",
        "tests/engine/test_engine_calls.py",
        "tests/test_server.py",
        "tests/spark/test_match.py",  # near, but slow
    ]


def test_imports_for_type_checkers_do_not_count(checkout: Path) -> None:
    assert "tests/test_types.py" not in chosen(checkout, "src/nearcast/engine/engine.py")


def test_names_in_strings_lead_to_modules(checkout: Path) -> None:
    found = chosen(checkout, "src/nearcast/pyramid.py")
    assert sorted(found) == ["tests/test_files.py", "tests/test_registry.py"]


def test_fixtures_of_plugins_lead_to_what_they_import(checkout: Path) -> None:
    assert chosen(checkout, "src/nearcast/server.py") == ["tests/test_server.py"]


def test_tests_choose_themselves_and_helpers_their_users(checkout: Path) -> None:
    assert chosen(checkout, "tests/test_types.py") == ["tests/test_types.py"]
    assert chosen(checkout, "tests/shared.py") == ["tests/test_registry.py"]
    assert chosen(checkout, "tests/test_removed.py") == []


def test_documents_choose_their_tests(checkout: Path) -> None:
    assert chosen(checkout, "README.md") == ["README.md", "tests/test_documents.py"]
    assert chosen(checkout, "docs/page.md") == ["tests/test_documents.py"]
    assert chosen(checkout, "Makefile") == ["tests/test_files.py"]


def test_settings_choose_everything_quick(checkout: Path) -> None:
    every = chosen(checkout, "pyproject.toml")
    assert len(every) == 7
    assert "tests/spark/test_match.py" not in every


def test_each_changed_file_gets_its_nearest_test(checkout: Path) -> None:
    files = ("src/nearcast/engine/engine.py", "src/nearcast/registry.py")
    assert chosen(checkout, *files)[:2] == [
        "tests/engine/test_engine_calls.py",
        "tests/test_registry.py",
    ]


def test_the_budget_cuts_what_took_long(checkout: Path) -> None:
    records = checkout / "out" / "tests"
    records.mkdir(parents=True)
    lines = [
        {"tests": 3},
        {"test": "tests/engine/test_engine_rows.py::test_a", "phase": "setup", "seconds": 20},
        {"test": "tests/engine/test_engine_rows.py::test_a", "phase": "call", "seconds": 30},
        {"test": "tests/engine/test_engine_calls.py::test_b", "phase": "call", "seconds": 40},
        {"test": "tests/test_server.py::test_it_runs", "phase": "call", "seconds": 5},
    ]
    (records / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"test": "stop')
    file = Path("src/nearcast/engine/rows.py")
    choice = changed.choose([file], 60, checkout)
    assert choice.chosen == [str(file), "tests/engine/test_engine_rows.py", "tests/test_server.py"]
    assert choice.left_out == ["tests/engine/test_engine_calls.py", "tests/spark/test_match.py"]
    assert choice.seconds == 56
    nearest = changed.choose([Path("src/nearcast/engine/engine.py")], 10, checkout)
    assert nearest.chosen == ["tests/engine/test_engine_calls.py"], "one, whatever it takes"


def test_a_changed_import_is_noticed(checkout: Path) -> None:
    assert "tests/test_types.py" not in chosen(checkout, "src/nearcast/registry.py")
    (checkout / "tests" / "test_types.py").write_text("import nearcast.registry\n")
    assert "tests/test_types.py" in chosen(checkout, "src/nearcast/registry.py")


def test_git_tells_what_has_changed(checkout: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *arguments], cwd=checkout, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert changed.changed_files(root=checkout) == []
    (checkout / "README.md").write_text("changed\n")
    (checkout / "new.md").write_text("new\n")
    assert changed.changed_files(root=checkout) == [Path("README.md"), Path("new.md")]
    git("add", ".")
    git("commit", "-m", "second")
    assert changed.changed_files("HEAD~1", checkout) == [Path("README.md"), Path("new.md")]
