"""Pushes of a producer's stream to native clients: outcomes of messages, and groups that refused some.

Servers pack it by hand (`topic_answers`) and clients read it by hand (`zraft_client.topics.requests`), since there
is a row for every message that is produced. The declaration says what is wrong with a push that is not well-formed.

Source: docs/reference/protocol-native.md, "Producing"; its table of pushed messages comes from here.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from zraft_core.layout import Form, Record, array, boolean, from_one, integer, listed, number, optional, row
from zraft_core.topics.messages import Answer
from zraft_core.wire.native.results import MANY
from zraft_core.wire.native.topic_results import REFUSED, ReplicaRefusal

ANSWERS: Final = tuple(Answer)
"""An answer's place here is its number on the wire."""


@frozen
class RepliesPush:
    """Outcomes of messages, and the groups that took nothing.

    Each of `replies` is (number of the message, group, number of the answer, everywhere, offset or None, epoch, epoch of
    the group's view); with `times` also the time up to which the group has delivered.
    """

    replies: tuple[tuple[Any, ...], ...]
    refused: tuple[ReplicaRefusal, ...]


_COLUMNS: Final = (
    *(number, from_one, integer(0, len(ANSWERS) - 1), boolean, optional(number)),
    *(number, number),
)
_reply: Final = row(*_COLUMNS)
_timed_reply: Final = row(*_COLUMNS, number)


def _any_reply(value: Any, name: str) -> Any:
    timed = len(array(value, name)) > len(_COLUMNS)
    return (_timed_reply if timed else _reply).unpack(value, name)


REPLIES: Final = Record(
    RepliesPush,
    listed(
        Form(
            _any_reply,
            same=True,
            expected="[number of the message, group, answer, everywhere, offset, epoch, epoch of the group's view, and "
            "with `times` the time up to which the group has delivered]",
        ),
        MANY,
    ),
    listed(REFUSED.form, MANY),
)
