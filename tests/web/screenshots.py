"""Take the pictures of the page that the documentation shows: python tests/web/screenshots.py.

They are of the demo, after its stream has run for a while. Needs Chromium and the built page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from map_page import ROOT, MapPage, launched, missing, opened

IMAGES = ROOT / "docs" / "images"
WAIT_MS = 60_000
PICTURES: dict[str, dict[str, Any]] = {
    "map-light.png": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "map-dark.png": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    "map-phone.png": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
    },
}


def main() -> None:
    """Start the demo, take all pictures, and stop it."""
    if (reason := missing()) is not None:
        sys.exit(f"There can be no pictures: {reason}")
    command = [sys.executable, "-m", "nearcast.cli", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stdout is not None
            found = (re.search(r"open (http://\S+)", line) for line in demo.stdout)
            take_pictures(next(one[1] for one in found if one is not None))
        finally:
            demo.terminate()


def take_pictures(url: str) -> None:
    """Open a profile for each picture, let events arrive, and take it."""
    with launched() as browser:
        for name, options in PICTURES.items():
            with opened(browser, **options) as context:
                page = MapPage(context, url)
                page.page.goto(url)
                page.is_live()
                page.button("Just watch").click()
                if name == "map-phone.png":
                    page.tab("Feed")
                page.page.wait_for_timeout(WAIT_MS)
                if name == "map-dark.png":
                    page.page.get_by_role("button", name="schools of India").first.click()
                    page.button("Show").click()
                    page.page.wait_for_timeout(WAIT_MS // 6)
                    page.events.first.locator(".entry-head").click()
                    page.page.locator(".why li").first.wait_for()
                    page.page.wait_for_timeout(2_000)
                page.page.screenshot(path=IMAGES / name)


if __name__ == "__main__":
    main()
