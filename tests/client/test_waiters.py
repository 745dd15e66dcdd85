"""What becomes of a subscription that a server refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from zraft_client.errors import ClientError, FailedError, NotSentError, SessionExpiredError
from zraft_client.waiters import SubscriptionWaiter
from zraft_core.errors import Code


class Asked:
    """A client and a subscription in one: writes down what is done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def again(self, subscription: Any) -> None:
        self.done.append("again")

    def forget(self, subscription: Any) -> None:
        self.done.append("forgotten")

    def refused(self, error: ClientError) -> None:
        self.done.append("refused")


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (FailedError("no quorum", Code.CONNECTION_LOSS), ["again"]),
        (FailedError("this server has no topics yet", Code.UNIMPLEMENTED, retriable=True), ["again"]),
        (FailedError("an old release", Code.UNIMPLEMENTED), ["refused", "forgotten"]),
        (FailedError("no such directory", Code.NO_NODE), ["refused", "forgotten"]),
        (
            SessionExpiredError("no such session", Code.SESSION_EXPIRED, retriable=True),
            ["refused", "forgotten"],
        ),
        (NotSentError("the connection was lost"), []),
    ],
)
def test_a_subscription_is_asked_again_if_that_can_help(error: ClientError, done: list[str]) -> None:
    """A producer's stream once ended with the words of a server that had just been restarted."""
    asked = Asked()
    SubscriptionWaiter(cast("Any", asked), cast("Any", asked)).set_exception(error)
    assert asked.done == done
