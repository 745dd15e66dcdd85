"""Reports of full buffers in the log, and when a worker makes them.

Pure: the clock is handed in.

Every worker that is slower than its input has full buffers: credit handles that, and inputs that paused for
it would only let it run dry. A worker that stands still with full buffers is another matter: its function or
its output blocks.
"""

from __future__ import annotations


class Pressure:
    """The pressure of one worker. `told` is what the log was told last: whether it is under pressure."""

    __slots__ = ("_after_s", "_batches", "_since", "_was", "told")

    def __init__(self, after_s: float) -> None:
        """Begin without pressure.

        `after_s`: how long the worker stands still, or has room again, before that is told.
        """
        self._after_s = after_s
        self._batches = 0
        self._was = False
        self._since = 0.0
        self.told = False

    def look(self, now_s: float, *, is_full: bool, batches: int) -> bool | None:
        """Return whether the worker is under pressure, if that is to be told now.

        `batches`: how many it has processed until now.
        """
        now = is_full and (self.told or batches == self._batches)
        self._batches = batches
        if now is not self._was:
            self._was, self._since = now, now_s
        elif now is not self.told and now_s - self._since >= self._after_s:
            self.told = now
            return now
        return None
