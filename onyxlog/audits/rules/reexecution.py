"""Re-execution: the log's commands give the states that servers had, and each command did what was promised. Pure.

Logs are replayed from the beginning, or from each snapshot on, by the state machine that servers run. That
the states agree proves that servers applied this log and nothing else (S6). Folds that share no rule with the
machine judge what single commands did: numbered commands once (S8), ephemerals (S10), numbers of sequential
znodes (S11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import attrs
from attrs import define, evolve, field, frozen

from onyxlog.audits.rules.check import KEEP_ALL, Check, Derived, Input, Row, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.placed import Standing
from onyxlog.audits.tables.snapshots import SnapshotRow
from zraft.raft.membership.value import Membership
from zraft.tree.machine import Machine
from zraft_core.errors import Code
from zraft_core.znodes.txn import (
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    EXPIRE,
    FLAG_EPHEMERAL,
    FLAG_SEQUENTIAL,
    ONCE,
    command_count,
    unpack_entry,
)

STATES: Final = "states are the fold of the log"
ONCE_ONLY: Final = "a numbered command is carried out once"
EPHEMERALS: Final = "ephemerals go at the index at which their session ends"
NUMBERS: Final = "numbers of sequential znodes grow in log order"
_CREATES: Final = frozenset({CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL})
_REPLAY: Final = ("server", "instance", "group", "since")


@frozen(kw_only=True)
class ReplayedEntryRow(EntryRow):
    """An entry with its payload.

    Attributes:
        since: the snapshot on which it is replayed, by index; 0 for the log's beginning.
        fullest: whether no other server's log has more of the history: commands are judged in that one alone.
    """

    since: int = 0
    fullest: bool = False


@frozen(kw_only=True)
class StateRow(SnapshotRow):
    """A state that a server had: of a snapshot, or noted.

    With `begins`, replay begins from it, and it is not compared.
    """

    since: int = 0
    begins: bool = False


@frozen
class Executed:
    """One command and its outcome."""

    row: ReplayedEntryRow
    position: int
    session: int
    command: tuple[Any, ...]
    result: Any


class Observer(Protocol):
    """Interface of a judge of commands one by one, in the order of the log."""

    def on_executed(self, one: Executed, machine: Machine) -> Iterator[Violation]:
        """Judge one command after it was executed."""


LoadState = Callable[[StateRow], Machine | None]
"""Returns the state of a snapshot's file; None if it cannot be had any more."""


def nothing_loaded(_row: StateRow) -> Machine | None:
    """Load nothing: lists of rows in a test have no files."""
    return None


def replay(
    rows: Iterator[Row], load: LoadState, observers: tuple[Observer, ...], *, states: bool
) -> Iterator[Violation]:
    """Replay one log from one place on: the state to begin with if any, then entries and states by index.

    With a gap, or without the state to begin with, nothing more is judged: S6 has seen what is missing.
    """
    machine: Machine | None = None
    for row in rows:
        if isinstance(row, StateRow):
            if row.begins:
                machine = load(row)
            elif states and machine is not None and machine.index == row.index:
                found = machine.digest().to_bytes(16, "big")
                if found != row.digest:
                    yield _state(row, found)
            continue
        if machine is None and row.since == 0 and row.index == 1:
            machine = Machine()
        if machine is None or row.payload is None or row.index != machine.index + 1:
            machine = None
            continue
        yield from _apply(machine, row, observers)


def _state(row: StateRow, found: bytes) -> Violation:
    return violation_at(
        row,
        rule="S6",
        promise=STATES,
        subject=f"state of server {row.server} after entry {row.index}",
        expected=f"{found.hex()}, which the entries after {row.since} lead to",
        found=row.digest.hex(),
    )


def _apply(machine: Machine, row: ReplayedEntryRow, observers: tuple[Observer, ...]) -> Iterator[Violation]:
    assert row.payload is not None, row
    if row.kind == "membership":
        members = Membership.decode(row.payload).members
        machine.set_members([(server, one.instance) for server, one in members.items() if one.instance])
    if row.kind != "commands":
        machine.pass_entry(row.index, row.term)
        return
    observed = row.fullest and observers
    log_time, wall_time, batches = unpack_entry(row.payload)
    machine.begin_entry(row.index, row.term, row.position, log_time, wall_time)
    for server, instance, boot, seq, runs in batches:
        if not machine.begin_batch(server, instance, boot, seq):
            machine.skip_batch(command_count(runs))
            continue
        for session, ids, commands in runs:
            machine.begin_run(session, ids)
            for command in commands:
                result = machine.execute(command)
                machine.events.clear()
                if observed:
                    one = Executed(row, machine.position, session, command, result)
                    for observer in observers:
                        yield from observer.on_executed(one, machine)


def _about(one: Executed, rule: str, promise: str, subject: str, expected: str, found: str) -> Violation:
    return violation_at(
        one.row,
        rule=rule,
        promise=promise,
        subject=f"{subject} at position {one.position}",
        expected=expected,
        found=found,
    )


@define
class OnceOnly:
    """Judge of numbered commands: executed once, answered alike afterwards, never below the floor."""

    done: dict[tuple[int, int], Any] = field(factory=dict)
    floors: dict[int, int] = field(factory=dict)

    def on_executed(self, one: Executed, machine: Machine) -> Iterator[Violation]:
        """Judge a numbered command by what was answered before."""
        if one.command[0] == CLOSE_SESSION and one.result is Code.OK:
            self._forget(one.session)
        if one.command[0] != ONCE or one.result.__class__ is not tuple or len(one.command) != 4:
            return
        _, seq, floor, _ = one.command
        zxid, position, code, _ = one.result
        if code in (int(Code.BAD_ARGUMENTS), int(Code.THROTTLED_OP)) and position == one.position:
            return  # the command was refused, and nothing was kept
        key = one.session, seq
        known = self.done.setdefault(key, one.result)
        if known != one.result:
            yield _about(
                one,
                "S8",
                ONCE_ONLY,
                f"command {seq} of session {one.session}",
                f"the outcome of position {known[1]}: {known[2]}",
                f"one of position {position}: {code}, zxid {zxid:#x}",
            )
        if floor > self.floors.get(one.session, 0):
            for old in range(self.floors.get(one.session, 0) + 1, floor + 1):
                self.done.pop((one.session, old), None)
            self.floors[one.session] = floor

    def _forget(self, session: int) -> None:
        for key in [key for key in self.done if key[0] == session]:
            del self.done[key]
        self.floors.pop(session, None)


@define
class EphemeralLives:
    """Judge of ephemerals: only live sessions make them, and they are gone when these end."""

    of: dict[int, set[str]] = field(factory=dict)

    def on_executed(self, one: Executed, machine: Machine) -> Iterator[Violation]:
        """Judge the creation or removal of ephemerals, and the end of sessions."""
        opcode, result = one.command[0], one.result
        if opcode == ONCE and len(one.command) == 4 and result.__class__ is tuple and result[2] == 0:
            opcode, one = one.command[3][0], evolve(one, command=one.command[3])
            if opcode in _CREATES and one.command[4] & FLAG_EPHEMERAL:
                self.of.setdefault(one.session, set()).add(result[3][0])
        elif opcode in _CREATES and result.__class__ is tuple and one.command[4] & FLAG_EPHEMERAL:
            self.of.setdefault(one.session, set()).add(result[0])
            if one.session not in machine.sessions:
                yield _about(
                    one,
                    "S10",
                    EPHEMERALS,
                    f"ephemeral {result[0]}",
                    "a session that lives",
                    f"session {one.session}",
                )
        elif opcode in (CLOSE_SESSION, EXPIRE) and result is Code.OK:
            ended = one.session if opcode == CLOSE_SESSION else one.command[1]
            for path in sorted(self.of.pop(ended, ())):
                node = machine.nodes.get(path)
                if node is not None and node.ephemeral_owner == ended:
                    yield _about(
                        one, "S10", EPHEMERALS, f"end of session {ended}", f"{path} gone", "still there"
                    )


@define
class GrowingNumbers:
    """Judge of sequential znodes: each number is above all before it, as long as the parent lives."""

    last: dict[str, tuple[int, int]] = field(factory=dict)
    """By parent, its own zxid and the last number below it. A parent that was deleted, in whatever way, and made again has
    another zxid and counts anew."""

    def on_executed(self, one: Executed, machine: Machine) -> Iterator[Violation]:
        """Judge the number of a sequential znode."""
        opcode, result = one.command[0], one.result
        if opcode in _CREATES and result.__class__ is tuple and one.command[4] & FLAG_SEQUENTIAL:
            path: str = result[0]
            parent, number = path.rpartition("/")[0] or "/", int(path[len(one.command[1]) :])
            node = machine.nodes.get(parent)
            born = node.czxid if node is not None else -1
            before = self.last.get(parent)
            if before is not None and before[0] == born and number <= before[1]:
                yield _about(one, "S11", NUMBERS, f"znode {path}", f"a number above {before[1]}", f"{number}")
            self.last[parent] = born, number


def _digest_events(tables: Tables) -> list[EventRow]:
    return [row for row in tables.get("events", ()) if row.kind == "digest" and row.group == 0]


def _boundaries(tables: Tables) -> dict[tuple[int, str], list[int]]:
    """Return indices of good snapshots of group 0, by server, ascending."""
    found: dict[tuple[int, str], set[int]] = {}
    for row in tables.get("snapshots", ()):
        if row.group == 0 and row.damage is None:
            found.setdefault((row.server, row.instance), set()).add(row.index)
    return {key: sorted(indices) for key, indices in found.items()}


def _since(boundaries: dict[tuple[int, str], list[int]], row: Row) -> int:
    """Return the last snapshot of its server below a row's index."""
    return max((at for at in boundaries.get((row.server, row.instance), ()) if at < row.index), default=0)


def _fields(row: Row) -> dict[str, Any]:
    return {each.name: getattr(row, each.name) for each in attrs.fields(type(row))}


def _entries(tables: Tables) -> list[ReplayedEntryRow]:
    boundaries = _boundaries(tables)
    found = [
        ReplayedEntryRow(**_fields(row), since=_since(boundaries, row))
        for row in tables.get("entry_payloads", ())
        if row.group == 0 and row.standing != Standing.TRUNCATED
    ]
    logs: dict[tuple[int, str], list[int]] = {}
    for row in found:
        logs.setdefault((row.server, row.instance), []).append(row.index)
    fullest = min(logs, key=lambda log: (min(logs[log]), -max(logs[log]), log), default=None)
    return [evolve(row, fullest=(row.server, row.instance) == fullest) for row in found]


def _states(tables: Tables) -> list[StateRow]:
    boundaries, found = _boundaries(tables), []
    for row in tables.get("snapshots", ()):
        if row.group == 0 and row.damage is None:
            found.append(StateRow(**_fields(row), since=row.index, begins=True))
            found.append(StateRow(**_fields(row), since=_since(boundaries, row)))
    for row in _digest_events(tables):
        state = StateRow(
            server=row.server, instance=row.instance, file=row.file, file_offset=row.file_offset, group=0,
            index=row.index, digest=row.digest or b"", since=_since(boundaries, row),
        )  # fmt: skip
        found.append(state)
    return found


_ENTRY_NAMES: Final = ", ".join(f"e.`{each.name}`" for each in attrs.fields(EntryRow))
_SNAPSHOT_NAMES: Final = ", ".join(f"s.`{each.name}`" for each in attrs.fields(SnapshotRow))
_OF_EVENT: Final = {
    **{name: f"v.`{name}`" for name in ("server", "instance", "file", "file_offset", "index", "digest")},
    "group": "0L",
    "maker_instance": "''",
    "damage": "CAST(NULL AS STRING)",
}
_EVENT_NAMES: Final = ", ".join(
    f"{_OF_EVENT.get(each.name, '0L')} AS `{each.name}`" for each in attrs.fields(SnapshotRow)
)


def _below(alias: str) -> str:
    """Return SQL for the last snapshot of a row's server below its index; boundaries are an array by server."""
    return f"coalesce(array_max(filter(b.at, x -> x < {alias}.`index`)), 0L)"


REPLAYED: Final = Derived(
    name="replayed_entries",
    row=ReplayedEntryRow,
    needs=("entry_payloads", "snapshots"),
    sql=(
        (
            "snapshot_boundaries",
            "SELECT server, instance, collect_set(`index`) AS at FROM snapshots WHERE `group` = 0 AND damage IS NULL "
            "GROUP BY server, instance",
        ),
        (
            "fullest_log",
            "SELECT server, instance FROM (SELECT server, instance, min(`index`) AS first, max(`index`) AS last "
            "FROM entry_payloads WHERE `group` = 0 AND standing != 'truncated' GROUP BY server, instance) "
            "ORDER BY first, last DESC, server, instance LIMIT 1",
        ),
        (
            "replayed_entries",
            f"SELECT {_ENTRY_NAMES}, {_below('e')} AS since, f.server IS NOT NULL AS fullest FROM entry_payloads e "
            "LEFT JOIN snapshot_boundaries b ON e.server = b.server AND e.instance = b.instance "
            "LEFT JOIN fullest_log f ON e.server = f.server AND e.instance = f.instance "
            "WHERE e.`group` = 0 AND e.standing != 'truncated'",
        ),
    ),
    rows=_entries,
)
KNOWN_STATES: Final = Derived(
    name="known_states",
    row=StateRow,
    needs=("snapshots", "events"),
    sql=(
        (
            "known_states",
            f"SELECT {_SNAPSHOT_NAMES}, s.`index` AS since, true AS begins FROM snapshots s "
            "WHERE s.`group` = 0 AND s.damage IS NULL UNION ALL "
            f"SELECT {_SNAPSHOT_NAMES}, {_below('s')}, false FROM snapshots s LEFT JOIN snapshot_boundaries b "
            "ON s.server = b.server AND s.instance = b.instance WHERE s.`group` = 0 AND s.damage IS NULL UNION ALL "
            f"SELECT {_EVENT_NAMES}, {_below('v')}, false FROM events v LEFT JOIN snapshot_boundaries b "
            "ON v.server = b.server AND v.instance = b.instance WHERE v.kind = 'digest' AND v.`group` = 0",
        ),
    ),
    rows=_states,
)


OBSERVERS: Final[Mapping[str, Callable[[], Observer]]] = {
    ONCE_ONLY: OnceOnly,
    EPHEMERALS: EphemeralLives,
    NUMBERS: GrowingNumbers,
}
"""Judges of commands, by promise."""


@frozen
class Reexecution:
    """The replay of logs, which judges any of its promises on the way: logs are carried out once for all of them.

    Attributes:
        load: reads what lists in a test do not have: the files of snapshots.
    """

    load: LoadState

    def check(self, *promises: str) -> Check:
        """Return the check of these promises, whose judge names the promise of each violation.

        Every server's states are compared with its own log; what commands did is judged in the fullest log only, as S4
        and S6 show that the others' are the same.
        """
        makers = [OBSERVERS[promise] for promise in promises if promise != STATES]
        states = STATES in promises

        def judge(rows: Iterator[Row]) -> Iterator[Violation]:
            yield from replay(rows, self.load, tuple(make() for make in makers), states=states)

        return Check(
            " and ".join(promises),
            (
                Input("known_states", _REPLAY, ("index", 0), {"begins": (True,)}),
                Input(REPLAYED.name, _REPLAY, ("index", 1), KEEP_ALL if states else {"fullest": (True,)}),
                Input("known_states", _REPLAY, ("index", 2), {"begins": (False,)}),
            ),
            judge,
            derived=(REPLAYED, KNOWN_STATES),
            needed=("entry_payloads",),
            judged_with=self.check,
        )
