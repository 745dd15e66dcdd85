"""Znodes for measurements of a large state: many, of the same size, created in transactions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from kazoo.client import KazooClient

DATA_BYTES: Final = 100
PER_MULTI: Final = 500
MULTIS_AHEAD: Final = 8
PATIENCE_S: Final = 900.0


def fill(client: KazooClient, paths: Iterable[str]) -> None:
    """Create a znode of `DATA_BYTES` random bytes at each path, whose parents are there; some transactions are under way."""
    rng, left = random.Random(0), iter(paths)
    pending: list[Any] = []
    while some := list(islice(left, PER_MULTI)):
        multi = client.transaction()
        for path in some:
            multi.create(path, rng.randbytes(DATA_BYTES))
        pending.append(multi.commit_async())
        if len(pending) >= MULTIS_AHEAD:
            pending.pop(0).get(timeout=PATIENCE_S)
    for one in pending:
        one.get(timeout=PATIENCE_S)
