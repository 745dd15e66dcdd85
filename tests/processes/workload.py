"""Clients that write while servers fail, and what must be true afterwards of all that was acknowledged.

A write that failed with a lost connection may have happened, once. Everything else is certain: what was
acknowledged is there, once, and nothing is there that nobody wrote.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until

UNCERTAIN = (ConnectionLoss, OperationTimeoutError)
LOOK_S = 0.001
OPERATION_S = 30.0
"""Beyond it an operation counts as uncertain, and its client goes on."""


class Worker:
    """One client in one thread that repeats `step` until it is told to stop."""

    def __init__(self, client: KazooClient, name: str) -> None:
        self.client = client
        self.name = name
        self.done = 0
        self.uncertain = 0
        self.lost_in_a_row = 0
        self.lost_in_a_row_most = 0
        """Requests that had no answer, one after the other: 1 where each second try had one."""
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the step under way end, and raise what went wrong."""
        self._stop.set()
        wait_until(lambda: not self._thread.is_alive(), f"{self.name} to end its last step")
        self.raise_failure()

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self.step()
                    self.done += 1
                    self.lost_in_a_row = 0
                except UNCERTAIN:
                    self.uncertain += 1
                    self.lost_in_a_row += 1
                    self.lost_in_a_row_most = max(self.lost_in_a_row_most, self.lost_in_a_row)
                    self._wait_connected()
        except BaseException as error:
            # Raised in the test's own thread by `stop`.
            self.failure = error

    def _wait_connected(self) -> None:
        """Ask nothing of a connection that is lost: kazoo fails, unsent, what it is asked while it tells of the loss."""
        until = time.monotonic() + OPERATION_S
        while not (self.client.connected or time.monotonic() > until or self._stop.wait(LOOK_S)):
            pass

    def answer(self, asked: IAsyncResult) -> Any:
        """What a request is answered; an error that a server answers with is an answer."""
        try:
            found = asked.get(timeout=OPERATION_S)
        except UNCERTAIN:
            raise
        except KazooException:
            self.lost_in_a_row = 0
            raise
        self.lost_in_a_row = 0
        return found

    def step(self) -> None:
        raise NotImplementedError

    def check(self, reader: KazooClient) -> None:
        """Compare what `reader`'s server holds with what was acknowledged."""


class Sequencer(Worker):
    """Creates sequential znodes, each with a payload that nothing else has."""

    def __init__(self, client: KazooClient, name: str) -> None:
        super().__init__(client, name)
        self.acked: dict[str, str] = {}
        self.tried = 0

    def step(self) -> None:
        self.tried += 1
        payload = f"{self.name} {self.tried}"
        path = self.answer(
            self.client.create_async(f"/sequences/{self.name}-", payload.encode(), sequence=True)
        )
        assert path not in self.acked, f"{path} was acknowledged twice"
        self.acked[path] = payload

    def check(self, reader: KazooClient) -> None:
        mine = [f"/sequences/{n}" for n in reader.get_children("/sequences") if n.startswith(f"{self.name}-")]
        found = {path: reader.get(path)[0].decode() for path in mine}
        missing = self.acked.items() - found.items()
        assert not missing, f"{self.name}: acknowledged but lost: {sorted(missing)[:5]}"
        repeated = [payload for payload, times in Counter(found.values()).items() if times > 1]
        assert not repeated, f"{self.name}: created twice: {repeated[:5]}"
        assert len(found) <= len(self.acked) + self.uncertain, f"{self.name}: more znodes than creates"
        written = {f"{self.name} {n}" for n in range(1, self.tried + 1)}
        assert set(found.values()) <= written, f"{self.name}: a znode that nobody wrote"


class Setter(Worker):
    """Sets one znode to 1, 2, 3, … without looking."""

    def __init__(self, client: KazooClient, name: str) -> None:
        super().__init__(client, name)
        self.value = 0
        self.last_acked = 0
        client.create(f"/sets/{name}", b"0", makepath=True)

    def step(self) -> None:
        self.value += 1
        stat = self.answer(self.client.set_async(f"/sets/{self.name}", str(self.value).encode()))
        self.last_acked = self.value
        assert stat.version <= self.value, f"{self.name}: version {stat.version} after {self.value} sets"

    def check(self, reader: KazooClient) -> None:
        data, stat = reader.get(f"/sets/{self.name}")
        assert self.last_acked <= int(data) <= self.value, (
            f"{self.name}: {data!r}, acknowledged {self.last_acked}"
        )
        assert self.done <= stat.version <= self.done + self.uncertain, (
            f"{self.name}: {stat}, {self.done} acknowledged"
        )


class Adder(Worker):
    """Adds one to a znode shared by all adders, by compare and set; counts what was acknowledged."""

    PATH = "/count"

    def __init__(self, client: KazooClient, name: str) -> None:
        super().__init__(client, name)
        client.ensure_path(self.PATH)

    def step(self) -> None:
        while True:
            data, stat = self.answer(self.client.get_async(self.PATH))
            try:
                self.answer(
                    self.client.set_async(self.PATH, str(int(data or b"0") + 1).encode(), stat.version)
                )
                return
            except BadVersionError:
                continue


def check_count(adders: list[Adder], reader: KazooClient) -> int:
    """The shared count: every acknowledged addition is in it, and no more than were tried."""
    data, stat = reader.get(Adder.PATH)
    acked = sum(adder.done for adder in adders)
    assert int(data) == stat.version, f"compare and set went wrong: {data!r} at version {stat.version}"
    assert acked <= int(data) <= acked + sum(adder.uncertain for adder in adders), (
        f"{data!r}, {acked} acknowledged"
    )
    return int(data)


class Exclusive:
    """Notices two holders at a time; sound because no session of the workload is ever lost."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: str | None = None

    def enter(self, name: str) -> None:
        with self._mutex:
            assert self._holder is None, f"{name} holds together with {self._holder}"
            self._holder = name

    def leave(self) -> None:
        with self._mutex:
            self._holder = None


class Locker(Worker):
    """Takes kazoo's Lock, reads inside it, lets go."""

    def __init__(self, client: KazooClient, name: str, exclusive: Exclusive) -> None:
        super().__init__(client, name)
        self._exclusive = exclusive

    def step(self) -> None:
        lock = self.client.Lock("/lock", self.name)
        if not lock.acquire(timeout=OPERATION_S):
            raise OperationTimeoutError
        try:
            self._exclusive.enter(self.name)
            try:
                self.client.retry(self.client.get, Adder.PATH)
            finally:
                self._exclusive.leave()
        finally:
            lock.release()


class Candidate(Worker):
    """Runs for kazoo's Election, reads while leading, steps down."""

    def __init__(self, client: KazooClient, name: str, exclusive: Exclusive) -> None:
        super().__init__(client, name)
        self._exclusive = exclusive

    def step(self) -> None:
        self.client.Election("/election", self.name).run(self._lead)

    def _lead(self) -> None:
        self._exclusive.enter(self.name)
        try:
            self.client.retry(self.client.get, Adder.PATH)
        finally:
            self._exclusive.leave()


class Workers:
    """Some workers, of which each is held to all that it was told."""

    def __init__(self, cluster: Cluster, sessions: Sessions, workers: Sequence[Worker]) -> None:
        self.cluster = cluster
        self.sessions = sessions
        self.workers = list(workers)

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def wait_progress(self, steps: int = 3) -> None:
        """Until every single worker had `steps` more of its steps acknowledged."""
        before = {worker: worker.done for worker in self.workers}

        def progressed() -> bool:
            for worker in self.workers:
                worker.raise_failure()
            return all(worker.done >= before[worker] + steps for worker in self.workers)

        wait_until(progressed, f"{steps} acknowledged steps of every worker")

    @property
    def acknowledged(self) -> int:
        return sum(worker.done for worker in self.workers)

    @property
    def uncertain(self) -> int:
        return sum(worker.uncertain for worker in self.workers)

    @property
    def failed_twice(self) -> Mapping[str, int]:
        """Workers of which some request had no answer at its second try either, and how many followed each other.

        A client that loses its connection does not know what became of the request; it asks once more, on its next
        connection, which is to another server if the first is gone.
        """
        return {w.name: w.lost_in_a_row_most for w in self.workers if w.lost_in_a_row_most > 1}

    def stop_and_check(self) -> None:
        """Stop all workers, then hold every server, asked directly, to what was acknowledged."""
        for worker in self.workers:
            worker.stop()
        assert self.acknowledged > 10 * len(self.workers), "hardly anything was written"
        adders = [worker for worker in self.workers if isinstance(worker, Adder)]
        counts = set()
        for number in self.cluster.servers:
            with self.sessions.reading(number) as reader:
                for worker in self.workers:
                    worker.check(reader)
                counts.add(check_count(adders, reader))
        assert len(counts) == 1, f"servers show different counts: {counts}"
        assert self.sessions.lost == [], "sessions were lost that could have reconnected in time"
        self.cluster.wait_equal_digests()


class Workload(Workers):
    """Eleven clients over all servers, each at its own kind of work."""

    def __init__(self, cluster: Cluster, sessions: Sessions) -> None:
        setup = sessions.open(name="set-up")
        for path in ("/sequences", "/sets", "/lock", "/election"):
            setup.ensure_path(path)
        sessions.close_one(setup)
        lock, election = Exclusive(), Exclusive()
        makers: list[tuple[str, Callable[[KazooClient, str], Worker]]] = [
            *((f"sequencer {n}", Sequencer) for n in range(3)),
            *((f"setter {n}", Setter) for n in range(2)),
            *((f"adder {n}", Adder) for n in range(2)),
            *((f"locker {n}", lambda client, name: Locker(client, name, lock)) for n in range(2)),
            *((f"candidate {n}", lambda client, name: Candidate(client, name, election)) for n in range(2)),
        ]
        super().__init__(
            cluster,
            sessions,
            [
                make(sessions.open(first=place % len(cluster.servers) + 1, name=name), name.replace(" ", "-"))
                for place, (name, make) in enumerate(makers)
            ],
        )


__all__ = ["SessionExpiredError", "Worker", "Workers", "Workload"]
