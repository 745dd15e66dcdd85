"""Requests that are decoded together, and their replies, are those that are made one by one."""

from __future__ import annotations

import random

import pytest

from zraft.tree.node import Znode
from zraft_core.errors import MarshallingError
from zraft_core.wire import pipelines, replies, requests
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.txn import CREATE, CREATE2, DELETE, SET_DATA, Command

GUARDED = ((31, "ip", "10.0.0.1"),)
PATHS = ("/", "/a", "/é/b", "", "/" + "x" * 200)


def _command(rng: random.Random, opcode: int) -> Command:
    data = rng.choice((b"", b"x", bytes(300), None))
    if opcode == SET_DATA:
        return opcode, rng.choice(PATHS), data, rng.choice((-1, 0, 7))
    if opcode == DELETE:
        return opcode, rng.choice(PATHS), -1
    acl = rng.choices((None, GUARDED), (9, 1))[0]
    return opcode, rng.choice(PATHS), data, acl, rng.randint(0, 3), 0


def _frame(rng: random.Random, codec: ZkClientCodec, opcode: int) -> bytes:
    frame = codec.write(_command(rng, opcode))[1][4:]
    odd = rng.random()
    if odd < 0.05:
        return frame[: rng.randint(0, len(frame) - 1)]
    if odd < 0.1:
        place = rng.randrange(len(frame))
        return frame[:place] + rng.randbytes(1) + frame[place + 1 :]
    return frame + b"more" if odd < 0.15 else frame


def _decoded(frames: list[bytes]) -> list[pipelines.Write]:
    decode = pipelines.DECODERS.get(frames[0][pipelines.OPCODE])
    return [] if decode is None else decode(frames)


@pytest.mark.parametrize("seed", range(20))
def test_requests_that_come_together_are_decoded_as_each_is(seed: int) -> None:
    rng, codec = random.Random(seed), ZkClientCodec()
    together = 0
    for _ in range(100):
        opcode = rng.choice((SET_DATA, CREATE, CREATE2, DELETE))
        frames = [_frame(rng, codec, opcode) for _ in range(rng.randint(1, 6))]
        writes = _decoded(frames)
        together += len(writes)
        for (opcode, xid, command), frame in zip(writes, frames, strict=False):
            assert (xid, opcode) == requests.decode_header(frame)
            assert command == requests.decode_write(opcode, frame)
    assert together > 40, "hardly any"


def test_what_is_malformed_or_rare_is_left_to_be_decoded_alone() -> None:
    codec = ZkClientCodec()
    (good, odd) = (codec.write((SET_DATA, "/a", data, -1))[1][4:] for data in (b"x", None))
    assert len(_decoded([good, good, odd, good])) == 2
    assert len(_decoded([good, good[:-1], good])) == 1
    with pytest.raises(MarshallingError):
        requests.decode_write(SET_DATA, good[:-1])
    assert _decoded([codec.read(Opcode.GET_DATA, "/a")[1][4:]]) == []
    assert _decoded([b""]) == []


def test_replies_of_a_pipeline_are_those_of_single_writes() -> None:
    nodes = [Znode(bytes(size), OPEN_ACL, 7, 1_700_000_000_000, 0) for size in range(4)]
    for opcode in (SET_DATA, CREATE, CREATE2):
        writes = [(opcode, xid, (opcode,)) for xid in range(10, 16)]
        results = [
            tuple(node.stat()) if opcode == SET_DATA else (f"/é-{number}", node)
            for number, node in enumerate(nodes)
        ]
        alone = [
            replies.encode_write_reply(
                opcode, 10 + number, 50 + number, None, node if opcode == SET_DATA else (f"/é-{number}", node)
            )
            for number, node in enumerate(nodes)
        ]
        assert pipelines.encode_replies(writes, results, 50) == alone
