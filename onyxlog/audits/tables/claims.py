"""Table `claims`: the commands about claims in partitions' logs, one row each."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed, Standing
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class ClaimRow(Placed):
    """One command about claims; who owns what follows from all of them in order of `position`.

    Source: docs/explanation/claims.md, "Bytes".

    Attributes:
        kind: `claim_partition`, `claim_messages`, `heartbeat`, `commit`, `commit_ranges`, `commit_batch`, `release`,
            `expire`, `pause`, `forget` or `configure`.
        end: the partition's end at this position, None if the log does not tell.
        consumer_group, client, process: who; `process` is the instance of the client.
        mode: 0 at least once, 1 at most once.
        epoch: of the claim that is meant; a granted claim's is its own `position`.
        upto: exclusive end of a range, or of what `commit_batch` claims.
        ranges: of `commit_ranges`, the first offset and the exclusive end of each, one after the other.
        heartbeat_ms: of `configure`, and what the owner chooses, 0 if nothing.
    """

    group: int
    index: int
    term: int
    position: int
    standing: str = Standing.COMMITTED.value
    log_time_ms: int
    end: int | None = None
    kind: str
    consumer_group: str | None = None
    client: str | None = None
    process: str | None = None
    attempt: int | None = None
    after: int | None = None
    mode: int | None = None
    start: int | None = None
    entire_topic: bool | None = None
    first: int | None = None
    upto: int | None = None
    seen: int | None = None
    epoch: int | None = None
    beat: int | None = None
    committed: int | None = None
    heard_ms: int | None = None
    until_ms: int | None = None
    heartbeat_ms: int | None = None
    ranges: tuple[int, ...] | None = None


CLAIMS: Final = Table(
    "claims",
    ClaimRow,
    "commands about claims of consumers",
    comes_from="servers with a topic whose partitions consumers have claimed",
)
