"""Commands on a partition's claims.

What an owner sends carries its claim's epoch; any other epoch is refused.

`Expire` is the leader's own: it decides nothing, because applying it looks at the state again. A leader need not
take it from clients.
"""

from __future__ import annotations

from attrs import frozen

from zraft_core.claims.progress import Range
from zraft_core.claims.values import Mode


@frozen
class ClaimPartition:
    """Claim the partition from where its group stands (M-5).

    `after` is the epoch of the group's last claim as the sender saw it, 0 if there was none: the command counts only
    if no claim was granted since, so a late or repeated copy claims nothing. If that claim is live it must be of the
    same client: a restarted process takes over at once (M-6). `start` is where a group begins that is new here.
    `heartbeat_ms` is the interval that the owner chooses for its claim, 0 for the partition's own.
    """

    group: str
    client: str
    instance: str
    attempt: int
    after: int
    mode: Mode
    start: int = 0
    entire_topic: bool = False
    heartbeat_ms: int = 0


@frozen
class ClaimMessages:
    """Claim [first, upto), which may not be there yet, while others have other ranges (M-9).

    Counts only if nobody has or had any of it, and no claim of the group ended unfinished since `seen`, the position of
    the view in which it was free: a late copy does not claim what the first one was granted and gave back. With `after`
    above 0 it takes over the live claim of that epoch and that range, of the same client. `start` and `heartbeat_ms` as
    in `ClaimPartition`.
    """

    group: str
    client: str
    instance: str
    attempt: int
    after: int
    mode: Mode
    first: int
    upto: int
    seen: int
    start: int = 0
    heartbeat_ms: int = 0


@frozen
class Heartbeat:
    """The owner lives, and everything below `committed` is processed. Only a higher `beat` makes the claim fresh."""

    group: str
    epoch: int
    beat: int
    committed: int


@frozen
class Commit:
    """Command that tells that everything below `committed` is processed."""

    group: str
    epoch: int
    committed: int


@frozen
class CommitRanges:
    """Command that tells that everything below `committed` is processed, and each of `ranges` above it.

    Such commits came out of order.
    """

    group: str
    epoch: int
    committed: int
    ranges: tuple[Range, ...]


@frozen
class CommitBatch:
    """Command for at most once: from now on, only this owner may process the messages below `upto`."""

    group: str
    epoch: int
    upto: int


@frozen
class Release:
    """The owner gives the claim up; everything below `committed` is processed."""

    group: str
    epoch: int
    committed: int


@frozen
class Expire:
    """The leader found the claim stale, with `heard_ms` in its record."""

    group: str
    epoch: int
    heard_ms: int


@frozen
class Pause:
    """Command that pauses a group: nobody may claim while log time is below `until_ms`.

    Owners are told to release.

    `after` is `View.paused_at`: a late copy changes nothing. `until_ms` 0 ends a pause.
    """

    group: str
    until_ms: int
    after: int


@frozen
class Forget:
    """Remove a group that has no claim, with its offsets; `after` as in `ClaimPartition`."""

    group: str
    after: int


@frozen
class Configure:
    """The interval of claims granted from now on whose owners choose none; a live claim keeps its own."""

    heartbeat_ms: int


ClaimCommand = (
    ClaimPartition
    | ClaimMessages
    | Heartbeat
    | Commit
    | CommitRanges
    | CommitBatch
    | Release
    | Expire
    | Pause
    | Forget
    | Configure
)
