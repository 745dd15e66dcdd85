"""Loss of our datagrams to a peer, from the peer's own reports, and whether it is too high (D-22).

Pure.

Datagrams to a peer are counted by their seal. The peer says every now and then how far that count came and how many
it opened; what lies between two reports and is missing was lost, be it on the way or in a full socket buffer.
"""

from __future__ import annotations

from typing import Final

from zraft.transport.packing import LossReport

WINDOW: Final = 1024
"""Datagrams that the estimate remembers: older ones fade as new ones are told of."""

ENOUGH: Final = 200
"""Fewer datagrams than this say nothing: two lost ones would already be one in a hundred."""

LOSSY_FROM: Final = 0.02
LOSSY_UNTIL: Final = 0.01
"""The share at which loss counts as over. It differs from the one at which it begins, so that a path at the
border does not change its mind all the time.
"""

REPORT_EVERY: Final = 128
"""Datagrams opened between two reports, at least; and at most, if they come in less than the interval."""

REPORT_LEAST: Final = 32
"""Fewer datagrams are not reported, however long they take: heartbeats alone tell little, and a report wakes a server."""

REPORT_INTERVAL_MS: Final = 1_000


class Loss:
    """Loss of the datagrams to one peer.

    Attributes:
        lossy: too many are lost; what takes several datagrams should take another way.
    """

    __slots__ = ("_before", "_lost", "_sent", "lossy")

    def __init__(self) -> None:
        self._before: LossReport | None = None
        self._sent = 0.0
        self._lost = 0.0
        self.lossy = False

    @property
    def share(self) -> float:
        """The lost share of the last datagrams, from 0 to 1. It is 0 as long as too few were reported."""
        return self._lost / self._sent if self._sent >= ENOUGH else 0.0

    def restart(self) -> None:
        """Take note that the peer counts from the beginning, or from another point.

        What is known stays, and fades.
        """
        self._before = None

    def on_report(self, report: LossReport) -> None:
        """Take the peer's newest count.

        One that is older than the last, overtaken on its way, is ignored.
        """
        before = self._before
        if before is None:
            self._before = report
            return
        sent = report.next_counter - before.next_counter
        opened = report.opened - before.opened
        if sent <= 0 or opened < 0:
            return
        self._before = report
        # Late ones are opened without new ones having been sent: they were counted as lost before.
        lost = sent - opened
        keep = max(0.0, 1 - sent / WINDOW)
        self._sent = self._sent * keep + sent
        self._lost = max(0.0, self._lost * keep + lost)
        if self._sent >= ENOUGH:
            self.lossy = self.share > (LOSSY_UNTIL if self.lossy else LOSSY_FROM)


class Reporter:
    """Reporter to a peer of how many of its datagrams were opened.

    Whoever opens one counts it in `opened`, and calls `is_due` once these are REPORT_EVERY, or REPORT_LEAST and it is
    `due_ms`. A report does not count: two reporters must not keep each other awake.
    """

    __slots__ = ("due_ms", "opened")

    def __init__(self) -> None:
        self.opened = 0
        self.due_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Return whether to report now, and count anew then. The first datagram only begins the time to the next report."""
        is_first = self.due_ms == 0
        self.due_ms = now_ms + REPORT_INTERVAL_MS
        if is_first:
            return False
        self.opened = 0
        return True
