"""The blocking client: threads, a running loop in the caller's thread, forks, its end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.conftest import ClusterThread
from tests.client.fake import Fault
from zraft_client import (
    BlockingClient,
    Client,
    ClientError,
    ClosedError,
    ConnectionState,
    EncodingError,
    ForkedError,
    NoNodeError,
    NotSentError,
    UnknownOutcomeError,
    requests,
)
from zraft_client.api import AsyncCalls
from zraft_client.blocking_api import BlockingCalls
from zraft_client.recipes import Counter

DEADLINE_S = 20.0


def test_it_has_the_calls_of_the_asyncio_client_with_their_parameters_and_docstrings() -> None:
    calls = [name for name in vars(AsyncCalls) if not name.startswith("_")]
    assert len(calls) > 20
    for name in calls:
        theirs, ours = getattr(AsyncCalls, name), getattr(BlockingCalls, name)
        assert ours.__doc__ == theirs.__doc__, name
        assert not inspect.iscoroutinefunction(ours), name
        if callable(theirs):
            assert inspect.signature(ours) == inspect.signature(theirs), name


def test_calls_of_many_threads_are_each_answered_their_own(fake: ClusterThread) -> None:
    with BlockingClient(fake.hosts) as client:
        found: dict[int, list[int]] = {}

        def work(number: int) -> None:
            found[number] = [client.increment(number).value for _ in range(50)]

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert found == {n: list(range(1, 51)) for n in range(8)}
        assert client.statistics().connections == 1


def test_it_works_where_the_callers_thread_runs_a_loop_as_in_a_notebook(fake: ClusterThread) -> None:
    async def cell() -> int:
        with BlockingClient(fake.hosts) as client:
            client.put("k", 7)
            found = client.get("k")
            assert found is not None
            return int(found.value)

    assert asyncio.run(cell()) == 7


def test_errors_are_raised_in_the_callers_thread(fake: ClusterThread) -> None:
    with BlockingClient(fake.hosts) as client:
        with pytest.raises(NoNodeError):
            client.delete("none")
        with pytest.raises(EncodingError):
            client.put("k", {1, 2})
        fake.do(lambda cluster: cluster.fault("put", Fault.SILENCE))
        with pytest.raises(UnknownOutcomeError):
            client.within(0.1).put("k", 1)
        first, second = client.ask_all([requests.put("default", n, n) for n in (1, 2)])
        assert second.position > first.position
        with pytest.raises(NoNodeError):
            client.ask_all([requests.delete("default", n, None) for n in (1, "none", 2)])
        assert client.size() == 0, "the others were carried out"


def test_coroutines_over_the_asyncio_client_run_in_its_thread(fake: ClusterThread) -> None:
    async def count(client: Client) -> int:
        counter = Counter(client, "n")
        await asyncio.gather(*(counter.increment() for _ in range(10)))
        return await counter.value()

    with BlockingClient(fake.hosts) as client:
        assert client.run(count) == 10


def test_states_are_told_and_waited_for(fake: ClusterThread) -> None:
    with BlockingClient(fake.hosts) as client:
        states: list[ConnectionState] = []
        remove = client.add_listener(states.append)
        assert client.state is ConnectionState.CONNECTED
        fake.do(lambda cluster: cluster.cut())
        client.put("k", 1)
        assert client.wait_state(ConnectionState.CONNECTED, timeout_s=DEADLINE_S) is ConnectionState.CONNECTED
        assert states == [ConnectionState.SUSPENDED, ConnectionState.CONNECTED]
        remove()
        with pytest.raises(TimeoutError):
            client.wait_state(ConnectionState.EXPIRED, timeout_s=0.01)


def test_a_call_from_its_own_thread_is_refused_instead_of_waiting_for_itself(fake: ClusterThread) -> None:
    with BlockingClient(fake.hosts) as client, pytest.raises(ClientError, match="own thread"):
        client.run_soon(lambda _: client.get("k"))


def test_what_waits_when_it_is_closed_ends_and_later_calls_are_refused(fake: ClusterThread) -> None:
    client = BlockingClient(fake.hosts)
    fake.do(lambda cluster: cluster.fault("put", Fault.SILENCE))
    errors: list[ClientError] = []

    def wait() -> None:
        try:
            client.put("k", 1)
        except ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while "put" not in fake.requests():
        pass
    client.close()
    thread.join(DEADLINE_S)
    assert [type(error) for error in errors] == [UnknownOutcomeError]
    assert fake.do(lambda cluster: cluster.sessions) == {}
    with pytest.raises(ClosedError):
        client.put("k", 1)
    client.close()


def test_an_interrupt_ends_the_wait_and_gives_the_call_up(fake: ClusterThread) -> None:
    # Who runs the tests in the background of a shell has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with BlockingClient(fake.hosts) as client:
        fake.do(lambda cluster: cluster.fault("put", Fault.SILENCE))

        def interrupt() -> None:
            while "put" not in fake.requests():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            client.put("k", 1)
        interrupting.join(DEADLINE_S)
        assert client.statistics().unsettled == 0
        assert client.put("k", 2).version == 0
    signal.signal(signal.SIGINT, before)


def test_one_that_was_let_go_ends_its_session_and_its_thread(fake: ClusterThread) -> None:
    client = BlockingClient(fake.hosts)
    assert fake.do(lambda cluster: len(cluster.sessions)) == 1
    del client
    gc.collect()
    assert fake.do(lambda cluster: cluster.sessions) == {}
    assert "zraft client" not in [thread.name for thread in threading.enumerate()]


def test_when_no_server_takes_it_making_one_fails_and_leaves_no_thread() -> None:
    with pytest.raises(NotSentError):
        BlockingClient("127.0.0.1:1", timeout_s=0.1)
    assert "zraft client" not in [thread.name for thread in threading.enumerate()]


def in_child(act: Callable[[], bool]) -> bool:
    """Whether `act` was true in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if act() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_is_told_to_open_its_own_and_the_parents_goes_on(fake: ClusterThread) -> None:
    with BlockingClient(fake.hosts) as client:
        client.put("k", "parent")

        def use_the_parents() -> bool:
            try:
                client.get("k")
            except ForkedError as error:
                client.close()  # touches nothing
                gc.collect()
                return "open a new client" in str(error)
            return False

        def use_an_own_one() -> bool:
            with BlockingClient(fake.hosts) as own:
                found = own.get("k")
                return found is not None and found.value == "parent"

        assert in_child(use_the_parents)
        assert in_child(use_an_own_one)
        assert client.put("k", "still").version == 1
        statistics = client.statistics()
        assert (statistics.connections, statistics.sessions) == (1, 1)


def test_a_forked_child_keeps_no_share_of_the_connection(fake: ClusterThread) -> None:
    """Else the server would not see the parent's end as long as the child lives."""
    with BlockingClient(fake.hosts) as client:
        descriptor = client.run_soon(lambda one: one.descriptor)
        socket_before = os.readlink(f"/proc/self/fd/{descriptor}")
        assert socket_before.startswith("socket:")
        assert in_child(lambda: os.readlink(f"/proc/self/fd/{descriptor}") == "/dev/null")
        assert os.readlink(f"/proc/self/fd/{descriptor}") == socket_before


PROGRAM = """
import sys
from zraft_client import BlockingClient
client = BlockingClient(sys.argv[1])
client.create("/mine", ephemeral=True)
print("made")
"""


def test_a_program_that_just_ends_ends_its_session(fake: ClusterThread) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, fake.hosts],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "client")))},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")
    assert fake.do(lambda cluster: (cluster.sessions, list(cluster.nodes))) == ({}, ["/"])
