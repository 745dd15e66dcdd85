"""Native requests about dictionaries: the commands that change entries, and what is read of them.

Source: docs/reference/protocol-native.md, "Writes" and "Reads".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from zraft_core.errors import MarshallingError
from zraft_core.layout import Fields, Form, any_string, choice, integer, optional, parameters
from zraft_core.wire.dictionary import (
    DEFAULT,
    directory_of,
    entry_name,
    entry_of,
    entry_with,
)
from zraft_core.wire.native import fields
from zraft_core.wire.native.fields import ABSENT, expected_version, int64, part
from zraft_core.znodes.stat import INT32_MAX
from zraft_core.znodes.txn import ADD, DELETE, PUT, Command

ITEMS_LIMIT: Final = 1_000
ITEMS_LIMIT_MAX: Final = 10_000


@frozen
class GetEntry:
    """One entry of a dictionary."""

    directory: str
    name: str


@frozen
class GetState:
    """All entries of a dictionary in one map."""

    directory: str


@frozen
class GetItems:
    """Some entries, from behind a cursor."""

    directory: str
    after: str
    limit: int


@frozen
class GetSize:
    """Ask how many entries a dictionary has."""

    directory: str


DictionaryQuery = GetEntry | GetState | GetItems | GetSize


# -- commands


def _put(key: Any, value: Any, dictionary: str = DEFAULT, version: int | None = None) -> Command:
    name, data = entry_with(key, value)
    return PUT, f"{directory_of(dictionary)}/{name}", data, version


def _delete(key: Any, dictionary: str = DEFAULT, version: int | None = None) -> Command:
    return DELETE, f"{directory_of(dictionary)}/{entry_name(key)}", -1 if version is None else version


def _increment(key: Any, dictionary: str = DEFAULT, amount: int = 1) -> Command:
    name, head = entry_of(key)
    return ADD, f"{directory_of(dictionary)}/{name}", head, amount


def _change(action: str, key: Any, value: Any = ABSENT) -> Command:
    """Zatt's `append`: change or delete a key."""
    if action == "delete":
        return _delete(key)
    if value is ABSENT:
        raise MarshallingError("append: data: found no value, expected one for action change")
    return _put(key, value)


PARTS: Final[tuple[Fields[Command], ...]] = (
    part(
        "put",
        _put,
        key=fields.key,
        value=fields.value,
        dictionary=any_string,
        version=optional(integer(-1, INT32_MAX)),
    ),
    part("delete", _delete, key=fields.key, dictionary=any_string, version=expected_version),
    part("increment", _increment, key=fields.key, dictionary=any_string, amount=int64),
)
"""Writes that may also be operations of a multi."""

_zatts_change: Final = Fields(
    "append.data",
    _change,
    parameters(_change, action=choice("change", "delete"), key=fields.key, value=fields.value),
    ignores=True,
)

WRITES: Final[tuple[Fields[Command], ...]] = (
    *PARTS,
    Fields.of(
        "append",
        lambda data: data,
        data=Form(_zatts_change.unpack, expected="a map of action, key and value"),
    ),
)
"""Their own fields; those of any write are beside them."""


# -- reads


def _get(key: Any = ABSENT, dictionary: str = DEFAULT) -> DictionaryQuery:
    directory = directory_of(dictionary)
    return GetState(directory) if key is ABSENT else GetEntry(directory, entry_name(key))


def _items(dictionary: str = DEFAULT, after: str | None = None, limit: int = ITEMS_LIMIT) -> DictionaryQuery:
    return GetItems(directory_of(dictionary), after or "", limit)


def _size(dictionary: str = DEFAULT) -> DictionaryQuery:
    return GetSize(directory_of(dictionary))


READS: Final[tuple[Fields[DictionaryQuery], ...]] = (
    Fields.of("get", _get, key=fields.key, dictionary=any_string),
    Fields.of(
        "items",
        _items,
        dictionary=any_string,
        after=optional(any_string),
        limit=integer(1, ITEMS_LIMIT_MAX),
    ),
    Fields.of("size", _size, dictionary=any_string),
)
"""Their own fields; those of any read are beside them."""
