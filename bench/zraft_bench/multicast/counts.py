"""Servers' counts of their groups' entries, commands, bundles and deliveries, read by `mntr`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import fields

from zraft.cli.status import ask, parse_mntr
from zraft_bench.multicast.results import Counts
from zraft_core.address import parse_address
from zraft_core.errors import ZraftError

ASK_TIMEOUT_S: Final = 15.0
"""Servers under full load answer late, and a missing count spoils the accounting."""

COUNTERS: Final[Mapping[str, str]] = {
    "entries": "groups_entries_total",
    "commands": "groups_commands_total",
    "bundles": "groups_bundles_sent_total",
    "edges": "groups_edges_sent_total",
    "delivered": "groups_delivered_total",
}
"""Counters by field of `Counts`; names are without `zk_`."""

RECEIVED: Final = "groups_bundles_received_total"


def server_values(hosts: str) -> dict[str, dict[str, str]]:
    """Return `mntr` of each server by its address; empty for one that does not answer. Blocking."""
    found = {}
    for host in hosts.split(","):
        try:
            found[host] = parse_mntr(ask(parse_address(host, knob="hosts"), "mntr", ASK_TIMEOUT_S))
        except ZraftError:
            found[host] = {}
    return found


def total(values: Sequence[Mapping[str, str]], name: str) -> int | None:
    """Return the sum over all servers; None if one of them does not tell."""
    try:
        return sum(int(one[name]) for one in values)
    except (KeyError, ValueError):
        return None


def counts_between(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> Counts:
    """Return what was counted from one reading of the same servers to another."""
    found: dict[str, int | None] = {}
    for field in fields(Counts):
        first, last = (total(list(one.values()), COUNTERS[field.name]) for one in (before, after))
        found[field.name] = last - first if first is not None and last is not None and last >= first else None
    return Counts(**found)
