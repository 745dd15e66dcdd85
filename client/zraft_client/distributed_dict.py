"""`DistributedDict`: a replicated dictionary that looks like Python's, and `AbstractClient`, which it is made of. Blocking.

The calls and the constructor are those of the Zatt project's client; what they promise is more: writes happen exactly once,
reads under the default policy are linearizable, and "it failed" is told apart from "it may have happened".
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from datetime import timedelta
from time import monotonic
from typing import Any, Final, TypeVar

from zraft_client import requests
from zraft_client.blocking import BlockingClient
from zraft_client.calls import Answer, Request
from zraft_client.client import Hosts
from zraft_client.copies import DictionaryCopy, held
from zraft_client.errors import (
    BadVersionError,
    DeadlineError,
    FailedError,
    NodeExistsError,
    NoNodeError,
    StaleError,
)
from zraft_client.policies import ALWAYS, RefreshPolicy, RefreshPolicyAlways, RefreshPolicyWatch
from zraft_client.requests import DEFAULT
from zraft_client.values import ConnectionState, Counted, Receipt, Versioned
from zraft_core.errors import Code, ConfigError

T = TypeVar("T")

ITEMS_PER_PAGE: Final = 1000
TOO_LARGE: Final = Code.MARSHALLING_ERROR
_MISSING: Final = object()


class AbstractClient:
    """Zatt's primitives over one `BlockingClient`: a base for dictionaries, and for messages of one's own."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def _request(self, message: Mapping[str, Any]) -> Answer:
        """Return the answer to a message in Zatt's form; whichever server is asked, the leader carries it out.

        Raises:
            FailedError: refused.
            UnknownOutcomeError: an append without a session that may have happened.
        """
        return self._client.ask(requests.zatt(message))

    def _get_state(self) -> dict[Any, Any]:
        """Return the whole dictionary `default`."""
        return self._client.snapshot()

    def _append_log(self, payload: Mapping[str, Any]) -> Answer:
        """Append `{"action": "change", "key": …, "value": …}` or `{"action": "delete", "key": …}`.

        `success` is in the answer.
        """
        try:
            return self._request({"type": "append", "data": payload})
        except FailedError as error:
            return {"type": "result", "success": False, "error": str(error), "code": error.code.name}

    def _diagnostic(self) -> dict[str, Any]:
        return self._client.diagnostic()

    def _config_cluster(self, action: str, address: str, port: int) -> Answer:
        """Change the members; return `success`, and why not. Zatt's actions are "add" and "delete"."""
        if action not in ("add", "delete"):
            raise ConfigError(f"config_cluster: action: found {action!r}, expected 'add' or 'delete'")
        try:
            return self._client.config(action, address, port)
        except FailedError as error:
            return {"type": "result", "success": False, "error": str(error), "code": error.code.name}


class DistributedDict(AbstractClient, MutableMapping[Any, Any]):
    """A dictionary in a cluster. Keys and values are what MessagePack can hold; a changed list inside is not noticed.

    Entries have no order: not that in which they were written, and not the same one at the next look. `items` gives each key
    with its value, but `keys` and `values` are two looks, which need not belong together. Sort the keys if their order
    matters.

    Usable from several threads. `close` it, or let it go: its connection ends with it.

    Args:
        address: of any server; others are learned from it.
        port: its client port.
        append_retry_attempts: how often a write that certainly failed is tried; each try survives reconnects by itself.
        refresh_policy: when reads ask the servers; see `zraft_client.policies`.
    """

    def __init__(
        self,
        address: str,
        port: int,
        append_retry_attempts: int = 3,
        refresh_policy: RefreshPolicy = ALWAYS,
        *,
        client: BlockingClient | None = None,
        name: str = DEFAULT,
    ) -> None:
        """`client`: a connection to share, of which `address` and `port` are then not used. `name`: of the dictionary."""
        if append_retry_attempts < 1:
            raise ConfigError(f"append_retry_attempts: found {append_retry_attempts}, expected 1 or more")
        self._shared = client is not None
        super().__init__(BlockingClient([(address, port)]) if client is None else client)
        self.name = name
        self.append_retry_attempts = append_retry_attempts
        self._data: dict[Any, Any] = {}
        self._copy: DictionaryCopy | None = None
        self._stop_listening: Callable[[], None] | None = None
        self._suspended_at: float | None = None
        self.refresh_policy = refresh_policy
        try:
            if isinstance(refresh_policy, RefreshPolicyWatch):
                self._copy = self._watch()
            elif not isinstance(refresh_policy, RefreshPolicyAlways):
                self.refresh(force=True)
        except BaseException:
            self.close()
            raise

    @classmethod
    def connect(
        cls,
        hosts: Hosts,
        *,
        name: str = DEFAULT,
        append_retry_attempts: int = 3,
        refresh_policy: RefreshPolicy = ALWAYS,
        **options: Any,
    ) -> DistributedDict:
        """Return a dictionary of the cluster at `hosts`, such as "a:2181,b:2181".

        `options` are those of `BlockingClient`.
        """
        client = BlockingClient(hosts, **options)
        try:
            made = cls.over(
                client, name, append_retry_attempts=append_retry_attempts, refresh_policy=refresh_policy
            )
        except BaseException:
            client.close()
            raise
        made._shared = False
        return made

    @classmethod
    def over(
        cls,
        client: BlockingClient,
        name: str = DEFAULT,
        *,
        append_retry_attempts: int = 3,
        refresh_policy: RefreshPolicy = ALWAYS,
    ) -> DistributedDict:
        """Return a dictionary over a client that others use, too, and that stays open when this is closed."""
        return cls("", 0, append_retry_attempts, refresh_policy, client=client, name=name)

    def __enter__(self) -> DistributedDict:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the servers forget it; the entries stay."""
        copy = self._copy
        if self._shared and copy is not None and self._client.state is not ConnectionState.CLOSED:
            self._client.run_soon(lambda _: copy.close())
            if self._stop_listening is not None:
                self._stop_listening()
        if not self._shared:
            self._client.close()

    @property
    def client(self) -> BlockingClient:
        """The client under this dictionary, for calls that dictionaries do not have."""
        return self._client

    # -- Zatt's calls

    @property
    def data(self) -> dict[Any, Any]:
        """The copy as it was last fetched or pushed, without asking; empty under RefreshPolicyAlways."""
        if self._copy is not None:
            return {key: entry.value for key, entry in self._copy.entries().items()}
        return self._data

    def refresh(self, force: bool = False) -> None:
        """Fetch the dictionary, if `force` is true or the policy says so. Nothing to do for a copy that is pushed."""
        self._client.check()
        if self._copy is not None:
            self._fresh_copy()
        elif force or self.refresh_policy.can_update():
            self._data = self._fetch()
            self.refresh_policy.refreshed()

    def diagnostic(self) -> dict[str, Any]:
        """Return the connected server's view of itself: status, term, vote, log and its measures."""
        return self._diagnostic()

    def config_cluster(self, action: str, address: str, port: int) -> Answer:
        """Add or delete a server; `success` is in the answer. Servers refuse it unless `client.reconfig_enabled`."""
        return self._config_cluster(action, address, port)

    # -- reads

    @property
    def _asks(self) -> bool:
        return isinstance(self.refresh_policy, RefreshPolicyAlways)

    def __getitem__(self, key: Any) -> Any:
        hash(key)  # a TypeError for what no dictionary has as a key
        if self._copy is not None:
            entry = self._fresh_copy().get(key)
        elif self._asks:
            entry = self._client.get(key, dictionary=self.name)
        else:
            self.refresh()
            return self._data[key]
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __len__(self) -> int:
        if self._copy is not None:
            return len(self._fresh_copy())
        if self._asks:
            return self._client.size(dictionary=self.name)
        self.refresh()
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def keys(self) -> KeysView[Any]:
        """Return a view of the keys of one moment; it does not follow later changes."""
        return self.copy().keys()

    def values(self) -> ValuesView[Any]:
        """Return a view of the values of one moment; it does not follow later changes."""
        return self.copy().values()

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the items of one moment; it does not follow later changes."""
        return self.copy().items()

    def copy(self) -> dict[Any, Any]:
        """Return a plain dictionary: of one moment, unless it is too large for one answer of a server. It has no order."""
        if self._copy is not None:
            return {key: entry.value for key, entry in self._fresh_copy().entries().items()}
        if self._asks:
            return self._fetch()
        self.refresh()
        return dict(self._data)

    def __repr__(self) -> str:
        return repr(self.copy())

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return self.copy() | dict(other)

    def __ior__(self, other: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> DistributedDict:
        self.update(other)
        return self

    def get_versioned(self, key: Any) -> Versioned[Any] | None:
        """Return the entry with its version, for `replace`; always linearizable, whatever the policy.

        None if there is none.
        """
        return self._client.get(key, dictionary=self.name)

    # -- writes

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.delete(key)

    def put(self, key: Any, value: Any) -> Receipt:
        """Set a key's value like `[key] = value`, and return its receipt.

        The receipt's `position` is a fencing token.
        """
        return self._put(key, value, None)

    def put_if_absent(self, key: Any, value: Any) -> Receipt:
        """Set a key's value, but only if the key has none.

        Raises:
            NodeExistsError: the key has a value.
        """
        return self._put(key, value, -1)

    def replace(self, key: Any, value: Any, version: int) -> Receipt:
        """Compare and set: set the key's value only if its version is still `version`.

        Raises:
            BadVersionError: the entry was changed meanwhile.
            NoNodeError: there is no such key.
        """
        return self._put(key, value, version)

    def delete(self, key: Any, *, version: int | None = None) -> Receipt:
        """Remove a key like `del [key]`, and return its receipt.

        Raises:
            KeyError: there is no such key.
            BadVersionError: `version` is given, and the entry has another one.
        """
        hash(key)
        try:
            receipt = self._attempt(requests.delete(self.name, key, version))
        except NoNodeError:
            self._data.pop(key, None)
            raise KeyError(key) from None
        self._data.pop(key, None)
        if self._copy is not None:
            self._copy.wrote(key, None, receipt)
        return receipt

    def increment(self, key: Any, amount: int = 1) -> Counted:
        """Add to an integer, exactly once; a missing key counts as 0."""
        hash(key)
        counted = self._attempt(requests.increment(self.name, key, amount))
        receipt = Receipt(counted.zxid, counted.position, counted.version, counted.mzxid)
        self._wrote(key, counted.value, receipt)
        return counted

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value there is, or `default`, which is there then: one of the two, whoever else asks."""
        end = monotonic() + self._client.timeout_s
        while True:
            found = self.get_versioned(key)
            if found is not None:
                return found.value
            try:
                self.put_if_absent(key, default)
            except NodeExistsError:
                self._again(f"setdefault of {key!r}", end)
            else:
                return default

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Remove an entry and return its value: nobody else is given the same one.

        Raises:
            KeyError: there is no such key and no default.
            DeadlineError: others changed the entry each time, until the client's timeout.
        """
        end = monotonic() + self._client.timeout_s
        while True:
            found = self.get_versioned(key)
            if found is None:
                if default is _MISSING:
                    raise KeyError(key)
                return default
            try:
                self.delete(key, version=found.version)
            except (BadVersionError, KeyError):
                self._again(f"pop of {key!r}", end)
            else:
                return found.value

    def _again(self, what: str, end: float) -> None:
        if monotonic() >= end:
            raise DeadlineError(
                f"{what}: other clients changed the entry each time, for {self._client.timeout_s:g} s"
            )

    def popitem(self) -> tuple[Any, Any]:
        """Remove some entry, and return its key and value: not the newest one, since entries have no order.

        Raises:
            KeyError: the dictionary is empty.
        """
        for key in self._fetch():
            value = self.pop(key, _MISSING)
            if value is not _MISSING:
                return key, value
        raise KeyError("popitem(): dictionary is empty")

    def clear(self) -> None:
        """Remove what is there now, key by key; what others add meanwhile stays."""
        for key in self._fetch():
            self.pop(key, None)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set all of these, in order, over one connection at once; not as one step (use `client.multi` for that)."""
        wanted = dict(other, **more)
        receipts = self._client.ask_all(
            [requests.put(self.name, key, value) for key, value in wanted.items()]
        )
        for (key, value), receipt in zip(wanted.items(), receipts, strict=True):
            self._wrote(key, value, receipt)

    def _put(self, key: Any, value: Any, version: int | None) -> Receipt:
        hash(key)
        receipt = self._attempt(requests.put(self.name, key, value, version))
        self._wrote(key, value, receipt)
        return receipt

    def _wrote(self, key: Any, value: Any, receipt: Receipt) -> None:
        """Read your own writes, whatever the policy."""
        if self._copy is not None:
            self._copy.wrote(key, value, receipt)
        elif not self._asks:
            self._data[key] = value

    def _attempt(self, request: Request[T]) -> T:
        end = monotonic() + self._client.timeout_s
        for attempt in range(1, self.append_retry_attempts + 1):
            try:
                return self._client.ask(request)
            except FailedError as error:
                # a call that took its whole deadline was tried often enough
                if not error.retriable or attempt == self.append_retry_attempts or monotonic() >= end:
                    raise
        raise AssertionError("the last attempt returns or raises")

    # -- fetching and watching

    def _get_state(self) -> dict[Any, Any]:
        return self._fetch()

    def _fetch(self) -> dict[Any, Any]:
        """Return all entries: in one answer, of one moment, or, if they are too many for it, page by page."""
        try:
            return self._client.snapshot(dictionary=self.name)
        except FailedError as error:
            if error.code is not TOO_LARGE:
                raise
        found: list[tuple[Any, Any]] = []
        after: Any = None
        while True:
            page = self._client.items(dictionary=self.name, after=after, limit=ITEMS_PER_PAGE)
            found += [(key, entry.value) for key, entry in page.items]
            if page.next is None:
                return held(found, self.name)
            after = page.next

    def _watch(self) -> DictionaryCopy:
        timeout_s = self._client.timeout_s
        copy = self._client.run_soon(lambda client: client.subscribe(DictionaryCopy(client, self.name)))
        self._stop_listening = self._client.add_listener(self._heard)
        if not copy.complete.wait(timeout_s):
            raise DeadlineError(
                f"dictionary {self.name!r}: no state within {timeout_s:g} s; {copy.error or 'no server'}"
            )
        return copy

    def _heard(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            self._suspended_at = None
        elif self._suspended_at is None:
            self._suspended_at = monotonic()

    def _fresh_copy(self) -> DictionaryCopy:
        """Return the pushed copy, if the policy still believes it."""
        copy = self._copy
        assert copy is not None
        self._client.check()
        if copy.error is not None:
            raise copy.error
        policy, since = self.refresh_policy, self._suspended_at
        if since is not None and isinstance(policy, RefreshPolicyWatch) and policy.max_stale is not None:
            age = timedelta(seconds=monotonic() - since)
            if age > policy.max_stale:
                raise StaleError(
                    f"dictionary {self.name!r}: no server was heard for {age.total_seconds():.1f} s, more than the "
                    f"policy's max_stale of {policy.max_stale.total_seconds():g} s"
                )
        return copy
