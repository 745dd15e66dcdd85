"""How values stand in arrays: for each kind of field its form, and a check that trusts nothing. Pure.

Formats are written down in docs/TOPICS.md, "Formats". Whatever the bytes are, the answer is a well-typed value or a
`ProtocolError`; whether it makes sense is for who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgpack
from attrs import fields, frozen

from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, GroupId
from zraft_core.topics.message import (
    DIGEST_BYTES,
    After,
    Condition,
    Message,
    Round,
    as_fields,
    may_change_topics,
)
from zraft_core.topics.registry_values import Retention
from zraft_core.topics.stamps import TIME_MAX, FinalTime, MessageId, Stamp
from zraft_core.topics.view import AnyView, View, ViewDelta

NUMBER_MAX: Final = 2**63 - 1
DESTINATIONS_MAX: Final = 1024
"""Destinations of one message, and partitions of one topic."""
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
CONSUMER_BYTES_MAX: Final = 255
LISTED_MAX: Final = 1 << 20
"""Producers or groups in one list: above what the registry admits."""
DISKS_MAX: Final = 1 << 12
"""Disks of one group, those of earlier moves included."""
ROUND_MAX: Final = 1 << 20
"""Numbers of one round: above any window."""
VALUES_MAX: Final = 1 << 20
"""Commands of a batch, messages of a bundle."""

Unpack = Callable[[Any, str], Any]
"""Checks one decoded field and gives its typed value; the name is for the error only."""


_Value = TypeVar("_Value")

Quick = Callable[[tuple[Any, ...]], Any]
"""The value of an array with its kind, or None: then its forms say what it is, or what is wrong with it."""


@frozen
class Form:
    """How a field is packed (None: as it is) and unpacked."""

    unpack: Unpack
    pack: Callable[[Any], Any] | None = None


def found(value: object) -> str:
    """What was found, short enough for a log line however large the value is."""
    if isinstance(value, bytes | str | tuple):
        return f"{type(value).__name__} of length {len(value)}"
    return f"{type(value).__name__} {value!r}"


def wrong(name: str, expected: str, value: object) -> ProtocolError:
    return ProtocolError(f"{name}: expected {expected}, found {found(value)}")


def integer(low: int, high: int) -> Form:
    def unpack(value: Any, name: str) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise wrong(name, f"an integer from {low} to {high}", value)

    return Form(unpack)


def binary(low: int, high: int) -> Form:
    def unpack(value: Any, name: str) -> bytes:
        if type(value) is bytes and low <= len(value) <= high:
            return value
        raise wrong(name, f"{low} to {high} bytes", value)

    return Form(unpack)


def array(value: Any, name: str, length: int | None = None) -> tuple[Any, ...]:
    if type(value) is tuple and (length is None or len(value) == length):
        return value
    raise wrong(name, "an array" if length is None else f"an array of {length}", value)


def listed(item: Form, most: int, least: int = 0) -> Form:
    def unpack(value: Any, name: str) -> tuple[Any, ...]:
        items = array(value, name)
        if not least <= len(items) <= most:
            raise wrong(name, f"{least} to {most} items", value)
        check = item.unpack
        return tuple([check(one, name) for one in items])

    pack = item.pack
    return Form(unpack, None if pack is None else lambda items: [pack(one) for one in items])


def ascending(item: Form, most: int, least: int = 0) -> Form:
    """Each once, in order: a set has one form only, which digests rely on."""
    inner = listed(item, most, least).unpack

    def unpack(value: Any, name: str) -> tuple[Any, ...]:
        items: tuple[Any, ...] = inner(value, name)
        if any(a >= b for a, b in pairwise(items)):
            raise wrong(name, "ascending items", value)
        return items

    return Form(unpack, sorted)


def as_set(items: Form) -> Form:
    def unpack(value: Any, name: str) -> frozenset[Any]:
        return frozenset(items.unpack(value, name))

    return Form(unpack, items.pack)


def optional(form: Form) -> Form:
    def unpack(value: Any, name: str) -> Any:
        return None if value is None else form.unpack(value, name)

    pack = form.pack
    return Form(unpack, None if pack is None else lambda value: None if value is None else pack(value))


def text(bytes_max: int) -> Form:
    """Text travels as a binary: nothing here has MessagePack strings."""
    inner = binary(0, bytes_max).unpack

    def unpack(value: Any, name: str) -> str:
        raw: bytes = inner(value, name)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise wrong(name, "UTF-8", value) from error

    return Form(unpack, str.encode)


def named_tuple(kind: type[Any], *forms: Form) -> Form:
    def unpack(value: Any, name: str) -> Any:
        items = array(value, name, len(forms))
        return kind(*[form.unpack(item, name) for form, item in zip(forms, items, strict=True)])

    return Form(unpack)


def _boolean(value: Any, name: str) -> bool:
    if type(value) is bool:
        return value
    raise wrong(name, "true or false", value)


def _pair(value: Any, name: str) -> tuple[Any, ...]:
    where, what = array(value, name, 2)
    return server.unpack(where, f"{name}: server"), instance.unpack(what, f"{name}: disk")


number: Final = integer(0, NUMBER_MAX)
from_one: Final = integer(1, NUMBER_MAX)
asked_time: Final = integer(0, TIME_MAX)
group: Final = integer(1, NUMBER_MAX)
producer: Final = integer(0, NUMBER_MAX)
boolean: Final = Form(_boolean)
digest: Final = binary(DIGEST_BYTES, DIGEST_BYTES)
instance: Final = binary(INSTANCE_BYTES, INSTANCE_BYTES)
consumer: Final = binary(1, CONSUMER_BYTES_MAX)
message_id: Final = named_tuple(MessageId, producer, from_one)
final_time: Final = named_tuple(FinalTime, number, number)
stamp: Final = named_tuple(Stamp, number, number, number, number)
groups: Final = ascending(group, LISTED_MAX)
producers: Final = ascending(producer, LISTED_MAX)
destinations: Final = ascending(group, DESTINATIONS_MAX, 1)
server: Final = integer(SERVER_ID_MIN, SERVER_ID_MAX)
former: Final = ascending(Form(_pair), DISKS_MAX)
_partitions: Final = optional(listed(group, DESTINATIONS_MAX, 1))
_payload: Final = binary(0, PAYLOAD_BYTES_MAX)


def _disks(value: Any, name: str) -> tuple[Any, ...]:
    items: tuple[Any, ...] = former.unpack(value, name)
    if any(one[0] == other[0] for one, other in pairwise(items)):
        raise wrong(name, "each server once", value)
    return items


disks: Final = Form(_disks, former.pack)


def _retention(value: Any, name: str) -> Retention:
    bytes_min, age_ms_max = array(value, name, 2)
    limit = optional(number).unpack
    return Retention(limit(bytes_min, f"{name}: bytes"), limit(age_ms_max, f"{name}: age"))


retention: Final = Form(_retention, lambda value: (value.bytes_min, value.age_ms_max))


_as_tuple: Final[Any] = tuple.__new__
"""Makes a named tuple of a tuple, which takes half as long as calling its class."""


_FIELDS: Final = 8
"""Of a message; a round is one more."""


def _plain_message(value: Any) -> Message | None:
    """The message, if it is a well-formed one as most are: without conditions of any kind. All the same checks, at once."""
    if type(value) is not tuple or len(value) != _FIELDS:
        return None
    mid, dst, payload, its_number, after, condition, depends, partitions = value
    if (
        after is not None
        or condition is not None
        or partitions is not None
        or type(mid) is not tuple
        or type(dst) is not tuple
        or len(mid) != 2
        or not 1 <= len(dst) <= DESTINATIONS_MAX
    ):
        return None
    maker, seq = mid
    if (
        type(maker) is not int
        or type(seq) is not int
        or type(payload) is not bytes
        or type(its_number) is not int
        or type(depends) is not int
        # NUMBER_MAX has all bits set: none of them is negative, and none is above it.
        or not 0 <= maker | seq | its_number <= NUMBER_MAX
        or not seq
        or len(payload) > PAYLOAD_BYTES_MAX
        or not 0 <= depends <= TIME_MAX
        or (len(dst) == 1) != (its_number > 0)
    ):
        return None
    last = 0
    for one in dst:
        if type(one) is not int or one <= last:
            return None
        last = one
    if last > NUMBER_MAX:
        return None
    return Message(_as_tuple(MessageId, mid), dst, payload, its_number, None, None, depends)


def _message(value: Any, name: str) -> Message:
    """A message, with the rules that hold within one."""
    plain = _plain_message(value)
    if plain is not None:
        return plain
    items = array(value, name)
    if len(items) not in (_FIELDS, _FIELDS + 1):
        raise wrong(name, f"an array of {_FIELDS} or {_FIELDS + 1}", value)
    mid, dst, payload, its_number, after, condition, depends, partitions = items[:_FIELDS]
    message = Message(
        message_id.unpack(mid, f"{name}.mid"),
        destinations.unpack(dst, f"{name}.destinations"),
        _payload.unpack(payload, f"{name}.payload"),
        number.unpack(its_number, f"{name}.number"),
        None if after is None else _after(after, f"{name}.after"),
        None if condition is None else _condition(condition, f"{name}.condition"),
        asked_time.unpack(depends, f"{name}.depends"),
        _partitions.unpack(partitions, f"{name}.partitions"),
        _round(items[_FIELDS], f"{name}.round") if len(items) > _FIELDS else None,
    )
    if message.is_single != (message.number > 0):
        raise wrong(f"{name}.number", "1 or more with one destination, and 0 with several", message.number)
    if message.condition is not None and message.condition.home not in message.destinations:
        raise wrong(f"{name}.condition.home", "one of the destinations", message.condition.home)
    if message.round is not None and (
        message.payload or message.partitions or message.after or message.condition
    ):
        raise wrong(f"{name}.round", "nothing else in the message", value)
    if not may_change_topics(message):
        raise wrong(f"{name}.partitions", "nil, as from every producer but group 0", message.partitions)
    return message


def _round(value: Any, name: str) -> Round:
    first, upto = array(value, name, 2)
    found = Round(from_one.unpack(first, name), from_one.unpack(upto, name))
    if not 1 <= found.places <= ROUND_MAX:
        raise wrong(name, f"a first number and a last one, at most {ROUND_MAX} of them", value)
    return found


def plain_start(kind: Callable[..., _Value]) -> Quick:
    """Reads the fields of a START (`kind` is its class) as `plain_proposal` does those of a proposal."""

    def read(items: tuple[Any, ...]) -> _Value | None:
        if len(items) != 4:
            return None
        _, value, floor, epoch = items
        if type(floor) is not int or type(epoch) is not int or not 0 <= floor | epoch <= NUMBER_MAX:
            return None
        carried = _plain_message(value)
        return None if carried is None else kind(carried, floor, epoch)

    return read


def plain_proposal(kind: Callable[..., _Value]) -> Quick:
    """Reads the fields of a proposal (`kind` is its class) if they are well-formed: all the same checks, at once.

    A message to k partitions is k - 1 of these in each of their logs, and so half of what a busy server decodes.
    """

    def read(items: tuple[Any, ...]) -> _Value | None:
        if len(items) != 8:
            return None
        _, mid, sender, time, void, floor, its_digest, value = items
        if type(mid) is not tuple or len(mid) != 2:
            return None
        maker, seq = mid
        if (
            type(maker) is not int
            or type(seq) is not int
            or type(sender) is not int
            or type(time) is not int
            or type(floor) is not int
            or type(its_digest) is not bytes
            or not (void is None or void is True or void is False)
            or not 0 <= maker | seq | sender | time | floor <= NUMBER_MAX
            or not (seq and sender and time)
            or len(its_digest) != DIGEST_BYTES
        ):
            return None
        carried = None
        if value is not None:
            carried = _plain_message(value)
            if carried is None:
                return None
        return kind(_as_tuple(MessageId, mid), sender, time, void, floor, its_digest, carried)

    return read


def _after(value: Any, name: str) -> After:
    mid, dst = array(value, name, 2)
    return After(message_id.unpack(mid, name), destinations.unpack(dst, name))


def _condition(value: Any, name: str) -> Condition:
    home, who, expected, following = array(value, name, 4)
    return Condition(
        GroupId(group.unpack(home, f"{name}.home")),
        consumer.unpack(who, f"{name}.consumer"),
        number.unpack(expected, f"{name}.expected"),
        number.unpack(following, f"{name}.following"),
    )


message: Final = Form(_message, as_fields)


def _staged(value: Any, name: str) -> Message:
    found = _message(value, name)
    if not found.may_be_staged:
        raise wrong(name, "a message that may be staged: without conditions, changes or a round", value)
    return found


staged: Final = Form(_staged, as_fields)

_VIEW_FORMS: Final = (number, number, as_set(producers), as_set(producers), as_set(groups), as_set(groups))
_DELTA_FORMS: Final = (number, number, number, producers, producers, producers, groups, groups, groups)


def pack_view(view: AnyView) -> list[Any]:
    """A whole view is an array of 6, a difference one of 9."""
    forms = _VIEW_FORMS if isinstance(view, View) else _DELTA_FORMS
    return [
        form.pack(getattr(view, field.name)) if form.pack else getattr(view, field.name)
        for field, form in zip(fields(type(view)), forms, strict=True)
    ]


def _view(value: Any, name: str) -> AnyView:
    items = array(value, name)
    kind: type[View] | type[ViewDelta]
    forms: tuple[Form, ...]
    if len(items) == len(_VIEW_FORMS):
        kind, forms = View, _VIEW_FORMS
    elif len(items) == len(_DELTA_FORMS):
        kind, forms = ViewDelta, _DELTA_FORMS
    else:
        raise wrong(name, f"an array of {len(_VIEW_FORMS)} or {len(_DELTA_FORMS)}", value)
    return kind(*[form.unpack(item, name) for form, item in zip(forms, items, strict=True)])


view: Final = Form(_view, pack_view)


@frozen
class _Shape:
    kind: int
    value: type[Any]
    fields: Callable[[Any], tuple[Any, ...]]
    packs: tuple[tuple[int, Callable[[Any], Any]], ...]
    """Fields that are not packed as they are: where they stand in the array, and how."""
    checks: tuple[tuple[Unpack, str], ...]
    """For each field: its check, and what it is called where it is wrong."""


def _fields_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        (name,) = names
        return lambda value: (getattr(value, name),)
    return attrgetter(*names)


class Layouts(Generic[_Value]):
    """Some classes as arrays `[kind, field, ...]`. Numbers of kinds are never used again.

    A class may have more fields than forms: the last ones are not said, and have their defaults.
    """

    def __init__(
        self,
        what: str,
        shapes: dict[int, tuple[type[Any], tuple[Form, ...]]],
        quick: dict[int, Quick] | None = None,
    ) -> None:
        """`quick`: by kind, what reads most arrays of it faster, and nothing that the forms would refuse."""
        self._what = what
        self._quick: Mapping[Any, Quick] = quick or {}
        self._by_kind: dict[int, _Shape] = {}
        self._by_class: dict[type[Any], _Shape] = {}
        for kind, (value, forms) in shapes.items():
            names = tuple(field.name for field in fields(value))
            assert len(names) >= len(forms), f"{value.__name__} has fields {names}, {len(forms)} forms"
            names = names[: len(forms)]
            checks = tuple(
                (form.unpack, f"{value.__name__}.{name}") for form, name in zip(forms, names, strict=True)
            )
            packs = tuple((at, form.pack) for at, form in enumerate(forms, 1) if form.pack is not None)
            shape = _Shape(kind, value, _fields_of(names), packs, checks)
            self._by_kind[kind] = self._by_class[value] = shape

    def pack(self, value: _Value) -> list[Any]:
        shape = self._by_class[type(value)]
        packed = [shape.kind, *shape.fields(value)]
        for at, pack in shape.packs:
            packed[at] = pack(packed[at])
        return packed

    def unpack_all(self, values: Iterable[Any]) -> list[_Value]:
        """The values of unpacked arrays: as `unpack` of each, with less around those that are read quickly.

        Raises:
            ProtocolError: see there.
        """
        readers, made = self._quick, []
        for value in values:
            found: _Value | None = None
            if type(value) is tuple and value and type(value[0]) is int:
                quick = readers.get(value[0])
                if quick is not None:
                    found = quick(value)
            made.append(self.unpack(value) if found is None else found)
        return made

    def unpack(self, value: Any, name: str = "") -> _Value:
        """The value of an unpacked array.

        Raises:
            ProtocolError: the kind is unknown, or a field is missing, of another type or out of range.
        """
        items = array(value, name or self._what)
        kind = items[0] if items and type(items[0]) is int else None
        quick = self._quick.get(kind)
        if quick is not None:
            read: _Value | None = quick(items)
            if read is not None:
                return read
        shape = None if kind is None else self._by_kind.get(kind)
        if shape is None:
            raise wrong(
                f"{self._what} kind",
                f"one of {sorted(self._by_kind)}; a newer release may know it",
                items[0] if items else items,
            )
        array(items, shape.value.__name__, len(shape.checks) + 1)
        made: _Value = shape.value(
            *[unpack(item, label) for (unpack, label), item in zip(shape.checks, items[1:], strict=True)]
        )
        return made


def to_bytes(value: Any) -> bytes:
    return msgpack.packb(value)  # type: ignore[no-any-return]


def from_bytes(buffer: bytes | memoryview) -> Any:
    """The MessagePack value of exactly these bytes, with arrays as tuples.

    Raises:
        ProtocolError: not one MessagePack value, or one with text, maps or extensions, which nothing here has.
    """
    try:
        return msgpack.unpackb(buffer, use_list=False, max_str_len=0, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(
            f"expected MessagePack integers, booleans, nil, binaries and arrays; found {len(buffer)} other bytes: "
            f"{type(error).__name__}: {error}"
        ) from error


def formatted(value: Any, what: str, version: int, length: int) -> tuple[Any, ...]:
    """An array whose first item is the version of its format, which is checked before anything else."""
    items = array(value, what)
    if not items or type(items[0]) is not int:
        raise wrong(what, "an array that begins with the version of its format", value)
    if items[0] != version:
        raise ProtocolError(f"{what}: format {items[0]}, this release knows {version}: upgrade this server")
    return array(items, what, length)
