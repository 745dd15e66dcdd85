"""The registry as bytes: pieces of a snapshot, each a few hundred items, so that writing and reading come in steps. Pure.

docs/explanation/topics.md, "Formats". Everything stands in one order, so that equal states have equal bytes; what follows
from the rest is not in it, and neither are the limits, which are settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from zraft.topics.registry import Registry
from zraft.topics.registry_items import CHANGE, GROUP, TABLES, TOPIC, Part, head, items_of
from zraft_core.errors import ProtocolError
from zraft_core.layout import array, boolean, formatted, from_bytes, integer, number, row, to_bytes, wrong
from zraft_core.topics import forms
from zraft_core.topics.registry_values import RegistrySettings

FORMAT: Final = 1
ITEMS_PER_PIECE: Final = 256
_KIND: Final = integer(Part.HEAD, Part.END)
_HEAD: Final = row(settings=forms.partition_settings, position=number, epoch=number, last_change=number)
_HEAD_FIELDS: Final = 4
_LATER_HEAD: Final = row(
    settings=forms.partition_settings,
    position=number,
    epoch=number,
    last_change=number,
    last_loss=number,
    times=number,
)
_PRODUCER: Final = row(producer=forms.producer, owner=forms.session)
_CLOSED: Final = row(producer=forms.producer, heard=forms.groups)
_DELETING: Final = row(group=forms.group, heard=forms.groups)
_DELETING_FIELDS: Final = 2
_GIVEN_UP: Final = row(group=forms.group, heard=forms.groups, given_up=boolean)


def registry_image(registry: Registry) -> Iterator[bytes]:
    """Yield the pieces of a snapshot of the registry, which must not change until the last one is taken."""
    yield to_bytes((FORMAT, Part.HEAD, head(registry)))
    for part in TABLES:
        remaining = items_of(registry, part)
        while some := list(islice(remaining, ITEMS_PER_PIECE)):
            yield to_bytes((FORMAT, part, some))
    yield to_bytes((FORMAT, Part.END, ()))


def read_registry(pieces: Iterable[bytes]) -> Registry:
    """Return the registry of a snapshot's pieces.

    Raises:
        ProtocolError: they are not all pieces of one snapshot, in order, of a format that is known.
    """
    reader = RegistryReader()
    for piece in pieces:
        reader.take(piece)
    return reader.finish()


class RegistryReader:
    """Reader of a snapshot's pieces one by one.

    It hashes what it took, so that the digest is known at the end.
    """

    def __init__(self, settings: RegistrySettings | None = None) -> None:
        self._registry = Registry(settings)
        self._last = 0

    @property
    def begun(self) -> bool:
        """True once a piece was taken."""
        return self._last > 0

    def take(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            ProtocolError: it is no piece, or not one that can follow the last one.
        """
        _, kind, items = formatted(from_bytes(piece), "piece of the registry", FORMAT, 3)
        part = Part(_KIND.unpack(kind, "kind of a piece"))
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
        """Return the registry, after the last piece.

        Raises:
            ProtocolError: the last piece is missing.
        """
        if self._last != Part.END:
            raise ProtocolError("snapshot of the registry: expected more pieces, found its end missing")
        self._registry.forget_history()
        return self._registry

    def _take_head(self, items: tuple[Any, ...]) -> None:
        registry = self._registry
        head = _LATER_HEAD if len(items) > _HEAD_FIELDS else _HEAD
        registry.group_settings, registry.position, registry.epoch, registry.last_change, *losses = (
            head.unpack(items, "head of the registry")
        )
        registry.last_loss, registry.times = losses or (0, 0)

    def _take_item(self, part: Part, item: Any) -> None:
        registry = self._registry
        match part:
            case Part.PRODUCERS:
                registry.restore_producer(*_PRODUCER.unpack(item, "producer"))
            case Part.CLOSED:
                producer, heard = _CLOSED.unpack(item, "closed producer")
                registry.restore_closed(producer, set(heard))
            case Part.TOPICS:
                registry.restore_topic(TOPIC.form.unpack(item, "topic"))
            case Part.GROUPS:
                registry.restore_group(GROUP.form.unpack(item, "group"))
            case Part.DELETING:
                if len(array(item, "deleted group")) > _DELETING_FIELDS:
                    group, heard, given_up = _GIVEN_UP.unpack(item, "group that is given up")
                else:
                    (group, heard), given_up = _DELETING.unpack(item, "deleted group"), False
                registry.restore_deleting(group, set(heard), given_up=given_up)
            case Part.CHANGES:
                registry.restore_change(CHANGE.form.unpack(item, "change"))
            case _:
                raise wrong("snapshot of the registry", "nothing in its last piece", item)
