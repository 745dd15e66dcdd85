"""Command groups of `zraft` and `zraft-bench`: a declared error becomes a message and an exit code.

Any other is a bug, and keeps its traceback.
"""

from __future__ import annotations

from typing import Any, Final

import click

from zraft_core.errors import ConfigError, ZraftError

EXIT_USAGE: Final = 2
"""The exit code for a wrong command line, as click's own."""


class _Misuse(click.ClickException):
    exit_code = EXIT_USAGE


class CommandGroup(click.Group):
    """The root of a command line. A ConfigError exits with 2, every other declared error with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn declared errors into messages and exit codes."""
        try:
            return super().invoke(ctx)
        except ZraftError as error:
            raise (_Misuse if isinstance(error, ConfigError) else click.ClickException)(str(error)) from error
