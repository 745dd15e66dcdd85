"""Grouping: which worker a segment goes to, by a key of it; the same everywhere, whatever PYTHONHASHSEED is.

Keys are hashed to one of `BUCKETS` buckets, and buckets are spread over the slots that a task has. State of
windows is stored by bucket, so that it can be handed to other slots when there are more or fewer of them.
Keys that are equal in Python are in the same bucket: 1, 1.0 and True are one key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from typing import Any, Final

from attrs import frozen

from onyxlog.jobs.functions import bound
from onyxlog.jobs.segments import Segment, canonical

BUCKETS: Final = 4096
"""The most workers that a grouped task can have. It is part of what is stored and can never change."""
REMEMBERED: Final = 100_000
"""The number of keys whose buckets a `Grouping` remembers."""


@frozen
class GroupBy:
    """Groups by the values at `keys` (one: the value itself; several: the list of them), or by a function of the segment."""

    keys: tuple[str, ...] = ()
    function: str | None = None


def key_bytes(key: Any) -> bytes:
    """Return the same bytes for keys that are equal, and different ones for others.

    Raises:
        TypeError: the key is not a plain value.
    """
    return canonical(_number_free(key))


def bucket_of(key: Any) -> int:
    """Return the key's bucket, 0 … BUCKETS - 1."""
    return int.from_bytes(blake2b(key_bytes(key), digest_size=8).digest(), "big") % BUCKETS


def table_of(slots: Collection[int]) -> tuple[int, ...]:
    """Return the slot of each bucket: each slot has a run of them, none longer than another by more than one."""
    assert slots, "a task with no worker gets no segments"
    ordered = sorted(slots)
    return tuple(ordered[bucket * len(ordered) // BUCKETS] for bucket in range(BUCKETS))


def adopts(slot: int, slots: Collection[int], other: int) -> bool:
    """Return whether the worker at `slot` now owns what the worker at `other` left that is bound to no key.

    It owns what its own slot left, and a share of what slots left that are not in `slots` any more.
    """
    return other == slot or (other not in slots and other % len(slots) == sorted(slots).index(slot))


def sources_of(slot: int, slots: Collection[int], old: Collection[int], *, grouped: bool) -> tuple[int, ...]:
    """Return the `old` slots whose stored state the worker at `slot` has to read, to continue as one of `slots`.

    With grouping it takes from each what is in its own buckets; without, all of it, and nobody else takes
    that.
    """
    if not grouped:
        return tuple(other for other in sorted(old) if adopts(slot, slots, other))
    before, after = table_of(old), table_of(slots)
    return tuple(sorted({source for source, now in zip(before, after, strict=True) if now == slot}))


def _number_free(key: Any) -> Any:
    """Return the key with one form for equal numbers."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, float):
        return int(key) if key.is_integer() and -(2**63) <= key < 2**64 else key
    if isinstance(key, (list, tuple)):
        return [_number_free(part) for part in key]
    if isinstance(key, Mapping):
        return {name: _number_free(part) for name, part in key.items()}
    return key


class Grouping:
    """Grouping by a `GroupBy`: keys of segments, and their buckets."""

    def __init__(self, key: Callable[[Segment], Any]) -> None:
        self.key = key
        """Returns a segment's key."""
        self._buckets: dict[str | int, int] = {}

    def bucket(self, segment: Segment) -> int:
        """Return the bucket of the segment's key."""
        key = self.key(segment)
        # Other keys are seldom asked for often, and lists cannot be keys of a dictionary. That 1 and True are
        # one key of it does no harm: they are in one bucket.
        if type(key) is not str and type(key) is not int:
            return bucket_of(key)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= REMEMBERED:
                self._buckets.clear()
            bucket = self._buckets[key] = bucket_of(key)
        return bucket


def grouping(group_by: GroupBy, where: str = "group_by") -> Grouping:
    """Return the grouping that a `GroupBy` describes.

    Raises:
        WorkflowError: its function cannot be found.
    """
    if group_by.function is not None:
        return Grouping(bound(group_by.function, {}, where))
    if len(group_by.keys) == 1:
        (name,) = group_by.keys
        return Grouping(lambda segment: segment.get(name))
    names = group_by.keys
    return Grouping(lambda segment: [segment.get(name) for name in names])
