"""What the simulations have in common: one seed's verdict, planted bugs that must be noticed, and whether enough was seen.

A `Scenario` says for one system what is special about it. The command (`python -m tests.simulation`), the tests, the long
run and the comparison of two trees run every system through it.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar

import click
from attrs import Factory, frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.directed_registry import Directed
from tests.simulation.planted_registry import Plant, Plants

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

TRACE: Final = click.Option(["--trace"], is_flag=True, help="With --seed: print what happens.")


@frozen
class Result(Generic[R]):
    """One seed's end: a report, or what broke. `cpu_s` is processor time in seconds."""

    seed: int
    report: R | None
    checker: str = ""
    reason: str = ""
    cpu_s: float = 0.0


class Simulated(Protocol[R_co]):
    """One seed's run, which reports what it saw."""

    @property
    def moment(self) -> str:
        """How far it has come, with a unit."""
        ...

    def run(self) -> R_co:
        """Raises BrokenPromiseError, and whatever the product raises."""
        ...


@frozen
class Enough:
    """What runs must have seen to mean anything: a checker that was never fed always passes.

    Attributes:
        each: attributes of a report, and the least of each in every single seed.
        means: attributes of a report, and the least average of each over `means_from_seeds` seeds or more.
        kinds: what must have happened somewhere in `kinds_from_seeds` seeds or more.
    """

    each: Mapping[str, int] = Factory(dict)
    means: Mapping[str, float] = Factory(dict)
    means_from_seeds: int = 1
    kinds: Sequence[str] = ()
    kinds_from_seeds: int = 1


@frozen(eq=False)
class Scenario(Generic[R]):
    """One system under simulation.

    Attributes:
        make: a run of a seed; it takes the command's own options of this scenario as named arguments.
        planted_seeds_max: a planted bug that so many seeds do not notice counts as missed.
        planted_options: what is given to `make` beside the seed to look for a planted bug.
        figures: attributes of a report that the command shows of a range of seeds.
        seen: what happened how often, of a report.
        directed: schedules by the names of the planted bugs that they are for.
        known: seeds that have shown planted bugs, by their names: the search for them begins there.
    """

    name: str
    about: str
    make: Callable[..., Simulated[R]]
    plants: Plants[Any]
    planted_seeds_max: int
    figures: Sequence[str]
    seen: Callable[[R], Iterable[tuple[str, int]]] = lambda report: ()
    enough: Enough = Enough()
    directed: Mapping[str, Directed] = Factory(dict)
    known: Mapping[str, int] = Factory(dict)
    planted_options: Callable[[Plant[Any]], Mapping[str, Any]] = lambda plant: {}
    options: Sequence[click.Option] = ()

    def run_seed(self, seed: int, *, plant: str | None = None, **options: Any) -> Result[R]:
        """Run one seed, perhaps with a planted bug; every error of checkers or of the product is a failure of the seed."""
        began = time.process_time()
        with nullcontext() if plant is None else self.plants.planted(plant):
            simulation = self.make(seed, **options)
            try:
                report = simulation.run()
            except BrokenPromiseError as error:
                checker, reason = error.checker, error.found
            except Exception as error:
                # The product raised what no input may make it raise; where is the first thing to know.
                frame = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
                checker, reason = "no crash", f"{type(error).__name__}: {error} ({where})"
            else:
                return Result(seed, report, cpu_s=time.process_time() - began)
        reason = f"at {simulation.moment}: {reason}"
        return Result(seed, None, checker, reason, time.process_time() - began)

    def run_planted(self, name: str, seeds: Iterable[int]) -> tuple[Result[R] | None, int]:
        """Run seeds until one that is sound without the bug notices it: its result, or None, and how many it took."""
        options = self.planted_options(self.plants[name])
        tried = 0
        for seed in seeds:
            tried += 1
            result = self.run_seed(seed, plant=name, **options)
            if result.report is None and _is_sound(self, seed, tuple(options.items())):
                return result, tried
        return None, tried

    def run_directed(self, name: str) -> Result[R] | None:
        """Run the directed schedule of a planted bug, without it and with it: what noticed it, or None."""
        directed = self.directed[name]
        directed.schedule()
        began = time.process_time()
        try:
            with self.plants.planted(name):
                directed.schedule()
        except directed.raises as error:
            checker = error.checker if isinstance(error, BrokenPromiseError) else type(error).__name__
            return Result(0, None, checker, str(error), time.process_time() - began)
        return None

    def search(self, name: str, start: int = 0) -> tuple[Result[R] | None, int]:
        """Look for what notices a planted bug: its directed schedule, or seeds, and how many of these it took.

        Args:
            name: of the bug.
            start: the first seed to try; 0 for the one that is known to show it.
        """
        if name in self.directed:
            return self.run_directed(name), 0
        first = start or self.known.get(name, 0)
        return self.run_planted(name, range(first, first + self.planted_seeds_max))

    def seen_in(self, reports: Iterable[R]) -> Counter[str]:
        """How often everything was seen in these runs."""
        seen: Counter[str] = Counter()
        for report in reports:
            seen.update(dict(self.seen(report)))
        return seen

    def shortfalls(self, reports: Sequence[R]) -> list[str]:
        """Why these runs do not mean anything; empty if they do."""
        enough, count = self.enough, len(reports)
        found = []
        for report in reports:
            few = [name for name, least in enough.each.items() if getattr(report, name) < least]
            found += [
                f"seed {getattr(report, 'seed', '')} saw only {getattr(report, name)} {_words(name)}, "
                f"at least {enough.each[name]} expected"
                for name in few
            ]
        if reports and count >= enough.means_from_seeds:
            for name, least in enough.means.items():
                mean = sum(getattr(report, name) for report in reports) / count
                if mean < least:
                    found.append(f"{_words(name)} per seed: {mean:.1f}, at least {least} expected")
        if count >= enough.kinds_from_seeds:
            seen = self.seen_in(reports)
            found += [f"no {kind} in {count} seeds" for kind in enough.kinds if not seen[kind]]
        return found


@cache
def _is_sound(scenario: Scenario[Any], seed: int, options: tuple[tuple[str, Any], ...]) -> bool:
    """Whether a seed breaks no promise without a plant: if it does, it proves nothing about one."""
    return scenario.run_seed(seed, **dict(options)).report is not None


def _words(name: str) -> str:
    return name.replace("_", " ")
