"""What operators and their tools rely on, shown by real servers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from tests.processes.cluster import Cluster, wait_until
from tests.traps.protocol import (
    CLOSE,
    EPHEMERAL,
    NO_AUTH,
    OK,
    R,
    auth,
    create,
    delete,
    exists,
    get_data,
    set_acl,
    set_data,
)
from tests.traps.tcp import TIMEOUT_MS, TcpPeer, four_letter_word

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
"""What ZooKeeper's DigestAuthenticationProvider prints for super:test."""

WORDS = "envi,mntr,ruok,srvr,wchp"
"""Not by default: wchp, since it shows paths to everybody; by default, and left out here: conf."""

EPHEMERALS = 10_000
PING_S_MAX = TIMEOUT_MS / 3_000
"""A third of the session timeout, at which clients give a connection up; on an idle machine it takes milliseconds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers that know a super user and other words than by default; no test here harms them."""
    knobs = {"ZRAFT_AUTH__SUPER_DIGEST": SUPER_DIGEST, "ZRAFT_CLIENT__FOUR_LETTER_WORDS": WORDS}
    with Cluster(tmp_path_factory.mktemp("traps"), env=knobs) as cluster:
        cluster.start_all()
        yield cluster


def test_words_have_the_lines_that_tools_look_for(cluster: Cluster) -> None:
    """Trap 37: envi's zookeeper.version, srvr's Mode, mntr's zk_name, tab, value; each ends the connection."""
    modes = []
    for server in cluster.servers.values():
        envi = four_letter_word(server.address, b"envi").decode()
        assert envi.startswith("Environment:\n")
        # kazoo's server_version() reads the numbers in front of the first dash.
        assert re.search(r"^zookeeper\.version=3\.9\.\d+-\S*", envi, re.MULTILINE), envi
        srvr = four_letter_word(server.address, b"srvr").decode()
        # zkServer.sh status takes what stands behind "Mode: ".
        modes += re.findall(r"^Mode: (.*)$", srvr, re.MULTILINE)
        version, *numbers = srvr.splitlines()
        assert re.fullmatch(r"Zookeeper version: 3\.9\.\d+-\S+, built on unknown", version)
        for line, pattern in zip(
            numbers,
            (
                r"Latency min/avg/max: \d+/\d+\.\d+/\d+",
                r"Received: \d+",
                r"Sent: \d+",
                r"Connections: \d+",
                r"Outstanding: \d+",
                r"Zxid: 0x[0-9a-f]+",
                r"Mode: (leader|follower)",
                r"Node count: \d+",
                r"Proposal sizes last/min/max: -?\d+/-?\d+/-?\d+",
            ),
            strict=False,
        ):
            assert re.fullmatch(pattern, line)
        assert len(numbers) == (9 if "Mode: leader" in numbers else 8)
        mntr = four_letter_word(server.address, b"mntr").decode()
        assert mntr.endswith("\n")
        lines = [re.fullmatch(r"zk_([A-Za-z0-9_]+)\t(\S.*)", line) for line in mntr.splitlines()]
        assert all(lines), mntr
        values = {found[1]: found[2] for found in lines if found is not None}
        assert len(values) == len(lines), "no name twice"
        assert values["server_state"] == modes[-1]
        assert values["version"].startswith("3.9.")
        for name in ("znode_count", "num_alive_connections", "outstanding_requests", "ephemerals_count"):
            assert values[name].isdigit()
    assert sorted(modes) == ["follower", "follower", "leader"]


def test_super_user_and_allowed_words_are_what_the_operator_configured(cluster: Cluster) -> None:
    """Trap 38: superDigest passes every ACL and nobody else does; other words get the refusal that tools know."""
    address = cluster.servers[1].address
    shut = [(R, "ip", "10.9.8.7")]
    with TcpPeer(address) as user, TcpPeer(address) as admin:
        assert user.ask(create("/shut", b"x", acl=shut))[0].err == OK
        refused = [get_data("/shut"), set_data("/shut"), set_acl("/shut", shut)]
        assert [a.err for a in user.ask(*refused)] == [NO_AUTH] * 3
        assert [a.err for a in user.ask(auth("digest", b"super:guess"), get_data("/shut"))] == [OK, NO_AUTH]
        assert [a.err for a in admin.ask(auth("digest", b"super:test"), *refused)] == [OK] * 4
        assert admin.ask(delete("/shut"))[0].err == OK
    with TcpPeer(address) as watcher:
        watcher.ask(exists("/watched", watch=True))
        assert b"/watched" in four_letter_word(address, b"wchp")
    for word in (b"conf", b"dump", b"stat"):
        assert (
            four_letter_word(address, word)
            == word + b" is not executed because it is not in the whitelist.\n"
        )
    assert four_letter_word(address, b"ruok") == b"imok"


def test_pings_are_answered_in_time_while_a_session_with_thousands_of_ephemerals_ends(
    cluster: Cluster,
) -> None:
    """Beside trap 30: one of the longest commands there are makes nobody else give up its connection."""
    leader = wait_until(cluster.leader, "a leader")
    address = cluster.servers[leader].address
    done = threading.Event()
    slowest = 0.0
    with TcpPeer(address) as heavy, TcpPeer(address) as watcher:

        def load() -> None:
            heavy.ask(create("/many"))
            for start in range(0, EPHEMERALS, 500):
                heavy.ask(*[create(f"/many/{n}", flags=EPHEMERAL) for n in range(start, start + 500)])
            heavy.ask(CLOSE)
            done.set()

        worker = threading.Thread(target=load, daemon=True)
        worker.start()
        pings = 0
        while not done.is_set():
            slowest = max(slowest, watcher.ping_s())
            pings += 1
        worker.join()
    print(f"{pings} pings, the slowest took {1_000 * slowest:.0f} ms")
    assert pings > 10
    assert slowest < PING_S_MAX
