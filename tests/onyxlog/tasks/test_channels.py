"""The two ends of a channel: nothing is lost, repeated or sent without credit, wherever connections break."""

from __future__ import annotations

from random import Random

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onyxlog.tasks.channels import Inlet, Outlet
from onyxlog.tasks.items import (
    Acks,
    Ask,
    BarrierItem,
    Batch,
    ChannelEnd,
    ChannelError,
    Close,
    End,
    Finished,
    Grant,
    Hello,
    Inject,
    Item,
    Message,
    Open,
    Purpose,
    Recover,
    Refuse,
    Retry,
    Sent,
    Stored,
    decode,
    encode,
)

HERE, THERE = ChannelEnd("job", 3, "a.1"), ChannelEnd("job", 3, "b.1")


def ends(window: int) -> tuple[Outlet, Inlet]:
    return Outlet(1, Purpose.DATA, HERE, THERE), Inlet(Purpose.DATA, HERE, THERE, window=window)


@given(seed=st.integers(0, 2**32), window=st.integers(1, 9), breaks=st.booleans())
def test_every_item_arrives_once_and_in_order_though_connections_break(
    seed: int, window: int, breaks: bool
) -> None:
    """Two queues are the connection; what is in them is lost when it breaks."""
    rng = Random(seed)
    outlet, inlet = ends(window)
    items: list[tuple[int, Item]] = []
    grants: list[tuple[int, int]] = []
    taken: list[int] = []
    put = 0
    inlet.attach(lambda expected, limit: grants.append((expected, limit)))
    for _ in range(400):
        action = rng.randrange(6 if breaks else 5)
        if action == 0 and put < 60 and outlet.has_credit:
            outlet.put(BarrierItem(put))
            put += 1
        elif action == 1:
            items += [
                (sequence, frame) for sequence, frame in outlet.take_ready() if not isinstance(frame, bytes)
            ]
        elif action == 2 and items:
            inlet.on_item(*items.pop(0))
        elif action == 3 and grants:
            outlet.on_grant(*grants.pop(0))
        elif action == 4 and len(inlet):
            item = inlet.take()
            assert isinstance(item, BarrierItem)
            taken.append(item.epoch)
        elif action == 5 and rng.random() < 0.2:
            items.clear()
            grants.clear()
            outlet.on_disconnected()
            inlet.attach(lambda expected, limit: grants.append((expected, limit)))
        assert len(inlet) <= window
        assert outlet.next_sequence - len(taken) <= window or not outlet.has_credit
    for _ in range(200):
        while grants:
            outlet.on_grant(*grants.pop(0))
        items += [
            (sequence, frame) for sequence, frame in outlet.take_ready() if not isinstance(frame, bytes)
        ]
        while items:
            inlet.on_item(*items.pop(0))
        if len(inlet):
            item = inlet.take()
            assert isinstance(item, BarrierItem)
            taken.append(item.epoch)
    assert taken == list(range(put))


def test_an_item_without_credit_or_out_of_order_is_refused() -> None:
    _, inlet = ends(2)
    inlet.attach(lambda expected, limit: None)
    with pytest.raises(ChannelError, match="expected item 0 below 2, found 1"):
        inlet.on_item(1, End())
    assert inlet.on_item(0, End())
    assert not inlet.on_item(0, End())
    assert inlet.on_item(1, End())
    with pytest.raises(ChannelError, match="expected item 2 below 2, found 2"):
        inlet.on_item(2, End())


def test_a_grant_for_what_was_never_sent_is_refused() -> None:
    outlet, _ = ends(4)
    outlet.put(End())
    with pytest.raises(ChannelError, match="expected one between 0 and 1, found 2"):
        outlet.on_grant(2, 9)


def test_a_refused_outlet_takes_and_drops() -> None:
    outlet, _ = ends(4)
    outlet.put(End())
    outlet.refuse()
    outlet.put(End())
    assert outlet.has_credit
    assert not list(outlet.take_ready())


ITEMS: list[Item] = [
    Batch([{"a": [1, None, b"x", 1.5]}]),
    Batch([{}, {}], [1, 2**64 - 1], [3, 4]),
    BarrierItem(5),
    End(),
    Acks({2**63: 5}),
    Retry([1, 2]),
    Ask(),
    Recover(b"x"),
    Inject(4),
    Stored(4),
    Finished(6),
]
MESSAGES: list[Message] = [
    Hello("default"),
    Open(7, Purpose.ACKS, HERE, THERE),
    Grant(7, 1, 33),
    Refuse(7, 12),
    Close(7),
    *(Sent(7, number, item) for number, item in enumerate(ITEMS)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_messages_come_out_as_they_went_in(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=40))
@example(msgpack.packb({(): 0}).replace(b"\x90", b"\x80"))  # a map whose key is a map
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        decode(data)
    except ChannelError:
        pass


@pytest.mark.parametrize(
    "fields",
    [[9], [4, 1], [4, 1, 2, 99], [2, 1, "other", "j", 1, "a", "b"], [1, 2, "x"], 7, {}, [3, "a", 1, 2]],
)
def test_what_is_no_message_of_this_version_is_refused(fields: object) -> None:
    with pytest.raises(ChannelError):
        decode(msgpack.packb(fields))


def test_a_segment_that_cannot_travel_is_named() -> None:
    with pytest.raises(ChannelError, match=r"a segment cannot be sent: .*object"):
        encode(Sent(1, 0, Batch([{"a": object()}])))
