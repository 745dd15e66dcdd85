"""The worked example of docs/reference/protocol-peers.md is what the code does, byte for byte.

These bytes are also the golden sample of datagram format 1: if this test fails, running servers of the last
release will not understand this one (D-5), and the change needs a new format number, not a new example.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.transport.network import receive
from zraft.operator.protocol import OPERATIONS
from zraft.raft.messages import Heartbeat
from zraft.transport import codec
from zraft.transport.bulk import (
    ANSWER_BYTES,
    FRAME_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    MAGIC,
    OPENING_BYTES,
    BulkConnection,
)
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.link import PeerLinks
from zraft.transport.messages import Sender
from zraft.transport.sealing import CHALLENGE_BYTES, HELLO_BYTES, SALT_BYTES, SEAL_BYTES
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "protocol-peers.md"
A, B = ServerId(1), ServerId(2)
KEY = ClusterKey(bytes(range(32)))


def example(server: ServerId, salt: int, challenge: int, *, keys: list[ClusterKey] | None) -> PeerLinks:
    drawn = {SALT_BYTES: bytes([salt]) * SALT_BYTES, CHALLENGE_BYTES: bytes([challenge]) * CHALLENGE_BYTES}
    return PeerLinks(
        me=Sender(server, Instance(bytes([server]) * 16), 1),
        peers={A + B - server: 1_400},  # type: ignore[dict-item]
        keys=keys,
        insecure=keys is None,
        entropy=drawn.__getitem__,
    )


def conversation(keys: list[ClusterKey] | None) -> list[bytes]:
    """A's hello, B's, A's, and the heartbeat."""
    a, b = example(A, 0xAA, 0xCA, keys=keys), example(B, 0xBB, 0xCB, keys=keys)
    (first,) = a.send(B, [Heartbeat(COORDINATION_GROUP, 5, 300, 6)])
    ((_, second),) = receive(b, first).replies
    (_, third), (_, data) = receive(a, second).replies
    assert receive(b, third).replies == []
    received = receive(b, data)
    assert received.messages == [Heartbeat(COORDINATION_GROUP, 5, 300, 6)]
    assert received.error is None
    return [first, second, third, data]


def documented(name: str) -> bytes:
    """The bytes of the example of this name: a fenced block after the line `Example: name`."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"^Example: {re.escape(name)}\n+```\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert found, f"{DOCUMENT.name} has no example {name!r}"
    digits = "".join(line.partition("#")[0] for line in found[1].splitlines())
    return bytes.fromhex(digits)


def test_the_documented_datagrams_are_the_ones_on_the_wire() -> None:
    first, second, third, data = conversation([KEY])
    assert documented("hello of A") == first
    assert documented("hello of B") == second
    assert documented("answer of A") == third
    assert documented("heartbeat, sealed") == data


def test_the_documented_plain_datagram_is_the_one_on_the_wire() -> None:
    assert documented("heartbeat, plain") == conversation(None)[3]


def test_every_kind_of_message_and_the_fixed_sizes_are_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    _, _, messages = text.partition("\n## Messages\n")
    rows = dict(re.findall(r"^\| (\d+) \| (\w+)", messages.partition("\n## ")[0], re.MULTILINE))
    kinds = {str(kind): record.called for kind, record in codec.MESSAGES.records.items()}
    assert {kind: rows.get(kind) for kind in kinds} == kinds
    assert f"\n{HELLO_BYTES} bytes; the numbers" in text
    assert f"\n{SEAL_BYTES} bytes more than its body" in text
    assert f"by the dialer, {OPENING_BYTES} bytes:" in text
    assert f"by the acceptor, {ANSWER_BYTES} bytes:" in text
    assert f"at most {OPENING_BYTES + FRAME_OVERHEAD_BYTES} bytes of a connection" in text
    assert f"at most {FRAME_BYTES_MAX:,} bytes, none of them empty" in text
    assert f"`{MAGIC.hex(' ')}`; the last byte is the format" in text
    missing = [name for name in OPERATIONS if f"`{name}`" not in text]
    assert not missing


def test_the_documented_stream_is_the_one_on_the_wire() -> None:
    drawn = iter([b"\xaa" * 32, b"\xbb" * 32])
    ring = key_ring([KEY], insecure=False)
    senders = [Sender(server, Instance(bytes([server]) * 16), 1) for server in (A, B)]
    dialer, opening = BulkConnection.dial(me=senders[0], to=B, ring=ring, entropy=lambda _: next(drawn))
    acceptor = BulkConnection.accept(me=senders[1], peers={A}, ring=ring, entropy=lambda _: next(drawn))
    answer = acceptor.receive(opening).output
    proof = dialer.receive(answer).output
    dialer.enqueue(codec.encode(Heartbeat(COORDINATION_GROUP, 5, 300, 6)))
    frame = dialer.next_frame()
    assert frame is not None
    assert acceptor.receive(proof + frame).messages == [
        codec.encode(Heartbeat(COORDINATION_GROUP, 5, 300, 6))
    ]
    assert documented("opening of A") == opening
    assert documented("answer of B, to its stream") == answer
    assert documented("proof and heartbeat, by stream") == proof + frame
