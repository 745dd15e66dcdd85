"""A leader's attempt to hand its leadership to another server (Ongaro's dissertation, section 3.10)."""

from __future__ import annotations

from attrs import define

from zraft_core.ids import ServerId


@define
class Handover:
    """One attempt.

    Attributes:
        target: who is to lead.
        gives_up_at: tick at which the leader leads on, or steps down if it is to leave the group.
        told_at: tick at which the target was last told to campaign, None before. Repeated, as datagrams get lost.
    """

    target: ServerId
    gives_up_at: int
    told_at: int | None = None

    def is_due(self, now: int, repeat_ticks: int) -> bool:
        """Return whether the target, if it holds the whole log, is to be told now."""
        return self.told_at is None or now - self.told_at >= repeat_ticks
