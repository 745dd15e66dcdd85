"""Typed values from their plain forms (`onyxlog.replica.canonical`), with errors that say where.

What may stand in a place is read from the annotations of the frozen classes, so that a new field cannot be
forgotten here. A field at the end that has a default may be absent: an older writer of an entry did not know it (an
origin that lacks one is refused later, by its digest). A field too many is an error: a newer writer meant something by
it that must not be passed over.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from onyxlog.errors import EntryError
from onyxlog.replica.table import Table
from zraft_core.annotated import Annotated
from zraft_core.errors import ProtocolError
from zraft_core.layout import NUMBER_MAX, Form, binary, boolean, integer, listed, row, string
from zraft_core.layout import wrong as wrong_field

T = TypeVar("T")


def wrong(where: str, expected: str, found: Any) -> EntryError:
    """Return the error for a place in the log that holds something else than it should."""
    return EntryError(str(wrong_field(where, expected, found)))


def read(kind: type[T], found: Any, where: str) -> T:
    """Return the value of type `kind` whose plain form this is.

    Raises:
        EntryError: it is none; says where, what was expected and what was found.
        TypeError: the type has no plain form: a mistake in the class that uses it.
    """
    try:
        value: T = _FORMS.form(cast(Any, kind)).unpack(found, where)
    except ProtocolError as error:
        raise EntryError(str(error)) from error
    return value


def _table(key: Form, value: Form) -> Form:
    items = listed(row(key, value), NUMBER_MAX)

    def unpack(found: Any, name: str) -> Table[Any, Any]:
        pairs = items.unpack(found, name)
        for (before, _), (after, _) in pairwise(pairs):
            if not before < after:
                raise wrong_field(name, f"a key after {before!r}: each once, in order", after)
        return Table(pairs)

    return Form(unpack)


_FORMS: Final = Annotated(
    {
        str: string(0, NUMBER_MAX),
        bytes: binary(0, NUMBER_MAX),
        bool: boolean,
        int: integer(-(2**63), 2**64 - 1),
    },
    items_max=NUMBER_MAX,
    older=True,
    others={Table: _table},
)
