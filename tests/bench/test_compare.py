"""The ZooKeeper side of comparisons: the connection against a server made of bytes, and one run beside the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.fake_zookeeper import CLOSE, GET_DATA, SYNC, Server
from zraft_bench.main import main
from zraft_bench.result_files import load_run
from zraft_bench.targets.target import TARGETS, RequestFailedError, in_turn, maker
from zraft_bench.targets.zookeeper import ZooKeeperTarget


async def test_keys_are_made_written_and_read() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "place", True, 5.0)
        await target.open()
        await target.prepare([3, 4], b"old")
        await target.prepare([4], b"other")  # already there: fine
        await target.write(3, b"new")
        await target.read(3)
        assert server.values == {"/place": b"", "/place/3": b"new", "/place/4": b"old"}
        assert server.asked[-2:] == [SYNC, GET_DATA]
        with pytest.raises(RequestFailedError, match="NO_NODE"):
            await target.write(5, b"")
        await target.close()
        assert server.asked[-1] == CLOSE


async def test_local_reads_ask_once() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "p", False, 5.0)
        await target.open()
        await target.prepare([1], b"x")
        await target.read(1)
        assert SYNC not in server.asked
        await target.close()


async def test_a_write_without_an_answer_is_unknown_and_a_lost_connection_is_made_again() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "p", False, 0.2)
        await target.open()
        await target.prepare([1], b"x")
        server.silent = True
        with pytest.raises(RequestFailedError, match="no answer within") as late:
            await target.write(1, b"y")
        assert late.value.unknown
        server.silent, server.hangs_up = False, True
        with pytest.raises(RequestFailedError, match="lost") as lost:
            await target.write(1, b"y")
        assert lost.value.unknown
        server.hangs_up = False
        await target.write(1, b"z")
        assert server.values["/p/1"] == b"z"
        assert server.connections == 2
        await target.close()


async def test_a_cluster_that_is_not_there_is_told_with_every_address() -> None:
    server = Server()
    async with server as hosts:
        pass
    with pytest.raises(RequestFailedError, match=f"cannot connect: {hosts}"):
        await ZooKeeperTarget(hosts, "p", False, 1.0).open()


def test_connections_begin_at_different_servers() -> None:
    assert [in_turn("a:1,b:2,c:3", n) for n in range(4)] == [
        "a:1,b:2,c:3",
        "b:2,c:3,a:1",
        "c:3,a:1,b:2",
        "a:1,b:2,c:3",
    ]


@pytest.mark.parametrize("name", list(TARGETS))
async def test_every_target_can_be_made_without_what_it_measures(name: str) -> None:
    maker(name)("127.0.0.1:1", "place", True, 1.0)


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_zraft_and_zookeeper_take_the_same_load_in_one_run(tmp_path: Path) -> None:
    arguments = [
        "compare",
        "-s",
        "3",
        "-c",
        "4",
        "-e",
        "40",
        "--seconds",
        "0",
        "--warm-up",
        "0",
        "--warm-zookeeper",
        "0",
    ]
    for system in ("zraft", "zraft-zookeeper", "zookeeper"):
        arguments += ["--system", system]
    answer = CliRunner().invoke(main, [*arguments, "--operation", "mixed", "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    (path,) = tmp_path.glob("*.json")
    found = load_run(path).tests
    assert [(one.target, one.state, one.acknowledged) for one in found] == [
        ("zraft", "ok", 40),
        ("zraft-zookeeper", "ok", 40),
        ("zookeeper", "ok", 40),
    ]
    assert all(one.servers_us is not None for one in found)


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_zraft_and_zookeeper_are_compared_in_cells(tmp_path: Path) -> None:
    arguments = [
        "compare",
        "--schedule",
        "cells",
        "--seconds",
        "0.2",
        "--warm-up",
        "0.1",
        "--warm-zookeeper",
        "0",
    ]
    for system in ("zraft-zookeeper", "zookeeper"):
        arguments += ["--system", system]
    answer = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    (path,) = tmp_path.glob("*.json")
    found = load_run(path).tests
    assert [(one.number, one.target) for one in found] == [
        (number, target) for number in range(1, 13) for target in ("zraft-zookeeper", "zookeeper")
    ]
    assert all(one.acknowledged and one.servers_us for one in found)


def test_cells_are_for_who_speaks_zookeepers_protocol(tmp_path: Path) -> None:
    arguments = ["compare", "--schedule", "cells", "--system", "zraft", "--out", str(tmp_path)]
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 2
    assert "--system zraft: --schedule cells is for zraft-zookeeper and zookeeper" in answer.output


def test_jars_of_a_zookeeper_that_is_not_started_are_refused(tmp_path: Path) -> None:
    jars = ["compare", "--zookeeper-jars", str(tmp_path), "--out", str(tmp_path / "out")]
    for more in (["--system", "zraft"], ["--system", "zookeeper"]):
        answer = CliRunner().invoke(main, [*jars, *more])
        assert answer.exit_code != 0
        assert str(tmp_path) in answer.output, "it says where it looked, or what it cannot use"
