"""The command `zraft config`: says what a settings file does and what is wrong with it, and starts nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import OUTPUTS, output_option, print_listing

if TYPE_CHECKING:
    from zraft.config.checking import CheckedFile

EXIT_WRONG: Final = 2
COLUMNS: Final = (
    Column("line", right=True),
    Column("setting"),
    Column("value", folds=True),
    Column(""),
    Column("what it does", folds=True),
)


@click.group()
def config() -> None:
    """Check settings files, without starting anything.

    \b
        zraft config check zraft.toml
        zraft config check /etc/zookeeper/zoo.cfg
    """


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "settings",
    metavar="KNOB=VALUE",
    multiple=True,
    help="A setting that servers get besides the file, such as id; may be repeated.",
)
@output_option(*OUTPUTS)
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
def check(file: Path, settings: tuple[str, ...], output: str, as_json: bool) -> None:
    """Say what each setting of FILE does, TOML or ZooKeeper's zoo.cfg, and what is wrong, with its line.

    Only the file is read, and what a zoo.cfg names as its dynamic part and its myid; no environment variables. Whether a
    port is free and a key can be used is seen when a server starts; `zraft doctor --offline --config FILE` looks at the
    files that it names. What a server needs and the file does not have is listed at the end.

    \b
    Exit code:
        0  a server would take it
        2  it would not, or the file cannot be read
    """
    from zraft.cli.set_option import read_settings
    from zraft.config.checking import check_file

    found = check_file(file, read_settings(settings))
    print_listing(listing_of(file, found), as_json=as_json or output == "json")
    if not found.good:
        sys.exit(EXIT_WRONG)


def listing_of(file: Path, found: CheckedFile) -> Listing:
    """Return what is printed: a table of the settings, and a line for each that is wrong, as compilers have it."""
    from zraft.config.checking import Verdict

    values = tuple(
        {
            "line": one.line,
            "setting": one.name,
            "value": one.value,
            "verdict": one.verdict.value,
            "text": one.text,
        }
        for one in found.settings
    )
    rows = tuple(
        ("" if one.line is None else str(one.line), one.name, one.value, one.verdict.value, one.text)
        for one in found.settings
        if one.verdict is not Verdict.ERROR
    )
    wrong = [
        ":".join((str(file), *([] if one.line is None else [str(one.line)]))) + f": {one.text}"
        for one in found.settings
        if one.verdict is Verdict.ERROR
    ]
    missing = f"a server also needs, from options or the environment: {', '.join(found.missing)}"
    parts: list[Grid | str] = [Grid(COLUMNS, rows)] if rows else []
    parts += [*wrong, *([missing] if found.missing else [])]
    if found.good:
        parts.append(f"{file}: a server would take it")
    return Listing(values, tuple(parts))
