"""The command `zraft-bench report`: results files as a page with tables and plots."""

from __future__ import annotations

from pathlib import Path

import click

from zraft_bench import drawing
from zraft_bench.report import plots
from zraft_bench.report.html import page
from zraft_bench.result_files import load_run
from zraft_bench.show import new_console
from zraft_core.errors import ConfigError

WITHOUT_PLOTS = "There are no plots: matplotlib is not installed (pip install 'zraft[bench]')."


@click.command(short_help="Tables and plots of results files, as HTML and PNG.")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE…",
)
@click.option(
    "--out",
    default="bench-report",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory for report.html and the plots; made if absent.",
)
def report(files: tuple[Path, ...], out: Path) -> None:
    """Make one page of the results FILEs: report.html, with every plot beside it as PNG.

    Without matplotlib (pip install 'zraft[bench]') the page has tables only, and says so.
    """
    console = new_console()
    loaded = [(path, load_run(path)) for path in files]
    runs = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, run in loaded:
            drawn = plots.plots_of(run) if drawing.available() else []
            for plot in drawn:
                (out / f"{path.stem}-{plot.name}.png").write_bytes(plot.png)
            runs.append((run, {plot.name: (plot.title, plot.png) for plot in drawn}))
        target = out / "report.html"
        target.write_text(page(runs, "" if drawing.available() else WITHOUT_PLOTS), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: cannot write to {out}: {error.strerror}") from error
    if not drawing.available():
        console.print(WITHOUT_PLOTS, highlight=False)
    console.print(f"report: {target}", highlight=False, soft_wrap=True)
