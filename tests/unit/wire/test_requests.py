"""Requests become commands, exactly; what breaks the protocol becomes a declared error and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wire.samples import COMMANDS, DIGEST_ACL
from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.opcodes import READS, SUPPORTED, WRITES, Opcode
from zraft_core.wire.requests import (
    WORLD_ANYONE_ALL,
    Credentials,
    SetWatches,
    decode_auth,
    decode_header,
    decode_multi_read,
    decode_path,
    decode_path_and_number,
    decode_read,
    decode_reconfig,
    decode_sasl,
    decode_set_watches,
    decode_set_watches2,
    decode_write,
)
from zraft_core.znodes.txn import (
    CHECK,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    MULTI,
    SET_ACL,
    SET_DATA,
    Command,
)

HEADER = "00000007 {:08x}"
PATH = "00000002 2f61"
OPEN_ACL = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"
END = "ffffffff 01 ffffffff"


def raw(opcode: int, *fields: str) -> bytes:
    return bytes.fromhex(HEADER.format(opcode) + "".join(fields))


def frame_of(command: Command) -> bytes:
    """The frame as the server sees it, without the length."""
    return ZkClientCodec().write(command)[1][4:]


GOLDEN = [
    (raw(5, PATH, "00000003 616263 ffffffff"), (SET_DATA, "/a", b"abc", -1)),
    (raw(5, PATH, "ffffffff 00000000"), (SET_DATA, "/a", None, 0)),
    (raw(5, PATH, "00000000 7fffffff"), (SET_DATA, "/a", b"", 2**31 - 1)),
    (raw(2, PATH, "00000004"), (DELETE, "/a", 4)),
    (raw(1, PATH, "00000001 78", OPEN_ACL, "00000002"), (CREATE, "/a", b"x", None, 2, 0)),
    (raw(15, PATH, "ffffffff", OPEN_ACL, "00000001"), (CREATE2, "/a", None, None, 1, 0)),
    (
        raw(1, PATH, "00000000 00000001 00000001 00000002 6970 00000001 78 00000000"),
        (CREATE, "/a", b"", ((1, "ip", "x"),), 0, 0),
    ),
    (raw(1, PATH, "00000000 00000000 00000000"), (CREATE, "/a", b"", (), 0, 0)),
    (raw(1, PATH, "00000000 ffffffff 00000000"), (CREATE, "/a", b"", (), 0, 0)),
    (raw(14, END), (MULTI, ())),
    (raw(7, PATH, OPEN_ACL, "00000002"), (SET_ACL, "/a", ((31, "world", "anyone"),), 2)),
    (raw(7, PATH, "00000000 ffffffff"), (SET_ACL, "/a", (), -1)),
    (raw(19, PATH, "00000001 78", OPEN_ACL, "00000004"), (CREATE_CONTAINER, "/a", b"x", None, 4, 0)),
    (raw(21, PATH, "00000000", OPEN_ACL, "00000006 0000000000000309"), (CREATE_TTL, "/a", b"", None, 6, 777)),
    (raw(20, PATH), (DELETE_CONTAINER, "/a")),
    (
        raw(14, "00000015 00 ffffffff", PATH, "ffffffff", OPEN_ACL, "00000005 0000000000000001", END),
        (MULTI, ((CREATE_TTL, "/a", None, None, 5, 1),)),
    ),
    (
        raw(14, "0000000d 00 ffffffff", PATH, "00000003", "00000002 00 ffffffff", PATH, "ffffffff", END),
        (MULTI, ((CHECK, "/a", 3), (DELETE, "/a", -1))),
    ),
]


@pytest.mark.parametrize(("frame", "command"), GOLDEN)
def test_write_golden_bytes(frame: bytes, command: Command) -> None:
    xid, opcode = decode_header(frame)
    assert (xid, opcode) == (7, command[0])
    assert decode_write(opcode, frame) == command


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_the_client_codec_writes_what_the_server_reads(command: Command) -> None:
    assert decode_write(command[0], frame_of(command)) == command


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_a_command_survives_the_log_unchanged(command: Command) -> None:
    """Apply must see what the origin decoded, null and empty data included (trap 23)."""
    assert msgpack.unpackb(msgpack.packb(command), use_list=False) == command


def test_the_open_acl_is_recognised_only_if_it_is_exactly_that() -> None:
    """A command's nil ACL means world:anyone with all rights; anything else must stay spelled out."""
    assert bytes.fromhex(OPEN_ACL) == WORLD_ANYONE_ALL
    for perms, scheme, name in [(30, "world", "anyone"), (31, "world", "anyonf"), (31, "World", "anyone")]:
        command = (CREATE, "/a", b"", ((perms, scheme, name),), 0, 0)
        assert decode_write(CREATE, frame_of(command)) == command
    twice = (CREATE, "/a", b"", ((31, "world", "anyone"),) * 2, 0, 0)
    assert decode_write(CREATE, frame_of(twice)) == twice


def test_a_null_scheme_in_an_acl_is_empty_which_is_no_scheme() -> None:
    """So that apply refuses it as an ACL, in the order of its checks, as ZooKeeper does."""
    body = PATH + "00000000" + "00000001 0000001f ffffffff ffffffff 00000000"
    frame = struct.pack(">ii", 1, CREATE) + bytes.fromhex(body)
    assert decode_write(CREATE, frame) == (CREATE, "/a", b"", ((31, "", ""),), 0, 0)


def test_a_null_id_in_an_acl_is_empty_as_kazoo_writes_its_creator_all_acl() -> None:
    null, auth = "ffffffff", "00000004 61757468"
    body = PATH + "00000000" + "00000001 0000001f" + auth + null + "00000000"
    frame = struct.pack(">ii", 1, CREATE) + bytes.fromhex(body)
    assert decode_write(CREATE, frame) == (CREATE, "/a", b"", ((31, "auth", ""),), 0, 0)


@pytest.mark.parametrize("flags", [-1, 4, 5, 6, 7, 2**31 - 1])
def test_all_flags_reach_apply_which_judges_them(flags: int) -> None:
    assert decode_write(CREATE, frame_of((CREATE, "/a", b"", None, flags, 0)))[4] == flags


@pytest.mark.parametrize(
    "opcode", [-1, Opcode.SET_ACL, Opcode.GET_DATA, Opcode.MULTI, Opcode.CLOSE_SESSION, 77]
)
def test_a_multi_with_an_operation_that_cannot_stand_there_is_malformed(opcode: int) -> None:
    frame = raw(14, f"{opcode & 0xFFFFFFFF:08x} 00 ffffffff", PATH, "00000000", END)
    with pytest.raises(MarshallingError, match="in a multi"):
        decode_write(MULTI, frame)


def test_a_multi_ends_at_the_done_flag_whatever_its_type_says() -> None:
    frame = raw(14, "00000002 00 ffffffff", PATH, "00000001", "00000005 01 00000000")
    assert decode_write(MULTI, frame) == (MULTI, ((DELETE, "/a", 1),))


@pytest.mark.parametrize("opcode", sorted(READS))
def test_read_golden_bytes(opcode: int) -> None:
    assert decode_read(raw(opcode, PATH, "01")) == ("/a", True)
    assert decode_read(raw(opcode, PATH, "00")) == ("/a", False)


def test_sync_takes_any_path() -> None:
    assert decode_path(raw(9, "00000003 7820c2"[:-2], "79")) == "x y"


def test_set_watches_golden_bytes() -> None:
    body = ("0000000100000002", "00000001", PATH, "00000000", "00000002", PATH, "00000001 62")
    assert decode_set_watches(raw(101, *body)) == SetWatches(0x1_0000_0002, ("/a",), (), ("/a", "b"))


def test_set_watches2_golden_bytes() -> None:
    body = ("0000000000000002", "ffffffff" * 3, "00000001", PATH, "00000001 00000001 62")
    assert decode_set_watches2(raw(105, *body)) == SetWatches(2, (), (), (), ("/a",), ("b",))


def test_rarer_requests_golden_bytes() -> None:
    assert decode_auth(raw(100, "00000000 00000006 646967657374 00000003 613a62")) == Credentials(
        "digest", b"a:b"
    )
    assert decode_auth(raw(100, "00000000 00000002 6970 ffffffff")) == Credentials("ip", None)
    assert decode_sasl(raw(102, "00000002 0001")) == b"\0\1"
    assert decode_sasl(raw(102, "ffffffff")) == b""
    assert decode_path_and_number(raw(106, PATH, "00000001")) == ("/a", 1)
    parts = ("00000004 00 ffffffff", PATH, "01", "00000008 00 ffffffff", PATH, "00", END)
    assert decode_multi_read(raw(22, *parts)) == [(4, "/a"), (8, "/a")]
    assert decode_reconfig(raw(16, PATH, "ffffffff ffffffff 000000000000000a")) == ("/a", None, None, 10)


def test_passwords_are_not_shown_with_the_request() -> None:
    assert "secret" not in repr(Credentials("digest", b"bob:secret"))


def test_a_multi_read_of_anything_else_is_malformed() -> None:
    with pytest.raises(MarshallingError, match="multiRead"):
        decode_multi_read(raw(22, "00000003 00 ffffffff", PATH, "00", END))


def test_set_watches_with_null_lists_has_no_watches() -> None:
    body = ("0000000000000000", "ffffffff" * 3)
    assert decode_set_watches(raw(101, *body)) == SetWatches(0, (), (), ())


MALFORMED = {
    "null path": (5, "ffffffff 00000000 00000000"),
    "negative path": (5, "fffffff0 00000000 00000000 00000000 00000000"),
    "path beyond the frame": (5, "7fffffff 2f61 00000000 00000000"),
    "negative data": (5, PATH + "fffffffe 00000000"),
    "data beyond the frame": (5, PATH + "00000009 61 00000000"),
    "path not UTF-8": (5, "00000002 2fff ffffffff 00000000"),
    "surrogate in path": (2, "00000004 2feda080 00000000"),
    "null path of create": (1, "ffffffff 00000000" + OPEN_ACL + "00000000"),
    "negative data of create": (1, PATH + "fffffffe" + OPEN_ACL + "00000000"),
    "negative acl count": (1, PATH + "00000000 fffffffe 00000000"),
    "acl count beyond the frame": (1, PATH + "00000000 7fffffff 00000000"),
    "null path of delete": (2, "ffffffff 00000000"),
    "multi without end": (14, "00000002 00 ffffffff" + PATH + "00000001"),
    "multi of nothing": (14, ""),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_writes_are_marshalling_errors(name: str) -> None:
    opcode, body = MALFORMED[name]
    with pytest.raises(MarshallingError):
        decode_write(opcode, raw(opcode, body))


@pytest.mark.parametrize(
    "body", ["", "ffffffff 00", "fffffff0" + "00" * 30, "00000002 2f61", "00000002 2fff 00"]
)
def test_malformed_reads_are_marshalling_errors(body: str) -> None:
    with pytest.raises(MarshallingError):
        decode_read(raw(4, body))


def test_a_frame_shorter_than_a_header_is_a_marshalling_error() -> None:
    for size in range(8):
        with pytest.raises(MarshallingError, match="header"):
            decode_header(bytes(size))


WRITES_WITH_BODY = [command for command in COMMANDS if len(command) > 1]
READ_FRAMES = [
    (decode_read, ZkClientCodec().read(Opcode.GET_DATA, "/ä", watch=True)[1][4:]),
    (decode_path, ZkClientCodec().sync("/a")[1][4:]),
    (decode_set_watches, ZkClientCodec().set_watches(SetWatches(9, ("/a",), ("/b", "/c"), ("/d",)))[1][4:]),
]


@pytest.mark.parametrize("command", WRITES_WITH_BODY, ids=repr)
def test_a_write_cut_at_any_byte_is_a_marshalling_error(command: Command) -> None:
    frame = frame_of(command)
    for size in range(8, len(frame)):
        with pytest.raises(MarshallingError):
            decode_write(command[0], frame[:size])


@pytest.mark.parametrize(("decode", "frame"), READ_FRAMES)
def test_any_other_request_cut_at_any_byte_is_a_marshalling_error(
    decode: Callable[[bytes], object], frame: bytes
) -> None:
    for size in range(8, len(frame)):
        with pytest.raises(MarshallingError):
            decode(frame[:size])


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_bytes_after_a_write_are_ignored(command: Command) -> None:
    """As ZooKeeper does; in particular bytes that look like the open ACL or another operation."""
    for tail in (b"\0", b"\xff" * 9, WORLD_ANYONE_ALL):
        assert decode_write(command[0], frame_of(command) + tail) == command


@pytest.mark.parametrize(("decode", "frame"), READ_FRAMES)
def test_bytes_after_any_other_request_are_ignored(decode: Callable[[bytes], object], frame: bytes) -> None:
    assert decode(frame + b"\xff" * 9) == decode(frame)


def decode_anything(opcode: int, frame: bytes) -> object:
    if opcode in WRITES:
        return decode_write(opcode, frame)
    if opcode in READS:
        return decode_read(frame)
    return OTHERS.get(opcode, decode_path)(frame)


OTHERS: dict[int, Callable[[bytes], object]] = {
    Opcode.SET_WATCHES: decode_set_watches,
    Opcode.SET_WATCHES2: decode_set_watches2,
    Opcode.AUTH: decode_auth,
    Opcode.SASL: decode_sasl,
    Opcode.ADD_WATCH: decode_path_and_number,
    Opcode.CHECK_WATCHES: decode_path_and_number,
    Opcode.REMOVE_WATCHES: decode_path_and_number,
    Opcode.MULTI_READ: decode_multi_read,
    Opcode.RECONFIG: decode_reconfig,
}


@settings(max_examples=300)
@given(st.sampled_from(sorted(SUPPORTED - {Opcode.PING, Opcode.WHO_AM_I})), st.binary(max_size=80))
def test_arbitrary_bodies_give_a_request_or_a_declared_error(opcode: int, body: bytes) -> None:
    try:
        decode_anything(opcode, struct.pack(">ii", 1, opcode) + body)
    except ProtocolError:
        pass


@settings(max_examples=300)
@given(
    st.sampled_from(WRITES_WITH_BODY),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_damaged_writes_give_a_command_or_a_declared_error(
    command: Command, damages: list[tuple[int, int]]
) -> None:
    """Nearly right bytes reach deeper than random ones. What does decode must be packable for the log."""
    frame = bytearray(frame_of(command))
    for position, byte in damages:
        frame[8 + position % (len(frame) - 8)] = byte
    try:
        decoded = decode_write(command[0], bytes(frame))
    except ProtocolError:
        return
    assert msgpack.unpackb(msgpack.packb(decoded), use_list=False) == decoded


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int32 = st.integers(-(2**31), 2**31 - 1)
data = st.none() | st.binary(max_size=8)
acls = st.none() | st.lists(st.tuples(int32, texts, texts), max_size=3).map(tuple)
creates = st.tuples(st.sampled_from([CREATE, CREATE2]), texts, data, acls, st.integers(0, 3), st.just(0))
simple = st.one_of(
    creates,
    st.tuples(st.just(DELETE), texts, int32),
    st.tuples(st.just(SET_DATA), texts, data, int32),
)
in_multi = st.lists(simple | st.tuples(st.just(CHECK), texts, int32), max_size=5).map(tuple)
commands = simple | st.tuples(st.just(MULTI), in_multi)


def normal(command: Command) -> Command:
    """The spelled-out open ACL comes back as nil; they mean the same."""
    if command[0] == MULTI:
        return (MULTI, tuple(normal(operation) for operation in command[1]))
    if command[0] in (CREATE, CREATE2) and command[3] == ((31, "world", "anyone"),):
        return (*command[:3], None, *command[4:])
    return command


@given(commands)
def test_commands_round_trip(command: Command) -> None:
    assert decode_write(command[0], frame_of(command)) == normal(command)


def test_the_spelled_out_open_acl_becomes_nil() -> None:
    command = (CREATE, "/a", b"", ((31, "world", "anyone"),), 0, 0)
    assert decode_write(CREATE, frame_of(command)) == normal(command)
    assert normal(command)[3] is None
    assert DIGEST_ACL[1] != (31, "world", "anyone")
