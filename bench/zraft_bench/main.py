"""The command `zraft-bench`: reads the command line, puts the parts together."""

from __future__ import annotations

import click

from zraft import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="zraft-bench")
def main() -> None:
    """Measures a zraft cluster."""
