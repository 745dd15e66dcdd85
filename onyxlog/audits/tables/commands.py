"""Table `commands`: the commands in the entries of the coordination group, one row each."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed, Standing
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class CommandRow(Placed):
    """One command of an entry of group 0, in log order of `position`, then `part`.

    Attributes:
        position: the command's number in the log (D-16).
        part: 0 for the command itself; 1, 2 ... for those inside a MULTI, which share its position.
        origin_server, origin_instance, origin_boot, origin_seq: the batch it came in (D-2); server 0 is the leader's own. A
            batch that is not its origin's next is skipped by every server alike: see `onyxlog.audits` on replaying.
        session: as a signed number; 0 for none.
        operation: name of the opcode in lower case, such as `create`, `set_data`, `create_session`, `once`.
        once_seq, once_floor: of a command that is to be done once (it is shown itself, not its wrapping).
        path: what it names, if one; of `will` and `truncate` the directory.
        version: that it is conditional on.
        flags: of a create; bit 0 ephemeral, bit 1 sequential.
        number: timeout_ms of create_session and attach, amount of add, first of truncate, level of feature, ttl of
            create_ttl.
        target: the session that `expire` and `attach` name, czxid of `reap`.
        data_digest: BLAKE2b-128 of the data that is written, None for none.
        data: the data itself, only with option `payloads`. Passwords are never shown.
    """

    group: int
    index: int
    term: int
    position: int
    part: int = 0
    standing: str = Standing.COMMITTED.value
    log_time_ms: int
    wall_time_ms: int
    origin_server: int
    origin_instance: str = ""
    origin_boot: int = 0
    origin_seq: int = 0
    session: int
    opcode: int
    operation: str
    once_seq: int | None = None
    once_floor: int | None = None
    path: str | None = None
    version: int | None = None
    flags: int | None = None
    number: int | None = None
    target: int | None = None
    data_bytes: int | None = None
    data_digest: bytes | None = None
    data: bytes | None = None


COMMANDS: Final = Table("commands", CommandRow, "commands of the coordination group, one row each")
