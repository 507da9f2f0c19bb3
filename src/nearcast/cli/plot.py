"""``nearcast plot``: pictures that explain, one command each."""

from pathlib import Path
from typing import Annotated

import typer

from nearcast.cli.commands import FILE, NUMBER, Group, add_command
from nearcast.cli.output import format_size, progress
from nearcast.errors import InvalidInput

__all__ = ["app"]

_EARLIER_TICKS = 12
"""What happens before the first frame, so that it shows a few messages and updates."""

app = typer.Typer(
    cls=Group,
    help="Draw pictures that explain what Nearcast does.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _plot() -> None:
    """Draw pictures that explain what Nearcast does."""


def moving(
    out: Annotated[Path, typer.Option(metavar=FILE, help="File for the animation: .gif.")],
    ticks: Annotated[
        int, typer.Option(metavar=NUMBER, min=2, max=1000, help="Number of frames.")
    ] = 110,
    width: Annotated[
        int, typer.Option(metavar=NUMBER, min=160, max=1600, help="Width in pixels.")
    ] = 800,
    seed: Annotated[
        int, typer.Option(metavar=NUMBER, min=0, help="The same seed gives the same picture.")
    ] = 17,
) -> None:
    """Draw an animation of moving subscriptions: messages appear and expire, matches begin and end.

    Four subscribers drive on a map. A green plus marks a match that begins, a red minus one that
    ends.
    """
    from nearcast.plots.moving_picture import save_animation
    from nearcast.plots.moving_scene import play_scene

    if out.suffix.lower() != ".gif":
        raise InvalidInput("--out", str(out), "must be a file that ends in .gif")
    scene = play_scene(_EARLIER_TICKS + ticks, seed)
    with progress(True) as start:
        save_animation(scene, out, width, _EARLIER_TICKS, start("frames"))
    updates = sum(len(moment.updates) for moment in scene.moments)
    size = format_size(out.stat().st_size)
    typer.echo(f"{out}: {ticks:,} frames, {updates:,} updates, {size}")


def index(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a boolean or moving index, such as rt-tree. There is no drawing of "
            "ap+k-tree, ap+s-tree, rq+-tree and moving-scan, nor of ranked indexes.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the picture: .png.")],
) -> None:
    """Draw what an index builds over a few subscriptions: areas on a map, and its nodes."""
    from nearcast.plots.index_drawings import draw_index

    if out.suffix.lower() != ".png":
        raise InvalidInput("--out", str(out), "must be a file that ends in .png")
    structure = draw_index(name, out)
    size = format_size(out.stat().st_size)
    typer.echo(f"{out}: {structure.tree.count()} nodes and lists, {size}")


add_command(app, "moving", moving, "nearcast plot moving --out moving.gif")
add_command(app, "index", index, "nearcast plot index rt-tree --out rt-tree.png")
