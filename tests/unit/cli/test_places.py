"""Places in a topic: how people write them, and what they mean in each partition."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import pytest

from zraft.cli.topics.places import EARLIEST, LATEST, Moment, place

NOW_S = 1_700_000_000.5
READ = place(EARLIEST, LATEST, now=lambda: NOW_S)


def test_words_and_offsets_are_read() -> None:
    assert READ("earliest") == EARLIEST
    assert READ("0") == 0
    assert READ("20261129") == 20_261_129


def test_a_number_with_a_unit_is_a_time_ago() -> None:
    assert READ("2h") == Moment(1_700_000_000_500 - 7_200_000)
    assert READ("250ms") == Moment(1_700_000_000_250)
    assert READ("999999999d") == Moment(0)


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 11, 29, 10, tzinfo=UTC)
    assert READ("2026-11-29T10:00Z") == Moment(int(at.timestamp()) * 1_000)
    assert READ("2026-11-29T12:00:00.125+02:00") == Moment(int(at.timestamp()) * 1_000 + 125)
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    try:
        assert READ("2026-11-29 13:00") == Moment(int(at.timestamp()) * 1_000)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "end", "-1", "2 h", "2y", "٣", "1960-01-01", "2026-13-01", "0001-01-01"]
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected earliest, latest, an offset, a time such as"):
        READ(text)
