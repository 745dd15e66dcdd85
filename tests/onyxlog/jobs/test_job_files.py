"""Jobs from JSON, TOML and Python, and what is wrong with those that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from onyxlog.errors import WorkflowError
from onyxlog.jobs.job_files import load_job
from onyxlog.jobs.plain import to_plain
from onyxlog.jobs.specification import Job
from onyxlog.jobs.validation import check
from onyxlog.main import main
from tests.onyxlog.jobs.samples import word_count

TOML = """
id = "words"
workflow = [["lines", "split"], ["split", "count"], ["count", "store"]]

[[catalog]]
name = "lines"
kind = "input"
plugin = {name = "sequence", options = {segments = [{line = "to be or not"}]}}

[[catalog]]
name = "split"
function = "tests.onyxlog.jobs.functions:split"
params = {separator = " "}
batch_size = 100

[[catalog]]
name = "count"
kind = "reduce"
group_by = {keys = ["word"]}
flux = "recover"
min_peers = 2
max_peers = 4

[[catalog]]
name = "store"
kind = "output"
plugin = {name = "dictionary"}
tags = ["disk", "big", "disk"]

[[windows]]
id = "all"
task = "count"
over = "global"
aggregation = "count"

[[triggers]]
id = "told"
window = "all"
on = {type = "segments", count = 1000}
emit = "result"
"""
A_JOB: Job = word_count()
NO_JOB = 3


def make_job() -> Job:
    return word_count()


def make_nothing() -> None:
    return None


def test_toml_json_and_python_make_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TOML)
    (tmp_path / "job.json").write_text(json.dumps(to_plain(word_count())))
    here = __name__
    for source in (
        str(tmp_path / "job.toml"),
        str(tmp_path / "job.json"),
        f"{here}:A_JOB",
        f"{here}:make_job",
    ):
        job = load_job(source)
        assert job == word_count()
        check(job)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("job.json", "{", "job.json: Expecting property name"),
        ("job.json", '{"id": "a", "workflow": [], "id": "b"}', "job.json: 'id' stands twice in one map"),
        ("job.json", "[" * 100_000, "job.json: nested too deep for a job"),
        ("job.json", '{"id": 1}', "job.json: id: expected a string, found 1"),
        ("job.toml", "id = ", "job.toml: Invalid value"),
        ("job.toml", 'id = "a"\nid = "b"', "job.toml: Cannot overwrite a value"),
        (
            "job.toml",
            "metadata = {at = 2024-01-01}\n" + TOML,
            "metadata: at is a date, where a plain value is expected",
        ),
    ],
)
def test_a_file_that_is_no_job_is_told_with_where_it_is(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(WorkflowError) as caught:
        load_job(str(tmp_path / name))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match=r"job\.json: cannot be read: .*No such file"):
        load_job(str(tmp_path / "job.json"))
    (tmp_path / "job.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(WorkflowError, match=r"job\.json: cannot be read: "):
        load_job(str(tmp_path / "job.json"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("words", "words: expected a file *.json or *.toml, or package.module:attribute"),
        (f"{__name__}:NO_JOB", "expected a Job or a function that makes one, found a int"),
        (f"{__name__}:make_nothing", "expected a Job or a function that makes one, found a NoneType"),
        (f"{__name__}:make_jbo", "(did you mean 'make_job'?)"),
        ("no.such.module:job", "module 'no.such.module' cannot be imported"),
    ],
)
def test_python_that_is_no_job_is_told(source: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        load_job(source)
    assert message in str(caught.value)


def test_check_job_says_that_a_job_can_run_or_all_that_is_wrong_with_it(tmp_path: Path) -> None:
    good, wrong = tmp_path / "good.toml", tmp_path / "wrong.toml"
    good.write_text(TOML)
    wrong.write_text(
        TOML.replace("functions:split", "functions:splt").replace('"dictionary"', '"dictionray"')
    )
    run = CliRunner().invoke
    answer = run(main, ["check-job", str(good)])
    assert (answer.exit_code, answer.output) == (0, "words: can run; 4 tasks, on 5 virtual peers at least\n")
    answer = run(main, ["check-job", str(wrong)])
    assert answer.exit_code == 2
    assert "no output 'dictionray' (did you mean 'dictionary'?)" in answer.output
    wrong.write_text(wrong.read_text().replace("dictionray", "dictionary"))
    answer = run(main, ["check-job", str(wrong)])
    assert answer.exit_code == 2
    assert "has no 'splt' (did you mean 'split'?)" in answer.output
    assert run(main, ["check-job", "--no-importing", str(wrong)]).exit_code == 0
