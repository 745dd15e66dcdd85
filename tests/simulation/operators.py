"""Owns the simulated operators: who adds, removes, replaces, demotes and promotes servers, hands leaderships over,
changes settings and raises the feature level, and who looks after servers that say that they need it.

They see what real ones see (what the servers say of themselves, and what was asked for) and keep one rule: never to
ask for what would leave a majority without disks (`survival`). All else they may do at any moment and in any order,
also one thing and at once its contrary.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.model import History
from tests.simulation.process import Process
from tests.simulation.profile import RUN_MS, Profile
from tests.simulation.schedule import Schedule
from tests.simulation.survival import Survival
from zraft.raft.role import Role
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes import txn
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE

WANTED_MAX: Final = 5
VOTERS_MIN: Final = 2

LOOK_INTERVAL_MS: Final = 150
UNHEARD_MS: Final = 600
"""After so long outside a server is started anew with the list of members as it is now."""

GIVEN_UP_AFTER_MS: Final = 1_000

KINDS: Final = (
    *("add", "add", "add", "remove", "remove", "demote", "promote", "promote", "transfer", "transfer"),
    *("replace", "replace", "contradict", "settings", "feature"),
)
GENTLE_KINDS: Final = ("add", "transfer", "settings")

Change = tuple[int, int, str]


class Operators:
    """Act at rolled moments until told to stop; look after servers until the end."""

    def __init__(
        self,
        schedule: Schedule,
        profile: Profile,
        rng: random.Random,
        processes: Mapping[ServerId, Process],
        history: History,
        survival: Survival,
        *,
        begin_ms: int,
    ) -> None:
        self._schedule = schedule
        self._profile = profile
        self._rng = rng
        self._processes = processes
        self._history = history
        self._survival = survival
        self.active = profile.operators
        self.counts: Counter[str] = Counter()
        self._asked: list[tuple[tuple[Change, ...], Process, int, Instance]] = []
        """Changes, the server that was asked, its boot and its disk at that moment."""
        self._outside_since: dict[ServerId, int] = {}
        schedule.at(begin_ms, self._act)
        schedule.at(LOOK_INTERVAL_MS, self._look)

    # -- what they do
    def _act(self) -> None:
        if not self.active:
            return
        self._forget()
        rng = self._rng
        kind = rng.choice(GENTLE_KINDS if self._profile.gentle else KINDS)
        if self._history.wanted:
            self._one(kind)
        self._schedule.after(rng.choice(self._profile.operator_gaps_ms), self._act)

    def _one(self, kind: str) -> None:
        rng = self._rng
        wanted = self._survival.wishes()[-1]
        voters = [server for server, (votes, _) in wanted.items() if votes]
        match kind:
            case "add":
                self._add(PARTICIPANT if self._profile.gentle or rng.random() < 0.8 else OBSERVER)
            case "remove":
                self._ask(kind, (rng.choice(sorted(wanted)), REMOVE, ""))
            case "demote" if voters:
                self._ask(kind, self._change(rng.choice(voters), OBSERVER))
            case "promote":
                others = [server for server in wanted if server not in voters]
                if others:
                    self._ask(kind, self._change(rng.choice(others), PARTICIPANT))
            case "replace" if voters:
                old = rng.choice(voters)
                new = self._add(PARTICIPANT)
                if new is not None:
                    self._ask(kind, (old, REMOVE, ""))
            case "contradict":
                server = rng.choice(sorted(wanted))
                for _ in range(rng.choice((2, 3))):
                    part = rng.choice((REMOVE, OBSERVER, PARTICIPANT))
                    self._ask(kind, (server, REMOVE, "") if part == REMOVE else self._change(server, part))
            case "transfer":
                self._transfer()
            case "settings":
                values = {
                    "quota_enforced": rng.randint(0, 1),
                    "container_never_used_ms_max": rng.choice((900, 1_200)),
                }
                self._submit(kind, (txn.SETTINGS, values), None)
            case "feature":
                # The leader does so by itself; what it does not allow, nobody can ask for, but to repeat it.
                self._submit(kind, (txn.FEATURE, self._history.feature_level), None)
            case _:
                pass

    def _change(self, server: ServerId, part: int) -> Change:
        return (server, part, f"s{server}:2181")

    def _add(self, part: int) -> ServerId | None:
        survival, rng = self._survival, self._rng
        wishes = survival.wishes()
        free = [
            server
            for server in self._processes
            if not any(server in wish for wish in wishes) and not survival.counted_on(server)
        ]
        if not free or max(map(len, wishes)) >= WANTED_MAX:
            return None
        server = rng.choice(free)
        change = self._change(server, part)
        if not self._ask("add", change):
            return None
        self._schedule.after(rng.choice((0, 40, 300)), self._begin_anew, server)
        return server

    def _begin_anew(self, server: ServerId) -> None:
        """Start a server with an empty disk, unless the one it has is counted on."""
        process = self._processes[server]
        if process.in_service and process.up and process.outside:
            return
        if process.opened and not self._survival.counted_on(server):
            process.crash()
            process.wipe()
        process.in_service = True
        process.boot()

    def _ask(self, kind: str, *changes: Change) -> bool:
        """A MEMBERS command, if the cluster survives it whatever becomes of those before it."""
        survival = self._survival
        wishes = survival.wishes(changes)
        if len(survival.pending) >= 4 or not survival.survives(more=changes):
            return False
        if any(sum(votes for votes, _ in wish.values()) < VOTERS_MIN for wish in wishes):
            return False
        if not self._submit(kind, (txn.MEMBERS, False, -1, changes), changes):
            return False
        for server, part, _ in changes:
            if part == REMOVE:
                self._schedule.after(self._rng.choice((300, 1_000, 2_000)), self._retire, ServerId(server))
        return True

    def _submit(self, kind: str, command: txn.Command, changes: tuple[Change, ...] | None) -> bool:
        rows = self._history.rows
        running = [
            p
            for p in self._processes.values()
            if p.driver is not None
            and p.driver.raft is not None
            and p.in_service
            and (p.server, p.sender.instance) in rows
        ]
        if not running:
            return False
        process = self._rng.choice(running)
        assert process.driver is not None
        self.counts[kind] += 1
        if changes is not None:
            asked = (changes, process, process.boots, process.sender.instance)
            self._asked.append(asked)
            self._survival.pending.append(changes)

        def done(result: object) -> None:
            if isinstance(result, Code) and result is not Code.OK:
                self.counts["refused"] += 1
            if changes is not None and asked in self._asked:
                self._asked.remove(asked)
                self._survival.pending.remove(changes)

        process.driver.submit(command, done)
        process.wake()
        return True

    def _forget(self) -> None:
        """Commands that cannot be carried out any more: their server ended and its next boot is registered, or was removed.

        A removed server that runs says so itself; one that ended and never starts again says nothing.
        """
        for asked in list(self._asked):
            changes, process, boots, instance = asked
            if (process.server, instance) not in self._history.rows:
                self._asked.remove(asked)
                self._survival.pending.remove(changes)
                continue
            if process.boots == boots:
                continue
            row = self._history.rows.get((process.server, process.sender.instance), (0, 0))
            # What never boots again is never registered; whatever of it was on its way has arrived long ago.
            given_up = process.must_be_replaced and self._schedule.now_ms >= RUN_MS + GIVEN_UP_AFTER_MS
            if process.wiped_since(boots) or row[0] >= process.sender.boot or given_up:
                self._asked.remove(asked)
                self._survival.pending.remove(changes)

    def _transfer(self) -> None:
        leaders = [p for p in self._processes.values() if p.leads]
        if not leaders:
            return
        process = self._rng.choice(leaders)
        assert process.driver is not None
        assert process.driver.raft is not None
        target = self._rng.choice(sorted(process.driver.raft.membership.members))
        if process.driver.raft.role is Role.LEADER and process.driver.raft.transfer_leadership(target):
            self.counts["transfer"] += 1
            process.wake()

    def _retire(self, server: ServerId) -> None:
        """Shut down what was removed, sometimes; some go on running, not knowing or not wanting to know."""
        if not self.active or any(server in wish for wish in self._survival.wishes()):
            return
        if not self._survival.counted_on(server) and self._rng.random() < 0.5:
            process = self._processes[server]
            process.in_service = False
            process.crash()

    # -- looking after servers
    def _look(self) -> None:
        """What a supervisor or an operator does when a server says that it cannot go on."""
        self._schedule.after(LOOK_INTERVAL_MS, self._look)
        self._forget()
        now = self._schedule.now_ms
        wishes = self._survival.wishes()
        for server, process in self._processes.items():
            # Until it is written down who is wanted, it is those who founded the cluster.
            if not all(server in wish if wish else process.in_service for wish in wishes):
                continue
            if not process.in_service:
                self._begin_anew(server)
            elif process.must_be_replaced:
                process.wipe()
                process.boot()
            elif (
                process.driver is not None
                and process.driver.coordination.removed
                and not self._survival.counted_on(server)
            ):
                self.counts["anew"] += 1
                process.crash()
                process.wipe()
                process.boot()
            elif process.outside:
                if now - self._outside_since.setdefault(server, now) >= UNHEARD_MS and process.up:
                    del self._outside_since[server]
                    process.crash()
                    process.boot()
            else:
                self._outside_since.pop(server, None)

    def peers_of(self, process: Process, founders: list[ServerId]) -> list[ServerId]:
        """What the configuration file of a server lists: the founders', or all members, present and wanted."""
        if process.first_disk and process.server in founders:
            return founders
        members = {
            server for configuration in self._survival.configurations() for server in configuration.members
        }
        return sorted({*(self._history.wanted or founders), *members, process.server})


def describe(counts: Counter[str]) -> dict[str, Any]:
    """For the report."""
    return {f"operator: {kind}": number for kind, number in counts.items()}
