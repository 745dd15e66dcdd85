"""What inputs and outputs have to offer, what they are given, and the names of those that come with onyxlog.

A plugin is a class; each worker of a task makes one instance with the job's options as keyword arguments and a
`PluginContext` first. Its methods run in the event loop of the group: what blocks goes through `context.in_thread`.
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
    """Runs something that blocks in the worker's thread; one at a time."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


@frozen
class PluginContext:
    """Whose plugin it is. `where` begins the message of a WorkflowError; `hosts` is where the log's servers are,
    and `access` as whom this group goes there; an option that names another cluster shows it nothing of that.
    `adopts(slot)`: whether what the worker of this slot left behind is this worker's: its own slot, and some without worker.
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
    """What was read of a partition: segments, the position of each, growing, and the one to go on from."""

    segments: list[Any]
    positions: Sequence[int]
    next_position: int


class Reader(Protocol):
    """Reads one partition from a position on."""

    async def read(self, count: int) -> Chunk:
        """Up to so many segments, at once: none if there are none now. The same ones from the same position, for ever."""
        ...

    @property
    def exhausted(self) -> bool:
        """There will never be more. A source that may grow is never exhausted."""
        ...

    async def close(self) -> None: ...


class Input(Protocol):
    """A source in partitions, which the workers of the task divide among them; each is read by one at a time."""

    async def partitions(self) -> int:
        """How many; the same for all workers and for the life of the job. Names of partitions are 0, 1, …"""
        ...

    async def reader(self, partition: int, position: int) -> Reader:
        """A reader from this position on, 0: the first."""
        ...

    async def close(self) -> None: ...


class Output(Protocol):
    """A worker's end of a sink."""

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Begin. `states`: what `flush` gave at the last checkpoint, by slot, of the slots that this worker adopts. What
        was written after it, or by a slot of which there is nothing, is written again: an output that can forgets it
        now. None: there are no checkpoints, and what was written stays."""
        ...

    async def write(self, segments: Sequence[Any]) -> None: ...

    async def flush(self) -> Any:
        """Everything that was written is where it belongs, and stays; what `open` needs to come back here, a plain value."""
        ...

    async def close(self) -> None: ...


def unwritable(context: PluginContext, expected: str, segment: Any) -> WorkflowError:
    """For an output: it would fail again on the same segment, so that the job is to be killed, and not begun again."""
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
    """
    Raises:
        WorkflowError: there is no such plugin, or it does not take these options.
    """
    made: Input = _make(plugin, context, INPUTS)
    return made


def make_output(plugin: Plugin, context: PluginContext) -> Output:
    """Raises as `make_input`."""
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
