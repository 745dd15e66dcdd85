"""Wills: what a session leaves behind. The command that ends it, a close or an expiry, writes it (D-19).

A will is a persistent sequential znode of everybody's, made with the ids that the session had when it registered it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from zraft.errors import Code
from zraft.tree.acl import Ids, are_ids
from zraft.tree.paths import ROOT, is_valid_name, is_valid_path
from zraft.tree.txn import CREATE, FLAG_SEQUENTIAL, Command

if TYPE_CHECKING:
    from zraft.tree.znodes import Tree

_SOME_NUMBER = "0000000000"


@frozen
class Will:
    """The znode `prefix` and a number, below `parent`."""

    parent: str
    prefix: str
    data: bytes | None
    ids: Ids

    def plain(self) -> tuple[Any, ...]:
        return self.parent, self.prefix, self.data, self.ids

    @staticmethod
    def read(plain: Any) -> Will | None:
        """What `plain` made these values of; None if it made none such."""
        if plain.__class__ is not tuple or len(plain) != 4 or not are_ids(plain[3]):
            return None
        will = Will.checked(*plain)
        return None if isinstance(will, Code) else will

    @staticmethod
    def checked(parent: Any, prefix: Any, data: Any, ids: Ids) -> Will | Code:
        """Whether the parent is there, and what it allows, is judged when the session ends."""
        if parent.__class__ is not str or prefix.__class__ is not str:
            return Code.MARSHALLING_ERROR
        if data is not None and data.__class__ is not bytes:
            return Code.MARSHALLING_ERROR
        if not is_valid_path(parent) or not is_valid_name(prefix + _SOME_NUMBER):
            return Code.BAD_ARGUMENTS
        return Will(parent, prefix, data, ids)


def register_will(tree: Tree, command: Command, zxid: int) -> Code:
    """[WILL, parent, prefix, data]: in place of the one before; without one if `parent` is nil."""
    if len(command) != 4:
        return Code.MARSHALLING_ERROR
    _, parent, prefix, data = command
    session = tree.session
    assert session is not None, "a run without a session was given a will"
    will = None
    if parent is not None:
        checked = Will.checked(parent, prefix, data, tree.ids)
        if isinstance(checked, Code):
            return checked
        if data is not None and len(data) > tree.settings.data_bytes_max:
            return Code.BAD_ARGUMENTS
        will = checked
    tree.digest.dirty_sessions.add(session.id)
    session.will = will
    return Code.OK


def carry_out(tree: Tree, will: Will, zxid: int) -> bool:
    """False if it cannot be: no parent, no right, a quota that is full. Nobody could be told, so it is dropped."""
    ids, session = tree.ids, tree.session
    tree.ids, tree.session = will.ids, None
    parent = "" if will.parent == ROOT else will.parent
    made = tree.create((CREATE, f"{parent}/{will.prefix}", will.data, None, FLAG_SEQUENTIAL, None), zxid)
    tree.ids, tree.session = ids, session
    return not isinstance(made, Code)
