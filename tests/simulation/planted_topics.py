"""Bugs of group 0's share of topics: producers, groups, and what groups are told (`tests.simulation.topics` must notice)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.simulation.planted_registry import Patch, plant
from tests.simulation.profile import Mode
from zraft.topics.registry import Registry
from zraft.topics.registry_history import History
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.registry_commands import EndOwner, RegistryCommand
from zraft_core.topics.registry_values import Disks, Result
from zraft_core.topics.view import ViewDelta


@plant("D-8d", "a session ends and its producers stay open")
def producers_outlive_sessions() -> Sequence[Patch]:
    original = Registry.apply

    def apply(self: Registry, command: RegistryCommand, zxid: int) -> Result:
        return Result() if isinstance(command, EndOwner) else original(self, command, zxid)

    return [(Registry, "apply", apply)]


@plant("D-8e", "a producer retires, and a group is removed, as soon as one group has reported")
def one_report_is_enough() -> Sequence[Patch]:
    return [(Registry, "complete", lambda self, heard: bool(heard) or not self.groups)]


@plant("D-8d", "a difference of views leaves out who was closed")
def difference_without_closed() -> Sequence[Patch]:
    original = History.since

    def since(self: History, base: int, position: int, epoch: int) -> ViewDelta | None:
        found = original(self, base, position, epoch)
        return None if found is None else evolve(found, closed=())

    return [(History, "since", since)]


@plant("D-8d", "a server that took a snapshot makes differences of what it saw since", Mode.SNAPSHOTS)
def history_survives_restore() -> Sequence[Patch]:
    return [(History, "forget", lambda self, position: None)]


@plant("D-18", "a group that is sent elsewhere forgets which disks may vote")
def former_disks_forgotten() -> Sequence[Patch]:
    original = Registry._place_group

    def place(self: Registry, group: GroupId, wanted: Disks, preferred: ServerId | None) -> Any:
        result = original(self, group, wanted, preferred)
        if result.refusal is None:
            self._put_group(evolve(self.groups[group], former=()))
        return result

    return [(Registry, "_place_group", place)]
