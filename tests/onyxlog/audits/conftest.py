"""What tests share: data directories that shipped code has written, and a Spark session, which takes seconds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.generating import Generator, Scenario
from onyxlog.gossip.settings import settings_for
from onyxlog.gossip.spreading import Mode
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.gossip.link import open_udp
from onyxlog.peer.gossip.source import gossip_sources
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.recording import Recordings
from onyxlog.peer.settings import GroupSettings
from onyxlog.replica.commands import BackpressureOff
from tests.onyxlog.gossiping import KEY
from tests.onyxlog.simulation.memory_log import MemoryLog
from tests.unit.server.nodes import Nodes, Sending
from zraft_core.address import Address

COMMANDS = 3_000
MESSAGES = 40
GROUPS = 3
ENTRIES = 12
SCENARIO = Scenario(COMMANDS, batch=20, elections=3, snapshots=2, seed=5, segment_bytes=32 << 10)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three servers; nobody changes them."""
    path = tmp_path_factory.mktemp("generated")
    generator = Generator(str(path), SCENARIO)
    generator.run()
    generator.close()
    age(path)
    return path


def age(path: Path) -> None:
    """As if the last write was long ago, so that it counts as durable."""
    for segment in path.rglob("*.seg"):
        os.utime(segment, (1, 1))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A small local session; tests that take it carry the mark `spark`."""
    pytest.importorskip("pyspark", reason="needs the extra `audits`")
    from onyxlog.audits.session import SessionSettings, close_session, open_session

    session = open_session(
        SessionSettings(
            master="local[1]",
            memory="700m",
            partitions=2,
            more={
                # Plans of a few rows are not worth compiling.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    )
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three servers, a topic of three partitions, messages to one and to all of them; a leader is lost on the way.

    Nobody changes what they leave.
    """
    root = tmp_path_factory.mktemp("served")

    async def run() -> None:
        async with Nodes(root) as nodes:
            groups = await nodes.create_topic("orders", 3)
            sending = await Sending.open(nodes)
            await sending.send(
                (groups[number % 3 : number % 3 + 1] if number % 2 else groups, b"%d" % number)
                for number in range(MESSAGES)
            )
            lost = next(server for server, node in nodes.nodes.items() if node is nodes.leader)
            await nodes.stop(lost)
            await nodes.until(lambda: nodes.leader)
            nodes.start(lost)
            await nodes.until(lambda: all(nodes.leader_of(group) for group in groups))
            await sending.send((groups, b"after %d" % number) for number in range(5))
            for group in groups:
                delivered = [one.payload for one in await nodes.fetch(nodes.leader_of(group), group)]
                for node in nodes.nodes.values():
                    await nodes.same(node, group, delivered)

    asyncio.run(run())
    age(root)
    return root


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups that gossip, on a log in memory; they joined, wrote in turn and left."""
    directory = tmp_path_factory.mktemp("recorded")

    async def run() -> None:
        recordings = Recordings(directory, "tests")
        sources = gossip_sources(
            open_udp(Address("127.0.0.1", 0)),
            (KEY,),
            "tests",
            settings_for(Mode.POOL),
            recordings=recordings,
        )
        async with (
            asyncio.timeout(50),
            Fleet(MemoryLog().opened, run_nothing, make_source=sources, recordings=recordings) as fleet,
        ):
            for number in range(GROUPS):
                fleet.start(GroupSettings(f"g{number}", offers=()))
            await fleet.until(lambda one: len(one.core.replica.groups) == GROUPS)
            for number in range(ENTRIES):
                incarnation = fleet.groups[number % GROUPS].incarnation
                assert incarnation is not None
                incarnation.append(BackpressureOff("nobody"))
            await fleet.until(lambda one: one.core.version >= GROUPS + ENTRIES - 1)

    asyncio.run(run())
    return directory
