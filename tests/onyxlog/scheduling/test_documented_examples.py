"""The tables of examples in docs/explanation/onyxlog.md are what the schedulers do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import JobScheduler
from tests.onyxlog.scheduling.builders import job, job_counts, problem, workers

DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "onyxlog.md"
WORKERS = 10
HEADER = "| jobs | greedy | balanced | percentage |"


def examples() -> list[tuple[str, ...]]:
    """Cells of the table's rows."""
    lines = iter(DOCUMENT.read_text().splitlines())
    assert HEADER in lines
    assert set(next(lines)) == set("|-")
    rows = []
    while (line := next(lines)).startswith("|"):
        rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    return rows


def numbers(cell: str) -> list[int]:
    return [int(number) for number in cell.partition(":")[0].split(",")]


@pytest.mark.parametrize("row", examples(), ids=lambda row: row[0])
def test_examples_of_job_schedulers_are_true(row: tuple[str, ...]) -> None:
    text, _, shares = row[0].rstrip(" %)").partition(" (")
    percentages = numbers(shares)
    parts = [re.fullmatch(r"\s*(\w): ([^;]+)", part) for part in text.split(";")]
    jobs = [
        job(part[1], part[2], percentage=share)
        for part, share in zip(parts, percentages, strict=True)
        if part is not None
    ]
    assert len(jobs) == len(percentages) > 1
    for scheduler, cell in zip(JobScheduler, row[1:], strict=True):
        plan = reconfigure(problem(workers(WORKERS), *jobs, scheduler=scheduler))
        assert job_counts(plan, *(one.id for one in jobs)) == numbers(cell), scheduler


def test_there_are_examples() -> None:
    assert len(examples()) >= 4
    assert [scheduler.value for scheduler in JobScheduler] == HEADER.strip("| ").split(" | ")[1:]
