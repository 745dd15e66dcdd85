"""Interfaces of inputs and outputs, their context, and the names of those that come with onyxlog.

A plugin is a class; each worker of a task makes one instance with the job's options as keyword arguments and
a `PluginContext` first. Its methods run in the event loop of the group: what blocks goes through
`context.in_thread`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from attrs import frozen

from onyxlog.access import Access
from onyxlog.errors import WorkflowError
from onyxlog.ids import JobId, PeerId, TaskName
from onyxlog.jobs.functions import nearest, resolve_callable
from onyxlog.jobs.specification import Plugin

T = TypeVar("T")


class InThread(Protocol):
    """Interface to run something that blocks in the worker's thread; one at a time."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a function in the thread; the awaitable gives its result."""
        ...


@frozen
class PluginContext:
    """The worker that a plugin belongs to.

    `where` begins the message of a WorkflowError. `hosts` is where the log's servers are, and `access` is the
    identity that this group shows there; never show it to another cluster that an option names.
    `adopts(slot)`: whether what the worker of this slot left behind is this worker's: its own slot, and some
    without worker.
    """

    job: JobId
    task: TaskName
    peer: PeerId
    slot: int
    where: str
    in_thread: InThread
    hosts: str
    access: Access
    adopts: Callable[[int], bool]


@frozen
class Chunk:
    """A piece of a partition: segments, the position of each (growing), and the position to continue from."""

    segments: list[Any]
    positions: Sequence[int]
    next_position: int


class Reader(Protocol):
    """Interface of a reader of one partition, from a position on."""

    async def read(self, count: int) -> Chunk:
        """Return at once up to that many segments; none if there are none now.

        The same position always gives the same segments.

        Raises:
            WorkflowError: what comes next cannot be read, and never will be.
        """
        ...

    @property
    def exhausted(self) -> bool:
        """True if there will never be more. A source that may grow is never exhausted."""
        ...

    async def close(self) -> None:
        """Free what the reader holds."""


def extent_of(reader: Reader) -> tuple[int, int] | None:
    """Return the first position of a reader's partition and the one behind its last.

    They are what the reader's attribute `extent` says. It is None, or missing, where the end is not known. It is for
    people, who see how much is left to read.
    """
    match getattr(reader, "extent", None):
        case (int(first), int(end)) if 0 <= first <= end:
            return first, end
    return None


class Input(Protocol):
    """A source in partitions, which the workers of the task divide among them.

    One worker at a time reads a partition.
    """

    async def partitions(self) -> int:
        """Return the number of partitions: the same for all workers and for the life of the job.

        Their names are 0, 1, …
        """
        ...

    async def reader(self, partition: int, position: int) -> Reader:
        """Return a reader from this position on; 0 is the first."""
        ...

    async def close(self) -> None:
        """Free what the input holds."""


class Output(Protocol):
    """One worker's end of a sink."""

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Begin to write.

        `states`: what `flush` gave at the last checkpoint, by slot, of the slots that this worker adopts.
        What was written after it, or by a slot that is not in it, is written again; an output that can forget
        it does so now. None: there are no checkpoints, and what was written stays.
        """
        ...

    async def write(self, segments: Sequence[Any]) -> None:
        """Write segments; they need not be durable before `flush`."""

    async def flush(self) -> Any:
        """Make everything that was written durable; return the plain value that `open` needs to come back here."""
        ...

    async def close(self) -> None:
        """Free what the output holds."""


def unwritable(context: PluginContext, expected: str, segment: Any) -> WorkflowError:
    """Return the error by which an output says that it would fail again on the same segment.

    The job is killed, and not begun again.
    """
    return WorkflowError(
        f"{context.where}: plugin: expected {expected} in every segment, found {str(segment)[:200]}"
    )


INPUTS: Final = {
    "sequence": "onyxlog.plugins.sequence:SequenceInput",
    "generated": "onyxlog.plugins.sequence:GeneratedInput",
    "lines": "onyxlog.plugins.lines:LinesInput",
    "znodes": "onyxlog.plugins.znodes:ZnodesInput",
}
OUTPUTS: Final = {
    "null": "onyxlog.plugins.collecting:NullOutput",
    "collecting": "onyxlog.plugins.collecting:CollectingOutput",
    "dictionary": "onyxlog.plugins.dictionary:DictionaryOutput",
    "lines": "onyxlog.plugins.lines:LinesOutput",
    "znodes": "onyxlog.plugins.znodes:ZnodesOutput",
}


def make_input(plugin: Plugin, context: PluginContext) -> Input:
    """Make an input plugin.

    Raises:
        WorkflowError: there is no such plugin, or it does not take these options.
    """
    made: Input = _make(plugin, context, INPUTS)
    return made


def make_output(plugin: Plugin, context: PluginContext) -> Output:
    """Make an output plugin.

    Raises:
        WorkflowError: there is no such plugin, or it does not take these options.
    """
    made: Output = _make(plugin, context, OUTPUTS)
    return made


def _make(plugin: Plugin, context: PluginContext, known: Mapping[str, str]) -> Any:
    path = known.get(plugin.name, plugin.name)
    if ":" not in path:
        raise WorkflowError(
            f"{context.where}: plugin: expected one of {', '.join(sorted(known))} or 'package.module:Class', found "
            f"{plugin.name!r}{nearest(plugin.name, list(known))}"
        )
    made = resolve_callable(path, f"{context.where}: plugin")
    try:
        return made(context, **plugin.options)
    except TypeError as error:
        raise WorkflowError(f"{context.where}: plugin {plugin.name!r}: options: {error}") from error
