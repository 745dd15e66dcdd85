"""The opcodes are ZooKeeper's, and the log's commands use the same numbers."""

from __future__ import annotations

from kazoo.protocol import serialization as kazoo

from zraft_core.wire.opcodes import READS, SUPPORTED, WRITES, Opcode
from zraft_core.wire.requests import _WRITE_DECODERS
from zraft_core.znodes import txn


def test_numbers_agree_with_kazoo() -> None:
    kinds = {
        Opcode.CREATE: kazoo.Create,
        Opcode.CREATE2: kazoo.Create2,
        Opcode.DELETE: kazoo.Delete,
        Opcode.EXISTS: kazoo.Exists,
        Opcode.GET_DATA: kazoo.GetData,
        Opcode.SET_DATA: kazoo.SetData,
        Opcode.GET_ACL: kazoo.GetACL,
        Opcode.SET_ACL: kazoo.SetACL,
        Opcode.GET_CHILDREN: kazoo.GetChildren,
        Opcode.GET_CHILDREN2: kazoo.GetChildren2,
        Opcode.SYNC: kazoo.Sync,
        Opcode.PING: kazoo.Ping,
        Opcode.CHECK: kazoo.CheckVersion,
        Opcode.MULTI: kazoo.Transaction,
        Opcode.RECONFIG: kazoo.Reconfig,
        Opcode.AUTH: kazoo.Auth,
        Opcode.SASL: kazoo.SASL,
        Opcode.CLOSE_SESSION: kazoo.Close,
    }
    assert {opcode: kind.type for opcode, kind in kinds.items()} == {opcode: int(opcode) for opcode in kinds}


def test_commands_of_the_log_use_zookeepers_numbers() -> None:
    for name in [
        "CREATE",
        "DELETE",
        "SET_DATA",
        "CHECK",
        "MULTI",
        "CREATE2",
        "CREATE_SESSION",
        "CLOSE_SESSION",
    ]:
        assert Opcode[name] == getattr(txn, name)


def test_no_opcode_is_missing() -> None:
    """3.9 knows -11, -10, -1, 0 to 9, 11 to 22 and 100 to 107."""
    assert {int(op) for op in Opcode} == {-11, -10, -1, *range(10), *range(11, 23), *range(100, 108)}


def test_every_write_has_a_decoder_and_nothing_else_has() -> None:
    assert set(_WRITE_DECODERS) == WRITES


def test_reads_and_writes_are_disjoint_and_supported() -> None:
    assert not READS & WRITES
    assert READS | WRITES < SUPPORTED


def test_check_is_supported_only_inside_multi() -> None:
    """Trap 21: a top-level check is answered as an unknown operation."""
    assert Opcode.CHECK not in SUPPORTED
