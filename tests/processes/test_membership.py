"""Members that come, go and are replaced while clients write (D-1, D-18).

The fast ones; replacing all servers under load and bad networks: `test_membership_long.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, BadVersionError, NoAuthError

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, Server, free_ports, wait_until
from tests.processes.members import GrowingCluster, Load
from zraft.cli.status import ask
from zraft.server.clients.authentication.proofs import digest_id

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

StartCluster = Callable[..., GrowingCluster]
OpenSessions = Callable[[Cluster], Sessions]

SMALL_SNAPSHOTS = {
    "ZRAFT_SNAPSHOT__COMMANDS_MIN": "1000",
    "ZRAFT_SNAPSHOT__LOG_BYTES_MIN": "65536",
    "ZRAFT_SNAPSHOT__LOG_RATIO_PERCENT": "1",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES": "0",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES_MAX": "0",
}


@pytest.fixture
def growing(start_cluster: StartCluster) -> GrowingCluster:
    """Three servers with default settings."""
    return start_cluster(kind=GrowingCluster)


def follower_of(cluster: GrowingCluster) -> int:
    leader = wait_until(cluster.leader, "a leader")
    return next(number for number in cluster.servers if number != leader)


def config_of(client: KazooClient) -> list[str]:
    """The lines of /zookeeper/config without the version."""
    data: bytes = client.get("/zookeeper/config")[0]
    return data.decode().splitlines()[:-1]


def test_a_server_whose_directory_was_deleted_is_let_in_again_and_votes(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    """The same command as before, on an empty directory; its vote is proved by a majority that needs it (D-1)."""
    load = Load(growing, open_sessions(growing))
    lost = follower_of(growing)
    before = growing.listing()[lost].instance
    growing.kill(lost)
    growing.wipe(lost)
    load.wait_progress()
    growing.start(lost)
    growing.wait_replaced(lost, before)
    other = next(n for n in growing.servers if n not in (lost, growing.leader()))
    growing.kill(other)
    load.wait_progress()  # needs the vote of the server that was lost
    growing.start(other)
    growing.wait_ready()
    load.stop_and_check()


def test_an_emptied_founder_is_let_in_by_a_leader_that_its_own_list_does_not_name(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    """Nobody edits the list that a server was first started with; the leader was added since."""
    load = Load(growing, open_sessions(growing))
    growing.place(4)
    growing.start(4)
    growing.add(4)
    growing.wait_roles(voters=[1, 2, 3, 4])
    growing.transfer(4)
    assert wait_until(growing.leader, "a leader") == 4
    before = growing.listing()[2].instance
    growing.kill(2)
    growing.wipe(2)
    growing.start(2)
    growing.wait_replaced(2, before)
    assert growing.leader() == 4, "another leader, which is on the list, let it in"
    load.follow()
    load.wait_progress()
    load.stop_and_check()


def test_what_the_log_no_longer_holds_reaches_a_lost_server_as_a_snapshot(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """D-4."""
    growing = start_cluster(kind=GrowingCluster, **SMALL_SNAPSHOTS)
    sessions = open_sessions(growing)
    load = Load(growing, sessions)
    lost = follower_of(growing)
    before = growing.listing()[lost].instance
    growing.kill(lost)
    growing.wipe(lost)
    with sessions.reading(growing.leader() or 1) as client:
        client.ensure_path("/filling")

        def log_begins_later() -> bool:
            pending = [client.create_async("/filling/n-", b"x" * 100, sequence=True) for _ in range(500)]
            for one in pending:
                one.get(timeout=30)
            firsts = [growing.status(n)["raft"]["first_index"] for n in growing.running()]
            return all(first > 1 for first in firsts)

        wait_until(log_begins_later, "the logs to begin after a snapshot")
    growing.start(lost)
    growing.wait_replaced(lost, before)
    assert growing.status(lost)["raft"]["first_index"] > 1, "it got the log from the first entry on"
    load.stop_and_check()


def test_servers_are_added_before_and_after_they_are_started(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    """Five of them then work with any three; one that nobody added yet says what it waits for."""
    load = Load(growing, open_sessions(growing))
    growing.place(4)
    added = growing.zraft("member", "add", "4", str(growing.servers[4].address))
    assert added.returncode == 0, added.stderr
    shown = growing.zraft("member", "list")
    assert str(growing.servers[4].address) in shown.stdout, shown
    growing.start(4)
    early = growing.place(5)
    growing.start(5)
    early.wait_says("zraft member add 5 ")
    assert growing.ask(5, "ruok") == "imok"
    assert growing.mntr(5) is None
    growing.add(5)
    growing.wait_roles(voters=[1, 2, 3, 4, 5])
    load.follow()
    stopped = [growing.leader() or 1, follower_of(growing)]
    for number in stopped:
        growing.kill(number)
    load.wait_progress()  # three of five, of which at least one was added
    for number in stopped:
        growing.start(number)  # with the --cluster of three that they had before
    growing.wait_ready()
    load.stop_and_check()


def test_removed_servers_know_it_and_disturb_nobody(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    """A follower and the leader; they go on running, and no election follows from that (D-18)."""
    for number in (4, 5):
        growing.place(number)
        growing.start(number)
        growing.add(number)
    growing.wait_roles(voters=[1, 2, 3, 4, 5])
    load = Load(growing, open_sessions(growing))
    load.follow()
    follower = follower_of(growing)
    growing.remove(follower)
    removed = growing.retire(follower)
    load.follow()
    growing.wait_roles(voters=sorted(growing.servers))
    removed.wait_says("was removed from the cluster")

    leader = wait_until(growing.leader, "a leader")
    growing.remove(leader)
    gone = growing.retire(leader)
    load.follow()
    growing.wait_roles(voters=sorted(growing.servers))
    gone.wait_says("was removed from the cluster")
    for server in (removed, gone):
        assert server.running
        assert "removed" in str(growing.status(server.number)["reasons"])
        assert "level=error" not in server.log_text(), "it was an operator's wish"
        assert "not currently serving" in ask(server.address, "mntr", 5.0)
    terms = []
    for _ in range(4):
        terms.append(growing.term())
        threading.Event().wait(3.0)  # several election timeouts, in which they could stand for election
        load.wait_progress()
        if growing.term() == terms[-1]:
            break
        # A busy machine can cost an election, too; one who disturbs does so again and again.
    else:
        raise AssertionError(f"removed servers make the others elect anew: terms {terms}")
    load.stop_and_check()


def test_observers_serve_but_do_not_vote_until_they_are_promoted(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    sessions = open_sessions(growing)
    growing.place(4)
    growing.add(4, observer=True)
    growing.start(4)
    growing.wait_roles(voters=[1, 2, 3], observers=[4])
    with sessions.reading(4) as client:
        client.create("/through-the-observer", b"written")
        assert client.get("/through-the-observer")[0] == b"written"
        assert f"server.4={growing.servers[4].address}".rpartition(":")[0] in "\n".join(config_of(client))
        assert "observer" in next(line for line in config_of(client) if line.startswith("server.4="))
    assert (growing.mntr(4) or {})["server_state"] == "observer"
    leader = wait_until(growing.leader, "a leader")
    others = [n for n in (1, 2, 3) if n != leader]
    for number in others:
        growing.kill(number)
    wait_until(lambda: growing.mntr(leader) is None, "the leader to notice that an observer is no quorum")
    for number in others:
        growing.start(number)
    growing.wait_ready()

    growing.promote(4)
    growing.wait_roles(voters=[1, 2, 3, 4])
    demoted = follower_of(growing)
    growing.add(demoted, observer=True)
    growing.wait_roles(voters=[n for n in growing.servers if n != demoted], observers=[demoted])
    with sessions.reading(demoted) as client:
        assert client.get("/through-the-observer")[0] == b"written"
        client.set("/through-the-observer", b"again")
    growing.wait_equal_digests()


def test_a_server_moves_by_a_verb_of_its_own_and_is_not_moved_by_a_mistyped_number(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    number = follower_of(growing)
    server = growing.servers[number]
    mistyped = growing.zraft("member", "add", str(number), f"127.0.0.1:{free_ports(1)[0]}")
    assert mistyped.returncode == 1
    assert f"server {number} is a member at {server.address}" in mistyped.stderr, mistyped
    again = growing.zraft("member", "add", str(number), str(server.address))
    assert (again.returncode, again.stdout) == (0, f"server {number} is there already, at {server.address}\n")

    growing.kill(number)
    before = growing.move(number)
    growing.start(number)
    server.wait_says(
        f"starts at {server.address}", f"is recorded at {before}", f"zraft member move {number} "
    )
    moved = growing.zraft("member", "move", str(number), str(server.address))
    assert moved.returncode == 0, moved.stderr
    growing.wait_roles(voters=[1, 2, 3])
    assert growing.listing()[number].address == str(server.address)
    with open_sessions(growing).reading(number) as client:
        assert f"server.{number}={server.address}:" in "\n".join(config_of(client))


def test_the_leadership_is_handed_to_whom_the_operator_names(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    load = Load(growing, open_sessions(growing))
    target = follower_of(growing)
    growing.transfer(target)
    assert wait_until(growing.leader, "a leader") == target
    growing.transfer()
    assert wait_until(growing.leader, "a leader") != target
    load.wait_progress()
    load.stop_and_check()


def test_all_servers_start_again_with_the_lists_they_were_founded_with(growing: GrowingCluster) -> None:
    """What the log says of the members counts, not the flags of the first day; after removals, too."""
    growing.place(4)
    growing.start(4)
    growing.add(4)
    growing.wait_roles(voters=[1, 2, 3, 4])
    growing.remove(1)
    gone = growing.retire(1)
    growing.wait_roles(voters=[2, 3, 4])
    for number in growing.servers:
        growing.kill(number)
    growing.end(gone)
    for number in growing.servers:
        growing.start(number)
    growing.wait_ready()
    growing.wait_roles(voters=[2, 3, 4])
    growing.wait_equal_digests()


def test_one_server_grows_to_three_and_keeps_its_data(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """Elsewhere two empty servers were known to outvote the one with the data."""
    growing = start_cluster(kind=GrowingCluster, servers=1)
    sessions = open_sessions(growing)
    load = Load(growing, sessions)
    for number in (2, 3):
        growing.place(number)
        growing.start(number)
        growing.add(number)
        growing.wait_roles(voters=range(1, number + 1))
    load.follow()
    load.wait_progress()
    growing.kill(1)
    wait_until(growing.leader, "one of the new servers to lead")
    load.wait_progress()
    growing.start(1)
    growing.wait_ready()
    load.stop_and_check()


def test_an_empty_server_with_the_number_of_a_running_one_is_refused_and_told(
    growing: GrowingCluster,
) -> None:
    """It may be somebody's mistake in a unit file; the server that has the number goes on undisturbed."""
    twin_of = follower_of(growing)
    before = growing.listing()[twin_of].instance
    twin = Server(twin_of, growing.directory / "twin", *growing.free_addresses(1))
    twin.log.parent.mkdir()
    process = growing.run_at(twin)
    twin.wait_says("have not answered")
    others = [server for number, server in growing.servers.items() if number != twin_of]
    for server in others:
        server.wait_says(f"claims to be server {twin_of}")
    assert process.poll() is None
    assert growing.listing()[twin_of].instance == before
    term = growing.term()
    growing.wait_ready()
    assert growing.term() == term


class ObservedCluster(GrowingCluster):
    """The last of its servers is an observer from the start."""

    def _place(self, count: int) -> None:
        super()._place(count)
        listed = ",".join(f"{n}={s.address}" for n, s in self.servers.items()) + ":observer"
        self._lists = dict.fromkeys(self.servers, listed)


def test_listed_observers_are_taken_in_when_the_others_have_founded_the_cluster(
    start_cluster: Callable[..., ObservedCluster], open_sessions: OpenSessions
) -> None:
    observed = start_cluster(kind=ObservedCluster, servers=4)
    observed.wait_roles(voters=[1, 2, 3], observers=[4])
    with open_sessions(observed).reading(4) as client:
        client.create("/through-the-observer")
    observed.kill(4)
    observed.wipe(4)  # an observer may lose its disk, too
    observed.start(4)
    observed.wait_ready()
    observed.wait_equal_digests()


def test_clients_change_the_members_by_reconfig(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """As kazoo's own tests of it do, and with a server that is really there in the end."""
    growing = start_cluster(
        kind=GrowingCluster,
        servers=1,
        ZRAFT_CLIENT__RECONFIG_ENABLED="true",
        ZRAFT_AUTH__SUPER_DIGEST=digest_id(b"super:test"),
    )
    sessions = open_sessions(growing)
    growing.wait_roles(voters=[1])
    client = sessions.open(name="operator")
    wait_until(lambda: client.get("/zookeeper/config")[0], "the founder to be written down")
    joined = growing.place(2)
    joining = f"server.2={joined.address.host}:2888:3888;{joined.address.port}"
    with pytest.raises(NoAuthError):
        client.reconfig(joining=joining, leaving=None, new_members=None)
    with pytest.raises(BadArgumentsError):
        client.reconfig(joining="some thing", leaving=None, new_members=None)
    client.add_auth("digest", "super:test")
    told = threading.Event()
    client.get("/zookeeper/config", watch=lambda event: told.set())
    growing.start(2)
    data, stat = client.reconfig(joining=joining, leaving=None, new_members=None)
    assert f"server.2={joined.address}" in data.decode()
    assert told.wait(10), "who watches the configuration was not told"
    assert int(data.decode().rpartition("version=")[2], 16) == stat.mzxid
    with pytest.raises(BadVersionError):
        client.reconfig(joining=joining, leaving=None, new_members=None, from_config=stat.mzxid + 1)
    growing.wait_roles(voters=[1, 2])
    shown = growing.shell("config")
    assert f"server.2={joined.address}" in shown.stdout, shown
    refused = growing.shell("reconfig", "-remove", "2")
    assert refused.returncode == 1
    assert "NO_AUTH" in refused.stderr, refused
    data, _ = client.reconfig(joining=None, leaving="1", new_members=None)
    growing.retire(1)
    client.set_hosts(growing.hosts())
    growing.wait_roles(voters=[2])
    assert "server.1=" not in data.decode()
