"""Builds the preloaded shim and steers it: slow and failing fsync, no space, another wall clock, per server.

The source is `shim.c`, compiled with the machine's C compiler when a run begins. Without one, the faults that need
it are not available, and the run says so.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zraft_core.errors import ConfigError

CONTROL_VARIABLE: Final = "CHAOS_CONTROL"
_FIELDS: Final = ("wall_shift_ns", "sync_delay_ns", "sync_errno", "space_errno", "calls")
_INT64: Final = struct.Struct("=q")


def compiler() -> str | None:
    """The C compiler of this machine."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(directory: Path) -> Path:
    """Compile the shim into `directory`. Raises ConfigError: no compiler, or it refused."""
    chosen = compiler()
    if chosen is None:
        raise ConfigError("faults of disk and clock need a C compiler: expected cc, gcc or clang, found none")
    library = directory / "shim.so"
    source = Path(__file__).with_name("shim.c")
    done = subprocess.run(
        [chosen, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(f"{chosen} cannot build {source}: {done.stderr}")
    return library


class Control:
    """The page that one server's shim reads; changes count from the next call on."""

    def __init__(self, library: Path, path: Path) -> None:
        self._library = library
        self._path = path
        path.write_bytes(bytes(_INT64.size * len(_FIELDS)))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the server's process needs to be steered."""
        return {"LD_PRELOAD": str(self._library), CONTROL_VARIABLE: str(self._path)}

    def _set(self, name: str, value: int) -> None:
        _INT64.pack_into(self._page, _INT64.size * _FIELDS.index(name), value)

    @property
    def syncs(self) -> int:
        """How often the server synced a file."""
        return int(_INT64.unpack_from(self._page, _INT64.size * _FIELDS.index("calls"))[0])

    def shift_wall_clock(self, seconds: float) -> None:
        self._set("wall_shift_ns", int(seconds * 1e9))

    def delay_sync(self, seconds: float) -> None:
        self._set("sync_delay_ns", int(seconds * 1e9))

    def fail_sync(self, failing: bool) -> None:
        self._set("sync_errno", errno.EIO if failing else 0)

    def fill_disk(self, full: bool) -> None:
        self._set("space_errno", errno.ENOSPC if full else 0)

    def heal(self) -> None:
        """The disk is well; the wall clock stays where it jumped."""
        self.delay_sync(0)
        self.fail_sync(False)
        self.fill_disk(False)

    def close(self) -> None:
        self._page.close()
