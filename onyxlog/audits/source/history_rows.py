"""Rows of `histories`: what clients of real servers recorded, a file per client, as tuples in column order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from onyxlog.audits.tables.table import signed
from zraft.checkers import history
from zraft_core.errors import ProtocolError


def history_values(path: str) -> Iterator[tuple[Any, ...]]:
    """Yield the records of one client's file; a last line that is being written is left out.

    Raises:
        ProtocolError: it is no history of the schema that this release knows.
    """
    with open(path, encoding="utf-8", errors="surrogateescape") as lines:
        first = lines.readline()
        _check_heading(first, path)
        offset = len(first.encode())
        for number, line in enumerate(lines, 2):
            if not line.endswith("\n"):
                return
            try:
                record = history.decode(line)
            except ProtocolError as error:
                raise ProtocolError(f"{path}, line {number}: {error}") from error
            yield (record.client, number, *_values(record), path, offset)
            offset += len(line.encode())


def history_file(path: str) -> tuple[Any, ...]:
    """Return the row of `files` of a history, which is read whole."""
    end = items = 0
    damage: str | None = None
    with open(path, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                text = line.decode()
                if end == 0:
                    _check_heading(text, path)
                else:
                    history.decode(text)
            except (ProtocolError, UnicodeDecodeError) as error:
                damage = str(error).removeprefix(f"{path}: ")
                break
            end, items = end + len(line), items + 1
        size = lines.seek(0, os.SEEK_END)
    torn = size - end if damage is None else 0
    return (0, "", path, 0 if damage is None else end, "history", None, size, end, items, torn, damage)


def was_history(path: str) -> bool:
    """Return whether the file continues like a history, although it does not begin like one."""
    with open(path, "rb") as lines:
        lines.readline()
        try:
            history.decode(lines.readline().decode())
        except (ProtocolError, UnicodeDecodeError):
            return False
    return True


def is_history(path: str) -> bool:
    """Return whether a file of lines of JSON begins like a history; other files have that suffix, too."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        try:
            heading = json.loads(lines.readline())
        except ValueError:
            return False
    return isinstance(heading, dict) and heading.get("record") == "history"


def _check_heading(line: str, path: str) -> None:
    try:
        schema = json.loads(line)["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"{path}: expected a heading of a history, found {line[:100]!r}") from error
    if schema != history.SCHEMA:
        raise ProtocolError(
            f"{path}: schema {schema}, expected {history.SCHEMA}: read it with the release that wrote it"
        )


def _values(record: history.Record) -> tuple[Any, ...]:
    """Return the values from `record` on to `heard_us`."""
    session, server = signed(record.session), record.server
    nothing = (None,) * 16
    match record:
        case history.Operation():
            return (
                *("operation", session, server, record.invoked_us, record.kind.value, record.path),
                *(record.returned_us, record.outcome.value, record.code, record.zxid, record.value),
                *(record.expected, record.version, record.mzxid, signed(record.owner), record.ephemeral),
                *(record.created, record.names, record.further, record.watch, None, None, None, None),
            )
        case history.Event():
            zxid = (None, None, None, record.zxid)  # returned_us, outcome, code, zxid
            return (
                *("event", session, server, record.at_us, None, record.path, *zxid),
                *(None,) * 10,
                *(record.type, None, None, None),
            )
        case history.Connected():
            return (
                *("connected", session, server, record.at_us, None, None, *nothing[:14], None),
                *(record.timeout_ms, record.resumed, None),
            )
        case history.Disconnected():
            return ("disconnected", session, server, record.at_us, None, None, *nothing[:14], *(None,) * 4)
        case history.Expired():
            return (
                *("expired", session, server, record.at_us, None, None, *nothing[:14], None),
                *(record.timeout_ms, None, record.heard_us),
            )
