"""Paths of znodes as users type them: errors in one are reported before any server is asked."""

from __future__ import annotations

from zraft.shell.errors import UsageError


def checked_path(path: str, *, sequential: bool = False) -> str:
    """Return `path` if it is valid. A sequential znode's name may be empty: the server appends a number.

    Raises:
        UsageError: no server would accept it.
    """
    if not path.startswith("/"):
        raise UsageError(f"Path must start with / character: found {path!r}")
    if path == "/" or (sequential and path.endswith("/")):
        names = path[1:].split("/")[:-1]
    elif path.endswith("/"):
        raise UsageError(f"Path must not end with / character: found {path!r}")
    else:
        names = path[1:].split("/")
    for name in names:
        if name in ("", ".", ".."):
            what = "an empty name" if not name else f"the relative name {name!r}"
            raise UsageError(f"Invalid path string {path!r}: it has {what}, expected /name/name/…")
    for letter in path:
        if letter < " " or "\x7f" <= letter <= "\x9f" or "\ud800" <= letter <= "\uf8ff" or letter > "\uffef":
            if letter > "\uffff":
                continue
            raise UsageError(
                f"Invalid path string {path!r}: it has the character U+{ord(letter):04X}, which no path may have"
            )
    return path


def parent_of(path: str) -> str:
    """Return the parent of any path but "/"."""
    return path.rpartition("/")[0] or "/"


def child_of(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"/{name}" if path == "/" else f"{path}/{name}"
