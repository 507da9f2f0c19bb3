"""Figures that a notebook shows, whether or not it has loaded pyplot."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["NotebookFigure"]


class NotebookFigure(Figure):
    """A figure that a notebook shows if it is the value of a cell.

    Examples
    --------
    >>> NotebookFigure(figsize=(1, 1))._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG."""
        if not isinstance(self.canvas, FigureCanvasAgg):
            FigureCanvasAgg(self)
        png = io.BytesIO()
        self.savefig(png, format="png", dpi=self.dpi)  # by default, that before set_dpi
        return png.getvalue()
