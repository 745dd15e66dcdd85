"""Equal commands give equal states; snapshots hold all of it (flaw 8, D-5, D-26)."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.claims.samples import rich_scene
from tests.unit.claims.scene import HB, LEAST, G, Scene
from zraft_core.claims.commands import (
    ClaimCommand,
    ClaimMessages,
    ClaimPartition,
    CommitBatch,
    Expire,
    Heartbeat,
    Release,
)
from zraft_core.claims.group import Group
from zraft_core.claims.progress import Progress
from zraft_core.claims.snapshot import decode_snapshot, encode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Claim, Mode, Owner
from zraft_core.errors import ProtocolError


def some_command(rng: random.Random, position: int, claims: Claims) -> ClaimCommand:
    """Of few names and numbers, so that many are accepted."""
    group, client = rng.choice("gh"), rng.choice("abc")
    view = claims.view(group)
    epoch = rng.choice((view.last_epoch, *(claim.epoch for claim in view.claims)))
    offset = rng.randint(0, 60)
    mode = rng.choice(list(Mode))
    return rng.choice(
        (
            ClaimPartition(group, client, rng.choice("ij"), position, epoch, mode, offset % 3),
            ClaimMessages(
                group, client, "i", position, 0, mode, offset, offset + rng.randint(1, 9), position
            ),
            Heartbeat(group, epoch, rng.randint(0, 3), offset),
            CommitBatch(group, epoch, offset),
            Release(group, epoch, offset),
            Expire(group, epoch, rng.randint(0, 3) * HB),
        )
    )


@pytest.mark.parametrize("number", range(10))
def test_a_replica_that_restarts_from_a_snapshot_at_any_position_is_equal(number: int, seed: int) -> None:
    """With equal answers and digests at every position from there on."""
    rng = random.Random(seed + number)
    claims = Claims(HB)
    other = decode_snapshot(encode_snapshot(claims))
    now_ms = accepted = 0
    for position in range(1, 300):
        now_ms += rng.choice((0, 0, 1_000, HB))
        command = some_command(rng, position, claims)
        answer = claims.apply(command, position, now_ms, 50)
        assert other.apply(command, position, now_ms, 50) == answer
        assert other.digest() == claims.digest()
        accepted += type(answer).__name__ != "Refused"
        if rng.random() < 0.1:
            other = decode_snapshot(encode_snapshot(claims))
            assert other.digest() == claims.digest()
    assert accepted > 20


def test_a_long_lived_claim_is_in_every_snapshot() -> None:
    """Flaw 8: Marshal's reader skips to the last 100,000 messages, and may miss a claim that is older."""
    scene = Scene()
    x = scene.owner("x")
    for beat in range(1, 3_000):
        scene.now_ms += HB // 2
        scene.accepted(scene.beat(x, beat))
    restarted = decode_snapshot(encode_snapshot(scene.claims))
    assert restarted.view(G) == scene.claims.view(G)
    assert [claim.epoch for claim in restarted.view(G).claims] == [x.epoch]


def test_the_digest_shows_every_field() -> None:
    """Two states that differ in anything have different digests."""
    claims = rich_scene().claims
    group = claims.group(G)
    assert group is not None
    (claim, *others), last = group.claims, group.last
    assert last is not None

    def digest(group: Group | None, **counters: int) -> int:
        numbers = {"position": 1, "log_time_ms": 2} | counters
        heartbeat_ms = numbers.pop("heartbeat_ms", HB)
        return Claims(heartbeat_ms, groups=[group] if group else [], **numbers).digest()

    digests = [digest(group), digest(None)]
    digests += [digest(group, **{name: 77}) for name in ("position", "log_time_ms", "heartbeat_ms")]
    for name in ("last_epoch", "freed_at", "unconfirmed", "paused_until_ms", "paused_at"):
        change: dict[str, Any] = {name: 777}
        digests.append(digest(evolve(group, **change)))
    digests += [digest(evolve(group, name="other")), digest(evolve(group, last=None))]
    digests += [digest(evolve(group, claims=tuple(others))), digest(evolve(group, progress=Progress(1)))]
    for field in fields(Claim):
        value = getattr(claim, field.name)
        other: Any = (
            Owner("o", "o") if field.name == "owner" else Mode(1 - value) if field.name == "mode" else 777
        )
        if field.name == "entire_topic":
            other = not value
        digests.append(digest(evolve(group, claims=(evolve(claim, **{field.name: other}), *others))))
    assert len(set(digests)) == len(digests) > 25


def test_the_digest_is_the_same_however_often_it_is_asked_for() -> None:
    asked, not_asked = rich_scene(), rich_scene()
    for claims in (asked.claims, not_asked.claims):
        claims.apply(ClaimPartition("new", "x", "i", 1, 0, LEAST), 100, 2_000, 50)
        if claims is asked.claims:
            claims.digest()
        claims.apply(Release("new", 100, 7), 101, 2_000, 50)
    assert asked.claims.digest() == not_asked.claims.digest()


def test_a_snapshot_whose_digest_is_wrong_is_refused() -> None:
    fields = msgpack.unpackb(encode_snapshot(rich_scene().claims), use_list=True)
    fields[5][0][4] += 1
    with pytest.raises(ProtocolError, match="digest"):
        decode_snapshot(msgpack.packb(fields))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_snapshot(data)


@given(st.data())
def test_a_snapshot_with_one_byte_spoiled_is_refused_or_says_the_same(data: Any) -> None:
    good = encode_snapshot(rich_scene().claims)
    at = data.draw(st.integers(0, len(good) - 1))
    spoiled = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    try:
        claims = decode_snapshot(spoiled)
    except ProtocolError:
        return
    assert claims.digest() == rich_scene().claims.digest()


def test_positions_only_rise() -> None:
    claims = Claims()
    claims.apply(Release("g", 1, 1), 5, 0, 0)
    with pytest.raises(AssertionError):
        claims.apply(Release("g", 1, 1), 5, 0, 0)
