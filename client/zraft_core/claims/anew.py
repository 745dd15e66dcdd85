"""The claims with which a copy of a partition begins in another cluster: what was consumed stays so, and nobody owns it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zraft_core.claims.answers import ClaimsView
from zraft_core.claims.group import Group
from zraft_core.claims.progress import Progress
from zraft_core.claims.state import Claims
from zraft_core.claims.values import HEARTBEAT_MS_DEFAULT

POSITIONS_SKIPPED: Final = 1 << 40
"""By so many positions the copy's log begins above what is known of the old one: epochs of claims are positions, and an
owner of the old cluster must not be taken for one of the new.
"""


def claims_anew(views: Iterable[ClaimsView], end: int) -> Claims:
    """Return the claims of a copy that ends at offset `end`; live claims end, and what is beyond the end is forgotten.

    `views` are those of all groups that consume the partition.
    """
    found = list(views)
    return Claims(
        found[0].heartbeat_ms if found else HEARTBEAT_MS_DEFAULT,
        position=max((view.position for view in found), default=0) + POSITIONS_SKIPPED,
        log_time_ms=max((view.log_time_ms for view in found), default=0),
        groups=[_group(view, end) for view in found],
    )


def _group(view: ClaimsView, end: int) -> Group:
    done = Progress(view.floor, view.islands).after_all(
        (claim.first, claim.position) for claim in view.claims if claim.position > claim.first
    )
    islands = tuple((first, min(upto, end)) for first, upto in done.islands if first < end)
    return Group(
        view.group,
        Progress(min(done.floor, end), islands),
        last_epoch=view.last_epoch,
        unconfirmed=view.unconfirmed,
        paused_until_ms=view.paused_until_ms,
        paused_at=view.paused_at,
    )
