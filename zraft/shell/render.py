"""Rendering of servers' answers as text like ZooKeeper's client, and as values for JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from zraft_core.znodes.stat import Stat

_UINT64: Final = 2**64 - 1


def show_time(time_ms: int, zone: tzinfo | None) -> str:
    """Return a date as Java prints it; `zone` None is this machine's. A time that no calendar has stays a number."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone(zone)
        return moment.strftime("%a %b %d %H:%M:%S %Z %Y")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def show_hex(number: int) -> str:
    """Return a session id or zxid in hexadecimal, unsigned."""
    return f"{number & _UINT64:#x}"


def show_stat(stat: Stat, zone: tzinfo | None) -> str:
    """Return a stat as ZooKeeper's client prints it."""
    return "\n".join(
        (
            f"cZxid = {show_hex(stat.czxid)}",
            f"ctime = {show_time(stat.ctime, zone)}",
            f"mZxid = {show_hex(stat.mzxid)}",
            f"mtime = {show_time(stat.mtime, zone)}",
            f"pZxid = {show_hex(stat.pzxid)}",
            f"cversion = {stat.cversion}",
            f"dataVersion = {stat.version}",
            f"aclVersion = {stat.aversion}",
            f"ephemeralOwner = {show_hex(stat.ephemeral_owner)}",
            f"dataLength = {stat.data_length}",
            f"numChildren = {stat.num_children}",
        )
    )


def stat_value(stat: Stat) -> dict[str, Any]:
    """Return a Stat with ZooKeeper's names; numbers as numbers, times in ms."""
    return {
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
        "pzxid": stat.pzxid,
    }


def show_names(names: Iterable[str]) -> str:
    """Return names as ZooKeeper's client prints them, sorted."""
    return f"[{', '.join(sorted(names))}]"


def show_data(data: bytes | None) -> str:
    """Return data as text.

    Bytes that are not UTF-8 survive as surrogates, so that a pipe gets exactly what the znode holds.
    """
    return "null" if data is None else data.decode("utf-8", errors="surrogateescape")


def data_value(data: bytes | None) -> dict[str, str | None]:
    """Return `data` if it is text, otherwise `data_base64`."""
    if data is None:
        return {"data": None}
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode("ascii")}


def visible(text: str) -> str:
    """Return `text` for a terminal: what would steer it, or is no character, is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else f"\\x{ord(letter) - 0xDC00:02x}"
        if 0xDC80 <= ord(letter) <= 0xDCFF
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


TREE_BRANCH: Final = "├── "
TREE_LAST: Final = "└── "
TREE_THROUGH: Final = "│   "
TREE_NOTHING: Final = "    "
