"""ZooKeeper's short names of operations, which `cons` shows of each connection's last request."""

from __future__ import annotations

from typing import Final

from zraft_core.wire.opcodes import Opcode

_NAMES: Final = {
    # Nothing was asked since the session was created or resumed.
    int(Opcode.NOTIFICATION): "SESS",
    int(Opcode.CREATE): "CREA",
    int(Opcode.CREATE2): "CREA",
    int(Opcode.CREATE_CONTAINER): "CREA",
    int(Opcode.CREATE_TTL): "CREA",
    int(Opcode.DELETE): "DELE",
    int(Opcode.DELETE_CONTAINER): "DELE",
    int(Opcode.EXISTS): "EXIS",
    int(Opcode.GET_DATA): "GETD",
    int(Opcode.SET_DATA): "SETD",
    int(Opcode.GET_ACL): "GETA",
    int(Opcode.SET_ACL): "SETA",
    int(Opcode.GET_CHILDREN): "GETC",
    int(Opcode.GET_CHILDREN2): "GETC",
    int(Opcode.GET_ALL_CHILDREN_NUMBER): "GETACN",
    int(Opcode.GET_EPHEMERALS): "GETE",
    int(Opcode.SYNC): "SYNC",
    int(Opcode.PING): "PING",
    int(Opcode.CHECK): "CHEC",
    int(Opcode.MULTI): "MULT",
    int(Opcode.MULTI_READ): "MLTR",
    int(Opcode.RECONFIG): "RECO",
    int(Opcode.CHECK_WATCHES): "CHKW",
    int(Opcode.REMOVE_WATCHES): "REMW",
    int(Opcode.SET_WATCHES): "SETW",
    int(Opcode.SET_WATCHES2): "STW2",
    int(Opcode.ADD_WATCH): "ADDW",
    int(Opcode.WHO_AM_I): "HOMI",
    int(Opcode.AUTH): "AUTH",
    int(Opcode.SASL): "SASL",
    int(Opcode.CLOSE_SESSION): "CLOS",
}


def operation_name(opcode: int) -> str:
    """Return the name of an operation as clients send it; `NA` for one that nobody knows."""
    return _NAMES.get(opcode, "NA")
