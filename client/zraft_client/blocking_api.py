"""The calls of the blocking client. `make generated` makes them from `zraft_client.api`: change that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from zraft_client import requests
from zraft_client.calls import Answer, Request
from zraft_client.requests import DEFAULT, Acl, MultiPart, MultiResult
from zraft_client.values import (
    Children,
    Consistency,
    Counted,
    Created,
    ItemsPage,
    LogPage,
    Member,
    Receipt,
    Stat,
    Versioned,
    Znode,
)

T = TypeVar("T")
LINEARIZABLE = Consistency.LINEARIZABLE


class BlockingCalls(ABC):
    """Every call may raise what `zraft_client.errors` lists, and is answered or given up within its timeout."""

    @abstractmethod
    def ask(self, request: Request[T]) -> T:
        """Return the answer to any request of `zraft_client.requests`."""

    @property
    @abstractmethod
    def last_zxid(self) -> int:
        """The newest moment that any answer showed to this client."""

    # -- dictionaries

    def put(self, key: Any, value: Any, *, dictionary: str = DEFAULT, version: int | None = None) -> Receipt:
        """Set a key. `version`: -1 if it must not exist (NodeExistsError), or the one it must be of (BadVersionError)."""
        return self.ask(requests.put(dictionary, key, value, version))

    def get(
        self, key: Any, *, dictionary: str = DEFAULT, consistency: Consistency = LINEARIZABLE
    ) -> Versioned[Any] | None:
        """Return the entry of a key, None if there is none."""
        return self.ask(requests.get(dictionary, key, consistency, self.last_zxid))

    def delete(self, key: Any, *, dictionary: str = DEFAULT, version: int | None = None) -> Receipt:
        """Remove a key.

        Raises:
            NoNodeError: there is no such key; it is also a KeyError.
        """
        return self.ask(requests.delete(dictionary, key, version))

    def increment(self, key: Any, amount: int = 1, *, dictionary: str = DEFAULT) -> Counted:
        """Add to an integer; a missing one counts as 0. Refused beyond 64 bits, and if the value is no integer."""
        return self.ask(requests.increment(dictionary, key, amount))

    def snapshot(
        self, *, dictionary: str = DEFAULT, consistency: Consistency = LINEARIZABLE
    ) -> dict[Any, Any]:
        """Return the whole dictionary at one moment.

        It is refused beyond the servers' client.reply_bytes_max: use `items` then.
        """
        return self.ask(requests.state(dictionary, consistency, self.last_zxid))

    def items(
        self,
        *,
        dictionary: str = DEFAULT,
        after: Any = None,
        limit: int | None = None,
        consistency: Consistency = LINEARIZABLE,
    ) -> ItemsPage:
        """Return a page of entries; the next one begins `after` its `next`.

        Pages are of different moments.
        """
        return self.ask(requests.items(dictionary, after, limit, consistency, self.last_zxid))

    def size(self, *, dictionary: str = DEFAULT, consistency: Consistency = LINEARIZABLE) -> int:
        """Return the number of keys."""
        return self.ask(requests.size(dictionary, consistency, self.last_zxid))

    # -- znodes

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl_ms: int | None = None,
        acl: Acl | None = None,
    ) -> Created:
        """Create a znode below one that exists.

        Raises:
            NodeExistsError: the znode exists.
            NoNodeError: its parent does not exist.
        """
        return self.ask(
            requests.create(
                path,
                data,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl_ms=ttl_ms,
                acl=acl,
            )
        )

    def set(self, path: str, data: bytes, *, version: int | None = None) -> Receipt:
        """Replace a znode's data.

        Raises:
            NoNodeError: the znode does not exist.
            BadVersionError: the znode does not have `version`.
        """
        return self.ask(requests.set_data(path, data, version))

    def remove(self, path: str, *, version: int | None = None) -> Receipt:
        """Delete a znode.

        Raises:
            NoNodeError: the znode does not exist.
            BadVersionError: the znode does not have `version`.
            NotEmptyError: the znode has children.
        """
        return self.ask(requests.remove(path, version))

    def read(self, path: str, *, consistency: Consistency = LINEARIZABLE) -> Znode:
        """Return a znode's data and stat.

        Raises:
            NoNodeError: the znode does not exist.
        """
        return self.ask(requests.read(path, consistency, self.last_zxid))

    def exists(self, path: str, *, consistency: Consistency = LINEARIZABLE) -> Stat | None:
        """Return the znode's stat, or None if there is no such znode."""
        return self.ask(requests.exists(path, consistency, self.last_zxid))

    def children(self, path: str, *, consistency: Consistency = LINEARIZABLE) -> Children:
        """Return the names of a znode's children.

        Raises:
            NoNodeError: the znode does not exist.
        """
        return self.ask(requests.children(path, consistency, self.last_zxid))

    def multi(self, parts: Sequence[MultiPart]) -> tuple[MultiResult, ...]:
        """Do all of these writes in one step, or none of them.

        They are requests of `zraft_client.requests`, and `Check`s.

        Raises:
            FailedError: a write was refused; this is the error of the first one.
        """
        return self.ask(requests.multi(parts))

    # -- logs

    def log(
        self,
        directory: str,
        prefix: str,
        first: int = 0,
        *,
        limit: int | None = None,
        bytes_max: int | None = None,
        consistency: Consistency = LINEARIZABLE,
    ) -> LogPage:
        """Return a page of the sequential znodes `directory/prefix0000000000` and on, numbered from `first`.

        It may have no znodes, and a later `next`.
        """
        return self.ask(
            requests.log(
                directory,
                prefix,
                first,
                limit=limit,
                bytes_max=bytes_max,
                consistency=consistency,
                floor=self.last_zxid,
            )
        )

    def truncate(
        self, directory: str, first: int, *, origin_path: str | None = None, origin_data: bytes | None = None
    ) -> Receipt:
        """Forget a log's entries below `first`, and write the origin in the same step."""
        return self.ask(requests.truncate(directory, first, origin_path, origin_data))

    # -- the session and the cluster

    def will(self, parent: str | None, prefix: str = "", data: bytes = b"") -> None:
        """Create a sequential znode when this session ends, however it ends; None as parent cancels this."""
        self.ask(requests.will(parent, prefix, data))

    def sync(self) -> int:
        """Return a zxid that covers all that was acknowledged before; local reads see at least it from now on."""
        return self.ask(requests.sync())

    def diagnostic(self) -> dict[str, Any]:
        """Return the connected server's view of itself, with Zatt's field names."""
        return self.ask(requests.diagnostic())

    def members(self) -> tuple[Member, ...]:
        """Return the cluster's servers, as the connected one knows them."""
        return self.ask(requests.members())

    def config(self, action: str, address: str, port: int, *, server: int | None = None) -> Answer:
        """Add or delete a server of the cluster, if the servers allow it to this client (`client.reconfig_enabled`)."""
        return self.ask(requests.config(action, address, port, server))
