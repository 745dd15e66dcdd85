"""What a server counts, and what that costs: nothing per request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.one_server import OneServer, create
from zraft.groups.server_statistics import Histogram, Latencies, Proposals
from zraft.server.coordination.origin import OriginSettings, OriginStream
from zraft_core.ids import Instance, ServerId
from zraft_core.wire.opcodes import Opcode


def test_a_histogram_counts_into_buckets_and_keeps_the_extremes() -> None:
    histogram = Histogram((1, 10))
    for value, count in ((0.5, 1), (1, 2), (3, 4), (11, 1)):
        histogram.add(value, count)
    view = histogram.view()
    assert view.counts == (3, 4, 1)
    assert (view.count, view.total, view.smallest, view.largest) == (8, 25.5, 0.5, 11)
    histogram.reset()
    assert (histogram.view().count, histogram.view().smallest, histogram.view().mean) == (0, 0.0, 0.0)


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 1))
def test_a_quantile_is_within_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    bounds = (1.0, 5.0, 20.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.add(value)
    found = histogram.view().quantile(q)
    assert min(values) <= found <= max(values)
    # The smallest value that a share of at least q does not exceed.
    rank = next(n for n in range(1, len(values) + 1) if n >= q * len(values))
    true = sorted(values)[rank - 1]
    low = max((b for b in bounds if b < true), default=0.0)
    high = min((b for b in bounds if b >= true), default=100.0)
    assert low <= found <= high or found in (min(values), max(values))


def test_latency_ends_when_the_answer_is_written_not_when_it_is_decided() -> None:
    latencies = Latencies()
    latencies.add_writes(100.0, 3)
    latencies.add_reads(108.0, 2)
    assert latencies.writes.view().count == 0
    latencies.answered(110.5)
    assert (latencies.writes.view().count, latencies.writes.view().largest) == (3, 0.0105)
    assert latencies.reads.view().total == pytest.approx(2 * 0.0025)
    latencies.answered(999.0)
    assert latencies.writes.view().count == 3


def test_the_time_that_a_command_waits_for_earlier_batches_is_part_of_its_latency() -> None:
    """One batch travels at a time (decision 0005): under load most of a write's time passes before it is cut."""
    stream = OriginStream(ServerId(1), Instance(b"i" * 16), 1, OriginSettings())
    command = create("/a")
    stream.add("first", 1, (), [command], 10)
    stream.cut(100)
    stream.add("second", 2, (), [command, command], 20)
    stream.cut(105, 104.5)
    stream.add("third", 3, (), [command], 10)
    stream.add("third", 3, (), [command], 10)  # joins the run before it
    stream.cut(110)
    first = stream.take_applied(1, 0)
    assert first is not None
    assert first.arrivals == [(100, 1)]
    stream.cut(130)
    second = stream.take_applied(2, 0)
    assert second is not None
    assert second.arrivals == [(104.5, 2), (110, 2)]
    assert sum(count for _, count in second.arrivals) == second.message.count


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=60))
def test_every_command_has_exactly_one_moment_of_arrival(steps: list[tuple[int, bool]]) -> None:
    stream = OriginStream(ServerId(1), Instance(b"i" * 16), 1, OriginSettings(batch_bytes_max=100))
    seq = now = added = seen = 0
    for number, (count, applied) in enumerate(steps):
        now += 10
        stream.add(number, number, (), [create("/a")] * count, 30 * count)
        added += count
        stream.cut(now)
        if applied and (batch := stream.take_applied(seq + 1, 0)) is not None:
            seq += 1
            assert sum(c for _, c in batch.arrivals) == batch.message.count
            assert all(at <= now for at, _ in batch.arrivals)
            seen += batch.message.count
    while True:
        stream.cut(now)
        batch = stream.take_applied(seq + 1, 0)
        if batch is None:
            break
        seq += 1
        seen += batch.message.count
    assert seen == added


def test_a_connection_remembers_its_last_request_and_how_long_answers_took() -> None:
    server = OneServer()
    client = server.attached()
    connection = client.connection
    assert (connection.last_opcode, connection.last_xid) == (0, -1)
    before = connection.latency.count
    server.clients.arrived = 40.0
    server.advance(50)
    server.acknowledge_touches()
    xid, frame = client.codec.write(create("/a"))
    client.send((xid, frame), client.codec.ping())
    assert connection.last_opcode == Opcode.PING
    assert connection.last_xid == xid  # a ping has no number of its own
    server.run()
    latency = connection.latency
    assert latency.count == before + 1
    assert (latency.last, latency.answered_at, latency.zxid) == (10.0, 50, server.machine.last_zxid)
    connection.reset_statistics()
    assert (connection.received, connection.sent, connection.latency.count) == (0, 0, 0)


def test_proposals_count_bytes_and_commands() -> None:
    proposals = Proposals()
    assert (proposals.sizes.last, proposals.sizes.smallest, proposals.sizes.largest) == (-1, -1, -1)
    proposals.add(100, 3)
    proposals.add(40, 1)
    assert (proposals.sizes.last, proposals.sizes.smallest, proposals.sizes.largest) == (40, 40, 100)
    assert (proposals.commands.view().total, proposals.bytes.view().total) == (4, 140)
    proposals.reset()
    assert proposals.sizes.last == -1
