"""The forms of topics' values: what stands in which field of entries, messages between groups, snapshots. Pure.

Formats are written down in docs/explanation/topics.md, "Formats". Messages and proposals, of which there are most, have a
short way beside their forms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, TypeVar

from attrs import evolve

from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN
from zraft_core.layout import (
    NUMBER_MAX,
    Form,
    Record,
    array,
    as_set,
    ascending,
    binary,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    ruled,
    text,
    wrong,
)
from zraft_core.topics.message import (
    DIGEST_BYTES,
    After,
    Condition,
    Message,
    Round,
    as_fields,
    may_change_topics,
)
from zraft_core.topics.registry_values import PartitionSettings, Retention
from zraft_core.topics.stamps import TIME_MAX, FinalTime, MessageId, Stamp
from zraft_core.topics.view import AnyView, View, ViewDelta

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
RECORDS_MAX: Final = 1 << 20
"""Records of one message."""
VALUES_MAX: Final = 1 << 20
"""Commands of a batch, messages of a bundle."""

_Value = TypeVar("_Value")

Quick = Callable[[tuple[Any, ...]], Any]
"""The value of an array with its kind, or None: then its forms say what it is, or what is wrong with it."""

asked_time: Final = integer(0, TIME_MAX)
group: Final = from_one
producer: Final = number
session: Final = integer(-(2**63), 2**64 - 1)
digest: Final = binary(DIGEST_BYTES, DIGEST_BYTES)
topic_name: Final = text(1024)
instance: Final = binary(INSTANCE_BYTES, INSTANCE_BYTES)
consumer: Final = binary(1, CONSUMER_BYTES_MAX)
message_id: Final = Record(MessageId, producer, from_one).form
final_time: Final = Record(FinalTime, number, number).form
stamp: Final = Record(Stamp, number, number, number, number).form
groups: Final = ascending(group, LISTED_MAX)
ordered_groups: Final = listed(group, LISTED_MAX)
producers: Final = ascending(producer, LISTED_MAX)
destinations: Final = ascending(group, DESTINATIONS_MAX, 1)
server: Final = integer(SERVER_ID_MIN, SERVER_ID_MAX)
former: Final = ascending(row(server=server, disk=instance), DISKS_MAX)
disks: Final = ruled(
    former, lambda items: all(one[0] != other[0] for one, other in pairwise(items)), "each server once"
)
retention: Final = Record(Retention, optional(number), optional(number)).form
partition_settings: Final = Record(PartitionSettings, number, number).form


# -- messages


_as_tuple: Final[Any] = tuple.__new__
"""Makes a named tuple of a tuple, which takes half as long as calling its class."""


_FIELDS: Final = 8
"""The number of a message's fields; a round has one more, and a batch of records two."""
_FIELDS_OF_RECORDS: Final = 10


def _plain_message(value: Any) -> Message | None:
    """Return the message if it is well-formed and has no conditions, as most.

    It makes all the same checks, at once.
    """
    if type(value) is not tuple:
        return None
    records, fields = 0, len(value)
    if fields == _FIELDS:
        mid, dst, payload, its_number, after, condition, depends, partitions = value
    elif fields == _FIELDS_OF_RECORDS:
        mid, dst, payload, its_number, after, condition, depends, partitions, its_round, records = value
        if (
            its_round is not None
            or type(records) is not int
            or not 1 <= records <= RECORDS_MAX
            or not payload
        ):
            return None
    else:
        return None
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
    return Message(
        _as_tuple(MessageId, mid), dst, payload, its_number, None, None, depends, None, None, records
    )


def _ruled_message(*values: Any) -> Message:
    """Return the message of its fields, with the rules that hold within one."""
    message = Message(*values)
    if message.is_single != (message.number > 0):
        raise wrong("Message.number", "1 or more with one destination, and 0 with several", message.number)
    if message.condition is not None and message.condition.home not in message.destinations:
        raise wrong("Message.condition.home", "one of the destinations", message.condition.home)
    if message.round is not None and (
        message.payload or message.partitions or message.after or message.condition
    ):
        raise ProtocolError("Message.round: expected nothing else in the message, found more")
    if message.records and (message.partitions is not None or not message.payload):
        raise wrong("Message.records", "a payload that holds them, and no change of a topic", message.records)
    if not may_change_topics(message):
        raise wrong("Message.partitions", "nil, as from every producer but group 0", message.partitions)
    return message


_round: Final = ruled(
    Record(Round, from_one, from_one).form,
    lambda round: 1 <= round.places <= ROUND_MAX,
    f"a first number and a last one, at most {ROUND_MAX} of them",
)
_MESSAGE: Final = Record(
    Message,
    message_id,
    destinations,
    binary(0, PAYLOAD_BYTES_MAX),
    number,
    optional(Record(After, message_id, destinations).form),
    optional(Record(Condition, group, consumer, number, number).form),
    asked_time,
    optional(listed(group, DESTINATIONS_MAX, 1)),
    optional(_round),
    integer(1, RECORDS_MAX),
    made=_ruled_message,
    least=_FIELDS,
)


def _message(value: Any, name: str) -> Message:
    plain = _plain_message(value)
    if plain is not None:
        return plain
    if (
        type(value) is tuple
        and len(value) > _FIELDS
        and (value[_FIELDS] is None) == (len(value) < _FIELDS_OF_RECORDS)
    ):
        raise wrong(name, "a round as the 9th field, or nil there and a count of records as the 10th", value)
    read: Message = _MESSAGE.form.unpack(value, name)
    return read


message: Final = Form(_message, as_fields, expected="a message")
staged: Final = ruled(
    message,
    lambda found: found.may_be_staged,
    "a message that may be staged: without conditions, changes or a round",
)


def plain_start(kind: Callable[..., _Value]) -> Quick:
    """Return a reader of the fields of a START (`kind` is its class), as `plain_proposal` is of a proposal."""

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
    """Return a reader of the fields of a proposal (`kind` is its class), if they are well-formed.

    It makes all the same checks, at once.

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


# -- views

_VIEW_FIELDS: Final = 6
_DELTA_FIELDS: Final = 9
"""The number of a view's fields; one in which groups are given up has one more."""
_VIEW: Final = Record(
    View,
    *(number, number, as_set(producers), as_set(producers), as_set(groups), as_set(groups), as_set(groups)),
    least=_VIEW_FIELDS,
)
_DELTA: Final = Record(
    ViewDelta,
    *(number, number, number, producers, producers, producers, groups, groups, groups, groups),
    least=_DELTA_FIELDS,
)


def pack_view(view: AnyView) -> list[Any]:
    """Return a view as an array: 6 fields if it is whole, 9 if it is a difference, and one more with groups given up."""
    packed = _VIEW.pack(view) if isinstance(view, View) else _DELTA.pack(view)
    return packed if view.given_up else packed[:-1]


def _view(value: Any, name: str) -> AnyView:
    items = array(value, name)
    for record, least in ((_VIEW, _VIEW_FIELDS), (_DELTA, _DELTA_FIELDS)):
        if least <= len(items) <= least + 1:
            read: AnyView = record.form.unpack(items, name)
            return read
    raise wrong(name, f"an array of {_VIEW_FIELDS} or {_DELTA_FIELDS}, or one more", value)


view: Final = Form(_view, pack_view)
whole_view: Final = evolve(_VIEW.form, pack=pack_view)
