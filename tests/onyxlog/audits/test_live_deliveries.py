"""Deliveries as they grow: batches add up, a batch is the same again, and what retention took is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.live_deliveries import LiveDeliveries
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import read_piece
from tests.onyxlog.audits.reading import chosen
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import GROUP, Opened, between, history, open_log
from tests.unit.storage.scenario import PATH
from zraft.storage.delivery.settings import DeliveryRetention

HISTORY = history(120)
MIDDLE, LAST = HISTORY[len(HISTORY) // 2].index, HISTORY[-1].index
SERVER = ServerDirectory(PATH, 1, "")


def appended(opened: Opened, after: int, upto: int) -> None:
    """Entry by entry, as a partition delivers."""
    for index in sorted({one.index for one in between(HISTORY, after, upto)}):
        opened.log.append(between(HISTORY, index - 1, index), index)


def options(**given: str) -> Options:
    return chosen(Path("/nowhere"), "deliveries", **given)


def following(disk: SimulatedDisk, **given: str) -> LiveDeliveries:
    return LiveDeliveries(options(**given), [SERVER], disk)


def offsets_in(live: LiveDeliveries, disk: SimulatedDisk, start: Any, end: Any) -> list[int]:
    offset = [column.name for column in options().table.columns].index("offset")
    return [row[offset] for piece in live.pieces(start, end) for row in read_piece(piece, disk)]


def test_what_is_delivered_meanwhile_comes_in_the_next_batch() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    live = following(disk)
    appended(opened, 0, MIDDLE)
    first = live.latest(live.initial(), None)
    appended(opened, MIDDLE, LAST)
    second = live.latest(first, None)
    given = offsets_in(live, disk, {}, first), offsets_in(live, disk, first, second)
    assert given[0]
    assert given[1]
    assert [*given[0], *given[1]] == [one.offset for one in HISTORY]
    assert live.latest(second, None) == second


def test_batches_are_bounded_and_are_the_same_when_they_are_read_again() -> None:
    disk = SimulatedDisk()
    appended(open_log(disk), 0, LAST)
    live = following(disk)
    start, found = live.initial(), []
    while (end := live.latest(start, 256 * 25)) != start:
        found.append(offsets_in(live, disk, start, end))
        assert offsets_in(following(disk), disk, start, end) == found[-1]
        start = json.loads(json.dumps(end))
    assert max(map(len, found)) == 25
    assert [offset for some in found for offset in some] == [one.offset for one in HISTORY]


def test_a_stream_of_what_is_new_begins_behind_what_is_there() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    appended(opened, 0, MIDDLE)
    live = following(disk, starting="latest")
    start = live.initial()
    assert live.latest(start, None) == start
    appended(opened, MIDDLE, LAST)
    end = live.latest(start, None)
    assert offsets_in(live, disk, start, end) == [one.offset for one in between(HISTORY, MIDDLE, LAST)]


def test_what_retention_removed_before_it_was_read_is_told() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    appended(opened, 0, MIDDLE)
    live = following(disk)
    start = live.latest(live.initial(), 256 * 3)
    appended(opened, MIDDLE, LAST)
    opened.log.sync()
    opened.log.retain(DeliveryRetention(bytes_min=8_000), now_ms=0)
    assert opened.log.base.offset > 3
    end = live.latest(start, None)
    with pytest.raises(AuditError, match="removed by retention"):
        live.pieces(start, end)
    fresh = following(disk)
    assert offsets_in(fresh, disk, {}, fresh.latest({}, None))[0] == opened.log.base.offset


def test_a_group_that_is_not_asked_for_is_not_followed() -> None:
    disk = SimulatedDisk()
    appended(open_log(disk), 0, LAST)
    live = following(disk, group="5")
    assert live.latest({}, None).get(PATH, {}) == {}
    assert list(following(disk, group=str(int(GROUP))).latest({}, None)[PATH]) == [str(int(GROUP))]
