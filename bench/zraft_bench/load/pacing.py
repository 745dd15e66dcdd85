"""Due times of the requests of an open loop.

Pure; the caller has the clock.

Each worker has its own due times, `rate / workers` of them per second, and sends them one after the other. A
worker that is held up by a slow answer is behind, and the requests that were due meanwhile are sent late;
their latencies count from when they were due, so that a server that stands still for a second shows in all of
them, not in one (coordinated omission).
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def due_times(
    rate: float, workers: int, worker: int, seconds: float, *, poisson: bool, seed: int
) -> Iterator[float]:
    """Return seconds after the start at which worker number `worker` of `workers` has a request due, below `seconds`.

    They grow. Evenly spaced, the workers take turns; together they make `rate` requests per second.
    """
    assert rate > 0
    assert 0 <= worker < workers
    if poisson:
        rng = random.Random(f"{seed}/{worker}")
        due = rng.expovariate(rate / workers)
        while due < seconds:
            yield due
            due += rng.expovariate(rate / workers)
    else:
        number = worker
        # Times are multiplied, not added up: no rounding error grows with the length of the test.
        while (due := number / rate) < seconds:
            yield due
            number += workers
