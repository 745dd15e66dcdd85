"""Wills: what a session leaves behind. The command that ends it, a close or an expiry, writes it (D-19).

A will is a persistent sequential znode of everybody's, made with the ids that the session had when it registered it.
"""

from __future__ import annotations

from zraft.tree.paths import ROOT
from zraft.tree.sessions.will import Will
from zraft.tree.znodes import Tree
from zraft_core.errors import Code
from zraft_core.znodes.txn import CREATE, FLAG_SEQUENTIAL, Command


def register_will(tree: Tree, command: Command, _zxid: int) -> Code:
    """Execute [WILL, parent, prefix, data]: replace the session's will; there is none if `parent` is nil."""
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
    """Carry out a will; return False if that cannot be: no parent, no right, a quota that is full.

    Nobody could be told, so it is dropped.
    """
    ids, session = tree.ids, tree.session
    tree.ids, tree.session = will.ids, None
    parent = "" if will.parent == ROOT else will.parent
    made = tree.create((CREATE, f"{parent}/{will.prefix}", will.data, None, FLAG_SEQUENTIAL, None), zxid)
    tree.ids, tree.session = ids, session
    return not isinstance(made, Code)
