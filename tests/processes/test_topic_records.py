"""`zraft topic produce` and `zraft topic consume` as people and scripts use them, against a real server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.processes.cluster import Cluster, wait_until
from zraft_client import Client
from zraft_client.claims import Marshaler
from zraft_client.topics import Start, Topics

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for this module: each test has topics of its own."""
    with Cluster(tmp_path_factory.mktemp("records"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


def command(cluster: Cluster, *words: str) -> list[str]:
    connect = ("--connect", str(cluster.servers[1].address))
    return [sys.executable, "-m", "zraft", "topic", words[0], *connect, *words[1:]]


def topic(cluster: Cluster, *words: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(cluster, *words), input=lines, capture_output=True, check=False)


def made(cluster: Cluster, name: str, partitions: int = 1) -> str:
    done = topic(cluster, "create", name, "--partitions", str(partitions), "--key", str(cluster.key))
    assert done.returncode == 0, done.stderr
    return name


def names(cluster: Cluster) -> list[str]:
    listed = topic(cluster, "list", "--json", "--key", str(cluster.key)).stdout
    return [json.loads(line)["name"] for line in listed.splitlines()]


def produced(cluster: Cluster, *words: str, lines: bytes) -> str:
    done = topic(cluster, "produce", *words, lines=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    return done.stderr.decode()


def about_consumers(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[bytes]:
    connect = ("--connect", str(cluster.servers[1].address))
    command = [sys.executable, "-m", "zraft", "consumer", words[0], *connect, *words[1:]]
    return subprocess.run(command, capture_output=True, check=False)


def consumed(cluster: Cluster, *words: str) -> bytes:
    done = topic(cluster, "consume", *words)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_lines_become_records_and_records_lines(running: Cluster) -> None:
    name = made(running, "lines")
    assert produced(running, name, lines=b"one\n\nthree \xff") == "3 records: lines/0 offset 0 to 2\n"
    assert produced(running, name, lines=b"") == "0 records\n"
    assert consumed(running, name) == b"one\n\nthree \xff\n"
    assert consumed(running, name, "--from", "1", "--to", "2") == b"\n"
    assert consumed(running, name, "--limit", "1") == b"one\n"
    assert consumed(running, name, "--from", "latest") == b""
    assert consumed(running, name, "--from", "7") == b""


def test_records_are_found_by_the_time_at_which_they_were_delivered(running: Cluster) -> None:
    name = made(running, "times", 2)
    produced(running, name, "--partition", "1", lines=b"before\n")
    later = datetime.now(UTC) + timedelta(milliseconds=5)
    wait_until(lambda: datetime.now(UTC) > later, "another ms")
    between = later.isoformat()
    produced(running, name, "--partition", "1", lines=b"after\n")
    assert consumed(running, name, "--from", between) == b"after\n"
    assert consumed(running, name, "--to", between) == b"before\n"
    assert consumed(running, name, "--from", "1h") == b"before\nafter\n"
    assert consumed(running, name, "--from", "9999-01-01") == b""
    moved = about_consumers(running, "reset", "auditor", "--topic", name, "--to", between)
    assert moved.stdout == b"times/0: goes on at offset 0\ntimes/1: goes on at offset 1\n"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_is_read_as_a_pipe_is(running: Cluster, tmp_path: Path, compression: str) -> None:
    name = made(running, f"files-{compression}")
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d\n" % at for at in range(20_000)))
    told = produced(running, name, str(file), "--compression", compression, lines=b"")
    assert told == f"20000 records: {name}/0 offset 0 to 19999\n"
    assert consumed(running, name) == file.read_bytes()


def test_keys_stand_before_a_separator_and_choose_the_partition(running: Cluster) -> None:
    name = made(running, "keys", 4)
    lines = [b"%d:a:%d" % (at % 5, at) for at in range(40)]
    assert produced(running, name, "--keys", ":", lines=b"\n".join(lines)).startswith("40 records: ")
    assert sorted(consumed(running, name, "--keys", ":").splitlines()) == sorted(lines)
    of_key = [line for line in consumed(running, name, "--keys", ":").splitlines() if line.startswith(b"3:")]
    assert of_key == [line for line in lines if line.startswith(b"3:")], "records of one key keep their order"
    refused = topic(running, "produce", name, "--keys", "\\t", lines=b"k\tv\nnone\n")
    assert refused.returncode == 1
    assert b"line 2: found no separator '\\t'" in refused.stderr


def test_json_that_is_consumed_can_be_produced_again(running: Cluster) -> None:
    source, copy = made(running, "source", 2), made(running, "copy", 2)
    objects = [
        {"value": "plain", "partition": 1},
        {
            "value": {"base64": "/wA="},
            "key": {"base64": "/g=="},
            "headers": {"a": "b"},
            "partition": 0,
            "timestamp": 1_000,
        },
        {"value": "", "key": "k", "headers": None, "partition": 0},
    ]
    lines = b"\n".join(json.dumps(one).encode() for one in objects)
    produced(running, source, "--json", "--header", "from=here", lines=lines)
    found = consumed(running, source, "--json")
    first, second, third = map(json.loads, found.splitlines())
    assert {**first, "stamp": 0, "id": 0} == {
        "topic": source,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_000,
        "stamp": 0,
        "id": 0,
        "key": {"base64": "/g=="},
        "value": {"base64": "/wA="},
        "headers": {"from": "here", "a": "b"},
    }
    assert (second["key"], second["value"], second["offset"]) == ("k", "", 1)
    assert (third["key"], third["value"], third["partition"]) == (None, "plain", 1)
    produced(running, copy, "--json", lines=found)
    again = consumed(running, copy, "--json")
    told = ("topic", "stamp", "id")
    assert [
        {name: one[name] for name in one if name not in told} for one in map(json.loads, again.splitlines())
    ] == [{name: one[name] for name in one if name not in told} for one in (first, second, third)]


def test_who_follows_gets_what_comes_and_ends_at_a_signal(running: Cluster) -> None:
    name = made(running, "followed")
    produced(running, name, lines=b"before\n")
    with subprocess.Popen(command(running, "consume", name, "--follow"), stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == b"before\n"
            produced(running, name, lines=b"after\n")
            assert following.stdout.readline() == b"after\n"
        finally:
            following.send_signal(signal.SIGINT)
        assert following.wait(30) == 130


def test_who_types_has_each_line_sent_at_once(running: Cluster) -> None:
    name = made(running, "typed")
    with subprocess.Popen(
        command(running, "produce", name), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as typing:
        assert typing.stdin is not None
        assert typing.stderr is not None
        typing.stdin.write(b"first\n")
        typing.stdin.flush()
        wait_until(lambda: consumed(running, name) == b"first\n", "the first line")
        typing.stdin.close()
        assert typing.stderr.read() == b"1 record: typed/0 offset 0\n"
        assert typing.wait(30) == 0


async def consumer(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[bytes]:
    return await asyncio.to_thread(about_consumers, cluster, *words)


async def test_consumers_are_listed_with_their_lag_and_moved(running: Cluster) -> None:
    name = await asyncio.to_thread(made, running, "read", 2)
    await asyncio.to_thread(produced, running, name, "--partition", "0", lines=b"a\nb\nc\n")
    async with Client(str(running.servers[1].address)) as client, Topics(client) as topics:
        async with topics.consumer(name, name="billing") as billing:
            assert len(await billing.poll(10, limit=2)) == 2
            await billing.commit()
        listed = await consumer(running, "list", "--topic", name, "--json")
        (row,) = map(json.loads, listed.stdout.splitlines())
        assert row == {
            "consumer": "billing",
            "kind": "offset",
            "topic": name,
            "partitions": 2,
            "lag": 1,
            "members": None,
        }
        assert b"billing" in (await consumer(running, "list")).stdout
        places = [
            json.loads(line)
            for line in (await consumer(running, "describe", "billing", "--json")).stdout.splitlines()
        ]
        assert [(one["partition"], one["offset"], one["lag"]) for one in places] == [(0, 2, 1), (1, 0, 0)]
        moved = await consumer(running, "reset", "billing", "--topic", name, "--to", "earliest")
        assert moved.stdout == b"read/0: goes on at offset 0\nread/1: goes on at offset 0\n"
        async with topics.consumer(name, name="billing", start=Start.STORED) as billing:
            assert [one.value for one in await billing.poll(10)] == [b"a", b"b", b"c"]
        done = await consumer(running, "reset", "billing", "--topic", name, "--partition", "0", "--to", "2")
        assert done.stdout == b"read/0: goes on at offset 2\n"
        assert [place.offset for place in await topics.consumers(name)] == [2, 0]
        forgotten = await consumer(running, "reset", "billing", "--topic", name, "--forget")
        assert forgotten.stdout == b"read/0: forgotten\nread/1: forgotten\n"
        assert await topics.consumers(name) == ()
    refused = await consumer(running, "describe", "billing")
    assert refused.returncode == 1
    assert b"consumer 'billing': it consumes no partition of any topic" in refused.stderr
    for words in (("--to", "soon"), (), ("--to", "latest", "--forget")):
        assert (await consumer(running, "reset", "billing", "--topic", name, *words)).returncode == 2


async def test_a_group_that_shares_partitions_is_shown_and_not_moved(running: Cluster) -> None:
    name = await asyncio.to_thread(made, running, "shared")
    await asyncio.to_thread(produced, running, name, lines=b"a\nb\n")
    async with Client(str(running.servers[1].address)) as client, Topics(client) as topics:
        marshaler = Marshaler(topics.claims_port(), "anna", "workers")
        async with marshaler.consumer([name]) as workers:
            message = await anext(aiter(workers.consume()))
            await workers.commit(message)
            (place,) = await topics.consumers(name)
            assert (place.name, place.offset, place.lag, place.owners) == (b"workers", 1, 1, ("anna",))
            (row,) = map(
                json.loads, (await consumer(running, "list", "--topic", name, "--json")).stdout.splitlines()
            )
            assert (row["kind"], row["lag"], row["members"]) == ("group", 1, 1)
            assert b"anna" in (await consumer(running, "describe", "workers")).stdout
            refused = await consumer(running, "reset", "workers", "--topic", name, "--to", "latest")
            assert refused.returncode == 1
            assert b"it is a group that shares partitions by claims" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("consume", "missing"), 1, "none of this name"),
        (("produce", "missing"), 1, "none of this name"),
        (("consume", "bad", "--partition", "3"), 1, "has partitions 0 to 0, found 3"),
        (
            ("consume", "bad", "--from", "soon"),
            2,
            "found 'soon', expected earliest, latest, an offset, a time",
        ),
        (("consume", "bad", "--follow", "--to", "3"), 2, "expected one of them"),
        (("consume", "bad", "--json", "--keys", ":"), 2, "expected one of them"),
        (("produce", "bad", "--header", "x"), 2, "found 'x', expected NAME=VALUE"),
        (("produce", "bad", "--auth", "anna"), 2, "found no scheme"),
    ],
)
def test_what_is_wrong_is_said(running: Cluster, words: tuple[str, ...], code: int, told: str) -> None:
    if "bad" not in names(running):
        made(running, "bad")
    done = topic(running, *words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert told in done.stderr.decode()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no object", "found no JSON"),
        ('["value"]', 'found ["value"], expected an object with "value"'),
        ('{"key": "k"}', 'found {"key": "k"}, expected an object with "value"'),
        ('{"value": 3}', 'value: found 3, expected a string or {"base64": "…"}'),
        ('{"value": {"base64": "!"}}', "value: found no base64"),
        (
            '{"value": "v", "keys": "k"}',
            "found a field 'keys', expected headers, key, partition, timestamp, value",
        ),
        ('{"value": "v", "partition": -1}', "partition: found -1, expected a number from 0 on"),
    ],
)
def test_a_line_that_is_no_record_is_named(running: Cluster, line: str, told: str) -> None:
    if "spoiled" not in names(running):
        made(running, "spoiled")
    done = topic(running, "produce", "spoiled", "--json", lines=f'{{"value": "v"}}\n{line}\n'.encode())
    assert done.returncode == 1
    assert f"line 2: {told}" in done.stderr.decode()
