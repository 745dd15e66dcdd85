"""The graph of a job: checks that segments flow through it from inputs to outputs, without a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from onyxlog.ids import TaskName
from onyxlog.jobs.functions import nearest
from onyxlog.jobs.specification import Job, TaskKind


def problems(job: Job) -> Iterator[str]:
    """Return what is wrong with the workflow; each text begins with where."""
    names = [task.name for task in job.catalog]
    if not job.catalog:
        yield "catalog: expected tasks, found none"
    seen: set[tuple[TaskName, TaskName]] = set()
    for number, edge in enumerate(job.workflow):
        for name in edge:
            if name not in names:
                yield f"workflow[{number}]: no task {name!r} in the catalog{nearest(name, names)}"
        if edge in seen:
            yield f"workflow[{number}]: {edge[0]!r} to {edge[1]!r} is there already"
        seen.add(edge)
    if cycle := _cycle(job.workflow):
        yield f"workflow: a cycle: {' -> '.join(map(repr, cycle))}; segments would never come to an end"
        return
    yield from _ends(job)


def _ends(job: Job) -> Iterator[str]:
    """Return where segments come in and go out."""
    for number, task in enumerate(job.catalog):
        here = f"catalog[{number}] ({task.name!r})"
        before, after = job.upstream(task.name), job.downstream(task.name)
        if not before and not after:
            yield f"{here}: no edge of the workflow leads to it or from it"
        elif task.kind is TaskKind.INPUT:
            if before:
                yield f"{here}: nothing can be sent to an input, the workflow has {before[0]!r} send to it"
        elif not before:
            yield f"{here}: no edge leads to it, and it is no input but {_a(task.kind)}: nothing would reach it"
        if not before and not after:
            continue
        if task.kind is TaskKind.OUTPUT:
            if after:
                yield f"{here}: nothing comes after an output, the workflow has it send to {after[0]!r}"
        elif not after and task.kind is not TaskKind.REDUCE:
            yield f"{here}: what it makes goes nowhere: the last task is an output or a reduce, this is {_a(task.kind)}"


def _a(kind: TaskKind) -> str:
    return f"an {kind.value}" if kind.value[0] in "aeiou" else f"a {kind.value} task"


def _cycle(edges: Sequence[tuple[TaskName, TaskName]]) -> list[TaskName]:
    sorter: TopologicalSorter[TaskName] = TopologicalSorter()
    for source, to in edges:
        sorter.add(to, source)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle: list[TaskName] = error.args[1]
        return cycle
    return []
