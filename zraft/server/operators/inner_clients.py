"""Clients inside of the server: what a page of this server asks goes the way of every client's request.

Writes, and all that concerns topics, are messages of the native protocol to a connection that has no socket. So the ACLs,
the audit log, the bounds of all clients together and the share of a turn that clients get hold for a page without a line of
code about them, and pages cannot take more of the loop than clients may. A client of `zraft_client` over loopback would
give the same, but needs sockets, retries and a second event of everything, and rooms of the server do not know it.

Znodes are read directly by the functions with which connections answer reads (`zraft.tree.reads`): they check ACLs, and
the native protocol neither shows ACLs nor lists children in pages.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft.server.clients.authentication.proofs import logged_in_ids, meets
from zraft.server.clients.authentication.sasl import AuthenticationError
from zraft.server.engine.driver import Driver
from zraft.tree import reads
from zraft.tree.children import names_of
from zraft.tree.log_reads import read_log
from zraft_core.errors import Code
from zraft_core.znodes.acl import Acl, Ids
from zraft_core.znodes.stat import Stat

Message = Mapping[str, Any]
"""A request or an answer of the native protocol (docs/reference/protocol-native.md)."""

UNKNOWN_USERS_PASSWORD_BYTES: Final = 24
LOG_NUMBER_MAX: Final = 2**31
"""Beyond the number of every entry."""


@frozen
class LookedAt:
    """A znode as a client may see it; `data` are its first bytes, `acl` is None if the client may not see it."""

    stat: Stat
    data: bytes | None
    acl: Acl | None


class InnerClients:
    """The way of pages into their own server."""

    def __init__(self, driver: Driver, schedule: Callable[[], None]) -> None:
        """Begin with no client.

        Args:
            driver: the server.
            schedule: asks for a turn of the server.
        """
        self._driver = driver
        self._schedule = schedule

    @property
    def request_bytes_max(self) -> int:
        """The most bytes of one request (`client.jute_maxbuffer`)."""
        return self._driver.clients.settings.jute_maxbuffer

    @property
    def has_users(self) -> bool:
        """True if there are users who could sign in with a password."""
        return self._driver.clients.settings.auth.users is not None

    def sign_in(self, user: str, password: str, ids: Ids) -> Ids:
        """Return the ids of a client who has shown the password of a SASL user, `ids` among them.

        Raises:
            AuthenticationError: there are no users, or the password is another one. What it says is for the operator.
        """
        auth = self._driver.clients.settings.auth
        if auth.users is None:
            raise AuthenticationError("this server has no users; set auth.sasl_users_file")
        known = auth.users().get(user)
        # A user who does not exist takes as long as one who does.
        expected = base64.b64encode(bytes(UNKNOWN_USERS_PASSWORD_BYTES)).decode() if known is None else known
        same = hmac.compare_digest(expected.encode(), password.encode())
        if known is None or not same:
            raise AuthenticationError(f"wrong user or password (user {user!r})")
        found = logged_in_ids(user, ids, auth)
        assert found is not None, "a client has an address and a user"
        return found

    # -- reads

    def _why_not(self, ids: Ids) -> Code | None:
        """Return why a client gets no answer now."""
        clients = self._driver.clients
        required = clients.settings.auth.required_schemes
        if required and not meets(ids, required):
            return Code.SESSION_CLOSED_REQUIRE_SASL_AUTH
        if not self._driver.serving and not clients.sessions.is_read_only:
            return Code.CONNECTION_LOSS
        return None

    def look(self, path: str, bytes_max: int, ids: Ids) -> LookedAt | Code:
        """Return a znode with at most so many bytes of its data, or why not."""
        why_not = self._why_not(ids)
        if why_not is not None:
            return why_not
        machine = self._driver.machine
        node = reads.get_data(machine, path, ids)
        if isinstance(node, Code):
            return node
        acl = reads.get_acl(machine, path, ids)
        data = None if node.data is None else node.data[:bytes_max]
        return LookedAt(node.stat(), data, None if isinstance(acl, Code) else acl[0])

    def names(self, path: str, ids: Ids) -> list[str] | Code:
        """Return the names of all children, in no order, or why not. A hundred thousand of them take some 15 ms."""
        why_not = self._why_not(ids)
        if why_not is not None:
            return why_not
        node = reads.get_children(self._driver.machine, path, ids)
        return node if isinstance(node, Code) else names_of(path, node.children)

    def log_end(self, path: str, prefix: str, ids: Ids) -> int | Code:
        """Return the number that the next sequential child of this prefix gets, or why not."""
        why_not = self._why_not(ids)
        if why_not is not None:
            return why_not
        page = read_log(self._driver.machine, path, prefix, LOG_NUMBER_MAX, 1, 1, ids)
        return page if isinstance(page, Code) else page.end

    # -- everything else

    def ask(
        self, address: str, ids: Ids, requests: Sequence[Message], told: Callable[[Message | None], None]
    ) -> InnerClient | None:
        """Send requests as a client of this address with these ids; None if there are too many clients.

        Args:
            address: whose requests these are, as HOST:PORT.
            ids: what the client has proved.
            requests: of the native protocol, each with an id.
            told: gets the answers, from within a turn of the server; None when the server ends the connection.
        """
        connection = self._driver.connect(address, ids)
        if connection is None:
            return None
        native = self._driver.clients.native(connection)
        client = InnerClient(told, native.connection_lost)
        native.handle = client
        native.data_received(b"".join(map(msgpack.packb, requests)))
        native.account()
        self._schedule()
        return client


class InnerClient:
    """The far end of a connection without a socket: what `ClientProtocol` is to one that has one."""

    secure = False

    def __init__(self, told: Callable[[Message | None], None], lost: Callable[[], None]) -> None:
        self._told = told
        self._lost = lost
        self._ended = False
        self._unpacker = msgpack.Unpacker(strict_map_key=False)

    def write(self, data: bytes, *, close: bool) -> None:
        """Take what the server says."""
        if self._ended:
            return
        self._unpacker.feed(data)
        for message in self._unpacker:
            self._told(message)
        if close:
            self.abort()

    def abort(self) -> None:
        """Take note that the server ended the connection."""
        if not self._ended:
            self.end()
            self._told(None)

    def maybe_resume(self) -> None:
        """Do nothing: what this client has to say was said at once."""

    def end(self) -> None:
        """End the connection; what it asked for still goes its way."""
        if not self._ended:
            self._ended = True
            self._lost()
