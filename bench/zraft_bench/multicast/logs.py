"""Reader of servers' logs through `zraft log dump`: which groups a message touched.

This module reads its lines; their meaning for genuineness is judged without files.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from zraft_bench.cluster import server_environment, zraft_command
from zraft_bench.multicast.results import TouchedGroup
from zraft_bench.processes import ServerError

DUMP_TIMEOUT_S: Final = 300.0

Entry = Mapping[str, Any]
"""A line of `zraft log dump --json` that is an entry."""


@define
class GroupLog:
    """One group's committed log as far as it is on a disk: entries by index, truncated ones replaced."""

    group: int
    entries: dict[int, Entry] = field(factory=dict)

    def take(self, value: Entry) -> None:
        """Add a line of the dump: an entry, or a truncation."""
        if value["record"] == "entry":
            self.entries[value["index"]] = value
        elif value["record"] == "truncate":
            self.entries = {n: one for n, one in self.entries.items() if n < value["from_index"]}

    def commands(self) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """Return (index, command), in order."""
        for index, entry in sorted(self.entries.items()):
            for command in entry.get("commands", ()):
                yield index, command


def read_logs(directory: Path) -> dict[int, GroupLog]:
    """Read the logs of all groups above 0 in a server's data directory.

    Raises:
        ServerError: it cannot be read.
    """
    done = subprocess.run(
        zraft_command("log", "dump", str(directory), "--json"),
        capture_output=True,
        text=True,
        check=False,
        env=server_environment(),
        timeout=DUMP_TIMEOUT_S,
    )
    if done.returncode:
        raise ServerError(f"zraft log dump {directory}: {done.stderr.strip()[-500:]}")
    return logs_of(map(json.loads, done.stdout.splitlines()))


def logs_of(values: Iterable[Entry]) -> dict[int, GroupLog]:
    """Return the log of each group but group 0, from the lines of a dump."""
    logs: dict[int, GroupLog] = {}
    for value in values:
        group = value.get("group", 0)
        if group:
            logs.setdefault(group, GroupLog(group)).take(value)
    return logs


def longest(logs: Sequence[Mapping[int, GroupLog]]) -> dict[int, GroupLog]:
    """Return each group's log of the server that has most of it."""
    found: dict[int, GroupLog] = {}
    for of_server in logs:
        for group, log in of_server.items():
            if group not in found or max(log.entries, default=0) > max(found[group].entries, default=0):
                found[group] = log
    return found


@define
class Footprint:
    """Traces of one producer's messages in all groups' logs."""

    groups: list[TouchedGroup]
    messages: int = 0
    exchanged: int = 0
    """REMOTE commands: each is what one group told another one."""
    commits: int = 0
    """Commits one after the other until a message could be delivered at a group, the most of any message."""
    strangers: list[str] = field(factory=list)
    """Groups that logged something of messages that are not addressed to them."""


def footprint(
    logs: Mapping[int, GroupLog], producer: int, addressed: Mapping[int, str], names: Mapping[int, str]
) -> Footprint:
    """Judge the logs. `addressed` and `names` are groups with their names: those that messages went to, and all."""
    found = Footprint([])
    mids: set[int] = set()
    for group, name in names.items():
        log = logs.get(group, GroupLog(group))
        starts = remotes = others = 0
        touched: set[int] = set()
        entries_of: dict[int, set[int]] = {}
        for index, command in log.commands():
            kind = command["command"]
            if kind not in ("start", "remote"):
                others += 1
            elif command["id"][0] == producer:
                number = command["id"][1]
                starts += kind == "start"
                remotes += kind == "remote"
                touched.add(index)
                entries_of.setdefault(number, set()).add(index)
        mids.update(entries_of)
        found.exchanged += remotes
        if entries_of:
            # A proposal is told once the entry that made it is committed, and later entries answer it.
            found.commits = max(found.commits, *(min(len(one), 2) for one in entries_of.values()))
            if group not in addressed:
                found.strangers.append(name)
        found.groups.append(
            TouchedGroup(
                name=name,
                addressed=group in addressed,
                entries=len(touched),
                starts=starts,
                remotes=remotes,
                others=others,
            )
        )
    found.messages = len(mids)
    return found
