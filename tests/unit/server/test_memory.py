"""Memory that clients and the log no longer hold goes back to the operating system, in few calls."""

from __future__ import annotations

from zraft.server.process.memory import (
    FREED_BYTES_MIN,
    INTERVAL_MS,
    QUIET_BYTES_MAX,
    MemoryReturn,
    malloc_trim,
)

MUCH = 3 * FREED_BYTES_MIN


class Trims:
    """Counts what would be calls of the C library."""

    def __init__(self) -> None:
        self.count = 0
        self.memory = MemoryReturn(self._trim)

    def _trim(self, keep: int) -> int:
        assert keep == 0
        self.count += 1
        return 1


def test_what_clients_let_go_is_given_back_once() -> None:
    trims = Trims()
    for now_ms, held in enumerate([0, MUCH, MUCH, 100, 100, 0]):
        trims.memory.step(now_ms * INTERVAL_MS, held)
    assert trims.count == 1


def test_what_connections_themselves_take_counts() -> None:
    """After 500 that said little a server was forty megabytes larger for good."""
    trims = Trims()
    for now_ms, connections in enumerate([1, 500, 500, 1, 1]):
        trims.memory.step(now_ms * INTERVAL_MS, 0, connections)
    assert trims.count == 1


def test_little_is_kept_for_the_next_client() -> None:
    trims = Trims()
    for now_ms, held in enumerate([0, FREED_BYTES_MIN - 1, 0, FREED_BYTES_MIN - 1, 0]):
        trims.memory.step(now_ms * INTERVAL_MS, held)
    assert trims.count == 0


def test_clients_that_come_and_go_cause_no_more_than_one_call_in_two_seconds() -> None:
    trims = Trims()
    for now_ms in range(0, 10 * INTERVAL_MS, 10):
        trims.memory.step(now_ms, MUCH if now_ms // 10 % 2 else 0)
    assert 9 <= trims.count <= 10


def test_what_entries_took_is_given_back_once_when_no_more_follow() -> None:
    """After writes of a megabyte a server was thirty megabytes larger for good than what its log held."""
    trims = Trims()
    logged = 0
    for now_ms in range(0, 10 * INTERVAL_MS, 50):
        logged += QUIET_BYTES_MAX // 8
        trims.memory.step(now_ms, 0, 1, logged)
    assert trims.count == 0, "what is used again at once is not given back"
    for now_ms in range(10 * INTERVAL_MS, 20 * INTERVAL_MS, 50):
        trims.memory.step(now_ms, 0, 1, logged)
    assert trims.count == 1


def test_entries_that_come_slowly_cause_few_calls() -> None:
    trims = Trims()
    for step in range(1_000):
        trims.memory.step(step * INTERVAL_MS, 0, 1, step * QUIET_BYTES_MAX)
    assert trims.count == 1_000 * QUIET_BYTES_MAX // FREED_BYTES_MIN


def test_little_that_is_logged_is_kept() -> None:
    trims = Trims()
    for step in range(100):
        trims.memory.step(step * INTERVAL_MS, 0, 1, min(step * QUIET_BYTES_MAX, FREED_BYTES_MIN - 1))
    assert trims.count == 0


def test_a_c_library_without_such_a_function_is_none_to_this() -> None:
    memory = MemoryReturn(None)
    memory.step(0, MUCH)
    memory.step(1, 0)


def test_the_c_library_of_this_machine_is_called_as_it_wants_to_be() -> None:
    trim = malloc_trim()
    assert trim is None or trim(0) in (0, 1)
