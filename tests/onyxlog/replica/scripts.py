"""A log to write entries into by hand, and what each group makes of every one."""

from __future__ import annotations

from itertools import pairwise

from attrs import define, field

from onyxlog.ids import GroupId, Position
from onyxlog.replica.commands import (
    AcceptJoin,
    AddVirtualPeer,
    Command,
    Entry,
    NotifyJoin,
    PrepareJoin,
    Record,
)
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.effects import Effect
from onyxlog.replica.invariants import step_violations, violations
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import Step, effects, play, reactions
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.scheduling.requirements import FluxPolicy, JobRequirements, TaskRequirements

RING = Parameters(join=JoinMode.RING)
DIRECT = Parameters(join=JoinMode.DIRECT)


@define
class Log:
    """Invariants are checked after every entry."""

    replica: Replica = field(factory=lambda: Replica(parameters=RING))
    chain: bytes = CHAIN_START
    steps: list[Step] = field(factory=list)

    def submitted(self, id: str) -> Position:
        """Where a job stands that is not over."""
        return self.replica.jobs[id].submitted

    def write(self, command: Command, author: str = "somebody") -> Step:
        step = play(self.replica, Entry(self.replica.version + 1, Record(command, author)), self.chain)
        wrong = (*violations(step.replica), *step_violations(step.old, step.replica))
        assert not wrong, wrong
        self.replica, self.chain = step.replica, step.chain
        self.steps.append(step)
        return step

    @property
    def step(self) -> Step:
        return self.steps[-1]

    def reactions(self, group: GroupId, *peers: str) -> tuple[Command, ...]:
        return reactions(self.step, Viewer(group, frozenset(peers)))

    def effects(self, group: GroupId, *peers: str) -> tuple[Effect, ...]:
        return effects(self.step, Viewer(group, frozenset(peers)))

    def reaction_of_all(self, groups: str) -> dict[GroupId, tuple[Command, ...]]:
        return {group: found for group in groups if (found := self.reactions(group))}

    def until(self, position: Position, modulus: int) -> None:
        """Entries that do nothing, until the next one's position is `position` modulo `modulus`."""
        while (self.replica.version + 1) % modulus != position:
            self.write(NotifyJoin("nobody", "nobody"))


def ring(groups: str) -> Log:
    """A log whose ring goes from each of these groups to the next, as in the examples of Onyx' documentation."""
    log = Log()
    log.write(PrepareJoin(groups[0]), groups[0])
    for before, group in pairwise(groups):
        free = sorted(log.replica.groups)
        log.until(free.index(before), len(free))
        log.write(PrepareJoin(group), group)
        log.write(NotifyJoin(group, before), before)
        log.write(AcceptJoin(group, before, groups[0]), group)
    expected = dict(zip(groups, groups[1:] + groups[:1], strict=True)) if len(groups) > 1 else {}
    assert dict(log.replica.pairs) == expected
    return log


def worker(group: GroupId, peer: str, site: str = "host:1", tags: tuple[str, ...] = ()) -> AddVirtualPeer:
    return AddVirtualPeer(peer, group, site, tags)


def job(
    id: str = "count",
    *,
    map_workers: int = 1,
    grouped: bool = False,
    policy: FluxPolicy = FluxPolicy.CONTINUE,
    max_peers: int | None = None,
) -> JobRequirements:
    """in → map → out, of which `map` may be grouped."""
    return JobRequirements(
        id,
        id.encode(),
        (
            TaskRequirements("in", input=True, max_peers=1),
            TaskRequirements(
                "map", min_peers=map_workers, max_peers=max_peers, grouped=grouped, flux_policy=policy
            ),
            TaskRequirements("out", output=True, max_peers=1),
        ),
        (("in", "map"), ("map", "out")),
    )
