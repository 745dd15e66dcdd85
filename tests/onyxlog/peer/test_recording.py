"""Recordings: what is recorded comes back, a torn end is left out, damage is told, and a full disk stops no group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onyxlog.errors import EntryError
from onyxlog.gossip.messages import Event, PoolEvent, TreeEvent
from onyxlog.peer.recording import Heading, Recorder, Recordings, RecordKind, read_recording
from onyxlog.replica.codec import decode_origin, decode_record
from onyxlog.replica.commands import Entry, JoinDirect, Record
from onyxlog.replica.digests import CHAIN_START, digest
from onyxlog.replica.playing import play
from onyxlog.replica.replica import Parameters, Replica

EVENT = Event(7, b"bytes", bytes(16), publisher="b")


def recorded(path: Path) -> list[tuple[Any, ...]]:
    """One of each kind of record."""
    recorder = Recorder(path, Heading("t", "a-1"), now_ms=lambda: 99)
    replica = Replica(Parameters())
    recorder.origin(replica, CHAIN_START)
    step = play(replica, Entry(0, Record(JoinDirect("a-1"), "a-1", None, 5)), CHAIN_START)
    recorder.brought(0, "gossip")
    recorder.applied(step.entry, step.replica, step.chain)
    recorder.received("c", PoolEvent(EVENT, 3, 1, 2, 4), True)
    recorder.sent(TreeEvent(EVENT, 1), 5)
    recorder.log_read("gap", 7, 2)
    recorder.close()
    heading, records = read_recording(path.read_bytes(), str(path))
    assert heading == Heading("t", "a-1")
    return [placed.values for placed in records]


def test_what_is_recorded_comes_back(tmp_path: Path) -> None:
    origin, entry, received, sent, read = recorded(tmp_path / "one.onyx")
    assert origin[:5] == (RecordKind.ORIGIN, 1, 99, -1, CHAIN_START)
    assert decode_origin(origin[6], "it") == (Replica(Parameters()), CHAIN_START)
    assert entry[:4] == (RecordKind.ENTRY, 2, 99, 0)
    assert entry[6] == "gossip"
    record = decode_record(entry[7], "it")
    step = play(Replica(Parameters()), Entry(0, record), CHAIN_START)
    assert (entry[4], entry[5]) == (step.chain, digest(step.replica))
    assert received == (RecordKind.RECEIVED, 3, 99, 7, "c", "b", True, 2, 1, 4)
    assert sent == (RecordKind.SENT, 4, 99, 7, "b", 5, None, None, 1)
    assert read == (RecordKind.LOG_READ, 5, 99, "gap", 7, 2)


def test_a_file_that_ends_anywhere_in_a_record_gives_those_before_it(tmp_path: Path) -> None:
    recorded(tmp_path / "one.onyx")
    data = (tmp_path / "one.onyx").read_bytes()
    places = [placed.end for placed in read_recording(data, "it")[1]]
    for end in range(places[-2], len(data)):
        assert len(list(read_recording(data[:end], "it")[1])) == 4


def test_reading_goes_on_behind_a_record(tmp_path: Path) -> None:
    values = recorded(tmp_path / "one.onyx")
    data = (tmp_path / "one.onyx").read_bytes()
    for at, placed in enumerate(list(read_recording(data, "it")[1]), 1):
        assert [one.values for one in read_recording(data, "it", placed.end)[1]] == values[at:]


def test_damage_that_others_follow_is_told_with_its_offset(tmp_path: Path) -> None:
    recorded(tmp_path / "one.onyx")
    data = bytearray((tmp_path / "one.onyx").read_bytes())
    second = list(read_recording(bytes(data), "it")[1])[1]
    data[second.end - 1] ^= 1
    with pytest.raises(EntryError, match=f"offset {second.offset}"):
        list(read_recording(bytes(data), "it")[1])


def test_any_flipped_bit_before_the_last_record_is_told(tmp_path: Path) -> None:
    """Also one of a length that then reaches to the end of the file."""
    recorded(tmp_path / "one.onyx")
    data = (tmp_path / "one.onyx").read_bytes()
    last = list(read_recording(data, "it")[1])[-1]
    for bit in range(last.offset * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EntryError, match="it: "):
            list(read_recording(bytes(damaged), "it")[1])


def test_another_file_is_no_recording() -> None:
    with pytest.raises(EntryError, match="heading"):
        read_recording(b"nothing of ours", "it")


def test_each_incarnation_has_a_file_and_one_recorder(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "made", "t", now_ms=lambda: 0)
    assert recordings.of("a-1") is recordings.of("a-1")
    recordings.of("a-2")
    recordings.close("a-1")
    recordings.close("a-1")
    recordings.close("a-2")
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["t-a-1.onyx", "t-a-2.onyx"]


def test_a_disk_that_fails_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one.onyx", Heading("t", "a"), now_ms=lambda: 0)

    class Failing:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    recorder._file.close()  # type: ignore[union-attr]
    recorder._file = Failing()  # type: ignore[assignment]
    recorder.log_read("poll", 0, 0)
    recorder.log_read("poll", 0, 0)
    recorder.close()
