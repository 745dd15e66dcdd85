"""Settings with which a peer group is started, and their defaults."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen, validators

from onyxlog.replica.replica import Parameters

__all__ = ["GroupSettings"]

DIGESTS_EVERY: Final = 1_000
DIGEST_AFTER_QUIET_S: Final = 5.0
REPORT_EVERY_S: Final = 5.0
LEAVE_TIMEOUT_S: Final = 10.0


@frozen
class GroupSettings:
    """Settings of all incarnations of a group.

    `name`: what the ids of its incarnations begin with, for people. `offers`: the tags of each virtual peer.
    `join_once`: an aborted join is not tried again. `digests_every`: entries between published digests;
    `digest_after_quiet_s`: when the newest is published although fewer came. `report_every_s`: how often progress is
    reported while tasks run. `leave_timeout_s`: how long a
    stop may take before the session is simply ended.
    """

    name: str = field(default="group", validator=validators.matches_re(r"[A-Za-z0-9_.:-]{1,64}"))
    offers: tuple[tuple[str, ...], ...] = ((),)
    parameters: Parameters = field(factory=Parameters)
    join_once: bool = False
    digests_every: int = field(default=DIGESTS_EVERY, validator=validators.ge(1))
    digest_after_quiet_s: float = field(default=DIGEST_AFTER_QUIET_S, validator=validators.gt(0))
    report_every_s: float = field(default=REPORT_EVERY_S, validator=validators.gt(0))
    leave_timeout_s: float = field(default=LEAVE_TIMEOUT_S, validator=validators.gt(0))
