"""Drawing of one plot as PNG, by matplotlib (the extra `bench`), which is imported when one is drawn."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

DPI: Final = 110
SIZE: Final = (9.0, 4.8)


@frozen
class Plot:
    """A plot. `name` is also that of the file, without its ending."""

    name: str
    title: str
    png: bytes


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(name: str, title: str, fill: Callable[[Any], None]) -> Plot:
    """Draw a plot that `fill` adds lines and bars to, and return it as PNG."""
    # The figure is made by itself: pyplot would keep global state, and look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title)
    fill(axes)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return Plot(name, title, image.getvalue())
