"""The roster: the servers that found a cluster, each with its disk (D-1)."""

from __future__ import annotations

from zraft_core.ids import Instance, ServerId

Roster = tuple[tuple[ServerId, Instance], ...]
