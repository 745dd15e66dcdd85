"""One log in memory, as bytes, and a referee that plays it as it grows and checks every invariant after every entry."""

from __future__ import annotations

from attrs import define, field

from onyxlog.ids import BEFORE_ALL, Position
from onyxlog.replica.codec import decode_origin, decode_record, encode_origin, encode_record
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.invariants import step_violations, violations
from onyxlog.replica.playing import play
from onyxlog.replica.replica import Parameters, Replica


class FleetError(AssertionError):
    """The simulated fleet did what it must not."""


def insist(holds: bool, complaint: str) -> None:
    if not holds:
        raise FleetError(complaint)


@define
class SimulatedLog:
    """`chains`: the referee's, at every position; `end`: the position of the entry that comes next."""

    parameters: Parameters
    referee: Replica = field(init=False)
    chains: dict[Position, bytes] = field(init=False)
    end: Position = 0
    truncations: int = 0
    origin_position: Position = BEFORE_ALL
    _origin: bytes = field(init=False)
    _entries: dict[Position, bytes] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.referee = Replica(parameters=self.parameters)
        self.chains = {BEFORE_ALL: CHAIN_START}
        self._origin = encode_origin(self.referee, CHAIN_START)

    @property
    def chain(self) -> bytes:
        """At the end of the log."""
        return self.chains[self.end - 1]

    def append(self, record: Record) -> Position:
        position, data = self.end, encode_record(record)
        self._entries[position] = data
        self.end += 1
        step = play(self.referee, Entry(position, decode_record(data, "referee")), self.chains[position - 1])
        wrong = (*violations(step.replica), *step_violations(step.old, step.replica))
        insist(not wrong, f"after entry {position}, {record.command}: {'; '.join(wrong)}")
        self.referee, self.chains[position] = step.replica, step.chain
        return position

    def entry(self, position: Position) -> Entry | None:
        """None if it is truncated."""
        data = self._entries.get(position)
        return None if data is None else Entry(position, decode_record(data, f"entry-{position:010d}"))

    def origin(self) -> tuple[Replica, bytes]:
        replica, chain = decode_origin(self._origin, "origin")
        insist(chain == self.chains[replica.version], f"the origin at {replica.version} differs")
        return replica, chain

    def store_origin(self, replica: Replica, chain: bytes) -> None:
        if replica.version <= self.origin_position:
            return
        self._origin, self.origin_position = encode_origin(replica, chain), replica.version
        for position in [each for each in self._entries if each <= replica.version]:
            del self._entries[position]
        self.truncations += 1
