"""The asyncio client's subscriptions, beside its calls. `Client` says how they travel."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from zraft_client.api import AsyncCalls
from zraft_client.requests import DEFAULT
from zraft_client.subscriptions import (
    CREDIT_BYTES,
    DictionarySubscription,
    LogSubscription,
    PathSubscription,
    Subscriber,
    Subscription,
)

S = TypeVar("S", bound=Subscription[Any])


class SubscribingCalls(AsyncCalls, Subscriber):
    """Calls, and subscriptions that survive reconnects."""

    @property
    @abstractmethod
    def timeout_s(self) -> float:
        """The time that a call may take, in seconds."""

    @abstractmethod
    def subscribe(self, subscription: S) -> S:
        """Begin any subscription; it is repeated on every connection.

        Raises:
            ClosedError: the client was closed.
        """

    def subscribe_dictionary(
        self, dictionary: str = DEFAULT, *, credit: int = CREDIT_BYTES
    ) -> DictionarySubscription:
        """Follow a dictionary: first all of it, then every change. `credit` bytes may wait to be read."""
        return self.subscribe(DictionarySubscription(self, dictionary, credit))

    def subscribe_log(
        self, directory: str, prefix: str, first: int = 0, *, credit: int = CREDIT_BYTES
    ) -> LogSubscription:
        """Follow a log: its entries from number `first` on, then every new one."""
        return self.subscribe(LogSubscription(self, directory, prefix, first, credit))

    def subscribe_path(self, path: str, *, recursive: bool = False) -> PathSubscription:
        """Follow what happens to a znode, or also to all below it, until the subscription is closed."""
        return self.subscribe(PathSubscription(self, path, recursive))
