"""Messages that subscriptions to dictionaries, logs and paths push to native clients, by their type.

Changes are packed by hand on the server (`answers`), from entries that are stored in this form.

Source: docs/reference/protocol-native.md, "Subscriptions"; its table of pushed messages comes from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from zraft_core.layout import (
    NUMBER_MAX,
    Form,
    Record,
    any_string,
    boolean,
    choice,
    listed,
    number,
    wrong,
)
from zraft_core.wire.native.results import MANY, id_of_request, log_entries, version
from zraft_core.znodes.stat import INT32_MAX

EVENT_KINDS: Final = {1: "created", 2: "deleted", 3: "changed", 4: "children"}


@frozen
class AnyPush:
    """Fields of every pushed message beside its type: the id of the subscription, and the zxid of what it shows."""

    id: int
    zxid: int


@frozen
class ChangesPush:
    """Entries of a dictionary as they are now, each (key, value, version, mzxid), or (key,) if it is gone.

    `initial`: they are of the state with which the subscription began, of which the last part is `complete`.
    """

    initial: bool
    complete: bool
    changes: tuple[tuple[Any, ...], ...]


@frozen
class EntriesPush:
    """Entries of a log in their order, each (number, data, zxid); the next push begins at `next`.

    `first` is where the log begins.
    """

    entries: tuple[tuple[int, bytes | None, int], ...]
    next: int
    first: int


@frozen
class EventPush:
    """Event of a znode: `kind` is created, deleted, changed or children."""

    kind: str
    path: str


_CHANGE: Final = "[key, value, version, mzxid], or [key] if it is gone"


def _change(value: Any, name: str) -> tuple[Any, ...]:
    """Read a row at once, since there are many; what is wrong in it is looked for only then."""
    if type(value) is tuple:
        if len(value) == 1:
            return value
        if len(value) == 4:
            its_version, mzxid = value[2:]
            if (
                type(its_version) is type(mzxid) is int
                and -1 <= its_version <= INT32_MAX
                and 0 <= mzxid <= NUMBER_MAX
            ):
                return value
            version.unpack(its_version, f"{name}.version")
            number.unpack(mzxid, f"{name}.mzxid")
    raise wrong(name, _CHANGE, value)


OF_PUSHED: Final = Record(AnyPush, id_of_request, number)
CHANGES: Final = Record(
    ChangesPush, boolean, boolean, listed(Form(_change, same=True, expected=_CHANGE), MANY)
)
ENTRIES: Final = Record(EntriesPush, log_entries, number, number)
EVENT: Final = Record(EventPush, choice(*EVENT_KINDS.values()), any_string)
PUSHED: Final[Mapping[str, Record[Any]]] = {"changes": CHANGES, "entries": ENTRIES, "event": EVENT}
"""Their own fields, beside those of every pushed message."""
