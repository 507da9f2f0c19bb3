"""Jars from Maven Central, fetched once by the Ivy that PySpark brings along, and kept."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyspark

from nearcast.spark.kafka import connector
from nearcast.spark.session import java_program

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA = "3.9.1"
NEWEST_TRIED = "4.2.0"
COMPLETE = "4.0.0"
PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"

PATIENCE_S = 600.0


class Unavailable(Exception):
    """Something that the tests need cannot be had; the message names it."""


class Wanted(NamedTuple):
    """Modules that belong together, with all that they depend on, in a folder of this name.

    ``instead`` lists modules whose version is this one whatever is asked for, and ``without`` the
    organisations whose modules are there already.
    """

    name: str
    modules: tuple[str, ...]
    instead: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the jars are kept: complete if it is there."""
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        root = os.environ.get("NEARCAST_CACHE_DIR") or Path(home, "nearcast")
        return Path(root, "jars", self.name)


# Kafka itself logs to nowhere; with slf4j-simple a broker that fails tells why.
BROKER = Wanted(
    f"kafka-{KAFKA}", (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
)


def connectors(spark: str) -> list[Wanted]:
    """Return the connectors to try for this version of Spark, in this order.

    The one of the same version comes first. Mirrors of Maven Central may lag behind or lack the
    token provider, which the connector depends on; so each connector is tried with its own
    provider and then with that of 4.0.0. The last resort is the connector of 4.2.0, which
    streams on Spark 4.3.0 with the provider of 4.0.0; the connector of 4.0.0 does not.
    """
    versions = dict.fromkeys((spark, NEWEST_TRIED))
    pairs = dict.fromkeys((v, p) for v in versions for p in (v, COMPLETE))
    return [_connector(version, provider) for version, provider in pairs]


def _connector(version: str, provider: str) -> Wanted:
    own = version == provider
    return Wanted(
        f"connector-{version}" if own else f"connector-{version}-provider-{provider}",
        (connector(version),),
        () if own else (f"{PROVIDER}:{provider}",),
        ("org.apache.hadoop", "org.scala-lang", "org.slf4j"),
    )


def fetch_first(choices: Sequence[Wanted]) -> tuple[Wanted, list[Path]]:
    """Fetch the first choice if it can be had, else one that is here already, else the next.

    Raises
    ------
    Unavailable
        When there is none; the message tells what happened to each.
    """
    first, *others = choices
    failures = []
    for wanted in (first, *sorted(others, key=lambda choice: not choice.folder.is_dir())):
        try:
            return wanted, fetch(wanted)
        except Unavailable as failure:
            failures.append(str(failure))
    raise Unavailable("; ".join(failures))


def fetch(wanted: Wanted) -> list[Path]:
    """Return the jars, from the folder where they are kept or else from Maven Central."""
    if not wanted.folder.is_dir():
        parent = wanted.folder.parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as work:
            _resolve(wanted, Path(work))
            try:
                Path(work, "jars").rename(wanted.folder)
            except OSError:  # another process was faster
                if not wanted.folder.is_dir():
                    raise
    return sorted(wanted.folder.glob("*.jar"))


def java() -> str:
    """Return the Java program that Spark runs on as well."""
    program = java_program()
    if program is None:
        raise Unavailable("there is no Java; install one or set JAVA_HOME")
    return program


def _resolve(wanted: Wanted, work: Path) -> None:
    ivy = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not ivy:
        raise Unavailable("PySpark has no Ivy among its jars to fetch others with")
    (work / "ivy.xml").write_text(_ivy_file(wanted), encoding="utf-8")
    # An Ivy home of its own: two processes that share one can spoil it for each other.
    home = f"-Divy.default.ivy.user.dir={work.resolve() / 'ivy'}"
    command = [java(), home, "-jar", str(ivy[-1]), "-ivy", "ivy.xml"]
    command += ["-retrieve", "jars/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(
            command,
            cwd=work,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{wanted.name}: no answer within {PATIENCE_S:.0f} s") from None
    if done.returncode != 0:
        raise _failure(wanted, done.stdout + done.stderr)


def _ivy_file(wanted: Wanted) -> str:
    lines = [
        '<ivy-module version="2.0"><info organisation="nearcast" module="testing"/>',
        '<configurations><conf name="default"/></configurations>',
        '<dependencies defaultconf="default->default">',
    ]
    for module in wanted.modules:
        organisation, name, version = module.split(":")
        lines.append(f'<dependency org="{organisation}" name="{name}" rev="{version}"/>')
    lines += [f'<exclude org="{organisation}"/>' for organisation in wanted.without]
    for module in wanted.instead:
        organisation, name, version = module.split(":")
        lines.append(f'<override org="{organisation}" module="{name}" rev="{version}"/>')
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def _failure(wanted: Wanted, said: str) -> Exception:
    """Tell modules that are not there or out of reach from an Ivy that did not work at all."""
    missing = dict.fromkeys(re.findall(r"^\s*:: (\S+#\S+;.+)$", said, re.MULTILINE))
    unreachable = dict.fromkeys(re.findall(r"Host \S+ not found", said))
    if missing:
        return Unavailable(f"{wanted.name}: {', '.join([*missing, *unreachable])}")
    return RuntimeError(f"Ivy failed to fetch {wanted.name}; it said:\n{said.strip()[-2000:]}")
