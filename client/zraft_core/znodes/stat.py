"""Stat of a znode: its versions, times and counts as ZooKeeper shows them."""

from __future__ import annotations

from typing import Final, NamedTuple

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)


class Stat(NamedTuple):
    """A znode's stat as it was at one moment, fields in the order of ZooKeeper's wire."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int
