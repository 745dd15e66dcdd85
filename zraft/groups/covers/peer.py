"""Another server as the host of groups sees it: which process it is, the covers between the two, and whether it is silent.

Pure.
"""

from __future__ import annotations

from typing import Final

from zraft.groups.covers.cover import GivenCover, TakenCover
from zraft.groups.replica import HostedReplica
from zraft.groups.settings import GroupSettings
from zraft.raft.settings import NEVER
from zraft_core.ids import GroupId, Instance, ServerId

EPOCHS_PER_BOOT: Final = 1 << 24
"""How many epochs a cover may have in one run of a process. The boot number is in the epoch, so no later run repeats one."""


class Peer:
    """Another server.

    Attributes:
        given, taken: the cover of the groups that this server leads, and that of the groups that it follows
            there.
        led: the groups that this server leads and the other one belongs to.
        run: disk instance and boot of the process that spoke last; None before the first.
        silent: whether it has not answered shared heartbeats for a while.
        unheard: whether its shared heartbeats have stopped coming.
        steady_since: tick since which it answers.
        beat_at: tick at which the next shared heartbeat to it is due.
        heard_at: tick of the last turn before anything about groups came from it; -1 before the first.
    """

    __slots__ = (
        "_silent_after",
        "_unheard_after",
        "beat_at",
        "given",
        "heard_at",
        "led",
        "run",
        "server",
        "silent",
        "steady_since",
        "taken",
        "unheard",
    )

    def __init__(self, server: ServerId, boot: int, settings: GroupSettings) -> None:
        """Make a server that has not spoken yet; `boot` is this server's own."""
        self.server = server
        # Silence counts earlier than check-quorum does, so that groups which counted on it find another majority in time.
        self._silent_after = settings.raft.election_timeout_ticks - settings.raft.heartbeat_ticks
        self._unheard_after = settings.raft.election_timeout_ticks
        # No earlier run of this server had this epoch: late answers to its heartbeats must not count.
        self.given = GivenCover(settings.items_max, epoch=boot * EPOCHS_PER_BOOT + 1)
        self.taken = TakenCover()
        self.led: dict[GroupId, HostedReplica] = {}
        self.run: tuple[Instance, int] | None = None
        self.silent = True
        self.unheard = True
        self.steady_since = 0
        self.beat_at = 0
        self.heard_at = -1

    @property
    def instance(self) -> Instance:
        """The disk of the process that spoke last; empty before the first."""
        return self.run[0] if self.run is not None else Instance(b"")

    def is_late(self, instance: Instance, boot: int) -> bool:
        """Return whether a later run on the same disk has spoken already."""
        return self.run is not None and self.run[0] == instance and boot < self.run[1]

    def begins_anew(self, instance: Instance, boot: int) -> bool:
        """Return whether this is another process than the one known, so that nothing that was agreed holds."""
        return self.run is not None and self.run != (instance, boot)

    def restart(self) -> None:
        """Forget what was agreed with the process before, because it died with that process."""
        self.given.begin_anew()
        self.given.contact = -1
        self.taken = TakenCover()
        self.silent = self.unheard = True

    @property
    def silent_at(self) -> int:
        """The tick at which it counts as silent if it does not answer before."""
        contact = self.given.contact
        return self._silent_after + (contact if contact > 0 else 0)

    @property
    def unheard_at(self) -> int:
        """The tick from which the groups that follow there mind their own timers, if no heartbeat comes before."""
        heard_at = self.taken.heard_at
        return self._unheard_after + (heard_at if heard_at > 0 else 0)

    @property
    def has_to_beat(self) -> bool:
        """True if shared heartbeats are sent to it: it belongs to a group led here, or has not answered everything."""
        return bool(self.led) or (not self.silent and self.given.has_news)

    @property
    def due_at(self) -> float:
        """The tick at which something is due for it although nothing happens; `NEVER` if nothing is."""
        due: float = self.beat_at if self.has_to_beat else NEVER
        if not self.silent:
            silent_at = self.silent_at
            due = silent_at if silent_at < due else due
        if not self.unheard:
            unheard_at = self.unheard_at
            due = unheard_at if unheard_at < due else due
        return due
