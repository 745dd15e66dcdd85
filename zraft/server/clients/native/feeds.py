"""Subscriptions of native clients: what changed since it was last told them, pushed as far as their credit goes.

A subscription to a dictionary keeps the names of the keys that changed, never the changes: a key that changes a
thousand times while the client is slow is told once, as it is then, and memory is bounded by the dictionary's keys. A
subscription to a log keeps a number. Everything on a connection leaves in zxid order: what is pending is pushed before
an answer, so that no client reads a change that was not pushed to it, as long as its credit lasts.

Pure. Source: docs/reference/protocol-native.md, "Subscriptions".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from zraft.server.clients.connection import Phase
from zraft.tree.children import names_of
from zraft.tree.log_reads import read_log
from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.wire.dictionary import are_entries, packed_key_of, split_entry
from zraft_core.wire.native import answers
from zraft_core.wire.native.pushes import EntriesPush
from zraft_core.znodes.acl import READ, Ids, permits
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DELETED, Event

PART_BYTES: Final = 64 * 1024
"""Pushed to one subscription at a time; what is left follows in the next turn."""

PART_PRICE_BYTES: Final = 16 * 1024
"""However short a part is, it takes as long as this many bytes more of one."""

PART_NAMES: Final = 1_000
"""Keys looked at for one part."""

CREDIT_MAX: Final = 16 * 1024 * 1024
"""More credit than this counts as this: what was pushed lies in memory until the client takes it."""

LOG_ENTRIES_PER_PART: Final = 1_000


class Subscriber(Protocol):
    """A native connection, as far as its subscriptions know it."""

    unpushed: bool
    """Something was changed that it subscribed to and was not told yet."""

    @property
    def phase(self) -> Phase:
        """The connection's phase."""

    @property
    def ids(self) -> Ids:
        """The ids that the client has proved, by which ACLs are checked."""

    @property
    def session(self) -> int:
        """The session, 0 if there is none."""

    @property
    def unsent(self) -> int:
        """Bytes that its client does not take."""

    @property
    def wants_flush(self) -> bool:
        """True if so much is to be written that nothing more is pushed now."""

    @property
    def is_overfull(self) -> bool:
        """True if more is to be written than one connection may leave unread."""

    def push(self, message: bytes) -> None:
        """Push an event, after what else was changed before it."""

    def write_pushed(self, message: bytes) -> None:
        """Write a part of a subscription; what must come before it was written."""

    def __hash__(self) -> int: ...


class Subscription(ABC):
    """One subscription of one connection; `id` is that of the request that made it."""

    __slots__ = ("connection", "credit", "id")

    def __init__(self, connection: Subscriber, number: int, credit: int) -> None:
        self.connection = connection
        self.id = number
        self.credit = min(credit, CREDIT_MAX)
        """Bytes that may still be pushed; the last message may overdraw it."""

    def grant(self, size: int) -> None:
        """Add credit: the client has room for more."""
        self.credit = min(self.credit + size, CREDIT_MAX)

    @property
    @abstractmethod
    def due(self) -> bool:
        """True if something is to be pushed, whether or not there is credit."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """True if the subscription has caught up, so that pending changes are new ones."""

    @abstractmethod
    def part(self, machine: Machine) -> bytes:
        """Return the next message, b"" if there is nothing to say after all."""


class DictionaryFeed:
    """One dictionary that somebody subscribed to."""

    __slots__ = ("directory", "long_keys", "subscribers")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.subscribers: dict[DictionarySubscription, None] = {}
        self.long_keys: dict[str, bytes] = {}
        """Packed keys whose znodes' names do not hold them: once a znode is gone, nothing else would tell."""

    def learn(self, name: str, data: bytes | None) -> None:
        """Note the znode of a key that is too long for its name."""
        entry = split_entry(data)
        if entry is not None:
            self.long_keys[name] = entry[0]

    def key_of_gone(self, name: str) -> bytes | None:
        """Return the packed key of a znode that was deleted just now."""
        return self.long_keys.pop(name, None) if name[:1] == "!" else packed_key_of(name)


class DictionarySubscription(Subscription):
    """First the whole state in parts, then what changes."""

    __slots__ = ("_changed", "_feed", "_initial", "_place")

    def __init__(
        self, connection: Subscriber, number: int, credit: int, feed: DictionaryFeed, names: list[str]
    ) -> None:
        super().__init__(connection, number, credit)
        self._feed = feed
        self._initial: list[str] | None = names
        self._place = 0
        self._changed: dict[str, bytes | bool] = {}
        """Changes by name: the packed key of what the client knows and is gone; True: new to the client;
        False: changed.
        """

    def note(self, event_type: int, name: str, gone: bytes | None) -> None:
        """Note that the znode `name` was created, deleted (then `gone` is its packed key) or changed."""
        changed = self._changed
        if event_type == NODE_DELETED:
            if changed.get(name) is True:
                del changed[name]  # the client never heard of it
            elif gone is not None:
                changed[name] = gone
        elif event_type == NODE_CREATED:
            changed[name] = name not in changed
        else:
            changed.setdefault(name, False)

    @property
    def due(self) -> bool:
        """True if something is to be pushed, whether or not there is credit."""
        return self._initial is not None or bool(self._changed)

    @property
    def live(self) -> bool:
        """True if the subscription has caught up, so that pending changes are new ones."""
        return self._initial is None

    def part(self, machine: Machine) -> bytes:
        """Return the next message, b"" if there is nothing to say after all."""
        if self._initial is not None:
            return self._initial_part(machine, self._initial)
        names = []
        size = 0
        for name in self._changed:
            names.append(name)
            if len(names) >= PART_NAMES or size >= PART_BYTES:
                break
            node = machine.find(f"{self._feed.directory}/{name}")
            size += node.data_length if node is not None else len(name)
        items = []
        entries = dict(self._entries(machine, names))
        for name in names:
            change = self._changed.pop(name)
            item = entries.get(name)
            if item is not None:
                items.append(item)
            elif isinstance(change, bytes):
                items.append(answers.gone_of(change))
            elif change is False:
                # It is there, but no entry any more, or none that this client may read.
                key = packed_key_of(name)
                if key is not None:
                    items.append(answers.gone_of(key))
        if not items:
            return b""
        return answers.encode_changes(self.id, machine.last_zxid, items, initial=False, complete=True)

    def _initial_part(self, machine: Machine, names: list[str]) -> bytes:
        items: list[bytes] = []
        size = 0
        while self._place < len(names) and size < min(PART_BYTES, self.credit):
            some = names[self._place : self._place + 64]
            self._place += len(some)
            for _, item in self._entries(machine, some):
                items.append(item)
                size += len(item)
        complete = self._place >= len(names)
        if complete:
            self._initial = None
        return answers.encode_changes(self.id, machine.last_zxid, items, initial=True, complete=complete)

    def _entries(self, machine: Machine, names: Sequence[str]) -> list[tuple[str, bytes]]:
        """Return those of `names` that are entries, and may be read, as they are now."""
        return [
            (name, answers.item_of(data, node.version, node.mzxid))
            for name, node, data in entries_of(machine, self._feed.directory, names, self.connection.ids)
        ]


class LogSubscription(Subscription):
    """Subscription to what is appended to a directory of sequential znodes, from a number on."""

    __slots__ = ("_caught_up", "_first", "_moved", "_next", "_prefix", "directory")

    def __init__(
        self,
        connection: Subscriber,
        number: int,
        credit: int,
        directory: str,
        prefix: str,
        first: int,
    ) -> None:
        super().__init__(connection, number, credit)
        self.directory = directory
        self._prefix = prefix
        self._next = first
        self._first = -1
        self._moved = True
        self._caught_up = False

    def note(self) -> None:
        """Note that something was appended or truncated."""
        self._moved = True

    @property
    def due(self) -> bool:
        """True if something is to be pushed, whether or not there is credit."""
        return self._moved

    @property
    def live(self) -> bool:
        """True if the subscription has caught up, so that pending changes are new ones."""
        return self._caught_up

    def part(self, machine: Machine) -> bytes:
        """Return the next message, b"" if there is nothing to say after all."""
        page = read_log(
            machine,
            self.directory,
            self._prefix,
            self._next,
            LOG_ENTRIES_PER_PART,
            min(PART_BYTES, max(1, self.credit)),
            self.connection.ids,
        )
        if isinstance(page, Code):
            # It does not exist, or this client may not read it; whatever changes that makes an event of its
            # own.
            self._moved = False
            return b""
        self._next = page.next
        self._moved = page.next < page.end
        self._caught_up = not self._moved
        if not page.entries and page.first_visible == self._first:
            return b""
        self._first = page.first_visible
        entries = EntriesPush(page.entries, page.next, page.first_visible)
        return answers.encode_log_entries(self.id, machine.last_zxid, entries)


class PathSubscription:
    """A lasting watch. It is its own watcher, so that two of one connection are both told."""

    __slots__ = ("connection", "id", "path")

    def __init__(self, connection: Subscriber, number: int, path: str) -> None:
        self.connection = connection
        self.id = number
        self.path = path

    @property
    def phase(self) -> Phase:
        """The connection's phase."""
        return self.connection.phase

    @property
    def ids(self) -> Ids:
        """The ids that the client has proved, by which ACLs are checked."""
        return self.connection.ids

    @property
    def session(self) -> int:
        """The session, 0 if there is none."""
        return self.connection.session

    def on_event(self, zxid: int, event_type: int, path: str) -> None:
        """Push an event to the client."""
        self.connection.push(answers.encode_event(self.id, zxid, event_type, path))


class Feeds:
    """All subscriptions of one server to dictionaries and logs."""

    __slots__ = (
        "_by_connection",
        "_dictionaries",
        "_logs",
        "_machine",
        "_on_first",
        "parts_total",
        "pending",
    )

    def __init__(self, machine: Machine, on_first: Callable[[], None] = lambda: None) -> None:
        """Begin without subscriptions; `on_first` is called when somebody subscribes and nobody did."""
        self._machine = machine
        self._on_first = on_first
        self._dictionaries: dict[str, DictionaryFeed] = {}
        self._logs: dict[str, dict[LogSubscription, None]] = {}
        self._by_connection: dict[Subscriber, dict[int, Subscription]] = {}
        self.pending: dict[Subscription, None] = {}
        """Those with something to push, credit for it, and a client that takes what it is sent."""
        self.parts_total = 0
        """The number of parts that were made."""

    def __bool__(self) -> bool:
        return bool(self._by_connection)

    def __len__(self) -> int:
        return sum(map(len, self._by_connection.values()))

    # -- what connections call

    def has(self, connection: Subscriber, number: int | None = None) -> bool:
        """Return whether the connection has this subscription, or any."""
        own = self._by_connection.get(connection)
        return own is not None and (number is None or number in own)

    def count_of(self, connection: Subscriber) -> int:
        """Return the number of a connection's subscriptions."""
        return len(self._by_connection.get(connection, ()))

    def subscribe_dictionary(self, connection: Subscriber, number: int, directory: str, credit: int) -> Code:
        """Subscribe to a dictionary: its present state is pushed first.

        Return NO_AUTH if the client may not list the dictionary.
        """
        node = self._machine.find(directory)
        if node is not None and not permits(node.acl, READ, connection.ids):
            return Code.NO_AUTH
        names = names_of(directory, node.children) if node is not None else []
        feed = self._dictionaries.get(directory)
        if feed is None:
            feed = self._dictionaries[directory] = DictionaryFeed(directory)
            for name in names:
                if name[:1] == "!":
                    self._learn(feed, name)
        subscription = DictionarySubscription(connection, number, credit, feed, names)
        feed.subscribers[subscription] = None
        self._add(subscription)
        return Code.OK

    def subscribe_log(
        self, connection: Subscriber, number: int, directory: str, prefix: str, first: int, credit: int
    ) -> Code:
        """Subscribe to a log from number `first` on.

        Return NO_AUTH if the client may not list the directory.
        """
        if "/" in prefix:
            return Code.BAD_ARGUMENTS
        node = self._machine.find(directory)
        if node is not None and not permits(node.acl, READ, connection.ids):
            return Code.NO_AUTH
        subscription = LogSubscription(connection, number, credit, directory, prefix, first)
        self._logs.setdefault(directory, {})[subscription] = None
        self._add(subscription)
        return Code.OK

    def _add(self, subscription: Subscription) -> None:
        if not self._by_connection:
            self._on_first()
        self._by_connection.setdefault(subscription.connection, {})[subscription.id] = subscription
        self._mark(subscription)

    def grant(self, connection: Subscriber, number: int, size: int) -> bool:
        """Add credit; return False if there is no such subscription."""
        subscription = self._by_connection.get(connection, {}).get(number)
        if subscription is None:
            return False
        subscription.grant(size)
        self._mark(subscription)
        return True

    def unsubscribe(self, connection: Subscriber, number: int) -> bool:
        """End a subscription; return False if there is none of this number."""
        own = self._by_connection.get(connection)
        subscription = own.pop(number, None) if own is not None else None
        if own is None or subscription is None:
            return False
        self._remove(subscription)
        if not own:
            del self._by_connection[connection]
        return True

    def forget(self, connection: Subscriber) -> None:
        """Forget the subscriptions of a connection that is over."""
        for subscription in self._by_connection.pop(connection, {}).values():
            self._remove(subscription)

    def _remove(self, subscription: Subscription) -> None:
        self.pending.pop(subscription, None)
        if isinstance(subscription, DictionarySubscription):
            feed = subscription._feed
            del feed.subscribers[subscription]
            if not feed.subscribers:
                del self._dictionaries[feed.directory]
        elif isinstance(subscription, LogSubscription):
            subscribers = self._logs[subscription.directory]
            del subscribers[subscription]
            if not subscribers:
                del self._logs[subscription.directory]

    # -- what the applier calls, through `Clients.publish`

    def note(self, events: Iterable[Event]) -> int:
        """Note the changes of one command; return how many subscriptions they concern."""
        noted = 0
        for event_type, path, _ in events:
            if event_type == NODE_CHILDREN_CHANGED:
                # An entry more, or a truncation: both change the list.
                followers = self._logs.get(path, ())
                noted += len(followers)
                for follower in followers:
                    follower.note()
                    self._mark(follower)
                continue
            directory, _, name = path.rpartition("/")
            feed = self._dictionaries.get(directory)
            if feed is not None:
                gone = feed.key_of_gone(name) if event_type == NODE_DELETED else None
                if event_type == NODE_CREATED and name[:1] == "!":
                    self._learn(feed, name)
                noted += len(feed.subscribers)
                for subscription in feed.subscribers:
                    subscription.note(event_type, name, gone)
                    self._mark(subscription)
        return noted

    def _learn(self, feed: DictionaryFeed, name: str) -> None:
        node = self._machine.find(f"{feed.directory}/{name}")
        if node is not None:
            feed.learn(name, node.data)

    def _mark(self, subscription: Subscription) -> None:
        if subscription.credit > 0 and subscription.due:
            connection = subscription.connection
            connection.unpushed = True
            if not connection.unsent:
                self.pending[subscription] = None

    # -- pushing

    def on_stalled(self, connection: Subscriber) -> None:
        """Push nothing to a connection whose client does not take what it is sent; no turn looks at it."""
        for subscription in self._by_connection.get(connection, {}).values():
            self.pending.pop(subscription, None)

    def on_taken(self, connection: Subscriber) -> None:
        """Continue to push to a connection whose client has taken all that it was sent."""
        for subscription in self._by_connection.get(connection, {}).values():
            self._mark(subscription)

    @property
    def wants_turn(self) -> bool:
        """True if the next turn has something to push, although nothing arrives."""
        return any(not subscription.connection.wants_flush for subscription in self.pending)

    def push(self, bytes_max: int) -> None:
        """Push one part for each subscription that has something, about `bytes_max` in all; a part has its price, too.

        Called once per turn, before all is written.
        """
        pushed = 0
        for subscription in list(self.pending):
            if pushed >= bytes_max:
                break
            if not subscription.connection.wants_flush:
                pushed += self._push(subscription) + PART_PRICE_BYTES
                if subscription in self.pending:
                    # It goes behind those that were not reached.
                    del self.pending[subscription]
                    self.pending[subscription] = None

    def push_to(self, connection: Subscriber) -> None:
        """Push all that is due to a connection that is about to be answered, except the rest of a long beginning."""
        connection.unpushed = False
        for subscription in list(self._by_connection.get(connection, {}).values()):
            while subscription.live and subscription.due and subscription.credit > 0:
                if connection.is_overfull:
                    return
                self._push(subscription)

    def _push(self, subscription: Subscription) -> int:
        """Write the next part; how many bytes it has."""
        self.parts_total += 1
        message = subscription.part(self._machine)
        if message:
            subscription.credit -= len(message)
            subscription.connection.write_pushed(message)
        if subscription.credit <= 0 or not subscription.due:
            self.pending.pop(subscription, None)
        return len(message)


def entries_of(
    machine: Machine, directory: str, names: Iterable[str], ids: Ids
) -> list[tuple[str, Znode, bytes]]:
    """Return (name, znode, data) of those of `names` that are entries and may be read."""
    found: list[tuple[str, Znode, bytes]] = []
    for name in names:
        node = machine.find(f"{directory}/{name}")
        if node is not None and node.data is not None and permits(node.acl, READ, ids):
            found.append((name, node, node.data))
    if are_entries([data for _, _, data in found]):
        return found
    return [one for one in found if split_entry(one[2]) is not None]
