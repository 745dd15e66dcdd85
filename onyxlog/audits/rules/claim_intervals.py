"""S21: a partition has one owner per consumer group at each position of its log, and only its commands count. Pure.

The log has commands, not answers. The state machine that servers run computes the answers; a fold that shares
no rule with it judges whether they keep the promises: intervals, positions, silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from attrs import define, field

from onyxlog.audits.rules.check import Check, Derived, Input, Rule, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.claims import ClaimRow
from onyxlog.audits.tables.placed import Standing
from zraft_core.claims import commands as c
from zraft_core.claims.answers import Accepted, ClaimAnswer, Granted
from zraft_core.claims.state import Claims
from zraft_core.claims.values import FUTURE_MESSAGES_MAX, Claim, Mode

RULE: Final = "S21"
DISJOINT: Final = "claims are disjoint"
FENCED: Final = "only an owner is heard"
ONWARD: Final = "offsets do not go back"
KEPT: Final = "a successor passes over what was committed out of order"
SILENT: Final = "a claim expires after two intervals of silence"
END_UNKNOWN: Final = 2**62
"""Stands for a partition's end that the log does not tell: no offset is refused for being above it."""
assert END_UNKNOWN + FUTURE_MESSAGES_MAX < 2**63

Decide = Callable[[c.ClaimCommand, int, int, int], ClaimAnswer]
"""`Claims.apply` of one partition."""


def command_of(row: ClaimRow) -> c.ClaimCommand | None:
    """Return the command of a row, None if the row lacks one of its fields."""
    group, mode = row.consumer_group or "", Mode(row.mode or 0)
    epoch, committed = row.epoch or 0, row.committed or 0
    match row.kind:
        case "claim_partition":
            return c.ClaimPartition(
                group=group,
                client=row.client or "",
                instance=row.process or "",
                attempt=row.attempt or 0,
                after=row.after or 0,
                mode=mode,
                start=row.start or 0,
                entire_topic=bool(row.entire_topic),
                heartbeat_ms=row.heartbeat_ms or 0,
            )
        case "claim_messages":
            return c.ClaimMessages(
                group=group,
                client=row.client or "",
                instance=row.process or "",
                attempt=row.attempt or 0,
                after=row.after or 0,
                mode=mode,
                first=row.first or 0,
                upto=row.upto or 0,
                seen=row.seen or 0,
                start=row.start or 0,
                heartbeat_ms=row.heartbeat_ms or 0,
            )
        case "heartbeat":
            return c.Heartbeat(group, epoch, row.beat or 0, committed)
        case "commit":
            return c.Commit(group, epoch, committed)
        case "commit_ranges":
            return c.CommitRanges(group, epoch, committed, _ranges_of(row))
        case "commit_batch":
            return c.CommitBatch(group, epoch, row.upto or 0)
        case "release":
            return c.Release(group, epoch, committed)
        case "expire":
            return c.Expire(group, epoch, row.heard_ms or 0)
        case "pause":
            return c.Pause(group, row.until_ms or 0, row.after or 0)
        case "forget":
            return c.Forget(group, row.after or 0)
        case "configure":
            return c.Configure(row.heartbeat_ms or 0)
    return None


def _ranges_of(row: ClaimRow) -> tuple[tuple[int, int], ...]:
    ends = row.ranges or ()
    return tuple(zip(ends[::2], ends[1::2], strict=True))


OF_OWNERS: Final = ("heartbeat", "commit", "commit_ranges", "commit_batch", "release", "expire")


@define
class _Interval:
    """A claim as the log shows it: from its epoch to its end."""

    row: ClaimRow
    claim: Claim
    heard_ms: int
    beat: int = 0
    committed: int = 0
    claimed: int = 0

    def meets(self, first: int, upto: int | None) -> bool:
        mine = self.claim
        return (mine.upto is None or first < mine.upto) and (upto is None or mine.first < upto)


@define
class Intervals:
    """All claims of a partition.

    `done`: by consumer group, where the successor of an owner of the whole must begin. `islands`: what was
    committed above that, while gaps were left.
    """

    live: dict[str, list[_Interval]] = field(factory=dict)
    done: dict[str, int] = field(factory=dict)
    islands: dict[str, set[tuple[int, int]]] = field(factory=dict)
    log_time_ms: int = 0

    def judge(self, row: ClaimRow, answer: ClaimAnswer) -> Iterator[Violation]:
        """Judge one command with its answer, in order of positions."""
        self.log_time_ms = max(self.log_time_ms, row.log_time_ms)
        live = self.live.setdefault(row.consumer_group or "", [])
        match answer:
            case Granted():
                yield from self._granted(row, answer, live)
            case Accepted() if row.kind in OF_OWNERS:
                yield from self._accepted(row, answer, live)

    def _granted(self, row: ClaimRow, answer: Granted, live: list[_Interval]) -> Iterator[Violation]:
        claim = answer.claim
        if claim.epoch != row.position:
            return  # the client is told again what it has
        for held in [each for each in live if each.meets(claim.first, claim.upto) or claim.upto is None]:
            if held.claim.owner.client != row.client or held.claim.epoch != row.after:
                yield _about(
                    row,
                    DISJOINT,
                    f"nobody, or the end of the claim of {held.claim.owner.client} from position {held.claim.epoch} "
                    f"({held.row.file}:{held.row.file_offset})",
                    f"granted to {row.client} at position {row.position}",
                )
            live.remove(held)
            self._reached(row, held)
        done = self.done.get(row.consumer_group or "", 0)
        if claim.upto is None and claim.first < done:
            yield _about(
                row, ONWARD, f"a successor that begins at {done}", f"one that begins at {claim.first}"
            )
        if claim.upto is None:
            yield from self._passed_over(row, answer)
        live.append(_Interval(row, claim, self.log_time_ms, 0, claim.first, claim.first))

    def _passed_over(self, row: ClaimRow, answer: Granted) -> Iterator[Violation]:
        first, islands = answer.claim.first, self.islands.setdefault(row.consumer_group or "", set())
        for a, b in sorted(islands):
            if b <= first:
                islands.discard((a, b))
            elif not any(skip <= max(a, first) and b <= upto for skip, upto in answer.skips):
                yield _about(
                    row,
                    KEPT,
                    f"a successor that passes over {a} to {b}",
                    f"one that passes over {answer.skips}",
                )

    def _accepted(self, row: ClaimRow, answer: Accepted, live: list[_Interval]) -> Iterator[Violation]:
        held = next((each for each in live if each.claim.epoch == row.epoch), None)
        if held is None:
            yield _about(
                row, FENCED, "a refusal: the claim has ended", f"{row.kind} of epoch {row.epoch} accepted"
            )
            return
        if row.kind == "expire":
            silence, least = self.log_time_ms - held.heard_ms, 2 * held.claim.heartbeat_ms
            if silence < least:
                yield _about(
                    row, SILENT, f"{least} ms of silence of {held.claim.owner.client}", f"{silence} ms"
                )
        if answer.committed < held.committed or answer.claimed < held.claimed:
            yield _about(
                row,
                ONWARD,
                f"committed {held.committed} and claimed {held.claimed} at least",
                f"committed {answer.committed}, claimed {answer.claimed}",
            )
        held.committed, held.claimed = answer.committed, answer.claimed
        if row.kind == "heartbeat" and (row.beat or 0) > held.beat:
            held.beat, held.heard_ms = row.beat or 0, self.log_time_ms
        if row.kind == "commit_ranges":
            self.islands.setdefault(row.consumer_group or "", set()).update(_ranges_of(row))
        if answer.ended:
            live.remove(held)
        self._reached(row, held)

    def _reached(self, row: ClaimRow, held: _Interval) -> None:
        if held.claim.upto is None:
            group = row.consumer_group or ""
            self.done[group] = max(self.done.get(group, 0), held.committed, held.claimed)


def intervals(rows: Iterator[ClaimRow], decide: Decide) -> Iterator[Violation]:
    """Judge the commands of one partition in order; those of several servers' copies count once."""
    folded = Intervals()
    position = 0
    for row in rows:
        if row.position <= position:
            continue
        command = command_of(row)
        if command is None:
            continue
        position = row.position
        answer = decide(command, row.position, row.log_time_ms, END_UNKNOWN if row.end is None else row.end)
        if row.kind == "forget" and isinstance(answer, Accepted):
            folded.done.pop(row.consumer_group or "", None)
            folded.islands.pop(row.consumer_group or "", None)
        yield from folded.judge(row, answer)


def _intervals(rows: Iterator[ClaimRow]) -> Iterator[Violation]:
    yield from intervals(rows, Claims().apply)


def _about(row: ClaimRow, promise: str, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"{row.kind} of {row.client or 'the owner'} in group {row.consumer_group}, partition {row.group}",
        index=row.position,
        expected=expected,
        found=found,
    )


def _from_the_beginning(tables: Tables) -> list[ClaimRow]:
    whole = {
        (row.server, row.instance, row.group)
        for row in tables.get("entries", ())
        if row.index == 1 and row.group > 0
    }
    return [row for row in tables.get("claims", ()) if (row.server, row.instance, row.group) in whole]


WHOLE_CLAIMS: Final = Derived(
    name="whole_claims",
    row=ClaimRow,
    needs=("claims", "entries"),
    sql=(
        (
            "whole_claims",
            "SELECT c.* FROM claims c LEFT SEMI JOIN (SELECT server, instance, `group` FROM entries WHERE `index` = 1) e "
            "ON c.server = e.server AND c.instance = e.instance AND c.`group` = e.`group`",
        ),
    ),
    rows=_from_the_beginning,
)

CLAIM_INTERVALS: Final = Rule(
    id=RULE,
    title="Claims of consumers",
    claim="claims of a consumer group are disjoint in log position, only owners are heard, and no claim expires early",
    checks=(
        Check(
            DISJOINT,
            (
                Input(
                    "whole_claims",
                    ("group",),
                    ("position", "server"),
                    {"standing": (Standing.COMMITTED.value,)},
                ),
            ),
            _intervals,
            derived=(WHOLE_CLAIMS,),
            needed=("claims", "entries"),
        ),
    ),
)
