"""Files about the project: they parse, and say the same as the package and the README."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mkdocs.utils.yaml import yaml_load

import nearcast
from nearcast import indexes
from nearcast.indexes.moving import registry as moving

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [
    ROOT / ".pre-commit-config.yaml",
    ROOT / "CITATION.cff",
    *sorted((ROOT / ".github").rglob("*.yml")),
]


def read_yaml(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml_load(path.read_text())
    return content


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_yaml_files_parse(path: Path) -> None:
    assert isinstance(read_yaml(path), dict)


def test_the_citation_has_the_version_of_the_package() -> None:
    assert str(read_yaml(ROOT / "CITATION.cff")["version"]) == nearcast.__version__


def test_the_citation_names_five_papers_and_known_indexes() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    papers = citation["references"]
    assert len(papers) == 5
    assert all(paper["authors"] and paper["title"] and paper["year"] for paper in papers)
    known = {*indexes.names(), *moving.names()}
    named = re.findall(r"[\w+-]+-[\w+-]+|lfilter|stamp", " ".join(p["notes"] for p in papers))
    assert {name for name in named if name != "rt-trees"} <= known


def test_the_workflow_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / "README.md").read_text()
    jobs = read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    assert "make test" in commands(jobs["test"])
    assert "make docs" in commands(jobs["docs"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_only_read_and_end(path: Path) -> None:
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 120 for job in workflow["jobs"].values())


def test_the_workflow_tests_the_oldest_supported_python() -> None:
    steps = read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["steps"]
    versions = [step["with"]["python-version"] for step in steps if "python" in str(step)]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert versions == [oldest[1]]


def test_commands_in_workflows_and_contributing_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    suites = (ROOT / "tools" / "suites.py").read_text()
    targets |= {f"tests-{name}" for name in re.findall(r'^    "([\w-]+)": _', suites, re.MULTILINE)}
    texts = [path.read_text() for path in WORKFLOWS]
    texts += [(ROOT / name).read_text() for name in ("CONTRIBUTING.md", "SECURITY.md")]
    texts += [(ROOT / "docs" / "reference" / "releasing.md").read_text()]
    used = {target for text in texts for target in re.findall(r"(?:`|run: )make ([\w-]+)", text)}
    assert used
    assert used <= targets


def test_broken_links_fail_the_documentation() -> None:
    build = re.search(r"mkdocs build.*", (ROOT / "Makefile").read_text())
    assert build is not None
    assert "--strict" in build[0]
    assert "--quiet" not in build[0], "MkDocs counts no warnings then, and strict has no effect"
