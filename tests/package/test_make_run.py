"""``make run`` in a copy of the checkout: what a new user sees, from the first look to the end."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from .processes import Api, Process

WEB_PAGE = Path("src/nearcast/server/http/web/index.html")


@pytest.mark.long
def test_make_run_ends_with_a_summary_of_the_server(checkout: Path, first_run: Process) -> None:
    code, said = first_run.ended()
    assert code == 0, said
    assert "The whole pipeline: with the library, on Spark, and as a stream." in said
    assert re.search(r"at http://127\.0\.0\.1:\d+ with the key\s+nc_", said)
    summary = re.search(r"([\d,]+) messages published, ([\d,]+) of them matched", said)
    assert summary is not None
    assert all(int(number.replace(",", "")) > 0 for number in summary.groups())
    assert said.endswith("The server has stopped; what was acknowledged is on disk.\n")
    assert (checkout / WEB_PAGE).exists() == (shutil.which("npm") is not None)


@pytest.mark.long
def test_make_run_shows_the_map_until_ctrl_c(checkout: Path, first_run: Process) -> None:
    first_run.ended()
    process = Process("make", "run", "PORT=0", folder=checkout)
    try:
        data = Path(process.wait_for(r"listening on http://\S+ with its data in (\S+)\. ")[1])
        url = process.wait_for(r"The demo: open (http://\S+) in a browser")[1]
        with Api(url).open("/") as page:
            shown = page.read()
        built = checkout / WEB_PAGE
        assert shown == built.read_bytes() if built.exists() else b"Nearcast" in shown
        assert data.is_dir()
        code, said = process.interrupt()
        # make ends by the same signal, when what it runs has ended.
        assert code == -signal.SIGINT
        assert said.strip() == ""
        assert process.is_gone()
        assert not data.exists()
    finally:
        process.kill()
