"""Answers of a partition's state: verdicts, results of a batch, and the settings and errors of applying one."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from zraft.topics.pending import PendingMessage
from zraft_core.errors import ZraftError
from zraft_core.topics.commands import PartitionCommand
from zraft_core.topics.message import Delivery
from zraft_core.topics.stamps import MessageId


class BrokenGroupError(ZraftError):
    """Error of a group that contradicts what was agreed on: some group lost a part of its log.

    To continue would put messages out of order.
    """


class StartVerdict(Enum):
    """Verdicts on a START that comes from its producer; only ADMIT leaves a trace."""

    ADMIT = "admit"
    KNOWN = "known"
    EXPIRED = "expired"
    """The producer is closed."""
    STALE = "stale"
    """Its table of groups is older than a deletion, or names a group that is none."""
    RETRY = "retry"
    """The message has to wait: something has to come before it."""


@frozen
class Applied:
    """Results of one batch.

    They are what was begun, fixed in time, delivered in order, found void, and found delivered
    everywhere.

    `staged`: what is durable now and in no order. `released`: rounds, each with the offset of the first of its messages.
    """

    commands: tuple[PartitionCommand, ...]
    begun: tuple[PendingMessage, ...]
    fixed: tuple[PendingMessage, ...]
    delivered: tuple[Delivery, ...]
    failed: tuple[MessageId, ...]
    everywhere: tuple[MessageId, ...]
    staged: tuple[MessageId, ...] = ()
    released: tuple[tuple[MessageId, int], ...] = ()
