"""Options of the commands that list something: `--output`, `--watch`, `--interval`, and the one printer behind them."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from zraft.cli.listings.listing import GAP, Grid, Listing, fitted, width_of
from zraft_core.errors import ConfigError, ZraftError

PLAIN_WIDTH: Final = 140
"""Columns when the output is no terminal: wide enough that a log or a pipe gets whole tables."""
WIDTH_MIN: Final = 40
INTERVAL_S: Final = 2.0
EXIT_INTERRUPTED: Final = 130
OUTPUTS: Final = ("table", "json")

Look = Callable[[], Listing]
F = TypeVar("F", bound=Callable[..., Any])


@frozen
class Manner:
    """The manner in which a listing is printed: as JSON or as tables, again every `every_s` seconds unless that is None."""

    as_json: bool = False
    every_s: float | None = None


def output_option(*outputs: str) -> Callable[[F], F]:
    """Return a decorator that gives a command `output`, one of these words; the first is the default."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(outputs),
        default=outputs[0],
        show_default=True,
        help="What to print; json is for programs.",
    )


def lists(command: Callable[..., Listing]) -> Callable[..., None]:
    """Make a command out of a function that returns a `Listing`: it is printed, once or again and again.

    The command has `--output`, `--json` for short, `--watch` and `--interval`. The function is called for each look.
    """

    @output_option(*OUTPUTS)
    @click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
    @click.option("--watch", is_flag=True, help="Show it again as time goes by, until Ctrl-C.")
    @click.option(
        "--interval",
        metavar="SECONDS",
        default=INTERVAL_S,
        show_default=True,
        type=click.FloatRange(0.1, 86_400),
        help="How long --watch waits between two looks.",
    )
    @functools.wraps(command)
    def listing(output: str, as_json: bool, watch: bool, interval: float, **arguments: Any) -> None:
        manner = Manner(as_json or output == "json", interval if watch else None)
        show(lambda: command(**arguments), manner)

    return listing


def prints_json() -> bool:
    """Return whether the command that runs, one that `lists`, prints JSON: what only that has need not be asked for else."""
    given = click.get_current_context().params
    return bool(given["as_json"]) or given["output"] == "json"


def show(look: Look, manner: Manner) -> None:
    """Print what `look` finds; with an interval, each look that finds something else, until Ctrl-C.

    Raises:
        ZraftError: the look failed, or the listing complains; with an interval, only the first look raises.
        SystemExit: the listing has an exit code that is not 0.
    """
    found = look()
    if manner.every_s is None:
        print_listing(found, as_json=manner.as_json)
        if found.complaint:
            raise ZraftError(found.complaint)
        if found.exit_code:
            sys.exit(found.exit_code)
        return
    screen = sys.stdout.isatty() and not manner.as_json
    before: Listing | str | None = None
    now: Listing | str = found
    try:
        while True:
            if now != before:
                _print_again(now, manner, screen=screen)
            before = now
            time.sleep(manner.every_s)
            try:
                now = look()
            except ConfigError:
                raise
            except ZraftError as error:
                now = str(error)
    except KeyboardInterrupt:
        sys.exit(0)
    except SystemExit as ending:
        # A look that has an event loop of its own turns Ctrl-C into this exit code.
        sys.exit(0 if ending.code == EXIT_INTERRUPTED else ending.code)


def _print_again(found: Listing | str, manner: Manner, *, screen: bool) -> None:
    if screen:
        click.clear()
    if isinstance(found, Listing):
        print_listing(found, as_json=manner.as_json)
        found = found.complaint
    if found:
        click.echo(found, err=True)
    if screen:
        click.echo(f"every {manner.every_s:g} s; Ctrl-C ends")


def print_listing(found: Listing, *, as_json: bool) -> None:
    """Print one listing to the standard output."""
    if as_json:
        text = "".join(json.dumps(value) + "\n" for value in found.values)
    else:
        text = rendered(found.parts, output_width())
    click.echo(text, nl=False)
    sys.stdout.flush()


def output_width() -> int:
    """Return how many columns there are to print on: those of the terminal, otherwise `PLAIN_WIDTH`."""
    return max(WIDTH_MIN, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PLAIN_WIDTH


def rendered(parts: tuple[Grid | str, ...], width: int) -> str:
    """Return the text of tables and lines, with tables at most `width` wide."""
    return "".join(f"{part}\n" if isinstance(part, str) else _table(part, width) for part in parts)


def _table(grid: Grid, width: int) -> str:
    import io

    from rich.console import Console
    from rich.table import Table

    shown, left_out = fitted(grid, width)
    # To the library, `[fd00::1]` would be markup.
    console = Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, color_system=None, emoji=False
    )
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    # Where even what is always shown is too wide, lines are broken and nothing is cut off.
    fits = width_of(shown) <= width
    for column in shown.columns:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=fits and not column.folds,
            overflow="fold",
        )
    for row in shown.rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    text = "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
    if left_out:
        text += f"({width} columns have no room for: {', '.join(left_out)}; --output json has all)\n"
    return text
