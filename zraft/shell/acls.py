"""ACLs as text, both ways: `scheme:id:perms,…` as users type them, and two lines per entry as they are shown."""

from __future__ import annotations

from typing import Final

from zraft.shell.errors import UsageError
from zraft_core.wire.requests import Acl
from zraft_core.znodes.acl import ADMIN, CREATE, DELETE, READ, WRITE

_LETTERS: Final = (("c", CREATE), ("d", DELETE), ("r", READ), ("w", WRITE), ("a", ADMIN))
_BITS: Final = dict(_LETTERS)


def parse_acl(text: str) -> tuple[Acl, ...]:
    """Parse `world:anyone:r,digest:bob:hash=:cdrwa`; the id may hold colons, as IPv6 addresses and digests do.

    Raises:
        UsageError: an entry is not scheme:id:perms, or a letter of perms is none of cdrwa.
    """
    return tuple(_parse_entry(entry) for entry in text.split(","))


def _parse_entry(entry: str) -> Acl:
    scheme, first, rest = entry.partition(":")
    identity, last, letters = rest.rpartition(":")
    if not first or not last:
        raise UsageError(
            f"{entry} does not have the form scheme:id:perm, such as world:anyone:r or ip:10.0.0.0/8:cdrwa"
        )
    bits = 0
    for letter in letters:
        if letter not in _BITS:
            raise UsageError(
                f"Unknown perm type: {letter} in {entry!r}; expected letters of cdrwa "
                "(create, delete, read, write, admin)"
            )
        bits |= _BITS[letter]
    return bits, scheme, identity


def permissions(bits: int) -> str:
    """Return permissions in ZooKeeper's order, cdrwa."""
    return "".join(letter for letter, bit in _LETTERS if bits & bit)


def show_acl(acl: tuple[Acl, ...]) -> str:
    """Return an ACL as ZooKeeper's client prints it."""
    return "\n".join(f"'{scheme},'{identity}\n: {permissions(bits)}" for bits, scheme, identity in acl)
