"""Messages to bytes and back; docs/reference/protocol-peers.md, "Messages"."""

from __future__ import annotations

from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.transport import codec
from zraft.transport.messages import (
    Bundle,
    DeliveryList,
    DeliveryListRequest,
    DeliveryPiece,
    DeliveryRequest,
    Edge,
    GroupDigests,
    GroupLeader,
    GroupVerdict,
    Hello,
    Join,
    MemberReport,
    NotMember,
    OriginBatch,
    PeerMessage,
    SharedHeartbeat,
    SharedHeartbeatReply,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
    TouchAck,
    TouchReport,
    Verdict,
    Welcome,
)
from zraft_core.errors import ProtocolError
from zraft_core.ids import COORDINATION_GROUP, INSTANCE_BYTES, GroupId
from zraft_core.layout import NUMBER_MAX

numbers = st.integers(0, NUMBER_MAX)
terms = st.integers(0, codec.TERM_MAX)
sessions = st.integers(codec.SESSION_MIN, codec.SESSION_MAX)
booleans = st.booleans()
groups = st.integers(1, NUMBER_MAX)
clusters = st.binary(min_size=1, max_size=codec.CLUSTER_ID_BYTES_MAX)
snapshot_ids = st.binary(min_size=codec.SNAPSHOT_ID_BYTES, max_size=codec.SNAPSHOT_ID_BYTES)
addresses = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=codec.ADDRESS_BYTES_MAX)
instances = st.binary(min_size=INSTANCE_BYTES, max_size=INSTANCE_BYTES)
rosters = st.dictionaries(st.integers(1, 254), instances, max_size=5).map(
    lambda roster: tuple(roster.items())
)


segment_ids = st.binary(min_size=codec.SEGMENT_ID_BYTES, max_size=codec.SEGMENT_ID_BYTES)
group_digests = st.lists(st.tuples(groups, numbers, st.integers(0, 2**128 - 1)), max_size=5).map(tuple)


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    entry_terms = sorted(draw(st.lists(terms, min_size=1, max_size=5)))
    prev_log_index = draw(st.integers(0, NUMBER_MAX - len(entry_terms)))
    position = draw(st.integers(1, 2**62))
    entries = []
    for at, term in enumerate(entry_terms):
        kind = draw(st.sampled_from(EntryKind))
        count = draw(st.integers(0, 2**50)) if kind == EntryKind.COMMANDS else 0
        entries.append(Entry(prev_log_index + 1 + at, term, kind, position, count, draw(st.binary())))
        position += count
    return AppendEntries(
        GroupId(draw(numbers)),
        draw(st.integers(entry_terms[-1], codec.TERM_MAX)),
        prev_log_index,
        draw(st.integers(0, entry_terms[0])),
        draw(numbers),
        tuple(entries),
    )


messages: dict[type[Any], st.SearchStrategy[Any]] = {
    AppendEntries: appends(),
    PreVote: st.builds(PreVote, numbers, terms, numbers, terms),
    PreVoteReply: st.builds(PreVoteReply, numbers, terms, booleans),
    RequestVote: st.builds(RequestVote, numbers, terms, numbers, terms, booleans),
    RequestVoteReply: st.builds(RequestVoteReply, numbers, terms, booleans),
    AppendEntriesReply: st.builds(
        AppendEntriesReply, numbers, terms, booleans, numbers, numbers, numbers, terms
    ),
    Heartbeat: st.builds(Heartbeat, numbers, terms, numbers, numbers),
    HeartbeatReply: st.builds(HeartbeatReply, numbers, terms, numbers, numbers),
    ReadIndex: st.builds(ReadIndex, numbers, terms, numbers),
    ReadIndexReply: st.builds(ReadIndexReply, numbers, terms, numbers, numbers),
    Hello: st.builds(
        Hello,
        st.none() | st.binary(min_size=1, max_size=codec.CLUSTER_ID_BYTES_MAX),
        st.none() | rosters,
        booleans,
    ),
    OriginBatch: st.builds(OriginBatch, numbers, numbers, st.integers(1, NUMBER_MAX), numbers, st.binary()),
    TouchReport: st.builds(
        TouchReport, numbers, numbers, st.lists(st.tuples(sessions, numbers), max_size=5).map(tuple)
    ),
    TouchAck: st.builds(TouchAck, terms, numbers, numbers, st.lists(sessions, max_size=5).map(tuple)),
    TimeoutNow: st.builds(TimeoutNow, numbers, terms),
    Join: st.builds(Join, st.just(b"") | clusters, addresses, numbers),
    Welcome: st.builds(Welcome, clusters, numbers, st.binary(min_size=1)),
    NotMember: st.builds(NotMember, clusters, numbers),
    SnapshotOffer: st.builds(SnapshotOffer, numbers, terms, numbers, terms, snapshot_ids, numbers),
    SnapshotRequest: st.builds(
        SnapshotRequest, numbers, terms, snapshot_ids, numbers, st.integers(1, codec.SNAPSHOT_CHUNK_BYTES_MAX)
    ),
    SnapshotChunk: st.builds(SnapshotChunk, numbers, terms, snapshot_ids, numbers, st.binary()),
    MemberReport: st.builds(
        MemberReport,
        numbers,
        st.lists(st.tuples(numbers, st.integers(0, 2**128 - 1)), max_size=5).map(tuple),
    ),
    SharedHeartbeat: st.builds(
        SharedHeartbeat,
        st.integers(1, NUMBER_MAX),
        st.integers(1, NUMBER_MAX),
        numbers,
        st.lists(st.tuples(groups, terms, numbers), max_size=5).map(tuple),
    ),
    SharedHeartbeatReply: st.builds(
        SharedHeartbeatReply,
        numbers,
        st.integers(1, NUMBER_MAX),
        st.lists(groups, max_size=5).map(tuple),
    ),
    Bundle: st.builds(Bundle, groups, st.binary(min_size=1, max_size=200), st.booleans()),
    Edge: st.builds(Edge, st.binary(min_size=1, max_size=200)),
    GroupLeader: st.builds(GroupLeader, groups, terms, st.integers(1, 254)),
    DeliveryListRequest: st.builds(DeliveryListRequest, groups, snapshot_ids),
    DeliveryList: st.builds(DeliveryList, groups, snapshot_ids, st.binary(min_size=1, max_size=200)),
    DeliveryRequest: st.builds(
        DeliveryRequest, groups, segment_ids, numbers, st.integers(1, codec.SNAPSHOT_CHUNK_BYTES_MAX)
    ),
    DeliveryPiece: st.builds(DeliveryPiece, groups, segment_ids, numbers, st.binary(max_size=200)),
    GroupDigests: st.builds(GroupDigests, group_digests),
    GroupVerdict: st.builds(GroupVerdict, group_digests),
    Verdict: st.builds(
        Verdict, st.lists(st.tuples(numbers, st.integers(0, 2**128 - 1)), max_size=5).map(tuple)
    ),
}
any_message = st.one_of(list(messages.values()))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=20)
    | st.text(max_size=20)
)
wire_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


def test_every_class_of_message_has_a_strategy_here() -> None:
    declared = {each for part in get_args(PeerMessage) for each in (get_args(part) or (part,))}
    assert set(messages) == declared


@settings(max_examples=300)
@given(any_message)
def test_every_message_survives_the_wire(message: PeerMessage) -> None:
    again = codec.decode(codec.encode(message))
    assert again == message
    assert type(again) is type(message)


@settings(max_examples=50)
@given(st.lists(any_message, max_size=6))
def test_a_sequence_of_messages_survives_the_wire(sequence: list[PeerMessage]) -> None:
    body = codec.encode_sequence([codec.encode(message) for message in sequence])
    assert codec.decode_sequence(body) == (sequence, [])


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_protocol_errors(buffer: bytes) -> None:
    try:
        message = codec.decode(buffer)
    except ProtocolError:
        return
    assert codec.decode(codec.encode(message)) == message


@settings(max_examples=150)
@given(any_message, st.data())
def test_a_wrong_field_raises_only_protocol_errors(message: PeerMessage, data: st.DataObject) -> None:
    """One field replaced by anything, at any depth of two: what is still accepted is a well-typed message."""
    array = msgpack.unpackb(codec.encode(message))
    target = array
    at = data.draw(st.integers(0, len(array) - 1))
    if isinstance(array[at], list) and array[at] and data.draw(st.booleans()):
        target = array[at]
        at = data.draw(st.integers(0, len(target) - 1))
        if isinstance(target[at], list) and data.draw(st.booleans()):
            target = target[at]
            at = data.draw(st.integers(0, len(target) - 1))
    target[at] = data.draw(wire_values)
    try:
        again = codec.decode(msgpack.packb(array))
    except ProtocolError:
        return
    assert codec.decode(codec.encode(again)) == again


@settings(max_examples=200)
@given(any_message, st.data())
def test_a_cut_or_lengthened_message_is_refused(message: PeerMessage, data: st.DataObject) -> None:
    buffer = codec.encode(message)
    cut = data.draw(st.integers(0, len(buffer) - 1))
    for wrong in (buffer[:cut], buffer + b"\x00"):
        with pytest.raises(ProtocolError):
            codec.decode(wrong)


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        ([7, 0, True, 1, 1], r"Heartbeat\.term: expected an integer from 0 to 2147483647, found bool True"),
        (
            [7, 0, 2**31, 1, 1],
            r"Heartbeat\.term: expected an integer from 0 to 2147483647, found int 2147483648",
        ),
        ([7, 0, -1, 1, 1], r"Heartbeat\.term"),
        ([7, 2**63, 1, 1, 1], r"Heartbeat\.group"),
        ([7, 0, 1, 1], r"Heartbeat: expected 4 fields after the kind, found 3"),
        ([2, 0, 1, 1], r"PreVoteReply\.granted: expected true or false, found int 1"),
        ([99, 0], r"expected one of the kinds \[1, 2, .*found int 99"),
        ([True, 0, 1, 1, 1], r"expected one of the kinds"),
        ([5.0, 0, 1, 1, 1], r"expected one of the kinds"),
        ([], r"array that starts with its kind"),
        (b"abc", r"found bytes of length 3"),
        ([32, b"", None, True], r"Hello\.cluster: expected 1 to 64 bytes"),
        ([32, None, [[1, b"x" * 15]], True], r"Hello\.roster\[0\]\.instance: expected 16 bytes"),
        (
            [32, None, [[255, b"x" * 16]], True],
            r"Hello\.roster\[0\]\.server: expected an integer from 1 to 254",
        ),
        ([32, None, [[1, b"x" * 16], [1, b"y" * 16]], True], r"expected each server once, found \[1, 1\]"),
        ([33, 0, 1, 0, 1, b""], r"OriginBatch\.seq: expected an integer from 1"),
        ([34, 1, 1, [[1, -5]]], r"TouchReport\.ages\[0\]\.age_ms: expected an integer from 0 to"),
        ([34, 1, 1, [[1]]], r"TouchReport\.ages\[0\]: expected an array of 2, found tuple of length 1"),
        ([3, 0, 1, 1], r"RequestVote: expected 4 fields after the kind, found 3"),
        ([12, 0, 2**31, 1, 1], r"RequestVote\.term: expected an integer from 0 to 2147483647"),
        ([36, b"x" * 65, b"", 1], r"Join\.cluster: expected 0 to 64 bytes, found bytes of length 65"),
        ([36, b"", b"a b:1", 1], r"Join\.address: expected HOST:PORT in visible ASCII"),
        ([36, b"", b"\xff:1", 1], r"Join\.address: expected HOST:PORT in visible ASCII"),
        ([36, b"", b"a" * 301, 1], r"Join\.address: expected 0 to 300 bytes, found bytes of length 301"),
        ([37, b"", 1, b"m"], r"Welcome\.cluster: expected 1 to 64 bytes"),
        ([37, b"c", 1, b""], r"Welcome\.membership: expected 1 to 131072 bytes"),
        ([38, b"c", -1], r"NotMember\.index"),
        ([39, 0, 1, 1, 1, b"i" * 15, 1], r"SnapshotOffer\.id: expected 16 bytes"),
        ([40, 0, 1, b"i" * 16, 0, 0], r"SnapshotRequest\.length: expected an integer from 1 to 1048576"),
        ([40, 0, 1, b"i" * 16, 0, 2**20 + 1], r"SnapshotRequest\.length"),
        ([41, 0, 1, b"i" * 16, 0, b"x" * (2**20 + 1)], r"SnapshotChunk\.data: expected 0 to 1048576 bytes"),
        ([42, 1, [[1, b"d" * 15]]], r"MemberReport\.digests\[0\]\.digest: expected 16 bytes"),
        ([42, 1, [[1, 5]]], r"MemberReport\.digests\[0\]\.digest: expected 16 bytes, found int 5"),
        (
            [42, 1, [[0, b"d" * 16]] * 65],
            r"MemberReport\.digests: expected 0 to 64 items, found tuple of length 65",
        ),
        ([5, 0, 5, 7, 3, 6, []], r"AppendEntries\.entries: expected 1 to \d+ items, found tuple of length 0"),
        (
            [5, 0, 5, 7, 3, 6, [[2, 1, 1, 1, b""]]],
            r"Entry\.term at index 8: expected 3 .* to 5 .*found int 2",
        ),
        (
            [5, 0, 5, 7, 3, 6, [[6, 1, 1, 1, b""]]],
            r"Entry\.term at index 8: expected 3 .* to 5 .*found int 6",
        ),
        (
            [5, 0, 5, 7, 3, 6, [[4, 3, 1, 1, b""]]],
            r"entries\[0\]\.kind: expected an integer from 0 to 2, found int 3",
        ),
        (
            [5, 0, 5, 7, 3, 6, [[4, True, 1, 1, b""]]],
            r"AppendEntries\.entries\[0\]\.kind: expected .* found bool True",
        ),
        ([5, 0, 5, 7, 3, 6, [[4, 0, 1, 1, b""]]], r"Entry\.count at index 8: expected 0 for kind 0, found 1"),
        (
            [5, 0, 5, 7, 3, 6, [[4, 1, 0, 1, b""]]],
            r"AppendEntries\.entries\[0\]\.position: expected an integer from 1",
        ),
        ([5, 0, 5, 7, 3, 6, [[4, 1, 1, 2, b""], [4, 1, 2, 1, b""]]], r"at index 9: expected 3, found 2"),
        (
            [5, 0, 5, 7, 3, 6, [[4, 1, 1, 1, None]]],
            r"AppendEntries\.entries\[0\]\.payload: expected 0 to \d+ bytes, found NoneType",
        ),
        ([5, 0, 5, 2**63 - 1, 3, 6, [[4, 1, 1, 1, b""]]], r"AppendEntries\.entries last index"),
        (
            [5, 0, 5, 7, 3, [[4, 1, 1, 1, b""]]],
            r"AppendEntries: expected 6 fields after the kind, found 5",
        ),
    ],
)
def test_errors_say_what_was_found_and_expected(array: Any, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        codec.decode(msgpack.packb(array))


@settings(max_examples=300)
@given(appends(), st.data())
def test_entries_are_judged_alike_on_the_short_way_and_by_their_forms(
    message: AppendEntries, data: st.DataObject
) -> None:
    """There is a short way for AppendEntries; what it does not take goes the long one, which says what is wrong."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    array = msgpack.unpackb(codec.encode(message))
    forms = codec.MESSAGES.records[5]
    quick = codec._quick_append_entries(tuples(array))
    assert quick == forms.form.unpack(tuples(array[1:]), "AppendEntries") == message
    entries = array[-1]
    target = data.draw(st.sampled_from([array, entries, *entries]))
    at = data.draw(st.integers(int(target is array), len(target) - 1))
    near = [each + step for each in target if type(each) is int for step in (-1, 0, 1)]
    target[at] = data.draw(st.sampled_from([*near, 0]) | wire_values)
    try:
        slow = forms.form.unpack(tuples(array[1:]), "AppendEntries")
    except ProtocolError:
        slow = None
    assert codec._quick_append_entries(tuples(array)) == slow


@settings(max_examples=300)
@given(
    st.sampled_from([7, 8]),
    st.lists(
        numbers | terms | wire_values | st.sampled_from([-1, codec.TERM_MAX + 1, NUMBER_MAX + 1, True]),
        min_size=3,
        max_size=5,
    ),
)
def test_heartbeats_are_judged_alike_on_the_short_way_and_by_their_forms(
    kind: int, fields: list[Any]
) -> None:
    """There is a short way for heartbeats and their answers, too."""
    values = tuple(fields)
    try:
        slow = codec.MESSAGES.records[kind].form.unpack(values, "message")
    except ProtocolError:
        slow = None
    quick = codec.MESSAGES._quick[kind]((kind, *values))
    assert quick == slow
    assert quick is None or type(quick) is codec.MESSAGES.records[kind].of


@settings(max_examples=300)
@given(
    st.tuples(numbers, terms, st.booleans(), numbers, numbers, numbers, terms),
    st.lists(
        st.tuples(
            st.integers(0, 7),
            wire_values | st.sampled_from([-1, codec.TERM_MAX, codec.TERM_MAX + 1, NUMBER_MAX + 1, True, 0]),
        ),
        max_size=2,
    ),
)
def test_acknowledgements_are_judged_alike_on_the_short_way_and_by_their_forms(
    fields: tuple[Any, ...], changes: list[tuple[int, Any]]
) -> None:
    values = list(fields)
    for at, changed in changes:
        values[at : at + 1] = [changed]  # behind the last one it is one too many
    try:
        slow = codec.MESSAGES.records[6].form.unpack(tuple(values), "message")
    except ProtocolError:
        slow = None
    assert codec.MESSAGES._quick[6]((6, *values)) == slow
    assert changes or slow is not None


def test_errors_do_not_repeat_large_values() -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode(msgpack.packb([7, b"x" * 100_000, 1, 1, 1]))
    assert len(str(caught.value)) < 200


def test_deep_nesting_is_refused_not_recursed_into() -> None:
    with pytest.raises(ProtocolError):
        codec.decode(b"\x91" * 60_000 + b"\xc0")


def test_a_message_of_a_newer_release_costs_only_itself() -> None:
    """D-5: releases roll one server at a time."""
    known = Heartbeat(COORDINATION_GROUP, 1, 2, 3)
    body = codec.encode_sequence([codec.encode(known), msgpack.packb([120, 1, 2]), codec.encode(known)])
    decoded, errors = codec.decode_sequence(body)
    assert decoded == [known, known]
    assert [str(error) for error in errors] == [
        f"message: expected one of the kinds {[*range(1, 13), *range(32, 44), *range(48, 59)]}; "
        "a newer release may know it, found int 120"
    ]


def test_the_layout_on_the_wire_is_the_documented_one() -> None:
    """docs/reference/protocol-peers.md has these bytes; servers of different releases talk to each other (D-5)."""
    append = AppendEntries(
        COORDINATION_GROUP,
        5,
        7,
        3,
        6,
        (Entry(8, 4, EntryKind.COMMANDS, 20, 2, b"ab"), Entry(9, 5, EntryKind.NOOP, 22, 0, b"")),
    )
    assert codec.encode(append).hex(" ") == (
        "97 05 00 05 07 03 06 92 95 04 01 14 02 c4 02 61 62 95 05 00 16 00 c4 00"
    )
    assert codec.encode(Heartbeat(COORDINATION_GROUP, 5, 300, 6)).hex(" ") == "95 07 00 05 cd 01 2c 06"
    assert codec.encode(Hello(None, None, True)).hex(" ") == "94 20 c0 c0 c3"
    assert codec.encode(RequestVote(COORDINATION_GROUP, 5, 9, 4)).hex(" ") == "95 03 00 05 09 04"
    assert (
        codec.encode(RequestVote(COORDINATION_GROUP, 5, 9, 4, transfer=True)).hex(" ") == "95 0c 00 05 09 04"
    )
    assert codec.encode(Join(b"c", "a:1", 2)).hex(" ") == "94 24 c4 01 63 c4 03 61 3a 31 02"
    assert codec.encode(MemberReport(2, ((7, 1),))).hex(" ") == (
        "93 2a 02 91 92 07 c4 10 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01"
    )


def test_digests_travel_as_sixteen_bytes_however_large() -> None:
    """D-26: MessagePack has no integers above 64 bits."""
    report = MemberReport(1, ((4096, 2**128 - 1), (8192, 0)))
    assert codec.decode(codec.encode(report)) == report


def test_entries_that_are_not_consecutive_are_our_own_mistake() -> None:
    gap = AppendEntries(COORDINATION_GROUP, 5, 7, 3, 6, (Entry(9, 4, EntryKind.NOOP, 1, 0, b""),))
    with pytest.raises(AssertionError, match="consecutive"):
        codec.encode(gap)
