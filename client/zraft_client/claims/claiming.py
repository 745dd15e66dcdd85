"""Decisions about which partitions a consumer tries to claim, and when (M-5, M-6, M-10).

Pure.

A *round* goes through the partitions from where the last one stopped, looks at each, and ends with the first claim that
is granted, or with the last partition. Rounds begin at random moments, so that consumers seldom meet. The first round
takes back what an earlier process of this client had.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from attrs import evolve, frozen

from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import Seen
from zraft_client.claims.requests import NEVER, Requests
from zraft_core.claims.answers import ClaimAnswer, ClaimsView, Granted, Reason, Refused
from zraft_core.claims.commands import ClaimMessages, ClaimPartition
from zraft_core.claims.values import RANGE_MESSAGES_MAX, Claim, Owner

HELD_LOOKS: Final = 8
"""The number of looks in a heartbeat interval at a partition that may become free at any moment."""
HURRY: Final = 32
"""The factor by which waits between rounds are shorter while partitions stand still because their owner is
gone.
"""
TRIES_MAX: Final = 3
"""The number of times that one command or look is sent in a round before the next partition is tried."""

Place = tuple[str, int]
"""(topic, partition)."""


class Owned(Protocol):
    """Interface to the claims that the consumer already has."""

    def claims(self) -> int:
        """Return the number of claims."""

    def epochs(self, place: Place) -> frozenset[int]:
        """Return the epochs of its claims of this partition, those included that it is releasing."""
        ...

    def ranges(self, place: Place) -> tuple[int, int]:
        """Return its claims of ranges of this partition.

        The first number is of claims with known messages to process, the second of those without any yet.
        """
        ...

    def holds(self, place: Place) -> bool:
        """Return whether the consumer may process this partition right now."""
        ...


@frozen
class _Attempt:
    """One claim under way; `sent_ms` is when it was first sent, however often it was repeated.

    `seen` is what was seen before.
    """

    place: Place
    seen: Seen
    command: ClaimPartition | ClaimMessages
    sent_ms: int
    tries: int


class Claiming:
    """The rounds of one consumer."""

    def __init__(
        self,
        group: str,
        identity: Owner,
        topics: Mapping[str, int],
        options: ConsumerOptions,
        rng: random.Random,
        requests: Requests,
        owned: Owned,
        on_granted: Callable[[Place, Granted, Seen, int, int], None],
        now_ms: int,
    ) -> None:
        self._group = group
        self._identity = identity
        self._options = options
        self._rng = rng
        self._requests = requests
        self._owned = owned
        self._on_granted = on_granted
        self._places = [(topic, p) for topic, count in sorted(topics.items()) for p in range(count)]
        self._start = rng.randrange(len(self._places)) if self._places else 0
        self._attempts = 0
        self.attempt: int | None = None
        """The number of the claim under way."""
        self._round: deque[Place] = deque()
        self._tries = 0
        self._busy = False
        self._stopped = False
        self._reclaiming = options.fast_reclaim
        self._left_alone: dict[Place, int] = {}
        self._held: set[Place] = set()
        """The partitions that another consumer had when they were last looked at."""
        # A client that was restarted takes back its claims before they expire; a new one has no reason to hurry.
        self._next_round_ms = now_ms if options.fast_reclaim else now_ms + self._wait_ms()

    @property
    def is_reclaiming(self) -> bool:
        """True while the first round takes back what an earlier process had."""
        return self._reclaiming

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopped = True
        self._round.clear()

    def leave_alone(self, place: Place, until_ms: int) -> None:
        """Skip the partition until this time: it was released for others, or its owner was just heard."""
        self._left_alone[place] = max(until_ms, self._left_alone.get(place, 0))

    def hurry(self, now_ms: int) -> None:
        """Hurry, as a round would probably succeed."""
        self._next_round_ms = min(self._next_round_ms, now_ms)

    def on_time(self, now_ms: int) -> None:
        """Begin a round if one is due."""
        if self._stopped or self._busy or now_ms < self._next_round_ms:
            return
        self._left_alone = {place: until for place, until in self._left_alone.items() if until > now_ms}
        self._round = deque(self._places[self._start :] + self._places[: self._start])
        self._go_on(now_ms)

    @property
    def next_due_ms(self) -> int:
        """The time of the next round in milliseconds, or `NEVER`."""
        return NEVER if self._stopped or self._busy or not self._places else self._next_round_ms

    def _wait_ms(self) -> int:
        return self._rng.randint(0, self._options.claim_interval_ms)

    def _timeout_ms(self, now_ms: int) -> int:
        return now_ms + self._options.request_timeout_ms

    # A round ----------------------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        """Look at the next partition of the round that may be claimed, or end the round."""
        self._tries = 0
        while self._round:
            place = self._round[0]
            if self._is_wanted(place):
                self._look(place, now_ms)
                return
            self._round.popleft()
        self._end_round(now_ms)

    def _end_round(self, now_ms: int, *, hurry: bool = False) -> None:
        self._busy = False
        self._round.clear()
        self._reclaiming = False
        self._next_round_ms = now_ms + self._wait_ms() // (HURRY if hurry else 1)
        # A partition of another owner is looked at when that claim may have expired, not whenever a round comes.
        held = [until for place, until in self._left_alone.items() if place in self._held]
        if held:
            jitter = self._rng.randint(0, self._options.heartbeat_ms // HELD_LOOKS)
            self._next_round_ms = min(self._next_round_ms, min(held) + jitter)

    def _is_wanted(self, place: Place) -> bool:
        options = self._options
        if options.maximum_claims and self._owned.claims() >= options.maximum_claims:
            return False
        if place in self._left_alone:
            return False
        topic, partition = place
        if options.range_messages:
            return self._owned.ranges(place)[0] <= options.ranges_ahead
        if self._owned.epochs(place):
            return False
        # Partition 0 is the key to the others; while rights to it are in doubt, none is added.
        return not options.claim_entire_topic or partition == 0 or self._owned.holds((topic, 0))

    def _look(self, place: Place, now_ms: int) -> None:
        self._busy = True

        def then(seen: Seen | None, now_ms: int) -> None:
            self._on_seen(place, seen, now_ms)

        self._requests.look(*place, self._group, self._timeout_ms(now_ms), then)

    def _on_seen(self, place: Place, seen: Seen | None, now_ms: int) -> None:
        if self._stopped:
            self._end_round(now_ms)
            return
        command = None if seen is None else self._command(place, seen, now_ms)
        if seen is not None and command is not None:
            self._send(_Attempt(place, seen, command, now_ms, 1), now_ms)
        elif seen is None and self._tries < TRIES_MAX:
            self._tries += 1
            self._look(place, now_ms)
        else:
            self._pass(now_ms)

    def _pass(self, now_ms: int) -> None:
        if self._round:
            self._round.popleft()
        self._go_on(now_ms)

    # What to ask for --------------------------------------------------------------------------------------------

    def _command(self, place: Place, seen: Seen, now_ms: int) -> ClaimPartition | ClaimMessages | None:
        """Return the claim to make of what was seen, None if nothing can be claimed."""
        view = seen.view
        if view.paused:
            return None
        mine = next((claim for claim in view.claims if self._may_take_over(place, claim)), None)
        heartbeat_ms = 0 if seen.plain else self._options.heartbeat_ms
        if mine is not None:
            return self._again(mine, heartbeat_ms)
        if self._reclaiming and not self._options.greedy_claims:
            return None
        start = seen.end if self._options.start_at_latest else seen.earliest
        if self._options.range_messages:
            return self._range(place, seen, start, now_ms, heartbeat_ms)
        if view.claims:
            self._held.add(place)
            self.leave_alone(place, now_ms + self._look_again_ms(view, view.claims[0]))
            return None
        self._attempts += 1
        return ClaimPartition(
            self._group,
            self._identity.client,
            self._identity.instance,
            self._attempts,
            view.last_epoch,
            self._options.mode,
            start,
            self._options.claim_entire_topic,
            heartbeat_ms,
        )

    def _look_again_ms(self, view: ClaimsView, held: Claim) -> int:
        """Return until when a claim cannot expire: there is no use in looking before, unless its owner gives it up."""
        mine = self._options.heartbeat_ms
        left = held.heard_ms + 2 * held.heartbeat_ms - view.log_time_ms
        return max(mine // HELD_LOOKS, min(left, 2 * mine))

    def _may_take_over(self, place: Place, claim: Claim) -> bool:
        """Return whether the claim was granted to this process without its knowledge, or to the process before it."""
        if claim.owner.client != self._identity.client or claim.epoch in self._owned.epochs(place):
            return False
        if (claim.upto is None) != (self._options.range_messages == 0):
            return False
        # Another process with our client id that started later would take it back again and again: once is enough.
        return self._reclaiming or claim.owner.instance == self._identity.instance

    def _again(self, claim: Claim, heartbeat_ms: int) -> ClaimPartition | ClaimMessages:
        self._attempts += 1
        client, instance = self._identity.client, self._identity.instance
        if claim.upto is not None:
            return ClaimMessages(
                self._group,
                client,
                instance,
                self._attempts,
                claim.epoch,
                self._options.mode,
                claim.first,
                claim.upto,
                seen=0,
                heartbeat_ms=heartbeat_ms,
            )
        return ClaimPartition(
            self._group,
            client,
            instance,
            self._attempts,
            claim.epoch,
            self._options.mode,
            0,
            self._options.claim_entire_topic,
            heartbeat_ms,
        )

    def _range(
        self, place: Place, seen: Seen, start: int, now_ms: int, heartbeat_ms: int
    ) -> ClaimMessages | None:
        view = seen.view
        if view.whole is not None:
            self.leave_alone(place, now_ms + self._look_again_ms(view, view.whole))
            return None
        is_new = view.last_epoch == 0 and view.floor == 0
        first, upto = view.free_from(start if is_new else 0, self._options.range_messages)
        if upto < seen.earliest:
            # Retention removed all of it. It is claimed all the same, as far as it goes, to complete it.
            first, upto = view.free_from(first, min(RANGE_MESSAGES_MAX, seen.earliest - first))
        active, ahead = self._owned.ranges(place)
        if first >= seen.end and active + ahead > self._options.ranges_ahead:
            # Enough is claimed in advance. Existing messages, like the rest of a dead consumer's range, are
            # taken besides: a consumer that only waits for future messages must not leave existing ones to
            # nobody.
            self.leave_alone(place, now_ms + self._options.heartbeat_ms // HELD_LOOKS)
            return None
        self._attempts += 1
        return ClaimMessages(
            self._group,
            self._identity.client,
            self._identity.instance,
            self._attempts,
            0,
            self._options.mode,
            first,
            upto,
            view.position,
            start,
            heartbeat_ms,
        )

    # Answers ----------------------------------------------------------------------------------------------------

    def _send(self, attempt: _Attempt, now_ms: int) -> None:
        self.attempt = attempt.command.attempt

        def then(answer: ClaimAnswer | None, now_ms: int) -> None:
            self.attempt = None
            self._on_answer(attempt, answer, now_ms)

        self._requests.submit(*attempt.place, attempt.command, self._timeout_ms(now_ms), then)

    def _on_answer(self, attempt: _Attempt, answer: ClaimAnswer | None, now_ms: int) -> None:
        if answer is None and attempt.tries < TRIES_MAX and not self._stopped:
            # This is the same attempt again: it is granted once, however many copies arrive.
            again = evolve(attempt, tries=attempt.tries + 1)
            self._send(again, now_ms)
            return
        if isinstance(answer, Granted):
            self._granted(attempt, answer, now_ms)
            return
        is_race = isinstance(answer, Refused) and answer.reason in (Reason.TAKEN, Reason.MOVED)
        if is_race and self._options.range_messages and self._tries < TRIES_MAX and not self._stopped:
            # Another consumer chose the same range; the next one is free.
            self._tries += 1
            self._look(attempt.place, now_ms)
            return
        self._pass(now_ms)

    def _granted(self, attempt: _Attempt, granted: Granted, now_ms: int) -> None:
        place = attempt.place
        # The next round begins behind it, so that every partition has its turn.
        self._start = (self._places.index(place) + 1) % len(self._places)
        # The time counts from when it was first sent: the service may have heard any copy of it.
        self._on_granted(place, granted, attempt.seen, attempt.sent_ms, now_ms)
        stood_still = place in self._held
        self._held.discard(place)
        options = self._options
        go_on = (
            self._reclaiming or options.greedy_claims or options.claim_entire_topic or options.range_messages
        )
        if not go_on or self._stopped:
            # Its former owner has probably left more. Only one is taken at a time, so that others have their share.
            self._end_round(now_ms, hurry=stood_still)
        elif options.claim_entire_topic and place[1] == 0:
            topic = [one for one in self._places if one[0] == place[0]]
            self._round = deque(topic)
            self._go_on(now_ms)
        else:
            self._go_on(now_ms)
