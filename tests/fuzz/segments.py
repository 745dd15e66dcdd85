"""Fuzzes what the disk gives back: a start finds what was acknowledged, or stops with a declared error.

The allowed loss is the end of the log: a torn tail, which is reported, or bytes that are zero, which nothing
distinguishes from a write that never happened (docs/explanation/storage.md, "What is promised"). A file that was cut is
none.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import msgpack
from attrs import frozen

from tests.fuzz.mutation import mutate_bytes, mutate_value
from tests.fuzz.outcome import PROMISE, Outcome, Progress, Stopwatch
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk import SimulatedDisk
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.storage.directory import DataDirectory
from zraft.storage.frames import HEAD_BYTES, HEADER_BYTES, decode_head, decode_header, encode_frame
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
    encode_records,
)
from zraft.storage.recovery import Recovered
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

PATH: Final = "/data"
META: Final = f"{PATH}/meta"
SERVER: Final = ServerId(1)
SETTINGS: Final = WalSettings(segment_bytes_max=4096, tail_bytes_max=2000, index_stride_bytes=300)
FRAMES_MAX: Final = 24
MUTATIONS_PER_LOG: Final = 50
READ_BYTES_MAX: Final = 1 << 30


@frozen
class _State:
    """What the log holds after a frame, and where that frame ends: (segment, offset)."""

    entries: tuple[Entry, ...]
    hard_state: HardState
    segment: str
    end: int


class _WrittenLog:
    """A log as it was written: its files, and what it held after each frame."""

    def __init__(self, rng: random.Random) -> None:
        disk = SimulatedDisk()
        directory = DataDirectory.open(disk, PATH, server=SERVER, entropy=rng.randbytes)
        wal, _ = Wal.open(disk, directory, settings=SETTINGS)
        entries: list[Entry] = []
        hard_state = HardState()
        self.instance: Instance = directory.instance
        self.states = [_State((), hard_state, _segment(1), HEADER_BYTES)]
        for _ in range(rng.randrange(1, FRAMES_MAX)):
            records = _records(entries, hard_state, rng)
            held = tuple(entries), hard_state
            for record in records:
                match record:
                    case EntryRecord(_, entry):
                        entries.append(entry)
                    case TruncateRecord(_, from_index):
                        del entries[from_index - 1 :]
                    case HardStateRecord(_, value):
                        hard_state = value
                    case RosterRecord() | RestoreRecord():
                        pass
            wal.append(records)
            last = wal._segments[-1]
            if _segment(last.number) != self.states[-1].segment and last.first_frame > 1:
                # The segment began with a frame of its own, which restates what the log held.
                data = disk.contents(_segment(last.number))
                head = decode_head(data, HEADER_BYTES, last.seed)
                assert head is not None
                self.states.append(
                    _State(*held, _segment(last.number), HEADER_BYTES + HEAD_BYTES + head.length)
                )
            self.states.append(_State(tuple(entries), hard_state, _segment(last.number), last.end))
        if rng.random() < 0.5:
            wal.close()
        disk.kill()
        names = [_segment(number + 1) for number in range(wal.statistics().segments)]
        self.files = {name: disk.contents(name) for name in (META, *names)}


def _segment(number: int) -> str:
    return f"{PATH}/wal/{number:010d}.seg"


def _records(entries: list[Entry], hard_state: HardState, rng: random.Random) -> list[Record]:
    """What a server may write in one turn, after `entries` and `hard_state`."""
    records: list[Record] = []
    last = entries[-1] if entries else None
    chance = rng.random()
    if chance < 0.2:
        records.append(HardStateRecord(COORDINATION_GROUP, HardState(hard_state.term + 1, SERVER)))
    elif chance < 0.25:
        roster = ((SERVER, Instance(rng.randbytes(16))), (ServerId(2), Instance(bytes(16))))
        records.append(RosterRecord(COORDINATION_GROUP, roster))
    elif chance < 0.35 and last is not None:
        index = rng.randrange(1, last.index + 1)
        records.append(TruncateRecord(COORDINATION_GROUP, index))
        last = entries[index - 2] if index > 1 else None
    for _ in range(rng.randrange(1, 4)):
        index = last.index + 1 if last else 1
        term = max(last.term if last else 1, rng.choice((0, hard_state.term)))
        position = last.next_position if last else 1
        payload = rng.randbytes(rng.choice((0, 3, 60, 400, 1_500)))
        last = Entry(index, term, EntryKind.COMMANDS, position, rng.randrange(3), payload)
        records.append(EntryRecord(COORDINATION_GROUP, last))
    return records


class SegmentFuzz:
    """One run; the same seed and count give the same files."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"zraft/fuzz/segments/{seed}")
        self._tally: Counter[str] = Counter()
        self._watch = Stopwatch()

    def run(self, count: int, progress: Progress) -> Outcome:
        """Open `count` damaged data directories.

        Raises:
            BrokenPromiseError: an entry was lost, invented or altered, or damage had another end than a
                declared error.
        """
        largest = 0
        log = _WrittenLog(self._rng)
        for number in range(count):
            if number % MUTATIONS_PER_LOG == 0:
                log = _WrittenLog(self._rng)
                largest = max(largest, sum(map(len, log.files.values())))
            if self._rng.random() < 0.2:
                self._open_written_wrongly(log)
            else:
                self._open_damaged(log)
            progress(1)
        return Outcome(
            *("segments", self._seed, count, largest, self._tally, self._watch.slowest, self._watch.longest_s)
        )

    def _open_damaged(self, log: _WrittenLog) -> None:
        """Bytes changed after they were written."""
        files = dict(log.files)
        for _ in range(self._rng.choice((1, 1, 2))):
            self._damage(files, log)
        found = self._open(files)
        if found is None:
            return
        wal, recovered = found
        newest = log.states[-1].segment
        if files.get(META) == log.files[META] and len(files[newest]) < len(log.files[newest]):
            raise BrokenPromiseError(PROMISE, f"{newest} was cut, and the log was opened all the same")
        group = recovered.groups.get(COORDINATION_GROUP)
        last = group.last_index if group else 0
        entries = tuple(wal.read_entries(COORDINATION_GROUP, 1, last + 2, READ_BYTES_MAX)) if last else ()
        tail = group.tail if group else ()
        hard_state = group.hard_state if group else HardState()
        frames = recovered.report.frames
        if frames >= len(log.states):
            raise BrokenPromiseError(PROMISE, f"{frames} frames recovered of {len(log.states) - 1} written")
        state = log.states[frames]
        if entries != state.entries or hard_state != state.hard_state:
            raise BrokenPromiseError(PROMISE, f"after frame {frames} the log is not what was written")
        if tail != entries[len(entries) - len(tail) :]:
            raise BrokenPromiseError(PROMISE, "the tail is not the end of the log")
        if frames == len(log.states) - 1:
            self._tally["everything recovered"] += 1
            return
        torn = recovered.report.torn_tail
        rest = files.get(log.states[frames + 1].segment, b"")[state.end :]
        if torn is None and rest.strip(b"\0"):
            raise BrokenPromiseError(PROMISE, f"{len(log.states) - 1 - frames} frames were left out silently")
        self._tally["end of the log gone" if torn is None else "torn tail reported"] += 1

    def _open_written_wrongly(self, log: _WrittenLog) -> None:
        """Checksums are right, but what was written is nonsense: a faulty release, or a faulty memory."""
        rng = self._rng
        state = log.states[-1]
        number = len(log.states)
        seed = decode_header(log.files[state.segment], state.segment).seed
        records = _records(list(state.entries), state.hard_state, rng)
        body = encode_records(records)
        if rng.random() < 0.3:
            body = mutate_bytes(body, rng) or b"\0"
        else:
            unpacker = msgpack.Unpacker(use_list=False)
            unpacker.feed(body)
            arrays: list[Any] = [mutate_value(array, rng) for array in unpacker]
            body = b"".join(map(msgpack.packb, arrays))
        frame = encode_frame(number, body, seed)
        files = dict(log.files)
        data = files[state.segment]
        files[state.segment] = data[: state.end] + frame + data[state.end + len(frame) :]
        if self._open(files) is not None:
            self._tally["wrongly written, but plausible"] += 1

    def _damage(self, files: dict[str, bytes], log: _WrittenLog) -> None:
        rng = self._rng
        chance = rng.random()
        names = sorted(files)
        name = rng.choice(names)
        data = files[name]
        if chance < 0.04 and META in files:
            files[META] = mutate_bytes(files[META], rng)
        elif chance < 0.08:
            files[name] = rng.randbytes(rng.randrange(len(data) + 1))
        elif chance < 0.12 and len(names) > 2:
            del files[name]
        elif chance < 0.16:
            files[name] = files[rng.choice(names)]
        elif chance < 0.3:
            # A whole frame comes twice, or once more at the end.
            at = rng.randrange(1, len(log.states))
            before, after = log.states[at - 1], log.states[at]
            start = before.end if before.segment == after.segment else HEADER_BYTES
            frame = files.get(after.segment, b"")[start : after.end]
            last = log.states[-1]
            where, segment = rng.choice(((after.end, after.segment), (last.end, last.segment)))
            whole = files.get(segment, b"")
            files[segment] = whole[:where] + frame + whole[where:]
        elif chance < 0.4:
            files[name] = data[: rng.randrange(len(data) + 1)]
        elif chance < 0.5:
            last = log.states[-1]
            start = rng.randrange(HEADER_BYTES, last.end)
            whole = files.get(last.segment, b"")
            files[last.segment] = whole[:start] + bytes(max(0, len(whole) - start))
        else:
            # Where the frames are: most of a preallocated segment is zeros.
            end = max((state.end for state in log.states if state.segment == name), default=len(data))
            files[name] = mutate_bytes(data[:end], rng) + data[end:]

    def _open(self, files: dict[str, bytes]) -> tuple[Wal, Recovered] | None:
        """Start on these files; None if the start stopped with a declared error."""
        disk = SimulatedDisk()
        disk.mkdir(PATH)
        disk.mkdir(f"{PATH}/wal")
        for name, data in files.items():
            disk.replace(name, data)
        opened: list[tuple[Wal, Recovered]] = []
        try:
            directory = DataDirectory.open(disk, PATH, server=SERVER, entropy=random.Random(1).randbytes)
            seconds = self._watch.step(
                "a start", lambda: opened.append(Wal.open(disk, directory, settings=SETTINGS))
            )
            self._watch.count(b"".join(files.values()), seconds)
        except StorageError as error:
            self._tally[f"stopped: {type(error).__name__}"] += 1
            return None
        except Exception as error:
            raise BrokenPromiseError(
                PROMISE, f"a start ended with {error!r}, which is not declared"
            ) from error
        return opened[0]
