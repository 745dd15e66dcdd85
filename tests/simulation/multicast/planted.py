"""Bugs planted into the shipped decisions of atomic multicast, each of which the checks must notice.

Each takes one rule back (docs/explanation/rules.md, D-8, D-9, D-17, D-18) or makes one mistake that a release could make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from tests.simulation.multicast.profile import Mode
from tests.simulation.planted_registry import Patch, Plants
from zraft.topics.applied import StartVerdict
from zraft.topics.chain import message_digest
from zraft.topics.leader import PartitionLeader
from zraft.topics.partition import Partition
from zraft.topics.pending import SettledEntries
from zraft.topics.registry import Registry
from zraft.topics.registry_items import Part
from zraft.topics.resending import Resending
from zraft.topics.rows import ProducerRow
from zraft_core.topics.merger import Merger
from zraft_core.topics.messages import Answer, Propose, Told
from zraft_core.topics.producer import Ended, Ending, ProducerCore
from zraft_core.topics.stamps import AFTER_ALL_GROUPS, FinalTime, Stamp
from zraft_core.topics.view import LoggedView

PLANTS: Final = Plants[Mode]()
plant = PLANTS.plant
planted = PLANTS.planted


# -- stamps


@plant("I4", "the clock is not raised to a final time")
def clock_not_raised() -> Sequence[Patch]:
    return [(Partition, "_raise_clock", lambda self, time: None)]


@plant("I4", "the clock is set to a final time, also if that is lower, as in the thesis' first algorithm")
def clock_without_max() -> Sequence[Patch]:
    def raise_clock(self: Partition, time: int) -> None:
        if time:
            self.clock = time

    return [(Partition, "_raise_clock", raise_clock)]


@plant(
    "I4",
    "the clock is raised to below a final time, so that it may be proposed again, as in the thesis' second algorithm",
)
def clock_one_below() -> Sequence[Patch]:
    def raise_clock(self: Partition, time: int) -> None:
        self.clock = max(self.clock, time - 1)

    return [(Partition, "_raise_clock", raise_clock)]


@plant("I1", "a proposal is told before it is committed")
def proposed_before_commit() -> Sequence[Patch]:
    original = PartitionLeader._start

    def start(self: PartitionLeader, request: Any) -> None:
        original(self, request)
        message = request.message
        time = self.partition.clock + len(self._started)
        for group in message.destinations:
            if group != self.group:
                digest = message_digest(message)
                self._send(
                    group, Propose(message.mid, self.group, time, None, request.floor, digest, message)
                )

    return [(PartitionLeader, "_start", start)]


@plant("I2", "ties are broken by who decides, not by who proposed")
def ties_by_receiver() -> Sequence[Patch]:
    def final_time(self: Partition, proposals: dict[Any, int]) -> FinalTime:
        return FinalTime(max(proposals.values()), self.group)

    return [(Partition, "final_time", final_time)]


@plant("I2", "a time is final although one destination has not proposed")
def final_before_all() -> Sequence[Patch]:
    original = Partition._fix

    def fix(self: Partition, entry: Any) -> None:
        if entry.final is None and len(entry.proposals) == len(entry.message.destinations) - 1 > 1:
            entry.final = self.final_time(entry.proposals)
            self._raise_clock(entry.final.time)
            self._deliver()
        else:
            original(self, entry)

    return [(Partition, "_fix", fix)]


@plant("I5", "ADVANCE passes what is pending")
def advance_past_pending() -> Sequence[Patch]:
    return [(Partition, "_advance", Partition._advance_to)]


@plant("I4", "ADVANCE moves the floor and leaves the clock behind")
def advance_without_clock() -> Sequence[Patch]:
    def advance_to(self: Partition, time: int) -> None:
        if time > self.floor.time:
            self.floor, self.sub = FinalTime(time, AFTER_ALL_GROUPS), 0

    return [(Partition, "_advance_to", advance_to)]


# -- what is known


def _known(self: Partition, mid: Any) -> bool:
    return mid in self.pending or mid in self.settled or self.retired(mid.producer)


@plant("D-8a", "decided messages are forgotten")
def known_without_outcomes() -> Sequence[Patch]:
    return [(Partition, "known", _known)]


@plant("D-8a", "REMOTE begins a message that is known")
def remote_begins_known() -> Sequence[Patch]:
    original = Partition._remote

    def remote(self: Partition, command: Any) -> None:
        message = command.message
        if message is not None and command.mid not in self.pending and self._concerns(command, message):
            self._begin(message)
        original(self, command)

    return [(Partition, "_remote", remote)]


@plant("D-8c", "what is delivered is not kept for those who lack the proposal")
def settled_never_kept() -> Sequence[Patch]:
    def settle(self: Partition, entry: Any) -> None:
        self._done(entry)

    return [(Partition, "_settle", settle)]


@plant("D-8c", "one other destination's floor is enough to forget a message")
def settled_dropped_on_any_floor() -> Sequence[Patch]:
    def has(self: SettledEntries, entry: Any, group: Any) -> bool:
        return self.entries.pop(entry.mid, None) is not None

    return [(SettledEntries, "_has", has)]


@plant("D-8c", "a removed group is waited for", Mode.DELETING)
def removed_still_awaited() -> Sequence[Patch]:
    def forgo(self: Partition, group: Any) -> None:
        return

    def waits_for_all(self: Partition, entry: Any) -> None:
        entry.waiting = set(entry.message.destinations) - {self.group}
        self.settled.keep(entry, self.floors)
        if entry.mid not in self.settled:
            self._done(entry)

    return [(Partition, "_forgo", forgo), (Partition, "_settle", waits_for_all)]


@plant("D-8b", "a producer's floor passes what is only accepted")
def floor_by_accepted() -> Sequence[Patch]:
    def accepted(self: ProducerCore, opened: Any) -> None:
        opened.accepted = True
        self.move_floor(opened.message.mid.seq)

    return [(ProducerCore, "accepted", accepted)]


@plant("D-8b", "a producer's floor passes what one destination has delivered")
def floor_by_first_delivery() -> Sequence[Patch]:
    original = ProducerCore.complete

    def complete(self: ProducerCore, message: Any, answers: Any, *, everywhere: bool) -> bool:
        if original(self, message, answers, everywhere=everywhere):
            return True
        self.move_floor(message.mid.seq)
        return False

    return [(ProducerCore, "complete", complete)]


@plant("D-8b", "PROPOSE does not carry the producer's floor")
def propose_without_floor() -> Sequence[Patch]:
    original = PartitionLeader._send

    def send(self: PartitionLeader, to: Any, message: Any) -> None:
        original(self, to, evolve(message, floor=0) if isinstance(message, Propose) else message)

    return [(PartitionLeader, "_send", send)]


@plant("D-8d", "a producer's row goes when it is closed, not when it is retired", Mode.CLOSING)
def rows_dropped_at_close() -> Sequence[Patch]:
    original = Partition._on_view

    def on_view(self: Partition, view: Any) -> None:
        original(self, view)
        for producer in self.view.closed:
            self.rows.pop(producer, None)

    return [(Partition, "_on_view", on_view)]


@plant("D-8a", "a retired producer is taken for an unknown one")
def retired_not_known() -> Sequence[Patch]:
    def known(self: Partition, mid: Any) -> bool:
        row = self.rows.get(mid.producer)
        return mid in self.pending or mid in self.settled or (row is not None and row.decided(mid.seq))

    return [(Partition, "known", known)]


@plant("D-8d", "who is older than all that are open counts as retired")
def plain_watermark() -> Sequence[Patch]:
    def retired(self: Partition, producer: Any) -> bool:
        living = [p for p in (*self.view.producers, *self.view.closed) if p]
        return bool(0 < producer < min(living, default=1 << 62))

    return [(Partition, "retired", retired)]


@plant("D-8d", "an older view replaces a newer one")
def view_goes_back() -> Sequence[Patch]:
    original = PartitionLeader.on_message

    def on_message(self: PartitionLeader, message: Any) -> None:
        self._viewing = -1
        original(self, message)

    return [
        (LoggedView, "fits", lambda self, view: view.position != self.position),
        (PartitionLeader, "on_message", on_message),
    ]


@plant("D-8e", "a group says that it is clear while something is settled there", Mode.DELETING)
def clear_ignores_settled() -> Sequence[Patch]:
    def producers(self: Partition) -> Any:
        pending = {mid.producer for mid in self.pending.entries}
        return sorted(p for p in self.view.closed if p not in pending)

    def deleting(self: Partition) -> Any:
        pending = {g for entry in self.pending.entries.values() for g in entry.message.destinations}
        return sorted(g for g in self.view.deleting if g not in pending)

    return [(Partition, "clear_producers", producers), (Partition, "clear_deleting", deleting)]


@plant("D-8e", "a producer retires, and a group is removed, before all groups have reported")
def clear_not_awaited() -> Sequence[Patch]:
    return [(Registry, "complete", lambda self, heard: True)]


# -- refusals


@plant("D-9a", "only the leader looks whether a producer is closed", Mode.CLOSING)
def close_checked_by_leader_only() -> Sequence[Patch]:
    original = Partition.admits

    def admits(self: Partition, message: Any, floor: int, epoch: int) -> bool:
        closed, self.view.closed = self.view.closed, set()
        self.view.producers |= closed
        try:
            return original(self, message, floor, epoch)
        finally:
            self.view.producers -= closed
            self.view.closed = closed

    return [(Partition, "admits", admits)]


@plant("D-9b", "a message of a closed producer is refused though another group has begun it", Mode.CLOSING)
def refuse_propose_of_closed() -> Sequence[Patch]:
    original = Partition._remote

    def remote(self: Partition, command: Any) -> None:
        if command.mid in self.pending or command.mid.producer not in self.view.closed:
            original(self, command)

    return [(Partition, "_remote", remote)]


@plant("D-9c", "one refusal is final, whatever is removed", Mode.DELETING)
def one_refusal_is_final() -> Sequence[Patch]:
    return [(PartitionLeader, "_final", lambda self, message: True)]


@plant("D-9c", "refusals of the destinations that are left are final", Mode.DELETING)
def refusals_before_removal_count() -> Sequence[Patch]:
    original = ProducerCore._refused

    def refused(self: ProducerCore, opened: Any, reply: Any) -> list[Ended]:
        ended = original(self, opened, reply)
        left = [g for g in opened.message.destinations if not self.table.removed(g)]
        if not ended and left and all(opened.answers.get(g) is Answer.STALE for g in left):
            return self._end(reply.mid.seq, Ending.NEVER)
        return ended

    return [(ProducerCore, "_refused", refused)]


@plant("D-9c", "a refusal of an older epoch counts for the newer one", Mode.DELETING)
def late_refusal_counts() -> Sequence[Patch]:
    return [(ProducerCore, "counts", lambda self, opened, reply: True)]


@plant("D-9d", "every destination judges the condition by itself")
def condition_judged_everywhere() -> Sequence[Patch]:
    def judge(self: Partition, message: Any) -> bool:
        condition = message.condition
        return condition is not None and not self._consume(
            condition.consumer, condition.expected, condition.following
        )

    return [(Partition, "_judge", judge)]


@plant("D-9d", "the verdict on the condition does not travel")
def condition_not_carried() -> Sequence[Patch]:
    judge, remote = Partition._judge, Partition._remote
    return [
        (Partition, "_judge", lambda self, message: bool(judge(self, message))),
        (Partition, "_remote", lambda self, command: remote(self, evolve(command, void=None))),
    ]


@plant("D-9d", "the condition takes its effect when the message is delivered")
def condition_effect_at_delivery() -> Sequence[Patch]:
    record = Partition._record

    def judge(self: Partition, message: Any) -> bool | None:
        condition = message.condition
        if condition is None:
            return False
        if condition.home != self.group:
            return None
        return bool(self.offsets.get(condition.consumer, 0) != condition.expected)

    def recorded(self: Partition, entry: Any, stamp: Any) -> None:
        condition = entry.message.condition
        if condition is not None and condition.home == self.group and not entry.void:
            self.offsets[condition.consumer] = self.offsets.get(condition.consumer, 0) + 1
        record(self, entry, stamp)

    return [(Partition, "_judge", judge), (Partition, "_record", recorded)]


# -- what clients see


@plant("D-17c", "delivered at one destination is told as delivered")
def delivered_by_first() -> Sequence[Patch]:
    return [(ProducerCore, "complete", lambda self, message, answers, *, everywhere: True)]


@plant("D-17b", "messages to one partition alone are taken in any order")
def singles_unnumbered() -> Sequence[Patch]:
    return [(Partition, "in_turn", lambda self, message: True)]


@plant("D-17a", "what is named as earlier counts as decided where it is not known")
def after_unknown_satisfied() -> Sequence[Patch]:
    def follows(self: Partition, message: Any, floor: int) -> bool:
        after = message.after
        return after is None or (self.group in after.destinations and after.mid not in self.pending)

    return [(Partition, "follows", follows)]


@plant("D-17a", "a group that is not named as a destination of the earlier message may begin")
def after_begun_elsewhere() -> Sequence[Patch]:
    original = Partition.follows

    def follows(self: Partition, message: Any, floor: int) -> bool:
        after = message.after
        return after is None or self.group not in after.destinations or original(self, message, floor)

    return [(Partition, "follows", follows)]


@plant("D-17a", "the floor in START says nothing of the earlier message")
def after_blind_to_floor() -> Sequence[Patch]:
    original = Partition.follows
    return [(Partition, "follows", lambda self, message, floor: original(self, message, 0))]


@plant("D-17a", "it is enough that the earlier message is pending")
def after_pending_suffices() -> Sequence[Patch]:
    original = Partition.follows

    def follows(self: Partition, message: Any, floor: int) -> bool:
        after = message.after
        pipelined = after is not None and not message.is_single and self.group in after.destinations
        return (pipelined and self.known(after.mid)) or original(self, message, floor)

    return [(Partition, "follows", follows)]


@plant("D-17b", "a message takes the bypass although it depends on what was seen elsewhere", Mode.CAUSAL)
def depends_bypassed() -> Sequence[Patch]:
    return [(Partition, "_bypasses", lambda self, message, row: not row.queued)]


@plant(
    "D-17b",
    "the bypass overtakes an earlier message of the same producer that could not take it",
    Mode.CAUSAL,
)
def queued_overtaken() -> Sequence[Patch]:
    return [(Partition, "_bypasses", lambda self, message, row: not message.depends)]


@plant("D-17b", "NEED asks for the time of the stamp")
def need_T() -> Sequence[Patch]:
    return [(Merger, "time_needed", lambda self, stamp: stamp.time)]


@plant("D-17d", "a merger waits for nobody")
def merger_waits_for_nobody() -> Sequence[Patch]:
    return [(Merger, "_reached", lambda self: None)]


@plant("D-17d", "a partition that is added takes messages before the change", Mode.GROWING)
def boundary_ignored() -> Sequence[Patch]:
    return [(Partition, "takes", lambda self, message: True)]


# -- rounds


@plant("D-17e", "a round puts in order what only some destinations have staged", Mode.ORDERED)
def released_before_staged() -> Sequence[Patch]:
    original = ProducerCore._unstaged
    return [(ProducerCore, "_unstaged", lambda self, opened: [] if opened.staged else original(self, opened))]


@plant("D-17e", "a round passes what was sent before and is undecided", Mode.ORDERED)
def released_behind_undecided() -> Sequence[Patch]:
    original = ProducerCore.take_round

    def take_round(self: ProducerCore, destinations_max: int) -> Any:
        direct, self._direct = self._direct, {}
        found = original(self, destinations_max)
        self._direct = direct | self._direct
        return found

    return [(ProducerCore, "take_round", take_round)]


@plant("D-17e", "a round is sent while another one is under way", Mode.ORDERED)
def rounds_overlap() -> Sequence[Patch]:
    original = ProducerCore.take_round

    def take_round(self: ProducerCore, destinations_max: int) -> Any:
        self._round = None
        return original(self, destinations_max)

    return [(ProducerCore, "take_round", take_round)]


@plant("D-17e", "a round does not depend on what was decided before it", Mode.ORDERED)
def round_without_depends() -> Sequence[Patch]:
    original = ProducerCore._add

    def add(self: ProducerCore, opened: Any) -> None:
        if opened.message.round is not None:
            opened.message = evolve(opened.message, depends=0)
        original(self, opened)

    return [(ProducerCore, "_add", add)]


@plant("D-17e", "a message is said to be staged before it is committed", Mode.ORDERED)
def staged_told_before_commit() -> Sequence[Patch]:
    original = PartitionLeader._on_stage

    def on_stage(self: PartitionLeader, request: Any) -> None:
        original(self, request)
        if request.message.mid in self._started:
            self._reply(request.message.mid, Answer.STAGED, request.epoch)

    return [(PartitionLeader, "_on_stage", on_stage)]


@plant("D-17e", "what is staged is delivered at once", Mode.ORDERED)
def staged_is_delivered() -> Sequence[Patch]:
    original = Partition._stage

    def stage(self: Partition, message: Any) -> None:
        original(self, message)
        if message.is_single:
            (entry,) = [
                one for one in self._row(message.mid.producer).staged.values() if one.mid == message.mid
            ]
            self.sub += 1
            self._record(entry, Stamp(*self.floor, self.sub, self.group))

    return [(Partition, "_stage", stage)]


@plant("D-17e", "a round delivers what it puts in order as it came", Mode.ORDERED)
def staged_as_it_came() -> Sequence[Patch]:
    original = ProducerRow.unstaged

    def unstaged(self: ProducerRow, upto: int) -> Any:
        came = [seq for seq in self.staged if seq <= upto]
        found = {entry.mid.seq: entry for entry in original(self, upto)}
        return [found[seq] for seq in came]

    return [(ProducerRow, "unstaged", unstaged)]


@plant("D-17e", "all messages of a round have one stamp", Mode.ORDERED)
def one_stamp_per_round() -> Sequence[Patch]:
    original = Partition._record

    def record(self: Partition, entry: Any, stamp: Stamp) -> None:
        original(self, entry, stamp if stamp.single else stamp._replace(sub=0))

    return [(Partition, "_record", record)]


@plant("I11", "a message takes one offset, however many records it has")
def batch_takes_one_offset() -> Sequence[Patch]:
    original = Partition._record

    def record(self: Partition, entry: Any, stamp: Stamp) -> None:
        before = self.next_offset
        original(self, entry, stamp)
        self.next_offset = min(self.next_offset, before + 1)

    return [(Partition, "_record", record)]


@plant("D-17e", "what takes the bypass after a round has a stamp below some of it", Mode.ORDERED)
def bypass_below_round() -> Sequence[Patch]:
    original = Partition._release

    def release(self: Partition, mid: Any, message: Any, round: Any, final: Any) -> None:
        original(self, mid, message, round, final)
        self.sub = 0

    return [(Partition, "_release", release)]


@plant("D-17e", "a round delivers also what it was made without, because a destination is deleted")
def removed_in_a_round() -> Sequence[Patch]:
    original = Partition._release

    def release(self: Partition, mid: Any, message: Any, round: Any, final: Any) -> None:
        everybody = tuple(range(1, 1_000))
        original(self, mid, evolve(message, destinations=everybody), round, final)

    return [(Partition, "_release", release)]


@plant("D-17e", "what is staged goes when its producer is closed, not when it is retired", Mode.CLOSING)
def staged_dropped_at_close() -> Sequence[Patch]:
    original = Partition._on_view

    def on_view(self: Partition, view: Any) -> None:
        original(self, view)
        for producer in self.view.closed:
            if producer in self.rows:
                self.staged_bytes -= self.rows[producer].staged_bytes
                self.rows[producer].unstaged(1 << 60)

    return [(Partition, "_on_view", on_view)]


@plant("D-4", "a snapshot lacks what is staged", Mode.ORDERED)
def snapshot_without_staged() -> Sequence[Patch]:
    return [(Partition, "restore_staged", lambda self, entry: None)]


# -- life of a group


@plant("D-18", "a START under an older epoch is taken", Mode.DELETING)
def stale_epoch_admitted() -> Sequence[Patch]:
    original = Partition.verdict

    def verdict(self: Partition, message: Any, floor: int, epoch: int) -> StartVerdict:
        return original(self, message, floor, max(epoch, self.view.epoch))

    return [(Partition, "verdict", verdict)]


@plant("D-18", "a repeat takes the newer epoch though a destination is being deleted", Mode.DELETING)
def epoch_raised_blindly() -> Sequence[Patch]:
    return [(ProducerCore, "current", lambda self, message: True)]


# -- leaders and snapshots


@plant("I10", "a new leader does not say again what is pending")
def new_leader_silent() -> Sequence[Patch]:
    original = Resending.add

    def add(self: Resending, mid: Any, now: int, *, at_once: bool = False) -> None:
        if not at_once:
            original(self, mid, now)

    return [(Resending, "add", add)]


@plant("D-8a", "a proposal is confirmed before it is committed")
def told_before_commit() -> Sequence[Patch]:
    original = PartitionLeader._on_propose

    def on_propose(self: PartitionLeader, propose: Any) -> None:
        original(self, propose)
        if propose.message is not None or propose.mid in self.partition.pending:
            self._send(propose.sender, Told(propose.mid, self.group))

    return [(PartitionLeader, "_on_propose", on_propose)]


@plant("D-4", "a snapshot lacks what is settled")
def snapshot_without_settled() -> Sequence[Patch]:
    return [(Partition, "restore_settled", lambda self, entry: None)]


@plant("D-4", "what a snapshot holds as pending keeps no bypass back", Mode.CAUSAL)
def snapshot_without_queue() -> Sequence[Patch]:
    original = Partition.restore_pending

    def restore(self: Partition, entry: Any) -> None:
        original(self, entry)
        if entry.message.is_single:
            self.rows[entry.mid.producer].queued -= 1

    return [(Partition, "restore_pending", restore)]


@plant("D-9d", "a void message is delivered")
def void_delivered() -> Sequence[Patch]:
    original = Partition._record

    def record(self: Partition, entry: Any, stamp: Any) -> None:
        entry.void = False
        original(self, entry, stamp)

    return [(Partition, "_record", record)]


# -- groups that are given up (docs/decisions/0012)


@plant("G-2", "a proposal of a group that is given up counts whenever it arrives", Mode.LOSING)
def given_up_is_heard() -> Sequence[Patch]:
    apply, hear = Partition._remote, PartitionLeader._on_propose

    def remote(self: Partition, command: Any) -> None:
        given_up = self.view.given_up
        if command.sender not in given_up:
            apply(self, command)
            return
        self.view.given_up = set()
        apply(self, command)
        self.view.given_up = given_up
        entry = self.pending.entries.get(command.mid)
        if entry is not None:
            self._fix(entry)

    def on_propose(self: PartitionLeader, propose: Propose) -> None:
        given_up = self.partition.view.given_up
        if propose.sender in given_up:
            self.partition.view.given_up = set()
        hear(self, propose)
        self.partition.view.given_up = given_up

    return [(Partition, "_remote", remote), (PartitionLeader, "_on_propose", on_propose)]


@plant("G-3", "a group that does not know a proposal of one that is given up counts none", Mode.LOSING)
def decided_without_testimony() -> Sequence[Patch]:
    return [(Partition, "lacks_testimony", lambda self, entry: [])]


@plant("G-5", "a group that has delivered a message says that it knows nothing", Mode.LOSING)
def delivered_and_silent() -> Sequence[Patch]:
    testify = PartitionLeader._testify

    def testify_of_pending(self: PartitionLeader, to: Any, entry: Any) -> None:
        if entry.mid in self.partition.pending:
            testify(self, to, entry)
        else:
            proposals, entry.proposals = entry.proposals, {}
            testify(self, to, entry)
            entry.proposals = proposals

    return [(PartitionLeader, "_testify", testify_of_pending)]


@plant("G-7", "the floor of a group that is given up is waited for", Mode.LOSING)
def given_up_still_awaited() -> Sequence[Patch]:
    original = Partition._go_on_without

    def go_on(self: Partition, groups: Any) -> None:
        original(self, ())
        for entry in list(self.pending.entries.values()):
            if self.given_up_of(entry.message):
                self._fix(entry)

    return [(Partition, "_go_on_without", go_on)]


@plant("G-7", "what groups reported before another one was given up counts still", Mode.REPLACING)
def reported_before_the_loss() -> Sequence[Patch]:
    original = Registry._give_up

    def give_up(self: Registry, group: Any, zxid: int) -> Any:
        tables: tuple[dict[Any, Any], ...] = self.deleting, self.closed
        before = [{one: set(heard) for one, heard in table.items()} for table in tables]
        result = original(self, group, zxid)
        self.last_loss = 0
        for part, table, known in zip((Part.DELETING, Part.CLOSED), tables, before, strict=True):
            for one in known.keys() & table.keys():
                self.digest.before(part, one)
                table[one] |= known[one]
        return result

    return [(Registry, "_give_up", give_up)]


@plant("G-10", "a group that takes another's place begins at time 0", Mode.REPLACING)
def replaced_from_time_zero() -> Sequence[Patch]:
    original = Partition.__init__

    def init(self: Partition, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "first_time": 0})

    return [(Partition, "__init__", init)]


@plant("G-0", "a group that is given up is removed before another one is in its place", Mode.REPLACING)
def removed_in_its_place() -> Sequence[Patch]:
    return [(Registry, "removable", lambda self, group: self.complete(self.deleting[group]))]


@plant("G-0", "a merged consumer waits for a partition that is given up", Mode.REPLACING)
def lost_and_awaited() -> Sequence[Patch]:
    return [(Merger, "lose", lambda self, group: None)]
