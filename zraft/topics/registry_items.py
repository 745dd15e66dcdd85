"""The registry's items as plain values, and their digest: what a snapshot holds, and what servers compare (D-26).

The digest is the sum of the items' hashes, so an item that changed is hashed again and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, Protocol

from zraft_core.ids import GroupId, ProducerId
from zraft_core.layout import Record, boolean, from_one, number, optional, to_bytes
from zraft_core.topics import forms
from zraft_core.topics.message import COORDINATOR
from zraft_core.topics.registry_values import Change, GroupRecord, PartitionSettings, Topic

MODULUS: Final = 2**128


class RegistryState(Protocol):
    """Parts of a `zraft.topics.registry.Registry` that have items."""

    group_settings: PartitionSettings
    position: int
    epoch: int
    last_change: int
    last_loss: int
    times: int
    producers: dict[ProducerId, int]
    closed: dict[ProducerId, set[GroupId]]
    topics: dict[int, Topic]
    groups: dict[GroupId, GroupRecord]
    deleting: dict[GroupId, set[GroupId]]
    given_up: set[GroupId]
    changes: dict[int, Change]


class Part(IntEnum):
    """The tables of the registry: the kinds of pieces of a snapshot."""

    HEAD = 1
    PRODUCERS = 2
    CLOSED = 3
    TOPICS = 4
    GROUPS = 5
    DELETING = 6
    CHANGES = 7
    END = 8


TABLES: Final = (Part.PRODUCERS, Part.CLOSED, Part.TOPICS, Part.GROUPS, Part.DELETING, Part.CHANGES)


TOPIC: Final = Record(
    Topic,
    *(number, forms.topic_name, number, forms.ordered_groups, forms.ordered_groups),
    *(optional(number), forms.retention),
)
_GROUP_FIELDS: Final = 7
GROUP: Final = Record(
    GroupRecord,
    *(forms.group, number, forms.disks, optional(forms.server), forms.disks, boolean, forms.former),
    *(number, number),
    least=_GROUP_FIELDS,
)
CHANGE: Final = Record(Change, from_one, number, forms.ordered_groups, number)


def head(registry: RegistryState) -> tuple[Any, ...]:
    """Return the values of the registry that are in no table."""
    settings = registry.group_settings
    found = (
        (settings.window, settings.consumers_max),
        registry.position,
        registry.epoch,
        registry.last_change,
    )
    return (*found, registry.last_loss, registry.times) if registry.last_loss else found


def _producer(registry: RegistryState, which: Any) -> Any:
    owner = registry.producers.get(which)
    # Group 0 as a producer is always there.
    return None if owner is None or which == COORDINATOR else (which, owner)


def _closed(registry: RegistryState, which: Any) -> Any:
    heard = registry.closed.get(which)
    return None if heard is None else (which, sorted(heard))


def _topic(registry: RegistryState, which: Any) -> Any:
    topic = registry.topics.get(which)
    return topic and TOPIC.pack(topic)


def _group(registry: RegistryState, which: Any) -> Any:
    group = registry.groups.get(which)
    if group is None:
        return None
    packed = GROUP.pack(group)
    return packed if group.first_offset else packed[:_GROUP_FIELDS]


def _deleting(registry: RegistryState, which: Any) -> Any:
    heard = registry.deleting.get(which)
    if heard is None:
        return None
    return (which, sorted(heard), True) if which in registry.given_up else (which, sorted(heard))


def _change(registry: RegistryState, which: Any) -> Any:
    change = registry.changes.get(which)
    return change and CHANGE.pack(change)


_ITEMS: Final[dict[Part, Callable[[RegistryState, int], Any]]] = {
    Part.PRODUCERS: _producer,
    Part.CLOSED: _closed,
    Part.TOPICS: _topic,
    Part.GROUPS: _group,
    Part.DELETING: _deleting,
    Part.CHANGES: _change,
}


def table_of(registry: RegistryState, part: Part) -> dict[Any, Any]:
    """Return the table that holds the items of a part."""
    tables: dict[Part, dict[Any, Any]] = {
        Part.PRODUCERS: registry.producers,
        Part.CLOSED: registry.closed,
        Part.TOPICS: registry.topics,
        Part.GROUPS: registry.groups,
        Part.DELETING: registry.deleting,
        Part.CHANGES: registry.changes,
    }
    return tables[part]


def items_of(registry: RegistryState, part: Part) -> Iterator[Any]:
    """Return the items of a table, in the order of their ids."""
    item = _ITEMS[part]
    return (
        packed for which in sorted(table_of(registry, part)) if (packed := item(registry, which)) is not None
    )


def _share(part: Part, item: Any) -> int:
    return int.from_bytes(blake2b(to_bytes((part, item)), digest_size=16).digest(), "big")


class RegistryDigest:
    """The sum over a registry's items. Whoever changes, adds or removes an item marks it *before*."""

    def __init__(self, registry: RegistryState) -> None:
        self._registry = registry
        self._total = 0
        self._dirty: set[tuple[Part, int]] = set()

    def before(self, part: Part, which: int) -> None:
        """Take the share of an item out of the sum, before the item changes.

        It is added again when the digest is wanted.
        """
        mark = part, which
        if mark not in self._dirty:
            item = _ITEMS[part](self._registry, which)
            if item is not None:
                self._total -= _share(part, item)
            self._dirty.add(mark)

    def restart(self, other: RegistryDigest) -> None:
        """Take the state of `other`, whose registry this one has become."""
        self._total = other._total
        self._dirty = set(other._dirty)

    @property
    def pending(self) -> int:
        """Items to hash before the digest is known."""
        return len(self._dirty)

    def fold(self, limit: int) -> None:
        """Hash up to `limit` of them."""
        dirty, registry, total = self._dirty, self._registry, self._total
        for _ in range(min(limit, len(dirty))):
            part, which = dirty.pop()
            item = _ITEMS[part](registry, which)
            if item is not None:
                total += _share(part, item)
        self._total = total % MODULUS

    def value(self) -> int:
        """Return the digest, below 2^128; 0 for a registry in which nothing ever happened."""
        self.fold(len(self._dirty))
        return (self._total + _head_share(self._registry)) % MODULUS


def full_digest(registry: RegistryState) -> int:
    """Return the same from scratch, touching nothing."""
    total = sum(_share(part, item) for part in TABLES for item in items_of(registry, part))
    return (total + _head_share(registry)) % MODULUS


def _head_share(registry: RegistryState) -> int:
    found = head(registry)
    return _share(Part.HEAD, found) if any(found[1:]) else 0
