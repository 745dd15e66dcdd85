"""The texts of the four-letter words, from a snapshot of the server's numbers; monitoring tools parse them.

A word is answered and the connection closed. Words that ZooKeeper does not know are no words but lengths of
frames, and far too large ones: `zraft.wire.framing` ends such a connection without an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from zraft import __version__
from zraft.wire.framing import FOUR_LETTER_WORDS

ZOOKEEPER_VERSION: Final = "3.9.5"
"""The release whose behaviour we follow; clients and tools read features out of it."""

FULL_VERSION: Final = f"{ZOOKEEPER_VERSION}-zraft-{__version__}"

ANSWERED_WORDS: Final = frozenset({"envi", "isro", "mntr", "ruok", "srvr", "stat"})
"""What `answer` has a text for. The other words of ZooKeeper count as not whitelisted."""

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests\n"

Metric = int | float | str


class Mode(StrEnum):
    """What a server is, as `Mode:` and `zk_server_state` say it."""

    LEADER = "leader"
    FOLLOWER = "follower"
    STANDALONE = "standalone"


@frozen
class ConnectionStatistics:
    """One client connection; `address` is "host:port", counts are packets since it was opened."""

    address: str
    queued: int
    received: int
    sent: int


@frozen
class LeaderStatistics:
    """What only a leader knows. Proposal sizes in bytes, -1 before the first proposal; uptime in ms."""

    learners: int
    synced_followers: int
    pending_syncs: int
    quorum_size: int
    leader_uptime_ms: int
    last_proposal_size: int
    min_proposal_size: int
    max_proposal_size: int


@frozen
class ServerStatistics:
    """A server's numbers at one moment.

    Latencies in ms, uptime in ms, data size in bytes; `built_on` as a tool would show it ("2026-08-01 12:00
    UTC"). `leader` is set exactly on a leader. `metrics` is what else `mntr` lists, names without `zk_`.
    """

    built_on: str
    mode: Mode
    latency_min_ms: int
    latency_avg_ms: float
    latency_max_ms: int
    received: int
    sent: int
    connections: tuple[ConnectionStatistics, ...]
    outstanding: int
    zxid: int
    node_count: int
    watch_count: int
    ephemerals_count: int
    approximate_data_size: int
    global_sessions: int
    open_file_descriptors: int
    max_file_descriptors: int
    uptime_ms: int
    leader: LeaderStatistics | None = None
    metrics: Mapping[str, Metric] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        assert (self.leader is not None) == (self.mode is Mode.LEADER), "leader statistics belong to leaders"


def answer(
    word: str, statistics: ServerStatistics | None, whitelist: Collection[str] = ANSWERED_WORDS
) -> bytes:
    """The whole answer to `word`; `statistics` is None while the server does not serve its clients."""
    assert word in FOUR_LETTER_WORDS, f"{word!r} is no four-letter word"
    if word not in whitelist or word not in ANSWERED_WORDS:
        text = f"{word} is not executed because it is not in the whitelist.\n"
    elif word == "ruok":
        # Says only that the process answers, as in ZooKeeper, even without a leader; no newline either.
        text = "imok"
    elif word == "isro":
        text = "null" if statistics is None else "rw"
    elif word == "envi":
        # The one line that clients read (kazoo's server_version); a JVM's other properties we do not have.
        text = f"Environment:\nzookeeper.version={FULL_VERSION}\n"
    elif statistics is None:
        text = NOT_SERVING
    elif word == "mntr":
        text = _mntr(statistics)
    else:
        text = _srvr(statistics, clients=word == "stat")
    return text.encode()


def _version(statistics: ServerStatistics) -> str:
    return f"{FULL_VERSION}, built on {statistics.built_on}"


def _average(statistics: ServerStatistics) -> float:
    """ZooKeeper rounds to four places and always shows one."""
    return round(float(statistics.latency_avg_ms), 4)


def _srvr(statistics: ServerStatistics, *, clients: bool) -> str:
    lines = [f"Zookeeper version: {_version(statistics)}"]
    if clients:
        lines.append("Clients:")
        # [1] is the selector's interest set in ZooKeeper: reading. Parsers skip it, but expect it.
        lines += [
            f" /{c.address}[1](queued={c.queued},recved={c.received},sent={c.sent})"
            for c in statistics.connections
        ]
        lines.append("")
    lines += [
        "Latency min/avg/max: "
        f"{statistics.latency_min_ms}/{_average(statistics)}/{statistics.latency_max_ms}",
        f"Received: {statistics.received}",
        f"Sent: {statistics.sent}",
        f"Connections: {len(statistics.connections)}",
        f"Outstanding: {statistics.outstanding}",
        f"Zxid: {statistics.zxid:#x}",
        f"Mode: {statistics.mode}",
        f"Node count: {statistics.node_count}",
    ]
    leader = statistics.leader
    if leader is not None:
        sizes = f"{leader.last_proposal_size}/{leader.min_proposal_size}/{leader.max_proposal_size}"
        lines.append(f"Proposal sizes last/min/max: {sizes}")
    return "\n".join(lines) + "\n"


_PEER_STATES: Final = {Mode.LEADER: "leading - broadcast", Mode.FOLLOWER: "following - broadcast"}


def _mntr(statistics: ServerStatistics) -> str:
    metrics: dict[str, Metric] = {
        "version": _version(statistics),
        "server_state": statistics.mode.value,
    }
    if statistics.mode in _PEER_STATES:
        metrics["peer_state"] = _PEER_STATES[statistics.mode]
    metrics |= {
        "avg_latency": _average(statistics),
        "max_latency": statistics.latency_max_ms,
        "min_latency": statistics.latency_min_ms,
        "packets_received": statistics.received,
        "packets_sent": statistics.sent,
        "num_alive_connections": len(statistics.connections),
        "outstanding_requests": statistics.outstanding,
        "znode_count": statistics.node_count,
        "watch_count": statistics.watch_count,
        "ephemerals_count": statistics.ephemerals_count,
        "approximate_data_size": statistics.approximate_data_size,
        "global_sessions": statistics.global_sessions,
        "local_sessions": 0,
        "open_file_descriptor_count": statistics.open_file_descriptors,
        "max_file_descriptor_count": statistics.max_file_descriptors,
        "uptime": statistics.uptime_ms,
    }
    leader = statistics.leader
    if leader is not None:
        metrics |= {
            "learners": leader.learners,
            "synced_followers": leader.synced_followers,
            "synced_non_voting_followers": 0,
            "synced_observers": 0,
            "pending_syncs": leader.pending_syncs,
            "quorum_size": leader.quorum_size,
            "leader_uptime": leader.leader_uptime_ms,
            "last_proposal_size": leader.last_proposal_size,
            "max_proposal_size": leader.max_proposal_size,
            "min_proposal_size": leader.min_proposal_size,
        }
    assert not metrics.keys() & statistics.metrics.keys(), "an extra metric must not hide one of ZooKeeper's"
    metrics |= statistics.metrics
    return "".join([f"zk_{name}\t{value}\n" for name, value in metrics.items()])
