"""What `zraft consumer` makes of the answers of partitions' leaders, and of those that do not answer."""

from __future__ import annotations

import re

import pytest

from tests.client.topics.test_consumer import polled
from tests.client.topics.test_producer import running
from zraft.cli.listings.listing_options import rendered
from zraft.cli.topics.consumer_command import Consumption, _consumption, _listing, _rows, _summaries
from zraft_client.topics import NoTopicError
from zraft_client.topics.values import ConsumerPlace


async def test_lag_counts_records_where_messages_are_batches() -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.producer() as producer:
            for number in range(9):
                await producer.send_soon("orders", b"%d" % number)
            await producer.flush()
        assert len(cluster.group("orders").deliveries) < 9, "records travelled together"
        async with topics.consumer("orders", name="billing") as billing:
            await polled(billing, 9)
        await topics.set_offset("orders", 0, b"billing", 4)
        found = await _consumption(topics, None)
    (row,) = _rows(found, b"billing")
    assert (row["offset"], row["end"], row["lag"]) == (4, 9, 5)
    assert [one["lag"] for one in _summaries(found.places)] == [5]
    assert found.complaint() == ""


async def test_a_partition_in_which_a_consumer_has_not_begun_has_no_offset_and_no_lag() -> None:
    async with running(orders=2, audit=1) as (_, topics):
        await topics.set_offset("orders", 1, b"billing", 0)
        found = await _consumption(topics, None)
    rows = _rows(found, b"billing")
    assert [(one["topic"], one["partition"], one["offset"], one["lag"]) for one in rows] == [
        ("orders", 0, None, None),
        ("orders", 1, 0, 0),
    ]
    assert _rows(found, b"nobody") == []


async def test_a_partition_without_a_leader_is_named_and_the_others_are_shown() -> None:
    async with running(timeout_s=0.5, orders=2, audit=1) as (cluster, topics):
        await topics.set_offset("orders", 0, b"billing", 0)
        cluster.group("orders", 1).lead(None)
        found = await _consumption(topics, None)
    assert [(one["partition"], one["lag"]) for one in _rows(found, b"billing")] == [(0, 0)]
    assert re.search(r"orders/1: group \d+: no leader answered within 0\.5 s", found.complaint())
    assert _listing(_summaries(found.places), found).complaint == found.complaint()
    assert list(found.problems) == [("orders", 1)]


async def test_a_topic_that_does_not_exist_is_said_to_and_one_that_was_deleted_is_nobodys_concern() -> None:
    async with running(timeout_s=0.5, orders=1, audit=1) as (_, topics):
        with pytest.raises(NoTopicError, match=r"'missing'.*none of this name"):
            await _consumption(topics, "missing")
        await topics.set_offset("orders", 0, b"billing", 0)
        await topics.set_offset("audit", 0, b"billing", 0)
        await topics.delete("audit")
        found = await _consumption(topics, None)
    assert [one["topic"] for one in _rows(found, b"billing")] == ["orders"]
    assert found.complaint() == ""


def test_a_name_that_both_stores_offsets_and_claims_has_rows_of_each_kind() -> None:
    places = (
        ConsumerPlace("orders", 0, b"billing", 3, 9, None),
        ConsumerPlace("orders", 0, b"billing", 2, 9, ("anna",)),
    )
    found = Consumption(places, {"orders": 1}, {})
    rows = _rows(found, b"billing")
    assert [(one["kind"], one["lag"], one["owners"]) for one in rows] == [
        ("offset", 6, []),
        ("group", 7, ["anna"]),
    ]
    listing = _listing(rows, found)
    assert list(listing.values) == rows
    text = rendered(listing.parts, 80)
    assert "anna" in text
    assert max(map(len, text.splitlines())) <= 80
