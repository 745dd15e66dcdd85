"""The command `zraft-bench gossip`: the thesis' tables of gossip beside ours, in simulation."""

from __future__ import annotations

from pathlib import Path

import click
from attrs import evolve

from onyxlog.theses.gossip import SIZES
from zraft_bench import drawing
from zraft_bench.gossip import tables as gossip_tables
from zraft_bench.report.command import WITHOUT_PLOTS
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.show import new_console
from zraft_core.errors import ConfigError

QUICK_SIZES = (8, 21, 55)


@click.command(short_help="How entries spread among peers: the thesis' tables 8.1 to 8.9 beside ours.")
@click.option("--quick", is_flag=True, help=f"Fleets of {QUICK_SIZES} only, and a tenth of the iterations.")
@click.option(
    "--events",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    help="How many entries each simulated fleet has.",
)
@click.option(
    "--seed", default=1, show_default=True, type=int, help="The seed; the same one gives the same figures."
)
@click.option(
    "--out",
    default="bench-gossip",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory for gossip.md, the results file and the plots; made if absent.",
)
def gossip(*, quick: bool, events: int, seed: int, out: Path) -> None:
    """Reproduce the thesis' tables 8.1 to 8.9, and measure our ways of spreading at the same sizes.

    All of it is simulated, by a seed, in one process: minutes at full size, seconds with --quick.
    """
    console = new_console()
    extent = gossip_tables.Extent(
        sizes=QUICK_SIZES if quick else SIZES,
        iterations=100 if quick else None,
        spread_runs=100 if quick else 1000,
        growth_runs=30 if quick else 300,
        events=events,
        seed=seed,
    )
    tables = gossip_tables.compute(extent, lambda what: console.print(what, style="dim", highlight=False))
    drawn = []
    if drawing.available():
        from zraft_bench.gossip import plots as gossip_plots

        drawn = gossip_plots.plots_of(tables)
    text = gossip_tables.markdown(tables)
    run = new_run("gossip", settings={"seed": str(seed), "quick": str(quick).lower()})
    results = ResultFile(out, run)
    results.save(evolve(run, gossip=gossip_tables.results_of(tables)))
    try:
        out.mkdir(parents=True, exist_ok=True)
        target = out / "gossip.md"
        target.write_text(text, encoding="utf-8")
        for plot in drawn:
            (out / f"{plot.name}.png").write_bytes(plot.png)
    except OSError as error:
        raise ConfigError(f"--out: cannot write to {out}: {error.strerror}") from error
    if not drawn:
        console.print(WITHOUT_PLOTS, highlight=False)
    console.print(f"results: {results.path}", highlight=False, soft_wrap=True)
    console.print(f"tables: {target}", highlight=False, soft_wrap=True)
