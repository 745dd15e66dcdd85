"""Selection of the containers and znodes with a time to live that a leader proposes to remove.

It only proposes: the state machine judges each again, in the log time of the entry (D-12). Pure. Source:
ZooKeeper's `ContainerManager`.
"""

from __future__ import annotations

from typing import Final

from zraft.tree.lifetime import is_due
from zraft.tree.machine import Machine
from zraft_core.znodes.txn import REAP, Command

PATHS_PER_STEP: Final = 1_000
"""How many paths are looked at per turn while a round lasts: about half a millisecond, however many there are."""

PROPOSED_PER_ROUND_MAX: Final = 10_000
"""How many removals a round proposes, as in ZooKeeper: after a long outage all are due, and clients are served first."""


class Reaper:
    """The rounds of one leadership over all znodes that may go away by themselves.

    Attributes:
        left: paths at which the present round has not looked yet.
    """

    __slots__ = ("_interval_ms", "_next_round_at", "_proposed", "left")

    def __init__(self, interval_ms: int, run_ms: int) -> None:
        self._interval_ms = interval_ms
        self._next_round_at = run_ms + interval_ms
        self.left: list[str] = []
        self._proposed = 0

    def step(self, machine: Machine, log_time_ms: int, run_ms: int) -> list[Command]:
        """Return REAP commands for the znodes that this turn finds due.

        Args:
            log_time_ms: the time that the entry with these commands will carry.
        """
        if not self.left:
            if run_ms < self._next_round_at or not machine.mortal:
                return []
            self._next_round_at = run_ms + self._interval_ms
            self.left = list(machine.mortal)
            self._proposed = 0
        looked, self.left = self.left[-PATHS_PER_STEP:], self.left[:-PATHS_PER_STEP]
        commands: list[Command] = []
        for path in sorted(looked):  # the order of a set is no order
            node = machine.nodes.get(path)
            if (
                node is not None
                and node.lifetime is not None
                and is_due(node, node.lifetime, log_time_ms, machine.settings)
            ):
                commands.append((REAP, path, node.czxid))
        commands = commands[: PROPOSED_PER_ROUND_MAX - self._proposed]
        self._proposed += len(commands)
        return commands
