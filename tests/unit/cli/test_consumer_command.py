"""What `zraft consumer` makes of the answers of partitions' leaders, and of those that do not answer."""

from __future__ import annotations

import re

import pytest

from tests.client.topics.test_access import topic_acl
from tests.client.topics.test_claims_port import FAST
from tests.client.topics.test_consumer import filled, polled
from tests.client.topics.test_producer import running
from zraft.cli.listings.listing_options import rendered
from zraft.cli.topics.consumer_command import Consumption, _consumption, _listing, _rows, _summaries
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import NoTopicError, Topics
from zraft_client.topics.values import ConsumerPlace
from zraft_core.znodes.acl import ADMIN, Acl

ADMIN_ONLY: Acl = ((ADMIN, "world", "anyone"),)


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
    assert [one["lag"] for one in _summaries(found)] == [5]
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
    assert _listing(_summaries(found), found).complaint == found.complaint()
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


async def begin(topics: Topics) -> None:
    """Let a client of the group "billing" claim one partition of "orders", commit nothing, and release it."""
    marshaler = Marshaler(topics.claims_port(), "anna", "billing")
    async with marshaler.consumer(["orders"], ConsumerOptions(maximum_claims=1, **FAST)) as consumer:
        async for _ in consumer.consume():
            break


async def test_the_lag_of_a_group_counts_partitions_that_nobody_has_claimed_yet() -> None:
    async with running(orders=3) as (cluster, topics):
        await filled(topics, 30)
        await begin(topics)
        found = await _consumption(topics, None)
        (begun,) = (one.partition for one in found.places)
        for partition in {0, 1, 2} - {begun}:
            cluster.group("orders", partition).first = 4  # retention removed what was before
        found = await _consumption(topics, None)
    (summary,) = _summaries(found)
    assert (summary["partitions"], summary["lag"]) == (1, 10 + 6 + 6)
    rows = _rows(found, b"billing")
    assert {(one["partition"] == begun, one["offset"], one["end"], one["lag"]) for one in rows} == {
        (True, 0, 10, 10),
        (False, None, 10, 6),
    }
    assert [line.split()[-1] for line in rendered(_listing(rows, found).parts, 80).splitlines()] == [
        "owners",
        "-",
        "-",
        "-",
    ]


async def test_what_may_not_be_read_has_no_lag_and_the_rest_of_the_group_has() -> None:
    async with running(orders=2) as (cluster, topics):
        await filled(topics, 20)
        await begin(topics)
        topic_acl(cluster, "orders", ADMIN_ONLY)
        found = await _consumption(topics, None)
    assert {(one["offset"], one["lag"]) for one in _rows(found, b"billing")} == {(0, 10), (None, None)}
    assert [one["lag"] for one in _summaries(found)] == [10]
    assert found.complaint() == ""


def test_a_name_that_both_stores_offsets_and_claims_has_rows_of_each_kind() -> None:
    places = (
        ConsumerPlace("orders", 0, b"billing", 3, 9, None),
        ConsumerPlace("orders", 0, b"billing", 2, 9, ("anna",)),
    )
    found = Consumption(places, {"orders": 1}, {}, {})
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
