"""The registry as bytes: pieces of a snapshot, each a few hundred items, so that writing and reading come in steps. Pure.

docs/TOPICS.md, "Formats". Everything stands in one order, so that equal states have equal bytes; what follows from the
rest is not in it, and neither are the limits, which are settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from zraft.topics.registry import Registry
from zraft.topics.registry_items import TABLES, Part, head, items_of
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.topics import layouts
from zraft_core.topics.layouts import array, formatted, from_bytes, number, to_bytes, wrong
from zraft_core.topics.registry_values import Change, GroupRecord, PartitionSettings, RegistrySettings, Topic

FORMAT: Final = 1
ITEMS_PER_PIECE: Final = 256
_SESSION: Final = layouts.integer(-(2**63), 2**64 - 1)
_NAME: Final = layouts.text(1024)
_OPTIONAL_NUMBER: Final = layouts.optional(number)
_ORDERED_GROUPS: Final = layouts.listed(layouts.group, layouts.LISTED_MAX)


def registry_image(registry: Registry) -> Iterator[bytes]:
    """The pieces of a snapshot of the registry, which must not change until the last one is taken."""
    yield to_bytes((FORMAT, Part.HEAD, head(registry)))
    for part in TABLES:
        remaining = items_of(registry, part)
        while some := list(islice(remaining, ITEMS_PER_PIECE)):
            yield to_bytes((FORMAT, part, some))
    yield to_bytes((FORMAT, Part.END, ()))


def read_registry(pieces: Iterable[bytes]) -> Registry:
    """The registry of a snapshot's pieces.

    Raises:
        ProtocolError: they are not all pieces of one snapshot, in order, of a format that is known.
    """
    reader = RegistryReader()
    for piece in pieces:
        reader.take(piece)
    return reader.finish()


class RegistryReader:
    """Takes the pieces one by one, and hashes what it took, so that the digest is known at the end."""

    def __init__(self, settings: RegistrySettings | None = None) -> None:
        self._registry = Registry(settings)
        self._last = 0

    @property
    def begun(self) -> bool:
        return self._last > 0

    def take(self, piece: bytes) -> None:
        """
        Raises:
            ProtocolError: it is no piece, or not one that can follow the last one.
        """
        _, kind, items = formatted(from_bytes(piece), "piece of the registry", FORMAT, 3)
        part = Part(layouts.integer(Part.HEAD, Part.END).unpack(kind, "kind of a piece"))
        array(items, "piece of the registry")
        once = part in (Part.HEAD, Part.END)
        if part < self._last or (part == self._last and once) or (self._last == 0) != (part is Part.HEAD):
            raise wrong("snapshot of the registry", f"a piece that may follow kind {self._last}", part)
        self._last = part
        if part is Part.HEAD:
            self._take_head(items)
            return
        for item in items:
            self._take_item(part, item)
        self._registry.digest.fold(len(items))

    def finish(self) -> Registry:
        """
        Raises:
            ProtocolError: the last piece is missing.
        """
        if self._last != Part.END:
            raise ProtocolError("snapshot of the registry: expected more pieces, found its end missing")
        self._registry.forget_history()
        return self._registry

    def _take_head(self, items: tuple[Any, ...]) -> None:
        registry = self._registry
        groups, position, epoch, last_change = array(items, "head of the registry", 4)
        registry.group_settings = PartitionSettings(
            *[number.unpack(x, "setting") for x in array(groups, "settings of groups", 2)]
        )
        registry.position = number.unpack(position, "position")
        registry.epoch = number.unpack(epoch, "epoch")
        registry.last_change = number.unpack(last_change, "number of the last change")

    def _take_item(self, part: Part, item: Any) -> None:
        registry = self._registry
        match part:
            case Part.PRODUCERS:
                producer, owner = array(item, "producer", 2)
                registry.restore_producer(
                    layouts.producer.unpack(producer, "producer"), _SESSION.unpack(owner, "owner")
                )
            case Part.CLOSED:
                producer, heard = array(item, "closed producer", 2)
                registry.restore_closed(
                    layouts.producer.unpack(producer, "producer"), set(layouts.groups.unpack(heard, "groups"))
                )
            case Part.TOPICS:
                registry.restore_topic(_topic(item))
            case Part.GROUPS:
                registry.restore_group(_group(item))
            case Part.DELETING:
                group, heard = array(item, "deleted group", 2)
                registry.restore_deleting(
                    GroupId(layouts.group.unpack(group, "group")), set(layouts.groups.unpack(heard, "groups"))
                )
            case Part.CHANGES:
                registry.restore_change(_change(item))
            case _:
                raise wrong("snapshot of the registry", "nothing in its last piece", item)


def _topic(item: Any) -> Topic:
    topic, name, wanted, partitions, adding, change, retention = array(item, "topic", 7)
    return Topic(
        number.unpack(topic, "topic"),
        _NAME.unpack(name, "name"),
        number.unpack(wanted, "wanted"),
        _ORDERED_GROUPS.unpack(partitions, "partitions"),
        _ORDERED_GROUPS.unpack(adding, "adding"),
        _OPTIONAL_NUMBER.unpack(change, "change"),
        layouts.retention.unpack(retention, "retention"),
    )


def _group(item: Any) -> GroupRecord:
    group, topic, founders, preferred, wanted, born, former = array(item, "group", 7)
    return GroupRecord(
        GroupId(layouts.group.unpack(group, "group")),
        number.unpack(topic, "topic"),
        layouts.disks.unpack(founders, "founders"),
        layouts.optional(layouts.server).unpack(preferred, "preferred leader"),
        layouts.disks.unpack(wanted, "wanted"),
        layouts.boolean.unpack(born, "born"),
        layouts.former.unpack(former, "former"),
    )


def _change(item: Any) -> Change:
    seq, topic, partitions, epoch = array(item, "change", 4)
    return Change(
        layouts.from_one.unpack(seq, "change"),
        number.unpack(topic, "topic"),
        _ORDERED_GROUPS.unpack(partitions, "partitions"),
        number.unpack(epoch, "epoch"),
    )
