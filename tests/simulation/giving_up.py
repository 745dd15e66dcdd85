"""An executable model of how a partition is given up: what the others do with messages that it took part in.

docs/decisions/0012 says the rules in words. The model also has what is not built, a replica that is recovered. Groups are
perfect logs: what is applied stays, and only what is said between them is lost, repeated, late and out of order. A group
that is lost stops at some moment. Its messages may still arrive long afterwards, and it may even go on (a former majority
came back). One seed is one run; `RULES` can be taken away one by one, and the checks must notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from attrs import evolve, field, frozen, mutable

from tests.simulation.broken import BrokenPromiseError
from zraft_core.ids import GroupId as Group
from zraft_core.topics.stamps import BEGINNING, FinalTime

RULES: Final = {
    "frozen": "G-2: a group that has logged the end of another takes no proposal of it any more",
    "all_testify": "G-3: a proposal counts as none only when every destination that is left has said that it has none",
    "recovered_testifies": "G-3: a replica that is recovered is asked like the other destinations",
    "labelled": "G-4: what was testified before this group's newest end of a partition is asked for again",
    "given_up_silent": "G-4: nobody is heard of whom this group has logged the end",
    "decided_testify": "G-5: a group that has delivered the message testifies to what it used",
}
STEPS: Final = 700
ROUNDS_MAX: Final = 50
NETWORK_MAX: Final = 300
NONE: Final = 0
"""No proposal: times begin at 1."""

Mid = int


@frozen
class Ends:
    """A view: which groups are given up as of an epoch, and which of them go on as a recovered replica."""

    epoch: int = 0
    given_up: frozenset[Group] = frozenset()
    recovered: frozenset[Group] = frozenset()


@frozen
class Proposal:
    """`sender` proposes `time` for a message that goes to `destinations`."""

    mid: Mid
    sender: Group
    destinations: tuple[Group, ...]
    time: int


@frozen
class Testimony:
    """What `sender` knows at its `epoch` of the proposals of groups that are given up; `NONE` where it knows none."""

    mid: Mid
    sender: Group
    destinations: tuple[Group, ...]
    epoch: int
    known: tuple[tuple[Group, int], ...]


@frozen
class Asked:
    """`sender` wants to know what the receiver has to say about a message."""

    mid: Mid
    sender: Group
    destinations: tuple[Group, ...]


Said = Proposal | Testimony | Asked


@mutable
class Entry:
    """A message in one group."""

    destinations: tuple[Group, ...]
    proposals: dict[Group, int] = field(factory=dict)
    testified: dict[Group, Testimony] = field(factory=dict)
    final: FinalTime | None = None
    delivered: bool = False


@mutable
class State:
    """What one group's log came to."""

    group: Group
    rules: frozenset[str]
    clock: int = 0
    floor: FinalTime = BEGINNING
    ends: Ends = Ends()
    entries: dict[Mid, Entry] = field(factory=dict)
    log: list[tuple[Mid, FinalTime]] = field(factory=list)

    def copy(self) -> State:
        """Return the state as a replica that is behind would have it from now on."""
        entries = {
            mid: evolve(entry, proposals=dict(entry.proposals), testified=dict(entry.testified))
            for mid, entry in self.entries.items()
        }
        return evolve(self, entries=entries, log=list(self.log))

    # -- commands

    def begin(self, mid: Mid, destinations: tuple[Group, ...]) -> None:
        """Begin a message: from its producer, or because another group has begun it."""
        if mid in self.entries:
            return
        self.clock += 1
        self.entries[mid] = Entry(destinations, {self.group: self.clock})
        self._settle()

    def may_start(self, destinations: tuple[Group, ...]) -> bool:
        """G-1: nothing new goes to a group that is given up."""
        return not self.ends.given_up.intersection(destinations)

    def hear(self, said: Proposal | Testimony) -> None:
        """Take what another destination says."""
        given_up = self.ends.given_up
        if said.sender in given_up and self.group not in given_up:
            if isinstance(said, Proposal) and "frozen" in self.rules:
                return
            recovered = said.sender in self.ends.recovered
            if isinstance(said, Testimony) and not recovered and "given_up_silent" in self.rules:
                return
        if self.group not in given_up:
            self.begin(said.mid, said.destinations)  # what another group has begun is never refused
        entry = self.entries.get(said.mid)
        if entry is None:
            return
        if isinstance(said, Proposal):
            entry.proposals.setdefault(said.sender, said.time)
        else:
            known = entry.testified.get(said.sender)
            if known is None or known.epoch < said.epoch:
                entry.testified[said.sender] = said
            for group, time in said.known:
                if time != NONE:
                    entry.proposals.setdefault(group, time)
        self._settle()

    def end(self, ends: Ends) -> None:
        """Log a view in which more groups are given up."""
        if ends.epoch > self.ends.epoch:
            self.ends = ends
            self._settle()

    # -- what follows

    def testimony(self, mid: Mid) -> Testimony | None:
        """Return what this group can say; nothing while it has logged no end that concerns the message."""
        entry = self.entries.get(mid)
        if entry is None:
            return None
        concerned = [group for group in entry.destinations if group in self.ends.given_up]
        if not concerned:
            return None
        hides = entry.delivered and "decided_testify" not in self.rules
        known = tuple((g, NONE if hides else entry.proposals.get(g, NONE)) for g in concerned)
        return Testimony(mid, self.group, entry.destinations, self.ends.epoch, known)

    def witnesses(self, entry: Entry) -> list[Group]:
        """Return who has to testify before a proposal counts as none."""
        if "all_testify" not in self.rules:
            return [self.group]
        asked = self.ends.given_up
        if "recovered_testifies" in self.rules:
            asked = asked - self.ends.recovered
        return [group for group in entry.destinations if group not in asked]

    def lacking(self, entry: Entry) -> list[Group]:
        """Return whose testimony this group still needs."""
        epoch = self.ends.epoch if "labelled" in self.rules else 1
        return [
            group
            for group in self.witnesses(entry)
            if group != self.group and (group not in entry.testified or entry.testified[group].epoch < epoch)
        ]

    def _final(self, entry: Entry) -> FinalTime | None:
        unknown = [group for group in entry.destinations if group not in entry.proposals]
        if any(group not in self.ends.given_up for group in unknown) or (unknown and self.lacking(entry)):
            return None
        return max(FinalTime(time, group) for group, time in entry.proposals.items())

    def _settle(self) -> None:
        """Deliver what is first and final. What is recovered delivers nothing more under this id."""
        if self.group in self.ends.given_up:
            return
        while True:
            for entry in self.entries.values():
                if entry.final is None:
                    entry.final = self._final(entry)
                    if entry.final is not None:
                        self.clock = max(self.clock, entry.final.time)
            waiting = [(mid, entry) for mid, entry in self.entries.items() if not entry.delivered]
            if not waiting:
                return
            mid, first = min(
                waiting, key=lambda one: one[1].final or FinalTime(one[1].proposals[self.group], self.group)
            )
            if first.final is None:
                return
            if first.final <= self.floor:
                raise BrokenPromiseError("stamps", f"{mid} is final at {first.final}, behind {self.floor}")
            self.floor, first.delivered = first.final, True
            self.log.append((mid, first.final))


class World:
    """Groups, what is said between them, and an operator who gives some of them up, or recovers one from what is left."""

    def __init__(self, seed: int, rules: frozenset[str] = frozenset(RULES)) -> None:
        self.rng = rng = Random(f"giving up {seed}")
        self.count = rng.choice((3, 4, 4, 5))
        self.states = {group: State(group, rules) for group in map(Group, range(1, self.count + 1))}
        self.running = set(self.states)
        self.network: list[tuple[Group, Said]] = []
        self.late: list[tuple[Group, Said]] = []
        self.ends = Ends()
        self.prefixes: dict[Group, list[State]] = {group: [] for group in self.states}
        self.given_up_logs: dict[Group, list[tuple[Mid, FinalTime]]] = {}
        self.next_mid = 1
        self.loss = rng.choice((0.1, 0.3, 0.5))
        self.ends_left = rng.choice((1, 1, 2)) if self.count > 3 else 1

    # -- the adversary

    def run(self) -> int:
        """Return how many messages were delivered; every promise is checked."""
        rng = self.rng
        for _ in range(STEPS):
            dice = rng.random()
            if dice < 0.12:
                self._produce()
            elif dice < 0.5:
                self._arrive()
            elif dice < 0.85:
                self._repeat(rng.choice(sorted(self.running)))
            elif dice < 0.95:
                group = rng.choice(sorted(self.states))
                if group in self.running:
                    self.states[group].end(self.ends)
            elif dice < 0.97:
                for group in self.states:
                    self.prefixes[group].append(self.states[group].copy())
            elif self.ends_left and dice < 0.98:
                self._give_up()
            if len(self.network) > NETWORK_MAX:
                rng.shuffle(self.network)
                del self.network[NETWORK_MAX // 2 :]
        return self._heal()

    def _produce(self) -> None:
        rng = self.rng
        count = min(self.count, rng.choice((2, 2, 3, 4)))
        destinations = tuple(sorted(rng.sample(sorted(self.states), count)))
        mid, self.next_mid = self.next_mid, self.next_mid + 1
        for group in destinations:
            state = self.states[group]
            if group in self.running and rng.random() < 0.6 and state.may_start(destinations):
                state.begin(mid, destinations)

    def _arrive(self) -> None:
        rng = self.rng
        source = self.late if self.late and rng.random() < 0.2 else self.network
        if not source:
            return
        at = rng.randrange(len(source))
        to, said = source[at]
        if rng.random() < 0.8:
            source.pop(at)
        if rng.random() < 0.1:
            self.late.append((to, said))
        if rng.random() >= self.loss:
            self._take(to, said)

    def _take(self, to: Group, said: Said) -> None:
        state = self.states[to]
        if to not in self.running:
            return
        if not isinstance(said, Asked):
            state.hear(said)
        elif to in state.ends.given_up:
            # A recovered replica says of what it does not have that it has proposed nothing, and never will.
            known = state.testimony(said.mid)
            nothing = tuple((g, NONE) for g in said.destinations if g in state.ends.given_up)
            answer = known or Testimony(said.mid, to, said.destinations, state.ends.epoch, nothing)
            self.network.append((said.sender, answer))
        else:
            state.begin(said.mid, said.destinations)
            self.network += [(said.sender, one) for one in self._says(state, said.mid)]

    def _says(self, state: State, mid: Mid) -> Iterator[Said]:
        entry = state.entries[mid]
        if state.group not in state.ends.given_up:
            yield Proposal(mid, state.group, entry.destinations, entry.proposals[state.group])
        testimony = state.testimony(mid)
        if testimony is not None:
            yield testimony

    def _repeat(self, group: Group) -> None:
        """A leader says again what is pending, and asks for what it lacks."""
        state = self.states[group]
        for mid, entry in state.entries.items():
            if entry.delivered and self.rng.random() < 0.7:
                continue
            for to in entry.destinations:
                if to != group:
                    self.network += [(to, one) for one in self._says(state, mid)]
                    if entry.final is None:
                        self.network.append((to, Asked(mid, group, entry.destinations)))

    def _give_up(self) -> None:
        """Give a group up: perhaps an older replica of it is left, perhaps the group is not gone at all."""
        rng = self.rng
        group = rng.choice(sorted(set(self.states) - self.ends.given_up))
        self.ends_left -= 1
        recovered, prefixes = self.ends.recovered, self.prefixes[group]
        if prefixes and rng.random() < 0.5:
            self.states[group] = prefixes[rng.randrange(len(prefixes))].copy()
            recovered |= {group}
        self.ends = Ends(self.ends.epoch + 1, self.ends.given_up | {group}, recovered)
        if group in recovered:
            # The recovered replica begins by logging its own end: what it says after that is testimony.
            self.states[group].end(self.ends)
            self.given_up_logs[group] = list(self.states[group].log)
        elif rng.random() < 0.6:
            self.running.discard(group)
        # Else it is a former majority that comes back, knows nothing, and goes on for a while.

    # -- the end

    def _heal(self) -> int:
        for group in self.ends.given_up - self.ends.recovered:
            self.running.discard(group)
        self.loss = 0.0
        left = sorted(set(self.states) - self.ends.given_up)
        for _ in range(ROUNDS_MAX):
            for group in sorted(self.running):
                self.states[group].end(self.ends)
                self._repeat(group)
            network, self.network = self.network, []
            self.rng.shuffle(network)
            for to, said in network:
                self._take(to, said)
            if all(entry.delivered for group in left for entry in self.states[group].entries.values()):
                break
        for to, said in self.late:
            self._take(to, said)
        self._check(left)
        return sum(len(self.states[group].log) for group in left)

    def _check(self, left: list[Group]) -> None:
        finals: dict[Mid, FinalTime] = {}
        begun: dict[Mid, tuple[Group, ...]] = {}
        for group in left:
            state = self.states[group]
            begun |= {mid: entry.destinations for mid, entry in state.entries.items()}
            for mid, final in state.log:
                if finals.setdefault(mid, final) != final:
                    raise BrokenPromiseError(
                        "order", f"{mid} is final at {final} in group {group}, elsewhere at {finals[mid]}"
                    )
            if len({mid for mid, _ in state.log}) != len(state.log):
                raise BrokenPromiseError("integrity", f"group {group} delivers twice")
        for mid, destinations in begun.items():
            for group in set(left).intersection(destinations):
                entry = self.states[group].entries.get(mid)
                if entry is None or not entry.delivered:
                    raise BrokenPromiseError(
                        "agreement", f"{mid} is begun, and not delivered in group {group}"
                    )
        if len(set(finals.values())) != len(finals):
            raise BrokenPromiseError("order", "two messages have one final time")
        for group, log in self.given_up_logs.items():
            for mid, final in log:
                if mid in finals and finals[mid] != final:
                    raise BrokenPromiseError(
                        "recovered",
                        f"{mid} was final at {final} in what is recovered of {group}, elsewhere at {finals[mid]}",
                    )
