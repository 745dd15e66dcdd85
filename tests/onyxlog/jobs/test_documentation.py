"""The document of peers says of jobs what is so: its example can run, and its tables name all that there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import attrs
import pytest

from onyxlog.jobs import aggregates
from onyxlog.jobs.flow_conditions import FlowCondition
from onyxlog.jobs.grouping import BUCKETS
from onyxlog.jobs.lifecycles import Hook
from onyxlog.jobs.specification import Delivery, TaskKind, job_from_plain
from onyxlog.jobs.triggers import TriggerType
from onyxlog.jobs.validation import check
from onyxlog.jobs.windows import WindowType
from onyxlog.plugins.plugin import INPUTS, OUTPUTS

TEXT = (Path(__file__).parents[3] / "docs" / "explanation" / "onyxlog.md").read_text(encoding="utf-8")
JOBS = TEXT[TEXT.index("\n## Jobs\n") : TEXT.index("\n## Running tasks\n")]


def test_the_example_is_a_job_that_can_run() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", JOBS, re.DOTALL)
    job = job_from_plain(tomllib.loads(example))
    check(job, importing=False, inputs=INPUTS, outputs=OUTPUTS)
    assert len(job.catalog) == 4


@pytest.mark.parametrize(
    "name",
    [
        *(kind.value for kind in TaskKind),
        *(delivery.value for delivery in Delivery),
        *(hook.value for hook in Hook),
        *(field.name for field in attrs.fields(FlowCondition) if field.name not in ("doc", "transform")),
        *aggregates.NAMES,
    ],
)
def test_every_kind_hook_field_and_aggregate_is_named(name: str) -> None:
    assert re.search(rf"`{name}\b", JOBS), name


@pytest.mark.parametrize("kind", [*get_args(WindowType), *get_args(TriggerType)])
def test_every_window_and_trigger_is_there_with_its_fields(kind: type) -> None:
    tag = kind.TYPE  # type: ignore[attr-defined]
    fields = [field.name for field in attrs.fields(kind)]
    wanted = f'{{type = "{tag}", {", ".join(fields)}}}' if fields else f'"{tag}"'
    assert f"| `{wanted}` |" in JOBS


def test_the_number_of_buckets_is_the_one_that_is_used() -> None:
    assert f"{BUCKETS:,}" in JOBS
