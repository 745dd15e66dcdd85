"""What the client's topics decide without I/O: when what is said again, and what a payload carries."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from zraft_client import EncodingError
from zraft_client.topics import Compression, PayloadError
from zraft_client.topics.dispatch import REPEAT_S, REPEAT_S_MAX, SOON_S, SOON_S_MAX, Dispatch
from zraft_client.topics.options import destinations_of
from zraft_client.topics.payloads import (
    Content,
    check_size,
    checked_headers,
    decode_content,
    encode_content,
)
from zraft_core.ids import GroupId, ProducerId
from zraft_core.records import BatchBuilder
from zraft_core.topics.message import Message
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.producer import ProducerCore
from zraft_core.topics.registry_values import Table

A, B = GroupId(1), GroupId(2)


class Sender:
    """A producer of two groups and its schedule."""

    def __init__(self) -> None:
        self.core = ProducerCore(ProducerId(9), Table(5, 0, frozenset((A, B))))
        self.dispatch = Dispatch(self.core)

    def send(self, now: float, *to: GroupId, after: Message | None = None) -> Message:
        message = self.core.multicast(to, b"x" * 10, after=after)
        self.dispatch.add(message, now)
        return message

    def taken(self, now: float) -> dict[GroupId, list[int]]:
        """Numbers by group."""
        return {
            batch.group: [one.message.mid.seq for one in batch.requests] for batch in self.dispatch.take(now)
        }

    def reply(self, message: Message, answer: Answer, now: float, *, sender: GroupId = A) -> None:
        self.dispatch.on_reply(Reply(message.mid, sender, answer), now)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_what_is_new_goes_at_once_to_all_its_destinations_in_order(sender: Sender) -> None:
    sender.send(0, A)
    sender.send(0, A, B)
    sender.send(0, A)
    assert sender.taken(0) == {A: [1, 2, 3], B: [2]}
    assert sender.taken(0) == {}


def test_what_nothing_is_heard_of_is_said_again_ever_later(sender: Sender) -> None:
    sender.send(0, A)
    sender.taken(0)
    now, intervals = 0.0, []
    for _ in range(6):
        due = sender.dispatch.next_due
        assert due is not None
        intervals.append(due - now)
        now = due
        assert sender.taken(now) == {A: [1]}
    assert intervals[:3] == [REPEAT_S, 2 * REPEAT_S, 4 * REPEAT_S]
    assert intervals[-1] == REPEAT_S_MAX


def test_what_is_decided_is_not_said_again_and_frees_its_bytes(sender: Sender) -> None:
    message = sender.send(0, A)
    sender.taken(0)
    assert sender.dispatch.pending_bytes == 10
    sender.reply(message, Answer.DELIVERED, 0.1)
    assert (len(sender.dispatch), sender.dispatch.pending_bytes, sender.dispatch.next_due) == (0, 0, None)
    sender.reply(message, Answer.DELIVERED, 0.2)
    assert sender.dispatch.pending_bytes == 0


def test_what_is_under_way_is_said_again_only_if_nothing_more_is_heard_and_not_to_who_has_decided(
    sender: Sender,
) -> None:
    message = sender.send(0, A, B)
    sender.taken(0)
    sender.reply(message, Answer.ACCEPTED, 0.5)
    sender.reply(message, Answer.DELIVERED, 0.75)
    assert sender.taken(REPEAT_S) == {}
    interval = 2 * REPEAT_S
    assert sender.dispatch.next_due == 0.75 + interval
    assert sender.taken(0.75 + interval) == {B: [1]}
    assert sender.taken(0.75 + 3 * interval) == {B: [1]}, "nothing was heard of that"


def test_who_asks_to_wait_is_asked_again_though_another_destination_has_it(sender: Sender) -> None:
    message = sender.send(0, A, B)
    sender.taken(0)
    sender.reply(message, Answer.RETRY, 0.1, sender=B)
    sender.reply(message, Answer.ACCEPTED, 0.1)
    assert sender.taken(0.1 + SOON_S) == {B: [1]}


@pytest.mark.parametrize("answer", [Answer.RETRY, Answer.BUSY])
def test_who_is_asked_to_wait_asks_again_soon_and_then_less_often(sender: Sender, answer: Answer) -> None:
    message = sender.send(0, A)
    now = 0.0
    waits = []
    for _ in range(10):
        sender.taken(now)
        sender.reply(message, answer, now)
        due = sender.dispatch.next_due
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits[0] == pytest.approx(SOON_S)
    assert max(waits) <= SOON_S_MAX


def test_a_new_leader_is_told_what_goes_to_its_group_and_nothing_else(sender: Sender) -> None:
    sender.send(0, A)
    sender.send(0, B)
    sender.send(0, A, B)
    sender.taken(0)
    sender.dispatch.again(B, 0.1)
    assert sender.taken(0.1) == {B: [2, 3]}
    assert sender.taken(REPEAT_S) == {A: [1, 3], B: [2, 3]}, "what nothing was heard of is still due to all"


def test_a_message_behind_another_one_is_tried_at_once_when_that_is_decided(sender: Sender) -> None:
    first = sender.send(0, A, B)
    second = sender.send(0, A, after=first)
    sender.taken(0)
    for at in range(8):
        sender.reply(second, Answer.RETRY, 0.01 * at)
        sender.taken(0.01 * at + SOON_S_MAX)
    sender.dispatch.on_reply(Reply(first.mid, A, Answer.DELIVERED, everywhere=True), 2.0)
    assert sender.taken(2.0) == {A: [2]}


def test_without_a_common_destination_it_waits_here_and_goes_when_the_other_is_decided(
    sender: Sender,
) -> None:
    """D-17a."""
    first = sender.send(0, A)
    sender.send(0, B, after=first)
    assert sender.taken(0) == {A: [1]}
    sender.dispatch.again(B, 0.1)
    assert sender.taken(0.5) == {}
    sender.reply(first, Answer.DELIVERED, 0.6)
    assert sender.taken(0.6) == {B: [2]}


def test_destinations_are_a_topic_a_partition_or_several() -> None:
    assert destinations_of("a") == ["a"]
    assert destinations_of(("a", 1)) == [("a", 1)]
    assert destinations_of(["a", ("b", 2)]) == ["a", ("b", 2)]
    assert destinations_of(("a", "b")) == ["a", "b"]


# -- payloads


contents = st.builds(
    Content,
    st.binary(max_size=600),
    st.none() | st.binary(max_size=20),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
)


@given(contents, st.sampled_from(list(Compression)))
def test_a_payload_carries_its_content(content: Content, compression: Compression) -> None:
    assert decode_content(encode_content(content, compression)) == content


@given(st.binary(max_size=300))
def test_any_bytes_are_a_payload_or_a_declared_error(payload: bytes) -> None:
    try:
        assert isinstance(decode_content(payload), Content)
    except PayloadError:
        assert payload[:1] == b"\x95"


def test_what_no_producer_of_this_library_made_is_a_value() -> None:
    for payload in (b"", b"text", msgpack.packb([1, 2]), msgpack.packb([2, 0, None, b"v", None])):
        assert decode_content(payload) == Content(payload)


def test_a_value_that_does_not_shrink_stays_as_it_is() -> None:

    value = random.Random(1).randbytes(500)
    assert msgpack.unpackb(encode_content(Content(value), Compression.ZSTD))[1] == Compression.NONE


def test_a_damaged_or_boasting_value_is_told_and_costs_no_memory() -> None:

    packed = zstandard.ZstdCompressor().compress(b"x" * 1_000)
    for damaged in (b"nonsense", packed[:-2], packed[:5] + b"\xff" * 30):
        with pytest.raises(PayloadError):
            decode_content(msgpack.packb([1, 1, None, damaged, None]))
    # A frame header that promises 2^62 bytes.
    boasting = packed[:4] + b"\xe0" + (2**62).to_bytes(8, "little") + packed[-10:]
    with pytest.raises(PayloadError, match="expected 0 to"):
        decode_content(msgpack.packb([1, 1, None, boasting, None]))


def test_a_record_too_large_or_of_something_else_is_refused_before_it_is_sent() -> None:
    most = 16 * 1024 * 1024
    assert check_size(b"k", bytes(1_000), (("h", b"v"),), 0) > 1_003
    nothing: Any = "text"
    for record in (
        (None, bytes(most), (), None),
        (bytes(most), b"", (), None),
        (None, b"", (("h", bytes(most)),), None),
        (None, nothing, (), None),
        (nothing, b"", (), None),
        (None, b"", (), nothing),
        (None, b"", (), -1),
    ):
        with pytest.raises(EncodingError):
            check_size(*record)
    names: Any = {1: b""}
    for headers in ({"h": nothing}, names):
        with pytest.raises(EncodingError):
            checked_headers(headers)


@given(contents, st.integers(0, 2**41))
def test_a_record_takes_no_more_than_it_is_counted_for(content: Content, timestamp: int) -> None:
    headers = checked_headers(content.headers)
    size = check_size(content.key, content.value, headers, timestamp)
    builder = BatchBuilder()
    builder.append(None, b"", (), 0)
    before = builder.size
    builder.append(content.key, content.value, headers, timestamp)
    assert builder.size - before <= size
    assert len(encode_content(content)) <= size
