"""Decisions of group 0's leader about topics: it sends views, logs reports, multicasts changes.

Nothing here is remembered that matters: reports are repeated, and so is all that is sent.
"""

from __future__ import annotations

from zraft.topics.registry import Registry
from zraft_core.ids import GroupId
from zraft_core.topics.messages import Answer, Reply, Report, StartRequest, ViewUpdate
from zraft_core.topics.registry_commands import Cleared, RegistryCommand, TopicChanged
from zraft_core.topics.view import AnyView

_DECIDED = (Answer.DELIVERED, Answer.FAILED, Answer.DECIDED)


class RegistryLeader:
    """Leader's work around `registry`, which is read here and never changed."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._positions: dict[GroupId, int] = {}
        """The views that groups have logged, as far as they have reported."""
        self._answers: dict[int, set[GroupId]] = {}
        self._known = -1
        """The position of a view that all groups were found to have; what they have reported is never taken back."""

    def on_report(self, report: Report) -> RegistryCommand | None:
        """Return the command for what is new in a report, or is due without it; None if nothing is."""
        registry, group = self.registry, report.sender
        if group not in registry.groups or group in registry.given_up:
            return None
        self._positions[group] = max(report.position, self._positions.get(group, 0))
        producers = tuple(p for p in report.producers if group not in registry.closed.get(p, {group}))
        deleting = tuple(g for g in report.deleting if group not in registry.deleting.get(g, {group}))
        # A deletion may have waited for nothing but a group that was itself removed by the last report.
        if report.position < registry.last_loss:
            return None  # what it says may be of before it heard of the loss
        if producers or deleting or any(map(registry.removable, registry.deleting)):
            return Cleared(group, producers, deleting, report.position if registry.last_loss else 0)
        return None

    def on_reply(self, reply: Reply) -> RegistryCommand | None:
        """Return an answer to a change of a topic; one that is delivered everywhere is done."""
        change = self.registry.changes.get(reply.mid.seq)
        if change is None or reply.answer not in _DECIDED:
            return None
        answers = self._answers.setdefault(change.seq, set())
        answers.add(reply.sender)
        registry = self.registry
        left = {g for g in change.partitions if g in registry.groups and g not in registry.given_up}
        return TopicChanged(change.seq) if reply.everywhere or answers >= left else None

    def views(self) -> list[tuple[GroupId, ViewUpdate]]:
        """Return for each group the view that it has not reported to have."""
        found: list[tuple[GroupId, ViewUpdate]] = []
        registry = self.registry
        if registry.position == self._known:
            return found
        lacked: dict[int, AnyView | None] = {}
        for group in registry.groups:
            if group in registry.given_up:
                continue
            # A group begins with the view of its creation, whose position is its id.
            position = self._positions.get(group, group)
            if position not in lacked:
                lacked[position] = registry.view_since(position)
            view = lacked[position]
            if view is not None:
                found.append((group, ViewUpdate(view)))
        if not found:
            self._known = registry.position
        return found

    def changes(self) -> list[tuple[GroupId, StartRequest]]:
        """Return the changes that are not delivered everywhere, to all their destinations that exist."""
        registry = self.registry
        self._answers = {seq: said for seq, said in self._answers.items() if seq in registry.changes}
        self._positions = {g: at for g, at in self._positions.items() if g in registry.groups}
        floor = registry.changes_floor
        return [
            (group, StartRequest(change.message(), floor, registry.current_epoch(change)))
            for change in registry.changes.values()
            for group in change.partitions
            if group in registry.groups and group not in registry.given_up
        ]
