"""Options of a consumer, with Marshal's names. Times are in milliseconds.

`BrokerConnectionLimit` belongs to the connection behind the port; `ConsumeRequestTimeout` and
`MarshalRequestTimeout` are one here, `request_timeout_ms`.
"""

from __future__ import annotations

from attrs import field, frozen

from zraft_core.claims.values import (
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    RANGE_MESSAGES_MAX,
    Mode,
)
from zraft_core.errors import ConfigError


@frozen(kw_only=True)
class ConsumerOptions:
    """Settings of how a consumer claims and consumes.

    Raises:
        ConfigError: a value is out of its bounds; the message names the option.
    """

    mode: Mode = Mode.AT_LEAST_ONCE
    """At least once, or at most once; all consumers of a group should agree."""
    heartbeat_ms: int = field(default=HEARTBEAT_MS_DEFAULT)
    """The heartbeat interval; an owner sends several heartbeats in each.

    An owner that was not heard for one interval stops processing; one that was not heard for two is replaced.
    """
    fast_reclaim: bool = True
    """`FastReclaim`: take back at once what this client id had claimed before it was restarted."""
    claim_entire_topic: bool = False
    """`ClaimEntireTopic`: the owner of partition 0 claims all the others; no other consumer gets any."""
    greedy_claims: bool = False
    """`GreedyClaims`: claim all that is free at once instead of one partition at a time."""
    release_claims_if_behind: bool = True
    """`ReleaseClaimsIfBehind`: release a claim that falls behind for three heartbeats, for a faster consumer."""
    maximum_claims: int = field(default=0)
    """`MaximumClaims`: own at most so many claims, ranges without messages not counted; 0 means no limit."""
    range_messages: int = field(default=0)
    """Above 0: claim ranges of so many messages instead of whole partitions, so that several consumers share one."""
    ranges_ahead: int = field(default=1)
    """The number of further ranges to claim in advance, with `range_messages`, also of future messages."""
    start_at_latest: bool = False
    """True if a group that is new to a partition begins at its end instead of at its earliest message."""
    queue_max: int = field(default=1_000)
    """`MaxMessageQueue`: the most messages of one claim that are fetched and not yet committed."""
    message_bytes_max: int = field(default=2_000_000)
    """`MaxMessageSize`: bytes asked for at once; a larger single message still comes."""
    batch_messages: int = field(default=100)
    """At most once: messages claimed at a time. At most so many are lost with a consumer, besides those in its queue.
    """
    request_timeout_ms: int = field(default=5_000)
    """`MarshalRequestTimeout`; for a command under a claim never more than a quarter of its interval."""
    request_retry_wait_ms: int = field(default=500)
    """`MarshalRequestRetryWait`."""
    claim_interval_ms: int = field(default=3_000)
    """The longest wait between two rounds of claiming; each is drawn between 0 and this."""
    poll_ms: int = field(default=100)
    """The time to wait after a fetch that brought nothing."""

    @heartbeat_ms.validator
    def _check_heartbeat_ms(self, _: object, value: int) -> None:
        _within("heartbeat_ms", value, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX)

    @maximum_claims.validator
    def _check_maximum_claims(self, _: object, value: int) -> None:
        _within("maximum_claims", value, 0, 100_000)

    @range_messages.validator
    def _check_range_messages(self, _: object, value: int) -> None:
        _within("range_messages", value, 0, RANGE_MESSAGES_MAX)
        if value and self.claim_entire_topic:
            raise ConfigError(
                "claim_entire_topic: a topic is not claimed entirely by ranges; leave range_messages at 0"
            )

    @ranges_ahead.validator
    def _check_ranges_ahead(self, _: object, value: int) -> None:
        _within("ranges_ahead", value, 0, 16)

    @queue_max.validator
    def _check_queue_max(self, _: object, value: int) -> None:
        _within("queue_max", value, 1, 1_000_000)

    @message_bytes_max.validator
    def _check_message_bytes_max(self, _: object, value: int) -> None:
        _within("message_bytes_max", value, 1, 1 << 30)

    @batch_messages.validator
    def _check_batch_messages(self, _: object, value: int) -> None:
        _within("batch_messages", value, 1, 100_000)

    @request_timeout_ms.validator
    def _check_request_timeout_ms(self, _: object, value: int) -> None:
        _within("request_timeout_ms", value, 1, 600_000)

    @request_retry_wait_ms.validator
    def _check_request_retry_wait_ms(self, _: object, value: int) -> None:
        _within("request_retry_wait_ms", value, 1, 600_000)

    @claim_interval_ms.validator
    def _check_claim_interval_ms(self, _: object, value: int) -> None:
        _within("claim_interval_ms", value, 1, 600_000)

    @poll_ms.validator
    def _check_poll_ms(self, _: object, value: int) -> None:
        _within("poll_ms", value, 1, 600_000)


def _within(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(f"{name}: found {value!r}, expected a whole number from {least} to {most}")
