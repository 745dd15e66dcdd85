"""The oracles over consumers that shared partitions: each promise broken once, and a log and journals that keep them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.claims.checks import Checks
from tests.topic_chaos.claims import (
    ClaimsJudged,
    Handed,
    done_line,
    durable_line,
    handed_line,
    judge_claims,
    read_consumer_journal,
    replay,
)
from zraft.raft.messages import Entry, EntryKind
from zraft.topics.entries import BatchEntry, BirthEntry, encode_entry
from zraft_core.claims.commands import ClaimCommand, ClaimPartition, CommitBatch, Heartbeat, Release
from zraft_core.claims.values import Mode
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.commands import Batch, Start
from zraft_core.topics.message import Message
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import View

GROUP = GroupId(7)
NAME = "g"
PRODUCER = ProducerId(5)


class Log:
    """A partition's log, written as its leader would; positions are counted."""

    def __init__(self) -> None:
        view = View(6, 0, frozenset({PRODUCER}), frozenset(), frozenset({GROUP}))
        birth = BirthEntry(0, 0, view, PartitionSettings(), True, 1000)
        self.entries = [Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, b"")]
        self.position = 1
        self._append(encode_entry(birth), 1)

    def _append(self, payload: bytes, count: int) -> int:
        first = self.position
        self.entries.append(Entry(len(self.entries) + 1, 1, EntryKind.COMMANDS, first, count, payload))
        self.position += count
        return first

    def messages(self, count: int) -> None:
        starts = tuple(
            Start(Message(MessageId(PRODUCER, n), (GROUP,), b"x", number=n), 0, 0)
            for n in range(1, count + 1)
        )
        self._append(encode_entry(BatchEntry(0, Batch(0, starts))), count)

    def claim(self, command: ClaimCommand, now_ms: int) -> int:
        """The position of the command, which is a claim's epoch."""
        return self._append(encode_entry(BatchEntry(0, Batch(now_ms, ()), (command,))), 1)


class Story:
    """Ten messages; client a has the first five and releases, client b has the rest."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.log = Log()
        log = self.log
        log.messages(10)
        self.a = log.claim(ClaimPartition(NAME, "a", "1", 1, 0, mode), 10)
        if mode is Mode.AT_MOST_ONCE:
            log.claim(CommitBatch(NAME, self.a, 5), 20)
        else:
            log.claim(Heartbeat(NAME, self.a, 1, 4), 20)
        log.claim(Release(NAME, self.a, 5 if mode is Mode.AT_MOST_ONCE else 4), 30)
        self.b = log.claim(ClaimPartition(NAME, "b", "1", 1, self.a, mode), 40)
        if mode is Mode.AT_MOST_ONCE:
            log.claim(CommitBatch(NAME, self.b, 10), 50)
        self.journals = [Handed("a", 0, n, self.a, 100 + n, 101 + n) for n in range(5)]
        # At least once, the fifth message was processed and not committed.
        first = 5 if mode is Mode.AT_MOST_ONCE else 4
        self.journals += [Handed("b", 0, n, self.b, 200 + n, 201 + n) for n in range(first, 10)]

    def judged(self, *, stops: int = 0) -> ClaimsJudged:
        checks = Checks()
        end = replay(checks, 0, GROUP, self.log.entries)
        return judge_claims(checks, self.journals, {0: end}, group=NAME, mode=self.mode, stops=stops)


@pytest.mark.parametrize(("mode", "again"), [(Mode.AT_LEAST_ONCE, 1), (Mode.AT_MOST_ONCE, 0)])
def test_claims_that_keep_their_promises_pass_and_are_counted(mode: Mode, again: int) -> None:
    """M-7, M-8."""
    found = Story(mode).judged()
    assert found == ClaimsJudged(handed=10 + again, again=again, late=0, claims=2, ended={"release": 1})


def by_a_stranger(story: Story) -> None:
    story.journals[0] = Handed("c", 0, 0, story.a, 100, 101)


def under_no_claim(story: Story) -> None:
    story.journals.append(Handed("a", 0, 9, 999, 400, 401))


def again_in_one_claim(story: Story) -> None:
    story.journals.append(Handed("a", 0, 1, story.a, 110, 111))


def again_though_committed(story: Story) -> None:
    story.journals.append(Handed("b", 0, 2, story.b, 300, 301))


def again_though_durable(story: Story) -> None:
    story.journals[4] = Handed("a", 0, 4, story.a, 104, 105, 106)


def never_done(story: Story) -> None:
    story.journals[7] = Handed("b", 0, story.journals[7].offset, story.b, 200, None)


def zombie(story: Story) -> None:
    story.journals[4] = Handed("a", 0, 4, story.a, 900, 901)


@pytest.mark.parametrize(
    ("breaks", "promise"),
    [
        (by_a_stranger, "owners only"),
        (under_no_claim, "owners only"),
        (again_in_one_claim, "once per claim"),
        (again_though_committed, "reprocessing is bounded"),
        (again_though_durable, "a durable commit holds"),
        (never_done, "at least once"),
        (zombie, "a stale owner stops"),
    ],
)
def test_a_broken_promise_at_least_once_is_found(breaks: Callable[[Story], None], promise: str) -> None:
    story = Story(Mode.AT_LEAST_ONCE)
    breaks(story)
    with pytest.raises(BrokenPromiseError, match=promise):
        story.judged()


def twice(story: Story) -> None:
    story.journals.append(Handed("b", 0, 7, story.b, 300, 301))


def unclaimed(story: Story) -> None:
    story.journals.append(Handed("a", 0, 7, story.a, 150, 151))


@pytest.mark.parametrize(
    ("breaks", "promise"), [(twice, "at most once"), (unclaimed, "claimed before processed")]
)
def test_a_broken_promise_at_most_once_is_found(breaks: Callable[[Story], None], promise: str) -> None:
    story = Story(Mode.AT_MOST_ONCE)
    breaks(story)
    with pytest.raises(BrokenPromiseError, match=promise):
        story.judged()


def test_what_nobody_claimed_is_found_at_most_once() -> None:
    story = Story(Mode.AT_MOST_ONCE)
    story.log.entries.pop()
    story.journals = [one for one in story.journals if one.epoch == story.a]
    with pytest.raises(BrokenPromiseError, match=r"liveness: partition 0: never claimed: \[5, 6, 7, 8, 9\]"):
        story.judged()


def test_a_consumer_that_was_stopped_may_hand_out_one_late_message_per_stop() -> None:
    """The look at the lease and the program's hand cannot be one step; the epoch is for the store to fence it."""
    story = Story(Mode.AT_LEAST_ONCE)
    zombie(story)
    assert story.judged(stops=1).late == 1


def test_a_log_in_which_two_own_at_once_is_found() -> None:
    """The product would refuse the second claim; here its answer is replaced by what it gave the first one."""
    from attrs import evolve

    from zraft_core.claims.answers import Granted
    from zraft_core.claims.values import Claim

    checks, story = Checks(), Story(Mode.AT_LEAST_ONCE)
    replay(checks, 0, GROUP, story.log.entries)
    live = checks.live(NAME, 0)[0]
    claim = Claim(
        live.epoch + 5, evolve(live.owner, client="c"), 1, live.mode, 5, None, False, 1000, 60, 60, 0, 5, 5
    )
    with pytest.raises(BrokenPromiseError, match="disjoint intervals"):
        checks.on_applied(
            0, claim.epoch, 60, ClaimPartition(NAME, "c", "1", 1, 0, live.mode), Granted(claim, (), 60), 1, 60
        )


def test_a_log_that_cannot_be_carried_out_is_found() -> None:
    story = Story(Mode.AT_LEAST_ONCE)
    del story.log.entries[1]
    with pytest.raises(BrokenPromiseError, match="log: group 7"):
        story.judged()


def test_a_journal_is_read_up_to_its_last_whole_line() -> None:
    lines = [
        "# instance",
        handed_line(0, 3, 17, 5),
        handed_line(0, 4, 17, 6),
        done_line(0, 3, 17, 9),
        durable_line(0, 3, 17, 12),
        handed_line(0, 5, 1, 9),
    ]
    assert read_consumer_journal("a", "\n".join(lines)) == [
        Handed("a", 0, 3, 17, 5, 9, 12),
        Handed("a", 0, 4, 17, 6),
    ]
