"""Native requests about subscriptions to dictionaries, logs and paths.

Source: docs/reference/protocol-native.md, "Subscriptions".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.layout import Field, Fields, any_string, boolean, integer, number
from zraft_core.wire.dictionary import directory_of
from zraft_core.wire.native import fields
from zraft_core.wire.native.fields import ID, ID_MAX, request


@frozen
class SubscribeDictionary:
    """Changes of a dictionary's entries, pushed as far as `credit` bytes go."""

    id: int
    directory: str
    credit: int


@frozen
class SubscribeLog:
    """Entries of a log from number `first` on, pushed as far as `credit` bytes go."""

    id: int
    directory: str
    prefix: str
    first: int
    credit: int


@frozen
class SubscribePath:
    """Events of a znode, and with `recursive` of all below it."""

    id: int
    path: str
    recursive: bool = False


@frozen
class Credit:
    """More bytes for a subscription; not answered."""

    subscription: int
    bytes: int


@frozen
class Unsubscribe:
    """End a subscription."""

    id: int
    subscription: int


Subscribe = SubscribeDictionary | SubscribeLog | SubscribePath


def _subscribe_dictionary(id: int, dictionary: str, credit: int) -> SubscribeDictionary:
    return SubscribeDictionary(id, directory_of(dictionary), credit)


def _subscribe_log(id: int, log: str, credit: int, prefix: str = "", first: int = 0) -> SubscribeLog:
    return SubscribeLog(id, log, prefix, first, credit)


SUBSCRIBE: Final[dict[str, Fields[Subscribe]]] = {
    "dictionary": request("subscribe", _subscribe_dictionary, dictionary=any_string, credit=fields.credit),
    "log": request(
        "subscribe", _subscribe_log, log=any_string, credit=fields.credit, prefix=any_string, first=number
    ),
    "path": request("subscribe", SubscribePath, path=any_string, recursive=boolean),
}
"""By the field that says what is subscribed to."""

REQUESTS: Final[tuple[Fields[Credit | Unsubscribe], ...]] = (
    request("unsubscribe", Unsubscribe, subscription=integer(0, ID_MAX)),
    Fields("credit", Credit, {"id": Field(ID), "bytes": Field(fields.credit)}, skips="type"),
)
