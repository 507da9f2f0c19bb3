"""The moving picture: what it shows is what the engine says, and the file is an animation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest
from matplotlib.text import Text
from PIL import Image
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.plots.moving_picture import SIGN_COLORS, SIGNS, MovingPicture
from nearcast.plots.moving_scene import SUBSCRIBERS, Moment, Scene, play_scene

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def scene() -> Scene:
    return play_scene(ticks=80, seed=6)


def truly_near(moment: Moment) -> set[tuple[str, str]]:
    """Compare every driver's region and word with every message that is shown."""
    return {
        (name, message.id)
        for (name, word), (west, south, east, north) in zip(
            SUBSCRIBERS.items(), moment.box.tolist(), strict=True
        )
        for message in moment.messages
        if word in message.text.split()
        and west <= message.place[0] <= east
        and south <= message.place[1] <= north
    }


def test_updates_add_up_to_what_is_near(scene: Scene) -> None:
    before: set[tuple[str, str]] = set()
    causes = set()
    for moment in scene.moments:
        after = truly_near(moment)
        assert moment.near == after
        told = [(u.name, u.message, u.sign) for u in moment.updates]
        begun = {(*pair, 1) for pair in after - before}
        assert sorted(told) == sorted(begun | {(*pair, -1) for pair in before - after})
        causes |= {u.cause for u in moment.updates}
        before = after
    assert causes == {"published", "expired", "came near", "drove on"}


def test_messages_are_shown_while_they_live(scene: Scene) -> None:
    shown = [{message.id for message in moment.messages} for moment in scene.moments]
    first = scene.moments[1].messages[0]
    lives = [number for number, ids in enumerate(shown) if first.id in ids]
    assert lives == [*range(1, 41)]  # 160 seconds, in ticks of 4 seconds
    assert all(0 < message.left <= 1 for moment in scene.moments for message in moment.messages)


def texts(artists: list[object]) -> list[tuple[str, str]]:
    return [(a.get_text(), str(a.get_color())) for a in artists if isinstance(a, Text)]


def test_frames_show_the_updates_of_the_engine(scene: Scene) -> None:
    picture = MovingPicture(scene, width=160)
    number = max(range(len(scene.moments)), key=lambda n: len(scene.moments[n].updates))
    artists = picture.draw(number)
    written = texts(artists)
    signs = [f"{SIGNS[u.sign]} {u.name}" for u in picture.told(number)]
    listed = [
        (text, color) for text, color in written if color in SIGN_COLORS.values() and " " in text
    ]
    # A line of the list is a sign with a name, the text of the message, and the reason.
    lines = [text for text, _ in listed if text.split()[-1] in SUBSCRIBERS]
    assert lines == signs[::-1][:9]
    assert len(signs) > 9
    flashing = [text for text, color in written if color == "white"]
    recent = [u for moment in scene.moments[number - 8 : number + 1] for u in moment.updates]
    assert flashing == [f"{SIGNS[u.sign]} {u.name}" for u in recent]
    begun = sum(u.sign > 0 for u in picture.told(number))
    ended = len(signs) - begun
    totals = {f"+ {begun}", f"{SIGNS[-1]} {ended}", f"= {begun - ended} near now"}
    assert totals <= {text for text, _ in written}
    assert begun - ended == len(scene.moments[number].near)


def test_a_frame_leaves_nothing_to_the_next(scene: Scene) -> None:
    picture = MovingPicture(scene, width=160)
    first = next(picture.frames())
    *_, last = islice(picture.frames(), 12)
    assert (last != first).any()
    assert (next(picture.frames()) == first).all()


def test_the_command_writes_an_animation(tmp_path: Path) -> None:
    out = tmp_path / "new" / "moving.gif"
    arguments = ["plot", "moving", f"--out={out}", "--ticks=12", "--width=160", "--seed=3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "12 frames" in result.output
    with Image.open(out) as picture:
        assert picture.format == "GIF"
        assert picture.size == (160, 100)
        assert picture.n_frames == 12  # type: ignore[attr-defined]
        assert picture.info["loop"] == 0
        pixels = []
        for number in (0, 11):
            picture.seek(number)
            pixels.append(picture.convert("RGB").tobytes())
    assert pixels[0] != pixels[1]
    again = tmp_path / "again.gif"
    CliRunner().invoke(app, [*arguments[:2], f"--out={again}", *arguments[3:]])
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["--out=x.png"], "ends in .gif"), (["--out=x.gif", "--ticks=1"], "--ticks")],
)
def test_wrong_arguments_are_refused(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["plot", "moving", *arguments])
    assert result.exit_code
    assert problem in result.output
