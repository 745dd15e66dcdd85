"""Native requests about logs of sequential znodes: truncate, and log.

Source: docs/reference/protocol-native.md, "Writes" and "Reads".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.layout import Fields, any_string, integer, number, optional
from zraft_core.wire.native import fields
from zraft_core.znodes.stat import INT32_MAX
from zraft_core.znodes.txn import TRUNCATE, Command

LOG_LIMIT: Final = 1_000
LOG_LIMIT_MAX: Final = 10_000


@frozen
class ReadLog:
    """Sequential znodes of a directory from a number on."""

    directory: str
    prefix: str
    first: int
    limit: int
    bytes_max: int


def _truncate(
    directory: str, first: int, origin_path: str | None = None, origin_data: bytes | None = None
) -> Command:
    return TRUNCATE, directory, first, origin_path, origin_data


def _log(
    directory: str, prefix: str = "", first: int = 0, limit: int = LOG_LIMIT, bytes: int = INT32_MAX
) -> ReadLog:
    return ReadLog(directory, prefix, first, limit, bytes)


WRITES: Final[tuple[Fields[Command], ...]] = (
    Fields.of(
        "truncate",
        _truncate,
        directory=any_string,
        first=number,
        origin_path=optional(any_string),
        origin_data=fields.data,
    ),
)
"""Their own fields; those of any write are beside them."""

READS: Final[tuple[Fields[ReadLog], ...]] = (
    Fields.of(
        "log",
        _log,
        directory=any_string,
        prefix=any_string,
        first=number,
        limit=integer(1, LOG_LIMIT_MAX),
        bytes=integer(1, INT32_MAX),
    ),
)
"""Their own fields; those of any read are beside them."""
