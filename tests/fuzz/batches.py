"""Fuzzes record batches: what a server accepts by the header, and what a consumer makes of the records in it.

Each batch is spoiled in its header, in its records before they are compressed, or as bytes; mostly the lengths and the
checksum are right again afterwards, so that it gets as far as possible.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from typing import Final

from crc32c import crc32c

from tests.fuzz.mutation import INTEGERS, mutate_bytes
from tests.fuzz.outcome import PROMISE, Outcome, Progress, Stopwatch
from tests.simulation.broken import BrokenPromiseError
from zraft_core.errors import ProtocolError
from zraft_core.records import BatchRecord, Codec, check_batch, encode_batch, read_batch
from zraft_core.records.compression import compress
from zraft_core.records.header import CRC_AT, CRC_FROM, HEADER, HEADER_BYTES, LENGTH_AT

DECODED_BYTES_MAX: Final = 1 << 20
HELD_BYTES_MAX: Final = 16 << 20
"""What one batch may hold at a time: what was decompressed, twice, and what a reader of zstd gives in one step."""
MEASURED_EVERY: Final = 10
"""One batch in so many has its memory measured, and the others their time."""

_WIDTHS: Final = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)
_CRC: Final = 4
_LENGTH: Final = 1


class BatchFuzz:
    """One run: the seed and the count decide everything."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._tally: Counter[str] = Counter()
        self._watch = Stopwatch()
        self._peak = 0

    def run(self, count: int, progress: Progress) -> Outcome:
        """Feed so many batches.

        Raises:
            BrokenPromiseError: one was answered by an error that is not declared, or held too much.
        """
        for number in range(count):
            payload = self._spoiled()
            if number % MEASURED_EVERY:
                self._watch.count(payload, self._watch.step("a batch", self._take, payload))
            else:
                self._measure(payload)
            progress(1)
        return Outcome(
            "batches", self._seed, count, self._peak, self._tally, self._watch.slowest, self._watch.longest_s
        )

    def _measure(self, payload: bytes) -> None:
        """Take a batch and look at what it holds, which takes several times as long."""
        tracemalloc.start()
        try:
            self._take(payload)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self._peak = max(self._peak, held)
        if held > HELD_BYTES_MAX:
            raise BrokenPromiseError(
                PROMISE,
                f"{len(payload)} bytes held {held}, expected {HELD_BYTES_MAX} at most: {payload[:200].hex()}",
            )

    def _take(self, payload: bytes) -> None:
        try:
            header = check_batch(payload)
        except ProtocolError as error:
            self._tally[f"refused: {str(error).split(': expected')[0]}"[:60]] += 1
            return
        except Exception as error:
            raise BrokenPromiseError(PROMISE, f"{error!r} of the header in {payload.hex()}") from error
        found = size = 0
        try:
            for record in read_batch(payload, DECODED_BYTES_MAX, self._rng.choice((0, 0, 0, 1, 5))):
                found += 1
                size += len(record.value or b"") + len(record.key or b"")
        except ProtocolError:
            self._tally["records refused"] += 1
        except Exception as error:
            raise BrokenPromiseError(PROMISE, f"{error!r} of a record in {payload.hex()}") from error
        else:
            self._tally["records read"] += 1
        if found > header.count or size > max(DECODED_BYTES_MAX, len(payload)):
            raise BrokenPromiseError(PROMISE, f"{found} records of {size} bytes out of {payload.hex()}")

    # -- what is fed

    def _spoiled(self) -> bytes:
        rng = self._rng
        records = [self._record() for _ in range(rng.randrange(1, 40))]
        payload = encode_batch(records)
        fields = list(HEADER.unpack_from(payload))
        body = payload[HEADER_BYTES:]
        codec = rng.choice(list(Codec))
        if rng.random() < 0.6:
            body = mutate_bytes(body, rng)
        body = compress(body, codec)
        if rng.random() < 0.3:
            body = mutate_bytes(body, rng)
        fields[5] = int(codec)
        if rng.random() < 0.3:
            place = rng.randrange(len(fields))
            near = fields[place] + rng.choice((-2, -1, 1, 2, 16, 32))
            fields[place] = _fitted(near if rng.random() < 0.6 else rng.choice(INTEGERS), place)
        if rng.random() < 0.9:
            fields[_LENGTH] = HEADER_BYTES - LENGTH_AT + len(body)
        payload = HEADER.pack(*fields) + body
        if rng.random() < 0.05:
            payload = mutate_bytes(payload, rng)
        if rng.random() < 0.95 and len(payload) >= HEADER_BYTES:
            crc: int = crc32c(payload[CRC_FROM:])
            payload = payload[:CRC_AT] + crc.to_bytes(4) + payload[CRC_FROM:]
        return payload

    def _record(self) -> BatchRecord:
        rng = self._rng
        value = rng.choice((b"", b"x" * rng.randrange(1, 500), rng.randbytes(rng.randrange(1, 80)), None))
        headers = tuple(
            ("name"[: rng.randrange(5)], rng.choice((None, b"v"))) for _ in range(rng.choice((0, 0, 3)))
        )
        return BatchRecord(rng.choice((None, b"key")), value, headers, rng.randrange(2**41))


def _fitted(number: int, place: int) -> int:
    """The number as it fits the width of the field."""
    bits = 8 * _WIDTHS[place]
    number &= (1 << bits) - 1
    return number if place == _CRC or number >> bits - 1 == 0 else number - (1 << bits)
