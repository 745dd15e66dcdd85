"""A partition's chain over its deliveries is the one that delivery segments carry: either can be checked by the other."""

from __future__ import annotations

from tests.unit.topics.groups import A, B, apply, message, partition, remote, start
from zraft.storage.delivery.values import StoredDelivery as Stored
from zraft.storage.delivery.values import beginning, next_digest
from zraft_core.topics.codec import encode_message


def test_segments_with_whole_messages_as_payload_have_the_partition_s_chain() -> None:
    state = partition()
    stored = beginning(A).chain
    assert state.chain == stored
    both = message(2, A, B)
    applied = apply(state, start(message(1, A)), start(both), remote(both, B, 7, whole=False))
    assert len(applied.delivered) == 2
    for delivery in applied.delivered:
        mid, payload = delivery.message.mid, encode_message(delivery.message)
        record = Stored(delivery.offset, delivery.stamp, mid.producer, mid.seq, payload, index=1, time=0)
        stored = next_digest(stored, record)
    assert state.chain == stored


def test_another_order_or_another_partition_is_another_chain() -> None:
    forth, back, elsewhere = partition(), partition(), partition(B)
    one, two = message(1, A, B, depends=1), message(2, A, B, depends=1)
    apply(forth, start(one), start(two), remote(one, B, 1), remote(two, B, 1))
    apply(back, start(two), start(one), remote(one, B, 1), remote(two, B, 1))
    assert forth.next_offset == back.next_offset == 2
    assert forth.chain != back.chain
    assert elsewhere.chain != partition().chain
