"""The promises of claims, checked from outside: a fold of its own over the log, and what processes were given when.

It shares no rule with the product: intervals, positions and staleness are worked out here from commands and answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NoReturn

from attrs import define, field

from tests.simulation.broken import BrokenPromiseError
from zraft_core.claims import commands as c
from zraft_core.claims.answers import Accepted, ClaimAnswer, Granted
from zraft_core.claims.values import Mode, Owner

SLACK_MS = 2
"""Rounding of clocks that run at rates of their own."""


@define
class Holding:
    """One claim as the log shows it. Ends are exclusive; `heard_ms` and `ended` are log time and position."""

    group: str
    partition: int
    epoch: int
    owner: Owner
    mode: Mode
    first: int
    upto: int | None
    heartbeat_ms: int
    heard_ms: int
    heard_awake_ms: int
    """How long the leader of that time had been awake as a leader."""
    leadership: int
    beat: int = 0
    committed: int = 0
    claimed: int = 0
    ended: int | None = None
    ended_by: str = ""
    sent_ms: int = 0
    """When its last accepted heartbeat, or the claim, was sent, in simulated time."""
    handed: dict[int, int] = field(factory=dict)
    """Offset to when it was handed out."""
    processed: dict[int, int] = field(factory=dict)
    """Offset to when everything handed out up to it was processed."""

    def covers(self, first: int, upto: int | None) -> bool:
        return (self.upto is None or first < self.upto) and (upto is None or self.first < upto)


_OWNERS = c.Heartbeat | c.Commit | c.CommitRanges | c.CommitBatch | c.Release


def broken(promise: str, found: str) -> NoReturn:
    raise BrokenPromiseError(promise, found)


class Checks:
    """All partitions and groups of one run. `seen` counts what happened, so that an empty run is noticed."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._live: dict[tuple[str, int], list[Holding]] = defaultdict(list)
        self._all: dict[tuple[int, int], Holding] = {}
        self._attempts: dict[tuple[int, str, str, str, int], int] = {}
        self._start: dict[tuple[str, int], int] = defaultdict(int)
        self._given: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.done: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._earlier: dict[tuple[str, int, int], Holding] = {}
        self._durable: dict[tuple[str, int, int], int] = {}
        """By message, the claim under which its commit was said to be durable."""
        self.sent: dict[tuple[int, int, int], int] = {}
        """(partition, epoch, beat) to when that heartbeat was sent; beat 0 stands for the claim."""
        self.attempt_sent: dict[tuple[int, str, str, int], int] = {}

    # The log ----------------------------------------------------------------------------------------------------

    def on_applied(
        self,
        partition: int,
        position: int,
        log_time_ms: int,
        command: c.ClaimCommand,
        answer: ClaimAnswer,
        leadership: int,
        awake_ms: int,
    ) -> None:
        """A command was applied at a position; `awake_ms`: how long the leader that appended it had been awake."""
        kind = type(command).__name__
        if isinstance(answer, Granted):
            assert isinstance(command, c.ClaimPartition | c.ClaimMessages)
            self._on_granted(partition, position, log_time_ms, command, answer, leadership, awake_ms)
        elif isinstance(answer, Accepted):
            if isinstance(command, _OWNERS):
                self._on_owner(partition, position, log_time_ms, command, answer, leadership, awake_ms)
            elif isinstance(command, c.Expire):
                self._on_expired(partition, position, log_time_ms, command, leadership, awake_ms)
            else:
                self.seen[kind] += 1
        else:
            self.seen[f"{kind} refused {answer.reason.name}"] += 1

    def _on_granted(
        self,
        partition: int,
        position: int,
        log_time_ms: int,
        command: c.ClaimPartition | c.ClaimMessages,
        answer: Granted,
        leadership: int,
        awake_ms: int,
    ) -> None:
        claim, place = answer.claim, (command.group, partition)
        live = self._live[place]
        where = f"partition {partition}, group {command.group}, position {position}"
        if claim.epoch != position:
            held = next((one for one in live if one.epoch == claim.epoch), None)
            if held is None or held.owner != Owner(command.client, command.instance):
                broken(
                    "one owner", f"{where}: {command.client}/{command.instance} was told that it owns {claim}"
                )
            self.seen["grants repeated"] += 1
            return
        attempt = (partition, command.group, command.client, command.instance, command.attempt)
        if attempt in self._attempts:
            broken(
                "a claim is granted once",
                f"{where}: {attempt} was granted at {self._attempts[attempt]} before",
            )
        self._attempts[attempt] = position
        for held in list(live):
            if held.covers(claim.first, claim.upto) or (isinstance(command, c.ClaimPartition)):
                if held.owner.client != command.client or held.epoch != command.after:
                    broken(
                        "disjoint intervals",
                        f"{where}: granted to {command.client}, but {held} has not ended",
                    )
                self._end(held, position, "takeover")
        expected = self._start[place]
        if isinstance(command, c.ClaimPartition) and claim.first < expected:
            broken(
                "where a successor starts",
                f"{where}: starts at {claim.first}, claimed or committed was {expected}",
            )
        holding = Holding(
            group=command.group,
            partition=partition,
            epoch=claim.epoch,
            owner=claim.owner,
            mode=command.mode,
            first=claim.first,
            upto=claim.upto,
            heartbeat_ms=claim.heartbeat_ms,
            heard_ms=log_time_ms,
            heard_awake_ms=awake_ms,
            leadership=leadership,
            committed=claim.first,
            claimed=claim.first,
        )
        holding.sent_ms = self.attempt_sent.get(attempt[:1] + attempt[2:], 0)
        live.append(holding)
        self._all[partition, claim.epoch] = holding
        self.seen["granted"] += 1

    def _on_owner(
        self,
        partition: int,
        position: int,
        log_time_ms: int,
        command: c.Heartbeat | c.Commit | c.CommitRanges | c.CommitBatch | c.Release,
        answer: Accepted,
        leadership: int,
        awake_ms: int,
    ) -> None:
        kind = type(command).__name__
        where = f"partition {partition}, group {command.group}, position {position}"
        held = next((one for one in self._live[command.group, partition] if one.epoch == command.epoch), None)
        if held is None:
            broken(
                "a stale owner is fenced",
                f"{where}: {kind} of epoch {command.epoch} was accepted after its end",
            )
        self.seen[kind] += 1
        if isinstance(command, c.CommitBatch):
            held.claimed = max(held.claimed, command.upto)
        else:
            held.committed = max(held.committed, command.committed)
        if answer.committed < held.committed or answer.claimed < held.claimed:
            broken("offsets do not go back", f"{where}: {answer} after {held.committed=} {held.claimed=}")
        if held.upto is None:
            place = (command.group, partition)
            self._start[place] = max(self._start[place], held.committed, held.claimed)
        if isinstance(command, c.Heartbeat) and command.beat > held.beat:
            held.beat, held.heard_ms = command.beat, log_time_ms
            held.leadership, held.heard_awake_ms = leadership, awake_ms
            held.sent_ms = max(held.sent_ms, self.sent.get((partition, command.epoch, command.beat), 0))
        if answer.ended:
            self._end(held, position, "release" if isinstance(command, c.Release) else "completion")
        elif isinstance(command, c.Release):
            broken("a release ends the claim", f"{where}: {answer}")

    def _on_expired(
        self,
        partition: int,
        position: int,
        log_time_ms: int,
        command: c.Expire,
        leadership: int,
        awake_ms: int,
    ) -> None:
        where = f"partition {partition}, group {command.group}, position {position}"
        held = next((one for one in self._live[command.group, partition] if one.epoch == command.epoch), None)
        if held is None:
            broken("expired once", f"{where}: {command} of a claim that had ended")
        silent = log_time_ms - held.heard_ms
        if silent < 2 * held.heartbeat_ms:
            broken("no early expiry", f"{where}: {held} expired after {silent} ms of log time")
        awake = awake_ms - held.heard_awake_ms if leadership == held.leadership else awake_ms
        if awake < 2 * held.heartbeat_ms - 500:
            broken("no expiry on waking", f"{where}: {held} expired, its leader had listened for {awake} ms")
        self._end(held, position, "expiry")

    def _end(self, held: Holding, position: int, by: str) -> None:
        held.ended, held.ended_by = position, by
        self._live[held.group, held.partition].remove(held)
        self.seen[f"ended by {by}"] += 1

    # Processes --------------------------------------------------------------------------------------------------

    def on_handed_out(
        self, group: str, partition: int, offset: int, epoch: int, now_ms: int, rate: float
    ) -> None:
        """A program was given a message."""
        place = (group, partition)
        held = self._all.get((partition, epoch))
        where = f"partition {partition}, group {group}, offset {offset}, epoch {epoch}"
        if held is None:
            broken("owners only", f"{where}: handed out under a claim that the log does not have")
        self.seen["handed out"] += 1
        if self._durable.get((*place, offset), epoch) < epoch:
            broken(
                "a durable commit holds",
                f"{where}: committed for good under {self._durable[(*place, offset)]}",
            )
        if held.mode is Mode.AT_MOST_ONCE:
            if offset in self._given[place]:
                broken("at most once", f"{where}: handed out a second time")
            if offset >= held.claimed:
                broken("claimed before processed", f"{where}: only {held.claimed} is claimed in the log")
        # An owner whose client was started a second time learns of it with its next command, not before.
        if held.ended is not None and held.ended_by != "takeover":
            broken(
                "a stale owner stops",
                f"{where}: handed out after the claim's {held.ended_by} at {held.ended}",
            )
        earlier = self._earlier.get((*place, offset))
        # A twin that was started over a living process is the later owner, and its commits bind only later ones.
        if earlier is not None and earlier.epoch < epoch:
            self._on_again(earlier, offset, where)
        self._given[place].add(offset)
        self._earlier[(*place, offset)] = held
        held.handed[offset] = now_ms
        late = now_ms - held.sent_ms - held.heartbeat_ms / rate
        if late > SLACK_MS:
            broken("owners fence themselves", f"{where}: handed out {late:.0f} ms after the lease had lapsed")

    def _on_again(self, earlier: Holding, offset: int, where: str) -> None:
        """At least once: handed out again by a later owner."""
        self.seen["handed out again"] += 1
        processed = earlier.processed.get(offset)
        if processed is not None and processed < earlier.sent_ms:
            broken(
                "reprocessing is bounded",
                f"{where}: processed under {earlier.epoch} at {processed} ms, and a heartbeat sent at "
                f"{earlier.sent_ms} ms was accepted",
            )

    def on_durable(self, group: str, partition: int, offset: int, epoch: int) -> None:
        """A program was told that its commit is durable."""
        self.seen["durable commits"] += 1
        self._durable[group, partition, offset] = epoch

    def on_processed(
        self, group: str, partition: int, offset: int, epoch: int, now_ms: int, current: int
    ) -> None:
        """A program is done with a message; everything below `current` was processed under this claim, too."""
        self.done[group, partition].add(offset)
        held = self._all[partition, epoch]
        for one in held.handed:
            if one < current:
                held.processed.setdefault(one, now_ms)

    # The end ----------------------------------------------------------------------------------------------------

    @property
    def holdings(self) -> Mapping[tuple[int, int], Holding]:
        """All claims that were ever granted, by partition and epoch."""
        return self._all

    def live(self, group: str, partition: int) -> list[Holding]:
        return self._live[group, partition]

    def is_done(self, group: str, partition: int, mode: Mode, end: int) -> bool:
        """At least once: all is processed. At most once: all was claimed by somebody, and is not given out again."""
        place = (group, partition)
        if mode is Mode.AT_LEAST_ONCE:
            return len(self.done[place]) >= end
        return sum(self.taken(group, partition, end)) >= end

    def taken(self, group: str, partition: int, end: int) -> bytearray:
        """A byte for each message: 1 if some claim took it at most once."""
        found = bytearray(end)
        for (number, _), held in self._all.items():
            if number == partition and held.group == group:
                upto = min(held.claimed, end)
                if upto > held.first:
                    found[held.first : upto] = b"\x01" * (upto - held.first)
        return found

    def at_end(self, group: str, partition: int, mode: Mode, end: int) -> None:
        """Everything was healed and had time."""
        if self.is_done(group, partition, mode, end):
            return
        if mode is Mode.AT_LEAST_ONCE:
            missing = sorted(set(range(end)) - self.done[group, partition])
            broken(
                "at least once",
                f"partition {partition}, group {group}: never processed: {missing[:10]} of {end}",
            )
        left = [offset for offset, byte in enumerate(self.taken(group, partition, end)) if not byte]
        broken("liveness", f"partition {partition}, group {group}: never claimed: {left[:10]} of {end}")
