"""The command `python -m onyxlog.audits.generate DIRECTORY`: large logs for measuring audits, made by the product's code."""

from __future__ import annotations

import time
from pathlib import Path

import click

from onyxlog.audits.generating import Generator, Scenario


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--commands", default=1_000_000, type=click.IntRange(1), help="Of clients, in all.")
@click.option(
    "--servers", default=3, type=click.IntRange(1, 9), help="Each has a whole log in a directory of its own."
)
@click.option("--batch", default=1_000, type=click.IntRange(1), help="Commands per entry.")
@click.option(
    "--elections", default=4, type=click.IntRange(0), help="Changes of the leader, each with a truncation."
)
@click.option("--snapshots", default=4, type=click.IntRange(0), help="Of each server; no log is removed.")
@click.option("--data-bytes", default=16, type=click.IntRange(0), help="Of each write.")
@click.option("--segment-mib", default=64, type=click.IntRange(1), help="Of the write-ahead log.")
@click.option("--seed", default=1, help="Equal seeds make equal logs.")
def main(
    directory: Path,
    commands: int,
    servers: int,
    batch: int,
    elections: int,
    snapshots: int,
    data_bytes: int,
    segment_mib: int,
    seed: int,
) -> None:
    """Make the data directories of a cluster whose servers agreed on so many commands, in DIRECTORY/server-N.

    The consensus, the log and the state machine are the ones that servers run; only clients, network, clock and fsync are
    left out. Some 50,000 commands a second on one core, on three servers.
    """
    if directory.exists() and any(directory.iterdir()):
        raise click.ClickException(f"{directory}: is not empty; name a directory that is not there yet")
    scenario = Scenario(
        commands,
        servers=servers,
        batch=batch,
        elections=elections,
        snapshots=snapshots,
        seed=seed,
        segment_bytes=segment_mib << 20,
        data_bytes=data_bytes,
    )
    began = time.monotonic()
    generator = Generator(str(directory), scenario)
    try:
        with click.progressbar(length=commands, label="commands") as bar:
            said = 0

            def on_progress(done: int) -> None:
                nonlocal said
                bar.update(done - said)
                said = done

            generator.run(on_progress)
    finally:
        generator.close()
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    click.echo(
        f"{commands:,} commands on {servers} servers in {directory}: {size / 1e6:,.0f} MB, "
        f"{time.monotonic() - began:,.1f} s"
    )


if __name__ == "__main__":
    main()
