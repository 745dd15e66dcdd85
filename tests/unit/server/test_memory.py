"""Memory that is free goes back to the operating system, in few calls."""

from __future__ import annotations

from zraft.server.process.memory import (
    FREED_BYTES_MIN,
    INTERVAL_MS,
    QUIET_BYTES_MAX,
    MemoryReturn,
    malloc_trim,
    resident_memory,
)

MUCH = 3 * FREED_BYTES_MIN


class Trims:
    """Counts what would be calls of the C library."""

    def __init__(self) -> None:
        self.count = 0
        self.resident = MUCH
        """The process would have so many bytes; a call changes nothing."""
        self.memory = MemoryReturn(self._trim, lambda: self.resident)

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


def test_what_nobody_counted_is_given_back_once_when_the_server_is_quiet() -> None:
    """After writes of a megabyte, and after many small requests, a server was tens of megabytes larger for good."""
    trims = Trims()
    logged = 0
    for now_ms in range(0, 10 * INTERVAL_MS, 50):
        logged += QUIET_BYTES_MAX // 8
        trims.resident += QUIET_BYTES_MAX // 8
        trims.memory.step(now_ms, 0, 1, logged)
    assert trims.count == 0, "what is used again at once is not given back"
    for now_ms in range(10 * INTERVAL_MS, 20 * INTERVAL_MS, 50):
        trims.memory.step(now_ms, 0, 1, logged)
    assert trims.count == 1


def test_nothing_is_given_back_while_clients_send_much() -> None:
    trims = Trims()
    trims.memory.step(0, 0, 1)
    trims.resident += MUCH
    for now_ms in range(INTERVAL_MS, 10 * INTERVAL_MS, 50):
        trims.memory.step(now_ms, QUIET_BYTES_MAX + 1, 1)
    assert trims.count == 0
    trims.memory.step(10 * INTERVAL_MS, 0, 1)
    assert trims.count == 1


def test_a_tree_that_grows_slowly_causes_few_calls() -> None:
    trims = Trims()
    for step in range(1_000):
        trims.memory.step(step * INTERVAL_MS, 0, 1, step * QUIET_BYTES_MAX)
        trims.resident += QUIET_BYTES_MAX
    assert trims.count <= 1_000 * QUIET_BYTES_MAX // FREED_BYTES_MIN


def test_what_a_start_takes_is_no_growth() -> None:
    trims = Trims()
    trims.resident = 100 * MUCH
    for step in range(100):
        trims.memory.step(step * INTERVAL_MS, 0, 1)
    assert trims.count == 0


def test_the_memory_of_this_process_is_told() -> None:
    resident = resident_memory()
    assert resident is None or 1_000_000 < resident() < 1 << 40


def test_a_c_library_without_such_a_function_is_none_to_this() -> None:
    memory = MemoryReturn(None)
    memory.step(0, MUCH)
    memory.step(1, 0)


def test_the_c_library_of_this_machine_is_called_as_it_wants_to_be() -> None:
    trim = malloc_trim()
    assert trim is None or trim(0) in (0, 1)
