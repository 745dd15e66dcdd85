"""Waiters for answers that no caller waits for, and how an answer reaches its waiter."""

from __future__ import annotations

from typing import Any, TypeVar

from zraft_client import requests
from zraft_client.calls import Answer, Call, Request
from zraft_client.errors import ClientError, FailedError, NotSentError, SessionExpiredError, WireError
from zraft_client.pacing import HostRing
from zraft_client.subscriptions import Subscriber, Subscription
from zraft_core.errors import Code, ProtocolError

T = TypeVar("T")


class Nobody:
    """Waiter for an answer that matters to nobody."""

    def done(self) -> bool:
        """Return True: nobody waits."""
        return True

    def set_result(self, result: Any) -> None:
        """Fail, since a call that nobody waits for has no result to set."""
        raise AssertionError("nobody waits")

    def set_exception(self, exception: Any) -> None:
        """Fail, since a call that nobody waits for has no exception to set."""
        raise AssertionError("nobody waits")


class SubscriptionWaiter:
    """Waiter for a server's answer to a subscription."""

    def __init__(self, client: Subscriber, subscription: Subscription[Any]) -> None:
        self._client = client
        self._subscription = subscription

    def done(self) -> bool:
        """Return False: the subscription takes the answer itself."""
        return False

    def set_result(self, _: Any) -> None:
        """Take note that the server accepted the subscription."""
        self._subscription.acknowledged()

    def set_exception(self, error: ClientError) -> None:
        """End the subscription, unless the error is one after which it can be repeated."""
        if isinstance(error, NotSentError):
            return  # the connection was lost: it is repeated on the next one
        ended = isinstance(error, SessionExpiredError)  # another session may ask, this subscription may not
        if (
            isinstance(error, FailedError)
            and not ended
            and (error.retriable or error.code is Code.CONNECTION_LOSS)
        ):
            # A server without a quorum, or one that has just started and knows no topics yet, may answer soon.
            self._client.again(self._subscription)
            return
        self._subscription.refused(error)
        self._client.forget(self._subscription)


class MembersWaiter:
    """Waiter that adds the cluster's members as further hosts."""

    def __init__(self, ring: HostRing) -> None:
        self._ring = ring

    def done(self) -> bool:
        """Return False: the answer is taken whenever it comes."""
        return False

    def set_result(self, answer: Answer) -> None:
        """Add the members' addresses to the hosts to try."""
        self._ring.learn(requests.addresses_of(answer))

    def set_exception(self, _: ClientError) -> None:
        """Keep to the given hosts."""


def conclude(call: Call, answer: Answer | None, error: ClientError | None) -> None:
    """Tell the waiter of this call, if there still is one."""
    waiter = call.waiter
    if waiter.done():
        return
    if error is None:
        waiter.set_result(answer)
    else:
        waiter.set_exception(error)


def converted(request: Request[T], answer: Answer) -> T:
    """Return what an answer says.

    Raises:
        WireError: it lacks what the protocol promises.
    """
    try:
        return request.convert(answer)
    except ProtocolError as error:
        raise WireError(f"{request.fields['type']}: an answer of a server: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"{request.fields['type']}: an answer of a server: {error!r}") from error
