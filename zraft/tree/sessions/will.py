"""A will: the znode that a session leaves behind (D-19). Who carries it out is in `zraft.tree.commands.wills`."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from zraft.tree.paths import is_valid_name, is_valid_path
from zraft_core.errors import Code
from zraft_core.znodes.acl import Ids, are_ids

_SOME_NUMBER = "0000000000"


@frozen
class Will:
    """The znode `prefix` and a number, below `parent`."""

    parent: str
    prefix: str
    data: bytes | None
    ids: Ids

    def plain(self) -> tuple[Any, ...]:
        """Return this as plain values."""
        return self.parent, self.prefix, self.data, self.ids

    @staticmethod
    def read(plain: Any) -> Will | None:
        """Return what `plain` made these values of; None if it made none such."""
        if plain.__class__ is not tuple or len(plain) != 4 or not are_ids(plain[3]):
            return None
        will = Will.checked(*plain)
        return None if isinstance(will, Code) else will

    @staticmethod
    def checked(parent: Any, prefix: Any, data: Any, ids: Ids) -> Will | Code:
        """Return a will with checked values, or the code for what is wrong.

        Whether the parent is there, and what it allows, is judged when the session ends.
        """
        if parent.__class__ is not str or prefix.__class__ is not str:
            return Code.MARSHALLING_ERROR
        if data is not None and data.__class__ is not bytes:
            return Code.MARSHALLING_ERROR
        if not is_valid_path(parent) or not is_valid_name(prefix + _SOME_NUMBER):
            return Code.BAD_ARGUMENTS
        return Will(parent, prefix, data, ids)
