"""A consumer's decisions: what to ask of the service, what to hand to the program, what to give up. Pure.

Answers and time go in, effects (`take_effects`) and messages come out; the asyncio shell is
`zraft_client.claims.consumer`. All times are milliseconds of one clock that never goes back and counts the
time in which the machine sleeps.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping

from attrs import frozen

from zraft_client.claims.claiming import Claiming, Place
from zraft_client.claims.consumption import Consumption, Ended, Told
from zraft_client.claims.messages import CommitToken, Message
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import Seen
from zraft_client.claims.requests import NEVER, Effect, Reply, Requests
from zraft_core.claims.answers import Granted
from zraft_core.claims.commands import Release
from zraft_core.claims.values import Owner

Key = tuple[str, int, int]
"""(topic, partition, epoch)."""


@frozen
class ConsumerStatistics:
    """Counts of claims by how they ended, and of what is going on now."""

    claims: int
    granted: int
    released: int
    completed: int
    lost: int
    handed_out: int
    late_commits: int
    late_grants: int


class ConsumerCore:
    """One process' part in a group: `identity` is its stable client id and an instance drawn at its start."""

    def __init__(
        self,
        identity: Owner,
        group: str,
        topics: Mapping[str, int],
        options: ConsumerOptions,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        self.identity = identity
        self.group = group
        self.topics = dict(topics)
        self.options = options
        self._rng = rng
        self._requests = Requests()
        self._consumptions: dict[Key, Consumption] = {}
        self._turns: deque[Key] = deque()
        self._counts: Counter[str] = Counter()
        self._terminating = False
        self._now_ms = now_ms
        self._claiming = Claiming(
            group, identity, topics, options, rng, self._requests, self, self._on_granted, now_ms
        )
        self.on_time(now_ms)

    # What claiming asks -----------------------------------------------------------------------------------------

    def claims(self) -> int:
        """Return how many claims count.

        Ranges without messages yet do not: they must not keep the consumer from existing work.
        """
        return sum(one.claim.upto is None or one.has_work for one in self._consumptions.values())

    def ranges(self, place: Place) -> tuple[int, int]:
        """Return how many of the claimed ranges of a partition have messages, and how many have none."""
        ranges = [one.has_work for key, one in self._consumptions.items() if key[:2] == place]
        return sum(ranges), len(ranges) - sum(ranges)

    def epochs(self, place: Place) -> frozenset[int]:
        """Return the epochs of the claims on a partition."""
        return frozenset(key[2] for key in self._consumptions if key[:2] == place)

    def holds(self, place: Place) -> bool:
        """Return whether some claim on the partition may be processed now."""
        return any(
            one.lease.holds(self._now_ms) and not one.is_releasing
            for key, one in self._consumptions.items()
            if key[:2] == place
        )

    # Input ------------------------------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> None:
        """Do what is due. Call it at `next_due_ms`; calling it at other times does no harm."""
        self._now_ms = now_ms
        self._requests.on_time(now_ms)
        self._step(now_ms)

    def on_reply(self, number: int, reply: Reply, effect: Effect, now_ms: int) -> None:
        """Take the service's answer to an effect; None if it cannot be had."""
        self._now_ms = now_ms
        if (
            not self._requests.answered(number, reply, now_ms)
            and isinstance(reply, Granted)
            # If it is asked for again, it is about to be granted again, and used.
            and reply.claim.attempt != self._claiming.attempt
        ):
            self._give_back((effect.topic, effect.partition), reply, now_ms)
        self._step(now_ms)

    def _give_back(self, place: Place, granted: Granted, now_ms: int) -> None:
        """Give back a claim that was granted after this consumer gave up asking: nobody would use it."""
        claim = granted.claim
        if claim.epoch in self.epochs(place):
            return
        self._counts["late_grants"] += 1
        command = Release(self.group, claim.epoch, claim.committed)
        deadline = now_ms + self.options.request_timeout_ms
        self._requests.submit(*place, command, deadline, lambda _answer, _now: None)

    def _step(self, now_ms: int) -> None:
        for one in self._consumptions.values():
            if one.due_ms <= now_ms:
                one.on_time(now_ms)
        self._remove_ended(now_ms)
        if not self._terminating:
            self._claiming.on_time(now_ms)

    def _remove_ended(self, now_ms: int) -> None:
        ended = [(key, one) for key, one in self._consumptions.items() if one.ended is not None]
        for key, one in ended:
            del self._consumptions[key]
            self._turns.remove(key)
            assert one.ended is not None
            self._counts[one.ended.value] += 1
            if one.ended is Ended.RELEASED:
                self._claiming.leave_alone(key[:2], now_ms + one.claim.heartbeat_ms)
            elif one.ended is Ended.COMPLETE:
                self._claiming.hurry(now_ms)
            if self.options.claim_entire_topic and key[1] == 0:
                self._release_topic(key[0], now_ms)

    def _release_topic(self, topic: str, now_ms: int) -> None:
        """Release a topic, so that the next owner of partition 0 gets the others, too."""
        for key, one in self._consumptions.items():
            if key[0] == topic:
                one.release(now_ms, drain=True)
                one.on_time(now_ms)

    def _on_granted(self, place: Place, granted: Granted, seen: Seen, sent_ms: int, now_ms: int) -> None:
        key = (*place, granted.claim.epoch)
        if key in self._consumptions:
            return
        if self._terminating:
            self._give_back(place, granted, now_ms)
            return
        self._counts["granted"] += 1
        one = Consumption(
            self.group,
            *place,
            granted,
            seen.end,
            sent_ms,
            now_ms,
            self.options,
            self._rng,
            self._requests,
            plain=seen.plain,
        )
        self._consumptions[key] = one
        self._turns.append(key)
        one.on_time(now_ms)

    # Output -----------------------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return what to ask of the service, each effect once."""
        return self._requests.take_effects()

    @property
    def next_due_ms(self) -> int | None:
        """The time at which `on_time` is to be called next, unless a reply comes earlier."""
        due = [one.due_ms for one in self._consumptions.values()]
        due.append(self._requests.next_due_ms)
        if not self._terminating:
            due.append(self._claiming.next_due_ms)
        soonest = min(due)
        return None if soonest == NEVER else soonest

    def next_message(self, now_ms: int) -> Message | None:
        """Return the next message to process; claims take turns."""
        self._now_ms = now_ms
        if self._terminating or not any(one.is_stocked for one in self._consumptions.values()):
            return None
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            message = self._consumptions[key].next_message(now_ms)
            if message is not None:
                self._counts["handed_out"] += 1
                self._consumptions[key].on_time(now_ms)
                return message
        return None

    def stock(self, now_ms: int) -> int:
        """Return how many messages could be handed out now."""
        if self._terminating:
            return 0
        return sum(one.stock for one in self._consumptions.values() if one.has_ready(now_ms))

    def commit(self, token: CommitToken, now_ms: int) -> Consumption | None:
        """Note that the message was processed; return its claim, None if that is not this consumer's any more."""
        one = self._consumptions.get((token.topic, token.partition, token.epoch))
        if one is None:
            self._counts["late_commits"] += 1
            return None
        one.commit(token.offset, now_ms)
        one.on_time(now_ms)
        self._remove_ended(now_ms)
        return one

    def flush(self, now_ms: int) -> dict[Key, Told]:
        """Tell the service of all commits; return what it should know then (`is_flushed`)."""
        targets = {}
        for key, one in self._consumptions.items():
            told = one.told_by_flush()
            if not one.knows(told):
                targets[key] = told
                one.flush(now_ms)
                one.on_time(now_ms)
        return targets

    def is_flushed(self, targets: Mapping[Key, Told]) -> bool:
        """Return whether each of these commits is stored by the service, or its claim is over."""
        for key, told in targets.items():
            one = self._consumptions.get(key)
            if one is not None and not one.knows(told):
                return False
        return True

    def terminate(self, now_ms: int, *, release: bool) -> None:
        """Hand out and claim nothing more.

        With `release`, give all claims up; otherwise only tell what was committed.

        Claims that are kept are for a process of the same client id that starts soon.
        """
        self._terminating = True
        self._claiming.stop()
        for one in self._consumptions.values():
            if release:
                one.release(now_ms, drain=False)
            else:
                one.flush(now_ms)
        self._step(now_ms)

    @property
    def is_released(self) -> bool:
        """True when nothing is claimed any more, after `terminate(release=True)`."""
        return self._terminating and not self._consumptions

    def consumptions(self) -> Iterator[Consumption]:
        """Iterate over the claims that this consumer has."""
        return iter(self._consumptions.values())

    def statistics(self) -> ConsumerStatistics:
        """Return the counts of claims and messages so far."""
        counts = self._counts
        return ConsumerStatistics(
            claims=len(self._consumptions),
            granted=counts["granted"],
            released=counts["released"],
            completed=counts["complete"],
            lost=counts["lost"],
            handed_out=counts["handed_out"],
            late_commits=counts["late_commits"],
            late_grants=counts["late_grants"],
        )
