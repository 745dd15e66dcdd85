"""Clients cannot tell whether their requests were handled together or one by one."""

from __future__ import annotations

import random

import pytest

from tests.unit.server.one_server import Client, OneServer, create
from zraft.server.clients.zookeeper import connection as connection_module
from zraft.server.clients.zookeeper import ordinary_reads
from zraft.tree.machine import Machine
from zraft_core.wire import pipelines
from zraft_core.wire.client_requests import AddWatch
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.events import AddWatchMode
from zraft_core.znodes.txn import CREATE2, DELETE, SET_ACL, SET_DATA

PATHS = ("/a", "/b", "/a/c", "/none", "")
READ_ONLY = ((1, "world", "anyone"),)


def _request(rng: random.Random, client: Client) -> bytes:
    codec, path = client.codec, rng.choice(PATHS)
    match rng.randrange(12):
        case 0 | 1 | 2:
            return codec.write((SET_DATA, path, rng.randbytes(rng.choice((0, 3, 70_000))), -1))[1]
        case 3:
            return codec.write((SET_DATA, path, b"", rng.randint(0, 2)))[1]
        case 4 | 5:
            return codec.write((CREATE2, f"{path}/q-", b"", None, 2, 0))[1]
        case 6:
            return codec.write((DELETE, path, -1))[1]
        case 7:
            return codec.write(create(path))[1]
        case 8:
            return codec.ping() if rng.random() < 0.7 else codec.sync(path)[1]
        case 9:
            return codec.write((SET_ACL, "/a/c", READ_ONLY, -1))[1]
        case _:
            opcode = rng.choice((Opcode.GET_DATA, Opcode.EXISTS, Opcode.GET_CHILDREN2))
            return codec.read(opcode, path, watch=rng.random() < 0.2)[1]


def _played(seed: int) -> list[list[object]]:
    """What each client of a server received, of requests that are the same for a seed."""
    rng, server = random.Random(seed), OneServer()
    clients = [server.attached() for _ in range(3)]
    clients[0].send(*[clients[0].codec.write(create(path)) for path in ("/a", "/b", "/a/c")])
    server.run()
    received: list[list[object]] = [[] for _ in clients]
    for number in range(40):
        if number == 30 and seed % 3 == 0:
            clients[2].send(clients[2].codec.ask(AddWatch("/a", AddWatchMode.PERSISTENT_RECURSIVE)))
        for client in clients:
            requests = [_request(rng, client) for _ in range(rng.choice((0, 1, 3, 12)))]
            if rng.random() < 0.3:
                requests += [client.codec.write((SET_DATA, "/b", b"x", -1))[1] for _ in range(9)]
            client.send(*requests)
        server.run()
        for sync in server.clients.take_syncs():
            sync.complete_sync()
        server.run()
        for client, told in zip(clients, received, strict=True):
            told += client.take()
    assert all(len(told) > 20 for told in received)
    return received


@pytest.mark.parametrize("seed", range(15))
def test_what_clients_are_told_is_the_same_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = _played(seed)
    monkeypatch.setattr(Machine, "execute_ordinary", lambda *_: 0)
    monkeypatch.setattr(pipelines, "DECODERS", {})
    monkeypatch.setattr(connection_module, "COMMON", ())
    assert together == _played(seed)


def test_reads_that_ask_for_more_than_a_turn_should_give_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordinary_reads, "ANSWERS_BYTES_MAX", 1_000)
    monkeypatch.setattr(connection_module, "ANSWERS_BYTES_MAX", 1_000)
    monkeypatch.setattr("zraft.server.clients.connection.ANSWERS_BYTES_MAX", 1_000)
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write((create("/a")[0], "/a", bytes(300), *create("/a")[3:])))
    server.run()
    client.take()
    client.send(*[client.codec.read(Opcode.GET_DATA, "/a") for _ in range(9)])
    answered: list[int] = []
    while server.clients.turn.cut_short or not answered:
        server.flush()
        answered.append(len(client.take()))
        server.propose()
    assert answered == [3, 3, 3]
