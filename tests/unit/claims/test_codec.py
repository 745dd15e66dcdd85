"""Commands, answers and views as bytes."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.claims.samples import ANSWERS, CLAIM, COMMANDS, rich_scene
from tests.unit.claims.scene import G
from zraft_core.claims import codec
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand, ClaimPartition, CommitRanges, Heartbeat
from zraft_core.claims.values import Mode
from zraft_core.errors import ProtocolError


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_read_as_it_was_written(command: ClaimCommand) -> None:
    assert codec.decode_command(codec.encode_command(command)) == command


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_read_as_it_was_written(answer: ClaimAnswer) -> None:
    assert codec.decode_answer(codec.encode_answer(answer)) == answer


def test_a_view_is_read_as_it_was_written() -> None:
    view = rich_scene().claims.view(G)
    assert view.claims
    assert view.islands
    assert view.last is not None
    assert codec.decode_view(codec.encode_view(view)) == view


def test_what_an_older_release_knows_is_said_as_that_knows_it() -> None:
    """D-5: bytes of a newer kind end the group of a server that does not know them."""
    plain = ClaimPartition("g", "x", "i", 1, 0, Mode.AT_LEAST_ONCE, 5, True)
    chosen = evolve(plain, heartbeat_ms=3_000)
    assert msgpack.unpackb(codec.encode_command(plain)) == [1, 0, ["g", "x", "i", 1, 0, 0, 5, True]]
    assert msgpack.unpackb(codec.encode_command(chosen)) == [1, 11, ["g", "x", "i", 1, 0, 0, 5, True, 3_000]]
    assert [codec.is_newer(one) for one in (plain, chosen, CommitRanges("g", 1, 2, ()))] == [
        False,
        True,
        True,
    ]


def test_samples_are_of_every_kind() -> None:
    assert {codec._COMMANDS.of(one)[0] for one in COMMANDS} == set(codec._COMMANDS.records) == set(range(13))
    assert {type(one) for one in ANSWERS} == {record.of for record in codec._ANSWERS.records.values()}


def test_the_bytes_are_as_documented() -> None:
    """docs/explanation/claims.md, "Bytes": a change needs a new format."""
    assert codec.encode_command(Heartbeat("g", 7, 4, 12)) == bytes.fromhex("93010294a16707040c")
    ranges = CommitRanges("g", 7, 12, ((13, 14), (20, 30)))
    assert msgpack.unpackb(codec.encode_command(ranges)) == [1, 10, ["g", 7, 12, [[13, 14], [20, 30]]]]
    assert msgpack.unpackb(codec.encode_answer(ANSWERS[1])) == [1, 1, [7, 12, 15, False, True, 300]]
    claim = [7, ["x", "i1"], 3, 1, 10, 20, False, 60_000, 100, 200, 4, 12, 15]
    assert msgpack.unpackb(codec.encode_answer(ANSWERS[0])) == [1, 0, [claim, [[12, 14]], 300]]
    assert CLAIM.position == 15


DECODERS = (codec.decode_command, codec.decode_answer, codec.decode_view)


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_arbitrary_bytes_are_a_declared_error_or_a_value(data: bytes, decode: Any) -> None:
    try:
        decode(data)
    except ProtocolError:
        pass


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.floats(),
    lambda inner: st.lists(inner, max_size=14),
    max_leaves=20,
)


@given(st.integers(0, 12), PLAIN, st.sampled_from(DECODERS))
def test_any_plain_values_are_a_declared_error_or_a_value(kind: int, fields: Any, decode: Any) -> None:
    try:
        decode(msgpack.packb([1, kind, fields]))
    except ProtocolError:
        pass


@given(st.sampled_from(COMMANDS), st.data())
def test_a_command_with_one_field_spoiled_is_refused_or_another_command(
    command: ClaimCommand, data: Any
) -> None:
    form, kind, fields = msgpack.unpackb(codec.encode_command(command))
    fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(PLAIN)
    try:
        found = codec.decode_command(msgpack.packb([form, kind, fields]))
    except ProtocolError:
        return
    assert type(found) is type(command)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (msgpack.packb([2, 2, ["g", 7, 4, 12]]), "format 2"),
        (msgpack.packb([1, 13, []]), r"one of the kinds \[0, 1, .*, 12\].* found int 13"),
        (msgpack.packb([1, 2, ["g", 7, 4]]), "array of 4 fields"),
        (msgpack.packb([1, 2, ["g", -7, 4, 12]]), "Heartbeat.epoch"),
        (msgpack.packb([1, 2, ["g", True, 4, 12]]), "Heartbeat.epoch"),
        (b"\xc1", "not MessagePack"),
        (b"\x00" * (codec.BYTES_MAX + 1), "at most"),
    ],
)
def test_an_error_says_what_was_found_and_expected(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        codec.decode_command(data)
