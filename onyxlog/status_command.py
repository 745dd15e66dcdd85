"""The command `onyxlog status`: looks at a fleet through one client, once or again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from onyxlog.command_options import LogService, refusal_explained, service_options
from zraft.cli.listings.listing_options import lists

if TYPE_CHECKING:
    from onyxlog.observing import LastingObserver
    from zraft.cli.listings.listing import Listing

TIMEOUT_S: Final = 30.0
OBSERVER: Final = "onyxlog.observer"
"""The key under which the command's context keeps its observer between two looks of --watch."""


@click.command(short_help="Show groups, their replicas, jobs, tasks and their progress.")
@service_options
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=TIMEOUT_S,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long one look may take.",
)
@lists
def status(log: LogService, timeout: float) -> Listing:
    """Show who belongs to the fleet, how far each replica is, and what runs where, since when and how far.

    It plays the log itself and compares its digests with what groups publish; times are UTC. If a group computed
    something else from the same log, the exit code is 4. JSON is one object.
    """
    from onyxlog.status_view import listing_of

    with refusal_explained():
        seen = _observer(log, timeout).look()
    return listing_of(seen, time.time_ns() // 1_000_000)


def _observer(log: LogService, timeout_s: float) -> LastingObserver:
    """Return the command's observer, which is closed when the command ends."""
    from onyxlog.observing import LastingObserver

    context = click.get_current_context()
    observer: LastingObserver | None = context.meta.get(OBSERVER)
    if observer is None:
        observer = context.meta[OBSERVER] = LastingObserver(log.opener(), timeout_s)
        context.call_on_close(observer.close)
    return observer
