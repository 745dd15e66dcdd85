"""Owns the adversary: which fault strikes whom, when, and how it is undone when healing begins."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.clients import SimulatedClient
from tests.simulation.disk import Trouble
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.profile import TICK_TIME_MS, Mode, Profile
from tests.simulation.schedule import Schedule
from tests.simulation.server_faults import DOWN_MS, Faults
from tests.simulation.survival import Survival
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.storage.records import HardStateRecord, Record

LENGTHS_MS: Final = (60, 150, 300, 600, 1500)

ELECTIONS_AT_MS: Final = (2_400, 3_900, 5_100, 6_200)
"""By these moments at least one, two, three and four leader changes."""

ALL_KINDS: Final = (
    "crash",
    "crash",
    "stop",
    "stop",
    "stop all",
    "cut",
    "cut",
    "one way",
    "wipe",
    "wall clock",
    "client",
    "power",
    "torn",
    "link",
    "link",
    "full disk",
    "failing disk",
    "rot",
    "behind",
)
PREVAILING: Final = {
    Mode.EXPIRY: ("stop", "stop all", "client", "client sleeps", "client sleeps", "client sleeps", "link"),
    Mode.VOTES: ("torn", "link", "link", "crash", "cut", "power"),
    Mode.BOOTS: ("crash", "crash", "one way", "client"),
    Mode.ELECTIONS: ("leader cut", "leader cut", "leader cut", "stop", "crash"),
    Mode.WIPES: ("wipe", "wipe", "crash", "cut", "stop"),
    Mode.SNAPSHOTS: ("behind", "behind", "behind", "crash", "stop", "torn", "wipe", "full disk"),
    Mode.MEMBERS: ("crash", "stop", "cut", "leader cut", "behind", "wipe"),
    Mode.DISKS: ("full disk", "full disk", "failing disk", "failing disk", "rot", "rot", "behind"),
    Mode.READS: ("cut", "one way", "link", "stop", "client"),
}
GENTLE_KINDS: Final = ("crash", "stop", "cut", "link", "wall clock")


class Adversary(Faults[Process]):
    """Strikes at rolled moments until `end_ms`; `heal` undoes everything that lasts."""

    def __init__(
        self,
        schedule: Schedule,
        profile: Profile,
        rng: random.Random,
        processes: Sequence[Process],
        clients: Sequence[SimulatedClient],
        network: Network,
        leader_changes: Callable[[], int],
        survival: Survival,
        *,
        begin_ms: int,
        end_ms: int,
    ) -> None:
        super().__init__(schedule, network, processes, rng)
        self._profile = profile
        self._clients = clients
        self._leader_changes = leader_changes
        self._survival = survival
        self._end_ms = end_ms
        self._all_stopped_until_ms = 0
        self._stopped_total_ms = 0
        schedule.at(begin_ms, self._strike)
        for nth, moment in enumerate(ELECTIONS_AT_MS, start=1):
            schedule.at(moment, self._ensure_elections, nth)

    def live_ms(self) -> int:
        """Simulated time in which not all servers were stopped."""
        now = self._schedule.now_ms
        return now - self._stopped_total_ms + max(0, self._all_stopped_until_ms - now)

    def _strike(self) -> None:
        schedule, rng = self._schedule, self._rng
        if not self.active or schedule.now_ms >= self._end_ms:
            return
        self.fault()
        gap = rng.choice(self._profile.fault_gaps_ms)
        schedule.at(max(schedule.now_ms, self._all_stopped_until_ms) + gap, self._strike)

    def _ensure_elections(self, wanted: int) -> None:
        """No run may pass without elections: crash the leader if the rolled faults caused too few."""
        leaders = [process for process in self._processes if process.leads]
        if self.active and leaders and self._leader_changes() < wanted:
            self._crash(leaders[-1])

    def fault(self, kind: str | None = None) -> None:
        """One fault; of a rolled kind unless `kind` says which."""
        rng, profile = self._rng, self._profile
        process = rng.choice([p for p in self._processes if p.in_service])
        leaders = [p for p in self._processes if p.leads]
        if leaders and rng.random() < (0.7 if profile.gentle else 0.4):
            process = rng.choice(leaders)
        if kind is None:
            kinds: tuple[str, ...] = GENTLE_KINDS if profile.gentle else ALL_KINDS
            if not profile.gentle and profile.mode in PREVAILING and rng.random() < 0.7:
                kinds = PREVAILING[profile.mode]
            kind = rng.choice(kinds)
        length = rng.choice(LENGTHS_MS[:4] if profile.gentle else LENGTHS_MS)
        match kind:
            case "crash":
                self._crash(process)
            case "power":
                for other in self._processes:
                    self._crash(other, once="power")
            case "torn":
                # Whoever has something un-fsynced, voters first: what they said must not depend on it.
                writing = [p for p in self._processes if p.up and p.frame_in_flight]
                writing.sort(key=lambda p: not writes_vote(p.frame_in_flight or ()))
                for victim in writing[:1]:
                    self._crash(victim, once="torn")
            case "wipe":
                self._wipe(process)
            case "stop":
                if process.up:
                    self.counts[kind] += 1
                    process.stop(self._schedule.now_ms + length)
            case "behind":
                # Long enough that the others have forgotten the log that it lacks.
                followers = [p for p in self._processes if p.up and not p.leads]
                if followers:
                    follower, length = rng.choice(followers), rng.choice((500, 900, 1_500))
                    others = [p.server for p in self._processes if p is not follower]
                    self.counts[kind] += 1
                    if rng.random() < 0.4:
                        follower.stop(self._schedule.now_ms + length)
                    else:
                        pairs = [(follower.server, other) for other in others]
                        self._cut(pairs + [(b, a) for a, b in pairs], length)
            case "full disk":
                if profile.disk_faults and process.up and not process.image.disk.full:
                    self.counts[kind] += 1
                    process.image.disk.full = True
                    self._schedule.after(length, self._empty, process)
            case "failing disk":
                if profile.disk_faults and process.up:
                    self.counts[kind] += 1
                    process.image.trouble(rng.choice((Trouble.EIO, Trouble.EIO, Trouble.ENOSPC)), 12)
            case "rot":
                self._rot(process)
            case "stop all":
                self._stop_all()
            case "cut" | "one way":
                self._cut_off(process, kind, length)
            case "leader cut":
                # Long enough for an election, short enough to come back and lead again.
                if leaders:
                    self._cut_off(rng.choice(leaders), "cut", rng.choice((300, 500, 800)))
            case "link":
                if len(self._processes) > 1:
                    a, b = rng.sample([p.server for p in self._processes], 2)
                    self.counts[kind] += 1
                    self._cut([(a, b), (b, a)], length)
            case "wall clock":
                self.counts[kind] += 1
                process.wall_skew_ms += rng.choice((-86_400_000, -500, 500, 86_400_000))
            case "client":
                self._client(length)
            case "client sleeps":
                # As long as its session lives, more or less, and without knowing: it goes on as if nothing were.
                client = rng.choice(self._clients)
                until = client.negotiated_ms + TICK_TIME_MS + rng.randint(-150, 450)
                self.counts[kind] += 1
                client.pause(self._schedule.now_ms + until)
                client.excuse(until)

    def snipe(self, process: Process) -> None:
        """A frame with a vote is being written: perhaps the power fails before its fsync returns."""
        if self.active and self._profile.snipe and self._rng.random() < self._profile.snipe:
            self._schedule.after(self._rng.randint(0, 2), self._snipe_now, process, process.boots)

    def _snipe_now(self, process: Process, boot: int) -> None:
        if self.active and process.boots == boot:
            self._crash(process, once="torn")

    def _down(self) -> int:
        return sum(p.in_service and (not p.up or p.stopped) for p in self._processes)

    @staticmethod
    def _empty(process: Process) -> None:
        process.image.disk.full = False

    def _rot(self, process: Process) -> None:
        """A bit of its newest snapshot turns while it is down: it may have to begin anew."""
        if not self._profile.disk_faults or not process.up or not self._survival.survives([process.server]):
            return
        process.crash()
        rotten = process.image.rot()
        if rotten is not None:
            self.counts["rot"] += 1
            process.may_be_damaged = True
            self._survival.rotten(process.server, rotten)
        self.start_again(process)

    def snapshot(self, process: Process) -> None:
        """A snapshot became durable: perhaps the power fails before anything else is done."""
        if self.active and self._profile.snipe and self._rng.random() < 0.5 * self._profile.snipe:
            self._schedule.after(self._rng.randint(0, 3), self._snipe_now, process, process.boots)

    def _upgrade(self, process: Process) -> None:
        if process.driver is not None and process.driver.settings.features < FEATURE_LEVEL_MAX:
            process.crash()
            self._schedule.after(DOWN_MS[0], process.boot)

    def ended(self, process: Process) -> None:
        """A process ended by itself: whoever supervises it starts it again."""
        process.crash()
        self.start_again(process)

    def _crash(self, process: Process, once: str = "crash") -> None:
        if not process.up or (self._profile.gentle and self._down()):
            return
        self.counts[once] += 1
        if self._rng.random() < 0.5:
            process.features = FEATURE_LEVEL_MAX  # it was upgraded
        silent = not self._profile.gentle and self._rng.random() < 0.2
        process.crash(sockets_silent=silent)
        self.start_again(process)

    def _wipe(self, process: Process) -> None:
        """A disk is lost, if the cluster survives that; the same command starts the server with an empty one."""
        if not self._profile.wipes or not process.up or not self._survival.survives([process.server]):
            return
        if not self._survival.counted_on(process.server):
            return
        self.counts["wipe"] += 1
        process.crash()
        process.wipe()
        self._schedule.after(self._rng.choice((*DOWN_MS, 1_500)), process.boot)

    def _stop_all(self) -> None:
        rng, now = self._rng, self._schedule.now_ms
        if now < self._all_stopped_until_ms:
            return
        duration = min(rng.choice((300, 1000, 2000)), self._end_ms - now)
        frozen, clients_too = rng.random() < 0.3, rng.random() < 0.5
        self.counts["stop all"] += 1
        self.stop_all(duration, frozen=frozen, clients_too=clients_too)

    def stop_all(self, duration: int, *, frozen: bool = False, clients_too: bool = True) -> None:
        """No server runs for `duration` ms, as on a laptop that sleeps; `frozen`: nor do their clocks."""
        now = self._schedule.now_ms
        self._all_stopped_until_ms = now + duration
        self._stopped_total_ms += duration
        for process in self._processes:
            process.stop(now + duration)
            if frozen and process.up:
                # The machine sleeps, its clock with it: the jump is not seen by the process. The clock is right again in
                # the last ms of the sleep, as a turn may be the first event of the next one.
                self._schedule.at(now + duration - 1, self._thaw, process, process.boots, duration)
        if clients_too:
            for client in self._clients:
                client.pause(now + duration)
                client.excuse(duration)

    def _thaw(self, process: Process, boot: int, duration: int) -> None:
        if process.boots == boot and process.up:
            process.frozen_ms += duration

    def _cut_off(self, process: Process, kind: str, length: int) -> None:
        rng = self._rng
        ids = [p.server for p in self._processes]
        one = self._profile.gentle or rng.random() < 0.6
        group = [process.server] if one else sorted(rng.sample(ids, len(ids) // 2))
        pairs = [(a, b) for a in group for b in ids if b not in group]
        back = [(b, a) for a, b in pairs]
        if kind == "cut":
            pairs = pairs + back
        elif rng.random() < 0.5:
            pairs = back
        self.counts[kind] += 1
        self._cut(pairs, length)

    def _client(self, length: int) -> None:
        rng = self._rng
        client = rng.choice(self._clients)
        alive = sum(not other.dead for other in self._clients)
        if rng.random() < 0.25 and alive > 2 and not client.dead:
            self.counts["client dies"] += 1
            client.die(silently=rng.random() < 0.5)
        else:
            self.counts["client stops"] += 1
            client.pause(self._schedule.now_ms + rng.choice((length, rng.randint(700, 1600))))

    def heal(self) -> None:
        super().heal()
        for client in self._clients:
            client.paused_until_ms = min(client.paused_until_ms, self._schedule.now_ms)

    def _heal_process(self, process: Process) -> None:
        process.image.disk.full = False
        process.features = FEATURE_LEVEL_MAX
        super()._heal_process(process)
        if process.driver is not None and process.driver.settings.features < FEATURE_LEVEL_MAX:
            # The last ones are upgraded, one after the other.
            self._schedule.after(200 * process.server, self._upgrade, process)


def writes_vote(records: Sequence[Record]) -> bool:
    """Whether a frame carries a vote."""
    return any(isinstance(record, HardStateRecord) and record.hard_state.voted_for for record in records)
