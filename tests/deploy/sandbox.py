"""Runs a program under the system call filter of a unit file, which the kernel enforces as it does for systemd.

    python -m tests.deploy.sandbox UNIT COMMAND...

Of a unit it knows SystemCallFilter, RestrictAddressFamilies and MemoryDenyWriteExecute. A call that is not allowed fails
with EPERM. libseccomp makes the filter; Debian's package `systemd` depends on it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ALLOW: Final = 0x7FFF0000
REFUSE: Final = 0x00050000 | errno.EPERM
EQUAL: Final = 4
MASKED_EQUAL: Final = 7
MAPPING: Final = ("mmap", "mprotect", "pkey_mprotect")
PROTECTION: Final = 2
"""The argument of these that says what the memory is for."""
NOWHERE: Final = -1


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`: argument number, operator, and its operands."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def settings(unit: str) -> Iterator[tuple[str, str]]:
    """The assignments of a unit, in order."""
    for line in unit.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            yield name, value


def call_sets() -> dict[str, list[str]]:
    """The names in each set that systemd knows, other sets among them."""
    sets: dict[str, list[str]] = {}
    names: list[str] = []
    shown = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True)
    for line in shown.stdout.splitlines():
        word = line.strip()
        if line.startswith("@"):
            names = sets[word] = []
        elif line.startswith("    ") and not word.startswith("#"):
            names.append(word)
    return sets


def allowed_calls(unit: str) -> set[str]:
    """The system calls that all its filters together leave."""
    sets = call_sets()

    def expand(name: str) -> set[str]:
        return {one for inner in sets[name] for one in expand(inner)} if name.startswith("@") else {name}

    allowed: set[str] = set()
    for name, value in settings(unit):
        if name == "SystemCallFilter":
            named = {call for word in value.removeprefix("~").split() for call in expand(word)}
            allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def enforce(unit: str) -> None:
    """Put this process, and what it becomes, under the filter."""
    chosen = dict(settings(unit))
    assert chosen["MemoryDenyWriteExecute"] == "yes"
    assert chosen["SystemCallErrorNumber"] == "EPERM"
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(REFUSE)))

    def allow(call: str, *comparisons: Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(call.encode())
        array = (Comparison * len(comparisons))(*comparisons)
        if number > NOWHERE:  # else this machine's processor has none of that name
            done = library.seccomp_rule_add_array(
                context, ctypes.c_uint32(ALLOW), number, len(comparisons), array
            )
            assert done == 0, f"{call}: {os.strerror(-done)}"

    for call in allowed_calls(unit) - {"socket", *MAPPING}:
        allow(call)
    for family in chosen["RestrictAddressFamilies"].split():
        allow("socket", Comparison(0, EQUAL, getattr(socket, family), 0))
    for call in MAPPING:
        allow(call, Comparison(PROTECTION, MASKED_EQUAL, mmap.PROT_EXEC, 0))
    both = mmap.PROT_EXEC | mmap.PROT_WRITE
    allow("mmap", Comparison(PROTECTION, MASKED_EQUAL, both, mmap.PROT_EXEC))
    done = library.seccomp_load(context)
    assert done == 0, os.strerror(-done)


def main(words: Sequence[str]) -> None:
    unit, *command = words
    enforce(Path(unit).read_text(encoding="utf-8"))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
