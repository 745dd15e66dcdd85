"""Owns the vocabulary of directed schedules: a cluster in the simulator of which a test says, step by step, what happens.

Some bugs need one message late, one disk slow and one link cut in an order that hardly any seed rolls. It is written down
with a `Scene`: the shipped servers on a calm network, the checkers of every seed, and no adversary but the
test. Nothing in a scene waits for a fixed time: `until` names what is waited for, so a schedule does not move when
timings do.

    with Scene(servers=3) as scene:
        leader, second, third = scene.found()
        scene.cut(leader, [second, third])
        scene.until(lambda: second.leads or third.leads, "another leads")
        scene.heal()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, Self

from attrs import define, evolve, field

from tests.simulation.clients import SimulatedClient
from tests.simulation.process import Process
from tests.simulation.profile import Mode, roll
from tests.simulation.simulation import Simulation, scaled
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.raft.core import Raft
from zraft.raft.messages import AppendEntries
from zraft.server.coordination.expiry import SessionExpiry
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.errors import Code
from zraft_core.ids import COORDINATION_GROUP, ServerId
from zraft_core.znodes import txn
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE

SEED: Final = 0
"""Of what is still rolled: delays of a few milliseconds, election timeouts."""

PATIENCE_MS: Final = 4_000
"""Whatever a schedule waits for comes within a few elections, or never."""

WORK_MS: Final = 20_000

COMPACT_INTERVAL_MS: Final = 60
"""How often a server looks what of its log it may forget, as `tests.simulation.simulation.SCALED` has it."""

Change = tuple[int, int, str]


def joins(server: Process) -> Change:
    """That server is to vote."""
    return (server.server, PARTICIPANT, f"s{server.server}:2181")


def observes(server: Process) -> Change:
    """That server is to be a member without a vote."""
    return (server.server, OBSERVER, f"s{server.server}:2181")


def leaves(server: Process) -> Change:
    """That server is to be no member."""
    return (server.server, REMOVE, "")


def raft_of(server: Process) -> Raft:
    """The consensus core of a server that runs and belongs to the cluster."""
    assert server.driver is not None, f"S{server.server} does not run"
    assert server.driver.raft is not None, f"S{server.server} belongs to no cluster"
    return server.driver.raft


class NeverHappenedError(Exception):
    """What a directed schedule waits for did not come: it no longer shows what it was written for."""


@define(eq=False)
class Held:
    """Messages of some kinds between some servers, kept back until they are released."""

    kinds: tuple[type[PeerMessage], ...]
    sender: ServerId | None
    to: ServerId | None
    messages: list[tuple[Sender, ServerId, PeerMessage]] = field(factory=list)

    def takes(self, sender: Sender, to: ServerId, message: PeerMessage) -> bool:
        """Keep this message, if it is one of those."""
        if (
            not isinstance(message, self.kinds)
            or self.sender not in (None, sender.server)
            or self.to not in (None, to)
        ):
            return False
        self.messages.append((sender, to, message))
        return True


class Scene:
    """One directed run. Times are milliseconds of simulated time.

    Args:
        servers: how many found the cluster; three more stand ready (`spare`).
        clients: how many are connected; they ask for nothing by themselves but pings.
        features: the feature level that each of the founders knows.
        profile: any other field of `tests.simulation.profile.Profile`.
    """

    def __init__(
        self,
        servers: int = 3,
        *,
        clients: int = 1,
        features: tuple[int, ...] = (FEATURE_LEVEL_MAX,) * 5,
        seed: int = SEED,
        trace: bool = False,
        **profile: Any,
    ) -> None:
        calm = {**CALM, "servers": servers, "clients": clients, "features": features, **profile}
        self.simulation = simulation = Simulation(
            seed, profile=evolve(roll(seed, Mode.ALL), **calm), trace=trace
        )
        simulation.adversary.active = simulation.natives.active = False
        self.network = simulation.network
        self.schedule = simulation.schedule
        self.processes = simulation.processes
        self.spare: Sequence[Process] = simulation.processes[servers:]
        self.clients: Sequence[SimulatedClient] = simulation.clients
        for client in self.clients:
            client.busy = False
        self._founders = simulation.processes[:servers]
        self._held: list[Held] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(scaled())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # -- time

    def run(self, duration_ms: int) -> None:
        """Let it go on for a while."""
        self.schedule.run_until(self.schedule.now_ms + duration_ms)

    def until(self, happened: Callable[[], bool], what: str, within_ms: int = PATIENCE_MS) -> None:
        """Go on to the very step after which `happened` is true.

        Raises:
            NeverHappenedError: it did not become true in time; `what` names it.
        """
        end_ms = self.schedule.now_ms + within_ms
        while not happened():
            if self.schedule.now_ms >= end_ms:
                raise NeverHappenedError(f"not within {within_ms} ms: {what}")
            self.schedule.step()

    # -- the cluster

    def found(self) -> list[Process]:
        """Found the cluster, up to where it is written down who is wanted. Its servers, the leader first."""
        self.simulation.boot_founders()
        self.until(
            lambda: bool(self.simulation.history.wanted) and all(client.idle for client in self.clients),
            "the founders are members, the clients connected",
        )
        return self.leader_first()

    def begin(self) -> None:
        """Start the founders, and wait for nothing."""
        self.simulation.boot_founders()

    def leader_first(self) -> list[Process]:
        """The founders; who leads in the newest term comes first."""
        return sorted(
            self._founders, key=lambda server: (-raft_of(server).term * server.leads, server.server)
        )

    def start(self, server: Process) -> None:
        """Start a server that was never started, or is down."""
        server.in_service = True
        server.boot()

    def replace_disk(self, server: Process) -> None:
        """The disk is lost; the same command starts the server with an empty one."""
        server.crash()
        server.wipe()
        server.boot()

    def stall_disks(self, *servers: Process) -> None:
        """The logs of exactly these servers make nothing durable until further notice."""
        for server in self.processes:
            server.log_waits = server in servers

    def sleep(self, duration_ms: int) -> None:
        """The machine on which everything runs, clients too, sleeps for so long, and all wake together."""
        self.simulation.adversary.stop_all(duration_ms)
        self.run(duration_ms)

    def ask(self, by: Process, *changes: Change) -> None:
        """An operator asks a server for these changes of who is wanted, all in one command, and is told that they are."""
        assert by.driver is not None
        answers: list[object] = []
        by.driver.submit((txn.MEMBERS, False, -1, changes), answers.append)
        by.wake()
        self.until(lambda: len(answers) > 0, f"the answer to {changes}")
        assert answers[0] is Code.OK or not isinstance(answers[0], Code), f"{changes}: {answers[0]!r}"

    def hand_over(self, leader: Process, to: Process) -> None:
        """The leader is asked to let another server lead."""
        assert raft_of(leader).transfer_leadership(to.server), f"S{leader.server} refuses to hand over"
        leader.wake()

    def applied(self, server: Process) -> int:
        """The last entry that a server has applied; 0 if it does not run."""
        return server.driver.applied_index if server.driver is not None else 0

    def settled(self, but: Process | None = None) -> bool:
        """Nothing is under way: the members are as wanted, and all (`but` one) have applied all that is committed."""
        history = self.simulation.history
        committed = len(self.simulation.raft_checks.committed) - 1
        configuration = self.simulation.raft_checks.newest_configuration()
        if configuration is None or configuration.joint or set(configuration.members) != set(history.wanted):
            return False
        voters = {server for server, (votes, _) in history.wanted.items() if votes}
        if {server for server, _ in configuration.voters} != voters:
            return False
        return all(
            self.applied(server) >= committed
            for server in self.processes
            if server.server in configuration.members and server is not but
        )

    # -- snapshots

    def snapshot(self, server: Process) -> None:
        """An operator asks a server for a snapshot."""
        assert server.driver is not None
        server.driver.snapshots.keeper.request()
        server.wake()

    def restored(self, server: Process) -> bool:
        """Whether a server took another's state over since it started."""
        return server.driver is not None and server.driver.snapshots.restored_total > 0

    def receives(self, server: Process) -> bool:
        """Whether another's state is on its way to a server."""
        return server.driver is not None and COORDINATION_GROUP in server.driver.snapshots.receiver

    def leave_behind(self, server: Process, leader: Process) -> None:
        """That server is cut off until the leader has forgotten the log after its end.

        The first client writes meanwhile, so it must not be at that server.
        """
        self.cut(server, [other for other in self.processes if other is not server])
        self._outgrow(server, leader)

    def starve(self, server: Process, leader: Process) -> Held:
        """The same, but it stays in contact, and keeps its clients: it only gets no entries, which are returned."""
        entries = self.hold(AppendEntries, to=server)
        self._outgrow(server, leader)
        return entries

    def _outgrow(self, server: Process, leader: Process) -> None:
        end = raft_of(server).log.last_index
        assert leader.driver is not None
        keeper = leader.driver.snapshots.keeper
        while raft_of(leader).log.first_index <= end + 1:
            taken = keeper.taken_total
            self.work(20, self.clients[:1])
            self.snapshot(leader)
            self.until(lambda taken=taken: keeper.taken_total > taken, "the leader writes a snapshot")  # type: ignore[misc]
            self.until(lambda: not keeper.writing, "it is done")
            self.run(2 * COMPACT_INTERVAL_MS)

    # -- the network

    def cut(self, one: Process | Sequence[Process], others: Process | Iterable[Process]) -> None:
        """Nothing passes between these any more, in neither direction; what is on its way is lost."""
        ones = [one] if isinstance(one, Process) else one
        others = [others] if isinstance(others, Process) else others
        pairs = [(a.server, b.server) for a in ones for b in others]
        self.network.cut(pairs + [(b, a) for a, b in pairs])

    def join(self) -> None:
        """All links work again."""
        self.network.cuts.clear()

    def hold(
        self, *kinds: type[PeerMessage], sender: Process | None = None, to: Process | None = None
    ) -> Held:
        """Keep back messages of these kinds, between these servers if they are named."""
        held = Held(kinds, None if sender is None else sender.server, None if to is None else to.server)
        self._held.append(held)
        self.network.gate = self._passes
        return held

    def release(self, held: Held, *, lose: bool = False) -> None:
        """What was kept back arrives, in order, or is lost; what follows passes."""
        self._held.remove(held)
        for sender, to, message in () if lose else held.messages:
            self.network.send(sender, to, [message])

    def _passes(self, sender: Sender, to: ServerId, message: PeerMessage) -> bool:
        return not any(held.takes(sender, to, message) for held in self._held)

    # -- clients

    def connect(self, client: SimulatedClient, server: Process) -> None:
        """The client moves its session to that server, and stays there."""
        connections = client.connections
        client.stay_at(server)
        client.drop()
        self.until(
            lambda: client.connections > connections and client.idle,
            f"C{client.number} reaches S{server.server}",
        )

    @contextmanager
    def busy(self, clients: Sequence[SimulatedClient] | None = None) -> Iterator[None]:
        """Inside, clients (all, unless named) ask for all kinds of things."""
        busy = self.clients if clients is None else clients
        for client in busy:
            client.busy = True
        yield
        for client in busy:
            client.busy = False

    def is_suspected(self, leader: Process, session: int) -> bool:
        """Whether the leader has asked its quorum before it proposes the end of a session (D-11)."""
        return session in self._expiry(leader)._suspects

    def is_to_end(self, leader: Process, session: int) -> bool:
        """Whether the leader has proposed the end of a session, and it is not applied yet."""
        return session in self._expiry(leader)._proposed

    @staticmethod
    def _expiry(leader: Process) -> SessionExpiry:
        assert leader.driver is not None
        assert leader.driver.leadership is not None
        return leader.driver.leadership.expiry

    def doze(self, client: SimulatedClient, duration_ms: int) -> None:
        """The client's machine sleeps with its clock: nothing is sent, and it knows nothing of the time."""
        client.pause(self.schedule.now_ms + duration_ms)
        client.excuse(duration_ms)

    def work(self, entries: int, clients: Sequence[SimulatedClient] | None = None) -> None:
        """Clients are busy until so many entries more are committed."""
        goal = len(self.simulation.raft_checks.committed) + entries
        with self.busy(clients):
            self.until(
                lambda: len(self.simulation.raft_checks.committed) >= goal, f"{entries} entries more", WORK_MS
            )

    # -- the end

    def heal(self) -> None:
        """Everything works from now on, and must make progress: the second phase of every seed's run."""
        for held in list(self._held):
            self.release(held)
        self.stall_disks()
        self.simulation.heal()


CALM: Final[dict[str, Any]] = {
    "gentle": False,
    "loss": 0.0,
    "duplicate": 0.0,
    "late": 0.0,
    "reorder": 0.0,
    "delay_ms_max": 2,
    "fsync_ms_max": 1,
    "slow_fsync": 0.0,
    "snipe": 0.0,
    "think_ms_max": 20,
    "burst_max": 2,
    "batches_in_flight": 1,
    "entries_in_flight": 1,
    "wipes": False,
    "fragment": False,
    "read_only_mode": False,
    "quota_enforced": False,
    "snapshot_bytes": 10_000_000,
    "snapshot_commands": 1_000_000,
    "snapshot_keep": 3,
    "retain_bytes": 0,
    "retain_bytes_max": 100_000,
    "operators": False,
    "disk_faults": False,
    "asking_again_share_min": 0.75,
    "put_off_ms": 3,
}
"""Nothing goes wrong by itself, and no snapshot is due: each schedule says what is to be otherwise."""
