"""Applies one random script to ZooKeeper and to zraft, and compares every reply and every watch event.

    python -m tests.compat.differential.run [--operations 50000] [--seed N] [--zookeeper 3.9.3]

Prints its seed first; a seed, a number of operations and a commit are the whole run. On a difference it looks for a
shorter script that shows it and prints that as a transcript; exit code 1.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from tests.compat.differential.compare import NO_ZXID, Comparison
from tests.compat.differential.protocol import (
    NAMES,
    NO_AUTH,
    Event,
    Observed,
    Op,
    Reply,
)
from tests.compat.differential.script import Attach, Requests, Round, script
from tests.compat.differential.side import Side, SilentError, wait_for_servers
from tests.compat.zookeeper import VERSIONS, ZooKeepers
from tests.processes.cluster import Cluster
from tests.simulation.jute import (
    AUTH,
    CLOSE,
    DELETE,
    EXISTS,
    GET_CHILDREN,
)

OPERATIONS: Final = 50_000
SHRINK_S: Final = 180.0
SUPER: Final = ("super", "test", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
DAY_MS: Final = 86_400_000
"""How often containers and znodes with a time to live are looked for: not during the run, in neither."""
KEPT: Final = ("/zookeeper",)


@frozen
class Told:
    """What one session was told in a round, by both."""

    session: str
    zookeeper: list[Observed]
    zraft: list[Observed]
    differences: list[str]


@frozen
class Outcome:
    """How far a script came: `failed` is the number of the round in which they differed first."""

    rounds: list[tuple[Round, list[Told]]]
    failed: int | None
    seen: Counter[str]


def apply(rounds: Sequence[Round], zookeeper: Side, zraft: Side, comparison: Comparison) -> Outcome:
    """Apply them to both until the first difference, and end all sessions."""
    seen: Counter[str] = Counter()
    history: list[tuple[Round, list[Told]]] = []
    failed = None
    for number, one in enumerate(rounds):
        told = _apply_one(one, zookeeper, zraft, comparison)
        _count(one, told, seen)
        history.append((one, told))
        if any(each.differences for each in told):
            failed = number
            break
    for side in (zookeeper, zraft):
        seen[f"connects again, {side.name}"] = side.connects_again
        side.close()
    return Outcome(history, failed, seen)


def _apply_one(one: Round, zookeeper: Side, zraft: Side, comparison: Comparison) -> list[Told]:
    for side in (zookeeper, zraft):
        side.begin(one)
    closes = isinstance(one, Requests) and any(op.opcode == CLOSE for _, op in one.steps)
    differences = comparison.differences_unordered if closes else comparison.differences
    theirs, ours = zookeeper.finish(one), zraft.finish(one)
    theirs = _without_hidden(theirs, ours, one, zookeeper, zraft)
    told = [Told(one.session, theirs, ours, differences(theirs, ours))]
    for side in (zookeeper, zraft):
        side.begin_sync(one.session)
    all_theirs, all_ours = zookeeper.finish_sync(one.session), zraft.finish_sync(one.session)
    for name in sorted(all_theirs.keys() | all_ours.keys()):
        theirs, ours = all_theirs.get(name, []), all_ours.get(name, [])
        told.append(Told(name, theirs, ours, differences(theirs, ours)))
    return told


def _without_hidden(
    theirs: list[Observed], ours: list[Observed], one: Round, zookeeper: Side, zraft: Side
) -> list[Observed]:
    """`theirs` without the events that ZooKeeper sends after setWatches about znodes that the session may not read.

    zraft hides those as it hides all others (docs/reference/compatibility.md). Both are asked whether it is so.
    """
    events = Counter((e.type, e.path) for e in ours if isinstance(e, Event))
    kept: list[Observed] = []
    for each in theirs:
        if isinstance(each, Event) and each.zxid == NO_ZXID and not events[each.type, each.path]:
            asked = [side.probe(one.session, Op(EXISTS, (each.path, False))) for side in (zookeeper, zraft)]
            if [answer and answer.err for answer in asked] == [NO_AUTH, NO_AUTH]:
                continue
        if isinstance(each, Event):
            events[each.type, each.path] -= 1
        kept.append(each)
    return kept


def _count(one: Round, told: Sequence[Told], seen: Counter[str]) -> None:
    opcodes = {step: op.opcode for step, op in one.steps} if isinstance(one, Requests) else {}
    seen["connects"] += isinstance(one, Attach)
    for each in told:
        for message in each.zookeeper:
            match message:
                case Event():
                    seen["events"] += 1
                case Reply(step=step, err=err) if step in opcodes:
                    seen["replies"] += 1
                    seen["errors"] += err != 0
                    seen[f"op {NAMES.get(opcodes[step], opcodes[step])} {err}"] += 1


def clear(side: Side) -> bool:
    """Delete every znode but ZooKeeper's own, as the super user; whether nothing is left."""
    side.ask("cleaner", Op(AUTH, (0, "digest", ":".join(SUPER[:2]).encode())))

    def below(path: str) -> None:
        answer = side.ask("cleaner", Op(GET_CHILDREN, (path, False)))
        for name in (answer.body if answer and answer.err == 0 else None) or ():
            child = f"{path.rstrip('/')}/{name}"
            if child not in KEPT:
                below(child)
                side.ask("cleaner", Op(DELETE, (child, -1)))

    below("/")
    left = side.ask("cleaner", Op(GET_CHILDREN, ("/", False)))
    side.close()
    return left is not None and left.body == ("zookeeper",)


def shrink(rounds: list[Round], fails: Callable[[list[Round]], bool], deadline: float) -> list[Round]:
    """A shorter list for which `fails` still holds: parts are left out, ever smaller ones, then single requests."""
    size = len(rounds) // 2
    while size >= 1:
        at = 0
        while at < len(rounds) and time.monotonic() < deadline:
            attempt = rounds[:at] + rounds[at + size :]
            if attempt and fails(attempt):
                rounds = attempt
            else:
                at += size
        size //= 2
    for number, one in enumerate(rounds):
        if isinstance(one, Requests):
            for step in one.steps:
                current = rounds[number]
                assert isinstance(current, Requests)
                fewer = tuple(kept for kept in current.steps if kept is not step)
                attempt = [*rounds[:number], evolve(current, steps=fewer), *rounds[number + 1 :]]
                if fewer and time.monotonic() < deadline and fails(attempt):
                    rounds = attempt
    return rounds


def transcript(outcome: Outcome) -> str:
    """The rounds as a reader can follow them; both answers where they differ."""
    lines = []
    for one, told in outcome.rounds:
        match one:
            case Attach(session, server, timeout_ms, password):
                lines.append(
                    f"{session} connects to server {server + 1}, timeout {timeout_ms}"
                    + (" with a wrong password" * (password is not None))
                )
            case Requests(session, server, steps):
                lines += [f"{session} at server {server + 1}: step {step}: {op}" for step, op in steps]
        for each in told:
            if each.differences:
                lines.append(f"  {each.session} is told differently: {'; '.join(each.differences)}")
                for theirs, ours in zip_longest(each.zookeeper, each.zraft):
                    lines += [f"    ZooKeeper: {theirs}", f"    zraft:     {ours}"]
            else:
                lines += [
                    f"    {each.session} <- {message}"
                    for message in each.zookeeper
                    if getattr(message, "step", 0) != -1
                ]
    return "\n".join(lines)


class Pair:
    """ZooKeeper and zraft, three servers each, running. Use as a context manager."""

    def __init__(self, directory: Path, version: str) -> None:
        self._zookeepers = ZooKeepers(directory, version, super_digest=SUPER[2])
        self._cluster = Cluster(
            directory,
            env={"ZRAFT_AUTH__SUPER_DIGEST": SUPER[2], "ZRAFT_TREE__REAP_INTERVAL_MS": str(DAY_MS)},
        )
        self._stack = ExitStack()
        self.version = version

    def __enter__(self) -> Pair:
        self._stack.enter_context(self._zookeepers)
        self._stack.enter_context(self._cluster)
        self._cluster.start_all()
        wait_for_servers(self._zookeepers.addresses)
        wait_for_servers(self._zraft_addresses)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def _zraft_addresses(self) -> list[tuple[str, int]]:
        return [(s.address.host, s.address.port) for s in self._cluster.servers.values()]

    def sides(self) -> tuple[Side, Side]:
        """Both, without a session and a step."""
        return Side("ZooKeeper", self._zookeepers.addresses, syncs_again=True), Side(
            "zraft", self._zraft_addresses
        )

    def comparison(self) -> Comparison:
        return Comparison(events_have_zxids=self.version != "3.8.0")


def run(pair: Pair, rounds: list[Round], shrink_s: float) -> tuple[Outcome, str | None]:
    """(what happened, a transcript of the shortest script found that shows a difference, or None)."""
    outcome = apply(rounds, *pair.sides(), pair.comparison())
    if outcome.failed is None:
        return outcome, None
    last = outcome

    def fails(attempt: list[Round]) -> bool:
        nonlocal last
        try:
            if not all(clear(side) for side in pair.sides()):
                return False
            tried = apply(attempt, *pair.sides(), pair.comparison())
        except SilentError:
            return False
        if tried.failed is None:
            return False
        last = tried
        return True

    cut = [one for one, _ in outcome.rounds]
    shown = "the last round of the whole run:\n" + transcript(evolve(outcome, rounds=outcome.rounds[-1:]))
    if fails(cut):
        shrink([one for one, _ in last.rounds], fails, time.monotonic() + shrink_s)
        return outcome, f"{shown}\nthe shortest script found:\n{transcript(last)}"
    return outcome, f"{shown}\nthe same rounds on an emptied tree do not differ, or it could not be emptied"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--zookeeper", choices=VERSIONS, default=VERSIONS[0])
    parser.add_argument(
        "--without", metavar="OPERATION,…", default="", help="leave these out, such as set_acl"
    )
    parser.add_argument(
        "--shrink-s", type=float, default=SHRINK_S, help="how long to look for a shorter script"
    )
    chosen = parser.parse_args(argv)
    seed = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {chosen.operations} operations, ZooKeeper {chosen.zookeeper}", flush=True)
    numbers = {name: opcode for opcode, name in NAMES.items()}
    without = {numbers[name] for name in chosen.without.split(",") if name}
    rounds = script(seed, chosen.operations, without)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="zraft-differential-") as directory,
        Pair(Path(directory), chosen.zookeeper) as pair,
    ):
        outcome, found = run(pair, rounds, chosen.shrink_s)
    for name, count in sorted(outcome.seen.items()):
        print(f"{count:>8} {name}")
    print(f"{time.monotonic() - began:.0f} s")
    if found is None:
        print("equal")
        return 0
    print(f"DIFFERENT in round {outcome.failed} of {len(rounds)}; seed {seed}\n{found}")
    return 1


if __name__ == "__main__":
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
