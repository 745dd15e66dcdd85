"""Sources give the same from the same position; sinks that can go back do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.errors import WorkflowError
from onyxlog.jobs.specification import Plugin
from onyxlog.plugins.dictionary import DictionaryOutput
from onyxlog.plugins.lines import LinesInput, LinesOutput
from onyxlog.plugins.plugin import INPUTS, OUTPUTS, Input, make_input, make_output
from onyxlog.plugins.sequence import GeneratedInput, SequenceInput
from onyxlog.plugins.znodes import ZnodesInput, ZnodesOutput
from tests.client.fake import FakeCluster
from tests.onyxlog.plugins.contexts import context, everything
from zraft_client import Client

T = TypeVar("T")


@given(count=st.integers(0, 40), partitions=st.integers(1, 7))
async def test_a_sequence_is_dealt_to_its_partitions_and_nothing_is_left_out(
    count: int, partitions: int
) -> None:
    source = SequenceInput(context(), [{"n": n} for n in range(count)], partitions)
    found = await everything(source)
    assert sorted(segment["n"] for items in found for _, segment in items) == list(range(count))  # type: ignore[index]
    for items in found:
        assert [position for position, _ in items] == list(range(len(items)))


@given(
    lines=st.lists(st.text(alphabet="ab", max_size=9), max_size=20),
    partitions=st.integers(1, 9),
    ends=st.booleans(),
)
async def test_every_line_of_a_file_is_in_one_partition(
    lines: list[str], partitions: int, ends: bool
) -> None:
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    with TemporaryDirectory() as directory:
        path = Path(directory, "text")
        path.write_text(text)  # noqa: ASYNC240 - a small file of its own
        found = await everything(LinesInput(context(), str(path), partitions=partitions))
    read = [(position, segment["line"]) for items in found for position, segment in items]  # type: ignore[index]
    assert [line for _, line in sorted(read)] == text.splitlines()
    assert len({position for position, _ in read}) == len(read)


async def test_readers_go_on_from_any_position(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"line {n}\n" for n in range(50)))
    sources: list[Input] = [
        LinesInput(context(), str(path), partitions=3),
        SequenceInput(context(), [{"n": n} for n in range(50)], 3),
        GeneratedInput(context(), "tests.onyxlog.tasks.functions:line", 50, 3),
    ]

    async def rest(source: Input, partition: int, position: int) -> list[object]:
        reader = await source.reader(partition, position)
        chunk = await reader.read(1000)
        await reader.close()
        return chunk.segments

    for source in sources:
        for partition, items in enumerate(await everything(source)):
            for index, (position, _) in enumerate(items):
                if position:  # 0 is the beginning of any partition
                    expected = [segment for _, segment in items[index:]]
                    assert await rest(source, partition, position) == expected


async def test_a_file_of_lines_is_cut_back_to_the_checkpoint_also_by_whoever_adopts_its_slot(
    tmp_path: Path,
) -> None:
    first, second = (LinesOutput(context(slot, (0, 1)), str(tmp_path)) for slot in (0, 1))
    for output in (first, second):
        await output.open({})
    await first.write([{"n": 1}])
    await second.write([{"n": 2}])
    states = {0: await first.flush(), 1: await second.flush()}
    await first.write([{"n": 3}])
    await second.write([{"n": 4}])
    for output in (first, second):
        await output.flush()
        await output.close()
    alone = LinesOutput(context(0, (0,)), str(tmp_path))
    await alone.open(states)
    await alone.write([{"n": 5}])
    await alone.flush()
    await alone.close()
    found = {
        path.name: [json.loads(line)["n"] for line in path.read_text().splitlines()]
        for path in sorted(tmp_path.iterdir())  # noqa: ASYNC240
    }
    assert found == {"job-task-0.jsonl": [1, 5], "job-task-1.jsonl": [2]}


async def test_without_a_checkpoint_a_file_begins_empty_and_without_checkpoints_it_is_continued(
    tmp_path: Path,
) -> None:
    async def write(states: dict[int, int] | None, number: int) -> None:
        output = LinesOutput(context(), str(tmp_path), format="text", key="n")
        await output.open(states)
        await output.write([{"n": number}])
        await output.flush()
        await output.close()

    found = []
    for states, number in ((None, 1), (None, 2), ({}, 3)):
        await write(states, number)
        found.append((tmp_path / "job-task-0.txt").read_text())
    assert found == ["1\n", "1\n2\n", "3\n"]


@pytest.mark.parametrize(("left", "kept"), [(b"1\n2\n3", "1\n2\n"), (b"1\n", "1\n"), (b"1", ""), (b"", "")])
async def test_half_a_line_that_a_killed_process_left_is_dropped(
    tmp_path: Path, left: bytes, kept: str
) -> None:
    path = tmp_path / "job-task-0.txt"
    path.write_bytes(left)

    output = LinesOutput(context(), str(tmp_path), format="text", key="n")
    await output.open(None)
    await output.write([{"n": 9}])
    await output.flush()
    await output.close()
    assert path.read_text() == f"{kept}9\n"


async def test_znodes_are_read_by_their_numbers_and_written_in_order() -> None:
    cluster = FakeCluster()
    await cluster.listen(1)
    async with Client(cluster.hosts) as client:
        await client.create("/log")
        output = ZnodesOutput(context(hosts=cluster.hosts), "/log")
        await output.open(None)
        await output.write([{"n": n} for n in range(7)])
        await output.close()
        source = ZnodesInput(context(hosts=cluster.hosts), "/log", until_end=True)
        found = await everything(source)
        await source.close()
        source = ZnodesInput(context(), "/log", hosts=cluster.hosts)
        reader = await source.reader(0, 4)
        chunk = await reader.read(2)
        await source.close()
        assert not reader.exhausted
    await cluster.close()
    assert found == [[(n, {"n": n}) for n in range(7)]]
    assert [segment["n"] for segment in chunk.segments] == [4, 5]


async def test_entries_that_were_truncated_before_they_were_read_fail_the_job_unless_they_do_not_matter() -> (
    None
):
    cluster = FakeCluster()
    await cluster.listen(1)
    async with Client(cluster.hosts) as client:
        await client.create("/log")
        for n in range(6):
            await client.create("/log/entry-", msgpack.packb({"n": n}), sequential=True)
        await client.truncate("/log", 4)
    strict = ZnodesInput(context(hosts=cluster.hosts), "/log")
    with pytest.raises(
        WorkflowError, match=r"entry 2 is to be read next, and the log begins at 4.*skip_truncated"
    ):
        await (await strict.reader(0, 2)).read(10)
    await strict.close()
    lax = ZnodesInput(context(hosts=cluster.hosts), "/log", skip_truncated=True)
    chunk = await (await lax.reader(0, 2)).read(10)
    await lax.close()
    await cluster.close()
    assert list(chunk.positions) == [4, 5]


async def test_a_dictionary_takes_the_last_of_each_key_and_the_same_again() -> None:
    cluster = FakeCluster()
    await cluster.listen(1)
    output = DictionaryOutput(context(hosts=cluster.hosts), "counts", "word", "count")
    await output.open(None)
    for _ in range(2):
        await output.write([{"word": "a", "count": 1}, {"word": "b", "count": 5}, {"word": "a", "count": 2}])
    await output.close()
    async with Client(cluster.hosts) as client:
        counts = client.dictionary("counts")
        found = {key: await counts.get(key) for key in ("a", "b")}
    await cluster.close()
    assert found == {"a": 2, "b": 5}


async def test_plugins_that_do_not_exist_or_do_not_take_these_options_are_named() -> None:
    where = "job 'job': catalog: task 'task'"
    with pytest.raises(WorkflowError, match=rf"{where}: plugin: .*'lnes' \(did you mean 'lines'\?\)"):
        make_input(Plugin("lnes"), context())
    with pytest.raises(WorkflowError, match=rf"{where}: plugin 'lines': options: .*'pth'"):
        make_output(Plugin("lines", {"pth": "/tmp"}), context())
    with pytest.raises(WorkflowError, match="expected `hosts`"):
        await DictionaryOutput(context(), "counts", "word").open(None)


def test_all_names_of_plugins_lead_to_a_class() -> None:
    from onyxlog.jobs.functions import resolve_callable

    for path in (*INPUTS.values(), *OUTPUTS.values()):
        assert isinstance(resolve_callable(path), type)


def odd_numbers(number: int) -> dict[str, int]:
    if number % 2 == 0:
        raise LookupError("even")
    return {"n": number}


async def test_what_a_source_cannot_make_a_segment_of_is_the_jobs_fault_and_named(tmp_path: Path) -> None:
    """Read again it would be the same: the virtual peer must not begin again and again."""
    path = tmp_path / "text"
    path.write_text('{"n": 1}\n{"n": \n')
    generated = GeneratedInput(context(), f"{__name__}:odd_numbers", 2)

    async def read(source: Input) -> None:
        reader = await source.reader(0, 0)
        try:
            await reader.read(10)
        finally:
            await reader.close()

    with pytest.raises(WorkflowError, match=rf"{path}: offset 9: expected a line of JSON"):
        await read(LinesInput(context(), str(path), format="json"))
    with pytest.raises(WorkflowError, match=r"odd_numbers' raised LookupError on 0: even"):
        await read(generated)


async def test_what_generates_segments_is_a_users_function_and_runs_in_the_workers_thread() -> None:
    called: list[object] = []

    async def in_thread(function: Callable[[], T]) -> T:
        called.append(function)
        return function()

    source = GeneratedInput(
        attrs.evolve(context(), in_thread=in_thread), "tests.onyxlog.tasks.functions:line", 7
    )
    assert len((await everything(source, count=3))[0]) == 7
    assert len(called) == 3


@pytest.mark.parametrize(
    ("plugin", "segment", "expected"),
    [
        (Plugin("lines"), {"n": b"x"}, "expected what JSON can write"),
        (Plugin("lines", {"format": "text"}), {"n": 1}, "expected text at 'line'"),
        (Plugin("znodes", {"format": "text"}), {"n": 1}, "expected what format text can write"),
        (Plugin("znodes", {"format": "json"}), {"n": b"x"}, "expected what format json can write"),
        (Plugin("dictionary", {"dictionary": "counts", "key": "word"}), {"n": 1}, "expected a key at 'word'"),
    ],
)
async def test_what_a_sink_cannot_write_is_the_jobs_fault_and_named(
    tmp_path: Path, plugin: Plugin, segment: Any, expected: str
) -> None:
    path = {} if plugin.name == "dictionary" else {"path": str(tmp_path)}
    cluster = FakeCluster()
    await cluster.listen(1)
    made = make_output(attrs.evolve(plugin, options={**plugin.options, **path}), context(hosts=cluster.hosts))
    await made.open(None)
    with pytest.raises(WorkflowError, match=f"task 'task': plugin: {expected} in every segment, found {{'n'"):
        await made.write([segment])
    await made.close()
    await cluster.close()
