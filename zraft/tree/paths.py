"""Validity of znode paths, and how they split. Source: ZooKeeper's `PathUtils`."""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "/"

# ZooKeeper judges UTF-16 units, so every character beyond U+FFFF falls under its ban of surrogates.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

NO_NAMES: Final = frozenset({"", ".", ".."})


def is_valid_name(name: str) -> bool:
    """Return whether `name` can be the last segment of a path."""
    if name.isascii() and name.isprintable():
        # Printable ASCII holds no forbidden character; this spares the hot path the regular expression.
        return name not in NO_NAMES and "/" not in name
    return name != "" and "/" not in name and _FORBIDDEN.search(name) is None


def is_valid_path(path: str) -> bool:
    """Return whether `path` is valid: the whole of `PathUtils.validatePath`."""
    if path == ROOT:
        return True
    return path.startswith("/") and all(map(is_valid_name, path[1:].split("/")))


def parent_of(path: str) -> str:
    """Return the parent's path; the root is its own parent, as its alias "" is in ZooKeeper."""
    return path[: path.rfind("/")] or ROOT


def split(path: str) -> tuple[str, str]:
    """Return (path of the parent, name) of a path that contains a slash."""
    slash = path.rfind("/")
    return path[:slash] or ROOT, path[slash + 1 :]
