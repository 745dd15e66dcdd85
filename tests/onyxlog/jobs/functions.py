"""Functions, predicates, hooks and aggregates that the tests' jobs name by import path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onyxlog.jobs.lifecycles import TaskContext
from onyxlog.jobs.triggers import Firing

Segment = Mapping[str, Any]
CONSTANT = 7


def split(segment: Segment, separator: str | None = None) -> list[Segment]:
    return [{"word": word} for word in segment["line"].split(separator)]


def doubled(batch: Sequence[Segment]) -> list[Any]:
    return [[segment, segment] for segment in batch]


def one_too_few(batch: Sequence[Segment]) -> list[Any]:
    return list(batch)[1:]


def looked_up(segment: Segment, names: dict[int, str], suffix: str = "") -> Segment:
    return {**segment, "name": names[segment["n"]] + suffix}


def drop(segment: Segment) -> None:
    return None


def fails_on_odd(segment: Segment) -> Segment:
    if segment["n"] % 2:
        raise ArithmeticError(segment["n"])
    return segment


def wrong(segment: Segment) -> str:
    return "no segment"


def wrong_in_list(segment: Segment) -> list[Any]:
    return [segment, 3]


def even(old: Segment, new: Segment, all_new: Sequence[Segment]) -> bool:
    return bool(new["n"] % 2 == 0)


def above(old: Segment, new: Segment, all_new: Sequence[Segment], limit: int = 0) -> bool:
    return bool(new["n"] > limit)


def always(*of: Any) -> bool:
    return True


def is_arithmetic(old: Segment, exception: Exception, all_new: Sequence[Segment]) -> bool:
    return isinstance(exception, ArithmeticError)


def described(old: Segment, exception: Exception) -> Segment:
    return {**old, "error": str(exception)}


def is_mark(segment: Segment) -> bool:
    return bool(segment.get("mark"))


def parity(segment: Segment) -> int:
    return int(segment["n"]) % 2


def emit_twice(firing: Firing, label: str = "") -> list[Segment]:
    return [{"label": label, "result": firing.result}] * 2


TOLD: list[Firing] = []


def remember(firing: Firing, label: str = "") -> None:
    TOLD.append(firing)


class Longest:
    """A user's aggregate: the longest word."""

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def initial(self) -> str:
        return ""

    def add(self, state: str, segment: Segment) -> str:
        word = segment["word"]
        return word if len(word) >= self.least and (len(word), word) > (len(state), state) else state

    def merge(self, state: str, other: str) -> str:
        return max(state, other, key=lambda word: (len(word), word))

    def result(self, state: str) -> str:
        return state


class NoAggregate:
    def initial(self) -> int:
        return 0


class Recorder:
    """Hooks that write down that they were called."""

    def __init__(self, name: str, calls: list[Any], may_start: bool = True, verdict: str = "defer") -> None:
        self.name, self.calls, self.may, self.answer = name, calls, may_start, verdict

    def start_task(self, context: TaskContext, **params: Any) -> bool:
        self.calls.append((self.name, "start_task", params))
        return self.may

    def before_task_start(self, context: TaskContext, **params: Any) -> dict[str, Any]:
        self.calls.append((self.name, "before_task_start", dict(context.resources)))
        return {self.name: len(self.calls)}

    def after_read_batch(self, context: TaskContext, segments: Sequence[Segment], **params: Any) -> None:
        self.calls.append((self.name, "after_read_batch", list(segments)))

    def after_task_stop(self, context: TaskContext, why: str, **params: Any) -> None:
        self.calls.append((self.name, "after_task_stop", why))
        if self.answer == "raise":
            raise OSError(self.name)

    def handle_exception(self, context: TaskContext, at: str, exception: Exception, **params: Any) -> str:
        self.calls.append((self.name, "handle_exception", at))
        return self.answer


CALLS: list[Any] = []
FIRST = Recorder("first", CALLS)
SECOND = Recorder("second", CALLS, verdict="restart")
UNWILLING = Recorder("unwilling", CALLS, may_start=False)
RAISING = Recorder("raising", CALLS, verdict="raise")


class Misspelt:
    def before_bacth(self) -> None: ...
