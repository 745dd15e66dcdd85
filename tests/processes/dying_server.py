"""`zraft serve` that is killed at a given step of the life of a message, by itself, for certain.

    python -m tests.processes.dying_server ORDER-FILE serve …

The order is one line, "GROUP STEP". Of all servers, the one that leads that group when it comes to that step of a message to
several destinations ends itself with SIGKILL, first renaming the file to ORDER-FILE.done: so one server obeys one order. The
hooks stand around the shipped classes, and look only.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from zraft.cli.main import main
from zraft.groups.frame import Durable
from zraft.groups.host import GroupHost
from zraft.groups.hosted_groups import HostedGroups
from zraft.server.partitions.leadership import LeaderOutput, PartitionLeadership
from zraft.server.partitions.machine import AppliedEntry
from zraft.topics.entries import BatchEntry, decode_entry
from zraft_core.ids import GroupId
from zraft_core.topics.commands import PartitionCommand, Remote, Start
from zraft_core.topics.messages import Propose, StartRequest


class Step(Enum):
    """Where the leader of a destination is in the life of a message to several."""

    ASKED = "asked"
    """The producer's request has come; nothing is logged here."""
    START_LOGGED = "start-logged"
    """It is durable in the leader's own log and on its way to the others; the leader does not know it as committed."""
    BEGUN = "begun"
    """It is applied; no other destination has been told the proposal."""
    PROPOSED = "proposed"
    """The proposal has been sent to the other destinations."""
    REMOTE_LOGGED = "remote-logged"
    """Another destination's proposal is durable in the leader's own log; the leader does not know it as committed."""
    DELIVERED = "delivered"
    """It is delivered here; nobody has been told, and the delivery is on no disk but in the log."""


class Dying:
    """Looks at what the classes do, and ends the process at the step that is ordered."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._logged: dict[GroupId, tuple[int, int, Step]] = {}
        self._sent: list[GroupId] = []

    def _is_due(self, group: GroupId, step: Step) -> bool:
        try:
            return self._order.read_text() == f"{group} {step.value}"
        except FileNotFoundError:
            return False

    def _come_to(self, group: GroupId, step: Step) -> None:
        """This process is at that step of a message of that group."""
        if not self._is_due(group, step):
            return
        try:
            self._order.rename(self._order.with_suffix(".done"))
        except FileNotFoundError:
            return  # another server was there first
        os.kill(os.getpid(), signal.SIGKILL)

    def plant(self) -> None:
        """Put the hooks around the classes."""
        produce, turn = PartitionLeadership.produce, PartitionLeadership.turn
        on_applied, propose = PartitionLeadership.on_applied, GroupHost.propose
        persisted, groups_turn = GroupHost.persisted, HostedGroups.turn

        def asked(leadership: PartitionLeadership, asker: Any, request: StartRequest) -> None:
            if not request.message.is_single:
                self._come_to(leadership.group, Step.ASKED)
            produce(leadership, asker, request)

        def proposed(host: GroupHost, group: GroupId, payload: bytes, count: int) -> tuple[int, int] | None:
            found = propose(host, group, payload, count)
            if found is not None and group not in self._logged:
                step = self._step_of(group, payload)
                if step is not None:
                    self._logged[group] = (*found, step)
            return found

        def durable(host: GroupHost, frame: Durable) -> None:
            persisted(host, frame)
            for group, (index, term, step) in list(self._logged.items()):
                raft = host.groups[group].raft
                if raft.term != term:
                    del self._logged[group]
                elif raft.durable_index >= index:
                    del self._logged[group]
                    self._come_to(group, step)

        def applied(leadership: PartitionLeadership, entry: AppliedEntry) -> None:
            group, found = leadership.group, entry.applied
            logged = self._logged.get(group)
            if logged is not None and logged[:2] == (entry.index, leadership.term):
                del self._logged[group]
                self._come_to(group, logged[2])  # two others were faster than this server's disk
            if found is not None:
                if any(not one.message.is_single for one in found.begun):
                    self._come_to(group, Step.BEGUN)
                if any(not one.message.is_single for one in found.delivered):
                    self._come_to(group, Step.DELIVERED)
            on_applied(leadership, entry)

        def said(leadership: PartitionLeadership, *args: Any) -> LeaderOutput:
            output = turn(leadership, *args)
            if any(isinstance(one, Propose) for several in output.messages.values() for one in several):
                self._sent.append(leadership.group)
            return output

        def next_turn(groups: HostedGroups, *args: Any, **kwargs: Any) -> Any:
            # What the turn before said is with the kernel by now.
            sent, self._sent = self._sent, []
            for group in sent:
                self._come_to(group, Step.PROPOSED)
            return groups_turn(groups, *args, **kwargs)

        hooks: Sequence[tuple[type, str, Callable[..., Any]]] = (
            (PartitionLeadership, "produce", asked),
            (PartitionLeadership, "on_applied", applied),
            (PartitionLeadership, "turn", said),
            (GroupHost, "propose", proposed),
            (GroupHost, "persisted", durable),
            (HostedGroups, "turn", next_turn),
        )
        for owner, name, hook in hooks:
            setattr(owner, name, hook)

    def _step_of(self, group: GroupId, payload: bytes) -> Step | None:
        """The ordered one of the two steps that this entry is, if it is one."""
        for step, kind in ((Step.START_LOGGED, Start), (Step.REMOTE_LOGGED, Remote)):
            if self._is_due(group, step):
                entry = decode_entry(payload)
                commands: Sequence[PartitionCommand] = (
                    entry.batch.commands if isinstance(entry, BatchEntry) else ()
                )
                if any(isinstance(one, kind) and not _is_single(one) for one in commands):
                    return step
        return None


def _is_single(command: PartitionCommand) -> bool:
    return isinstance(command, Start) and command.message.is_single


if __name__ == "__main__":
    Dying(Path(sys.argv[1])).plant()
    main(sys.argv[2:], prog_name="zraft")
