"""The command: write a trace of initialisation, election and writes for ShiViz.

python -m tests.simulation.shiviz --out group.log
"""

from __future__ import annotations

from pathlib import Path

import click

from tests.simulation.shiviz.group import Scene
from tests.simulation.shiviz.trace import PARSER


@click.command()
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write."
)
@click.option(
    "--servers", default=3, show_default=True, type=click.IntRange(3, 9), help="Servers of the group."
)
@click.option(
    "--writes", default=2, show_default=True, type=click.IntRange(1, 100), help="Writes to each leader."
)
@click.option("--seed", default=1, show_default=True, help="Decides who is elected.")
@click.option("--heartbeats", is_flag=True, help="Show heartbeats, too.")
def main(out: Path, servers: int, writes: int, seed: int, heartbeats: bool) -> None:
    """Trace a group from its beginning over an election, writes, its leader's end and its return."""
    trace = Scene(servers, writes, heartbeats, seed).play()
    out.write_text(trace.text(), encoding="utf-8")
    click.echo(
        f"{len(trace.events)} events in {out}; open it in ShiViz, which reads it with its default expression:"
    )
    click.echo(PARSER)


if __name__ == "__main__":
    main()
