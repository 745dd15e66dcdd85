"""The command `zraft-bench`: reads the command line, assembles the parts, and turns errors into messages.

This is a composition root: it may import anything and nothing imports it. What a command needs is imported
when it is called.
"""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from types import FrameType
from typing import Final

import click

from zraft import __version__
from zraft.program.command_group import CommandGroup

COMMANDS: Final = {
    "local": "zraft_bench.local.command:local",
    "head": "zraft_bench.distributed.command:head",
    "server": "zraft_bench.distributed.command:server",
    "client": "zraft_bench.distributed.command:client",
    "election": "zraft_bench.election.command:election",
    "failover": "zraft_bench.election.command:failover",
    "compare": "zraft_bench.compare.command:compare",
    "multicast": "zraft_bench.multicast.command:multicast",
    "gossip": "zraft_bench.gossip.command:gossip",
    "report": "zraft_bench.report.command:report",
}


class _Group(CommandGroup):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="zraft-bench")
def main() -> None:
    """Measures zraft, on one machine or on many, alone or beside other systems."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _break_off)


def _break_off(_number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does, with everything that the command has started.

    This works also where Ctrl-C is ignored, as in the background of a script.
    """
    raise KeyboardInterrupt
