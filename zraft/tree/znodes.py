"""The tree of znodes and the commands that change it, each deciding everything before it changes anything.

Order of checks and effects: ZooKeeper's `PrepRequestProcessor` and `DataTree`. The fields of a command come
from peers, so their types are checked too: a wrong one is MARSHALLING_ERROR everywhere, never an exception.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from zraft.tree.children import ManyChildren, with_child, without_child
from zraft.tree.digest import TreeDigest
from zraft.tree.hiding import Hidden, is_hidden
from zraft.tree.image.reader import ImageState
from zraft.tree.journal import Undo
from zraft.tree.lifetime import CONTAINER, ZnodeKind, is_due, requested_kind
from zraft.tree.node import BORN, CONFIG, Lifetime, NodeTable, Znode, table_at_birth
from zraft.tree.paths import ROOT, is_valid_name, is_valid_path, split
from zraft.tree.quota import LIMITS, QUOTA_NAMES, Quotas
from zraft.tree.quota_usage import count_usage, is_refused, limits_gone, quota_made
from zraft.tree.remains import Remains
from zraft.tree.sessions.session import Session
from zraft.tree.settings import Settings
from zraft.tree.topic_acls import TopicAcls
from zraft_core.errors import Code
from zraft_core.ids import ServerId
from zraft_core.znodes.acl import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    AclTable,
    Ids,
    checked_acl,
    is_super,
    permits,
)
from zraft_core.znodes.events import (
    NODE_CHILDREN_CHANGED,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    NODE_DELETED,
    Event,
)
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN
from zraft_core.znodes.txn import CREATE2, FLAG_EPHEMERAL, FLAG_SEQUENTIAL, Command

_UNDELETABLE: Final = frozenset(BORN)

# Looking up an attribute of an Enum class costs as much as a dict access; the hot path does not pay for it.
_OK: Final = Code.OK
_MALFORMED: Final = Code.MARSHALLING_ERROR
_BAD_ARGUMENTS: Final = Code.BAD_ARGUMENTS
_NO_NODE: Final = Code.NO_NODE
_NO_AUTH: Final = Code.NO_AUTH
_BAD_VERSION: Final = Code.BAD_VERSION
_PLAIN_FLAGS: Final = FLAG_EPHEMERAL | FLAG_SEQUENTIAL


def _next_version(version: int) -> int:
    """Return one more, as 32 bits wrap. -1 is left out: in a condition it would mean "any" (ZOOKEEPER-4743)."""
    if version == -2:
        return 0
    return version + 1 if version != INT32_MAX else INT32_MIN


class Tree:
    """The znodes with all that moves when they do: events, ephemerals of sessions, shared ACLs, digest marks.

    The machine sets the context of a command (`wall_time`, `log_time`, `session`, `ids`, `settings`) before it
    calls. While `journal` is a list, every effect leaves its inverse there, so that a multi can be undone. While nobody
    is there to be told of them, `observed` is false and the frequent commands make no events.
    `mortal` holds the paths of containers and znodes with a time to live; `hidden` see `zraft.tree.hiding`; `topic_acls`
    knows the znodes whose ACLs are those of topics and consumers; `attended` counts the sessions of each server.
    """

    __slots__ = (
        "acls",
        "attended",
        "digest",
        "events",
        "hidden",
        "ids",
        "journal",
        "log_time",
        "mortal",
        "nodes",
        "observed",
        "quotas",
        "session",
        "sessions",
        "settings",
        "topic_acls",
        "wall_time",
    )

    def __init__(self, settings: Settings) -> None:
        self.nodes: NodeTable = table_at_birth()
        self.acls = AclTable()
        for _, node in self.nodes.items():
            node.acl = self.acls.hold(node.acl)
        self.sessions: dict[int, Session] = {}
        self.attended: dict[ServerId, int] = {}
        self.digest = TreeDigest(self.nodes, self.sessions)
        self.events: list[Event] = []
        self.observed = True
        self.settings = settings
        self.wall_time = 0
        self.log_time = 0
        self.mortal: set[str] = set()
        self.quotas = Quotas()
        self.topic_acls = TopicAcls(self.nodes)
        self.hidden: Hidden = {}
        self.session: Session | None = None
        self.ids: Ids = ()
        self.journal: list[Undo] | None = None

    def find(self, path: str) -> Znode | None:
        """Return the znode, unless it is hidden: what every command and every read goes by."""
        node = self.nodes.get(path)
        return None if node is None or (self.hidden and is_hidden(self.hidden, path)) else node

    def _visible_ephemerals(self, session: Session) -> int:
        hidden = self.hidden
        if not hidden:
            return len(session.ephemerals)
        return sum(not is_hidden(hidden, path) for path in session.ephemerals)

    # -- commands

    def set_data(self, command: Command, zxid: int) -> Znode | Code:
        """Execute [SET_DATA, path, data, version]; return the znode as changed."""
        try:
            _, path, data, version = command
        except ValueError:
            return _MALFORMED
        if path.__class__ is not str or version.__class__ is not int:
            return _MALFORMED
        size = 0
        if data is not None:
            if data.__class__ is not bytes:
                return _MALFORMED
            size = len(data)
            if size > self.settings.data_bytes_max:
                return _BAD_ARGUMENTS
        node = self.nodes.get(path)
        if node is None or (self.hidden and is_hidden(self.hidden, path)):
            return _NO_NODE if is_valid_path(path) else _BAD_ARGUMENTS
        acl = node.acl
        if acl is not OPEN_ACL and not permits(acl, WRITE, self.ids):
            return _NO_AUTH
        old = node.data
        growth = size - (len(old) if old else 0)
        limited = self.quotas.limited
        if limited and is_refused(self, path, 0, growth):
            return Code.QUOTA_EXCEEDED
        old_version = node.version
        if version != old_version and version != -1:
            return _BAD_VERSION
        self.digest.dirty_nodes.add(path)
        if self.journal is not None:
            self.journal.append(
                (self._undo_set_data, (node, old, node.mzxid, node.mtime, old_version, node.lifetime))
            )
        self.nodes.data_bytes += growth
        node.data = data
        node.mzxid = zxid
        node.mtime = self.wall_time
        node.version = old_version + 1 if -2 < old_version < INT32_MAX else _next_version(old_version)
        if node.lifetime is not None and node.lifetime.ttl_ms != CONTAINER:
            node.lifetime = Lifetime(node.lifetime.ttl_ms, self.log_time)
        if limited:
            count_usage(self, path, 0, growth)
        if self.observed:
            self.events.append((NODE_DATA_CHANGED, path, acl))
        return node

    def create(self, command: Command, zxid: int) -> tuple[str, Znode] | Code:
        """Execute [CREATE, path, data, acl, flags, ttl], or one of its three relatives.

        It returns the final path and the znode.
        """
        try:
            opcode, path, data, acl, flags, ttl = command
        except ValueError:
            return _MALFORMED
        if path.__class__ is not str or flags.__class__ is not int:
            return _MALFORMED
        if data is not None:
            if data.__class__ is not bytes:
                return _MALFORMED
            if len(data) > self.settings.data_bytes_max:
                return _BAD_ARGUMENTS
        lifetime = None
        if not 0 <= flags <= _PLAIN_FLAGS or opcode > CREATE2:
            kind = requested_kind(opcode, flags, ttl, self.settings)
            if not isinstance(kind, ZnodeKind):
                return kind
            flags = kind.flags
            if kind.ttl_ms is not None:
                lifetime = Lifetime(kind.ttl_ms, self.log_time)
        slash = path.rfind("/")
        if slash < 0 or "\0" in path:
            return _BAD_ARGUMENTS
        if acl is None:
            acl = OPEN_ACL
        else:
            acl = checked_acl(acl, self.ids)
            if acl.__class__ is Code:
                return acl

        parent_path = path[:slash] or ROOT
        parent = self.nodes.get(parent_path)
        if parent is None or (self.hidden and is_hidden(self.hidden, parent_path)):
            return _NO_NODE
        if parent.acl is not OPEN_ACL and not permits(parent.acl, CREATE, self.ids):
            return _NO_AUTH
        creates = parent.creates
        if flags & FLAG_SEQUENTIAL:
            path = f"{path}{creates:010d}"
        guarded = self.topic_acls.guarded
        is_guarded = path in guarded or parent_path in guarded
        if is_guarded and not is_super(self.ids):
            return _NO_AUTH
        name = path[slash + 1 :]
        # The parent exists, so its path is valid; only "//name" can pretend to be below the root.
        if not is_valid_name(name) or slash == 1:
            return Code.NODE_EXISTS if path == ROOT else _BAD_ARGUMENTS
        siblings = parent.children
        if siblings is not None and path in siblings:
            if isinstance(siblings, ManyChildren) and siblings.is_gone(path):
                return _BAD_ARGUMENTS  # NODE_EXISTS would send the client to read it, in vain and for ever
            return Code.NODE_EXISTS
        if parent.ephemeral_owner:
            return Code.NO_CHILDREN_FOR_EPHEMERALS
        limited = self.quotas.limited
        if limited and is_refused(self, path, 1, len(data) if data else 0):
            return Code.QUOTA_EXCEEDED
        owner = 0
        if flags & FLAG_EPHEMERAL:
            session = self.session
            if session is None:
                return _BAD_ARGUMENTS
            if (
                len(session.ephemerals) >= self.settings.session_ephemerals_max
                and self._visible_ephemerals(session) >= self.settings.session_ephemerals_max
            ):
                return Code.QUOTA_EXCEEDED
            session.ephemerals.add(path)
            owner = session.id

        if self.journal is not None:
            self.journal.append((self._undo_create, (path, parent, parent.pzxid, creates)))
        if acl is not OPEN_ACL:
            acl = self.acls.hold(acl)
        node = Znode(data, acl, zxid, self.wall_time, owner)
        if self.hidden and (children := self.hidden.get(path)) is not None:
            # The children of the earlier directory of this name are not yet out of memory: their numbers stay
            # taken.
            node.children = children
            node.creates = children.first
        if lifetime is not None:
            node.lifetime = lifetime
            self.mortal.add(path)
        self.nodes.put(path, self.digest.take_new(path, node))
        self.nodes.data_bytes += len(path) + node.data_length
        self.digest.dirty_nodes.add(parent_path)
        parent.children = with_child(siblings, path)
        parent.creates = creates + 1 if creates != INT32_MAX else INT32_MIN
        parent.pzxid = zxid
        if name in QUOTA_NAMES:
            node = self.nodes.get(path) or node  # it is not to rest, as this changes it
            quota_made(self, parent_path, name, node)
        if is_guarded:
            self.topic_acls.made(path)
        if limited:
            count_usage(self, path, 1, len(data) if data else 0)
        if self.observed:
            self.events.append((NODE_CREATED, path, acl))
            self.events.append((NODE_CHILDREN_CHANGED, parent_path, parent.acl))
        return path, node

    def delete(self, command: Command, zxid: int) -> Code:
        """Execute [DELETE, path, version]."""
        try:
            _, path, version = command
        except ValueError:
            return _MALFORMED
        if path.__class__ is not str or version.__class__ is not int:
            return _MALFORMED
        if "/" not in path or "\0" in path or path in _UNDELETABLE:
            return _BAD_ARGUMENTS
        parent = self.find(split(path)[0])
        if parent is None:
            return _NO_NODE
        if not permits(parent.acl, DELETE, self.ids):
            return _NO_AUTH
        if path in self.topic_acls.guarded and not is_super(self.ids):
            return _NO_AUTH
        node = self.find(path)
        if node is None:
            return _NO_NODE
        if version != node.version and version != -1:
            return _BAD_VERSION
        if node.children:
            return Code.NOT_EMPTY
        self.remove(path, zxid)
        return _OK

    def delete_container(self, command: Command, zxid: int) -> Code:
        """Execute [DELETE_CONTAINER, path] on any empty znode but an ephemeral, as in ZooKeeper.

        The rights are delete's.
        """
        if len(command) != 2 or command[1].__class__ is not str:
            return _MALFORMED
        node = self.find(command[1])
        if node is not None and node.ephemeral_owner and not node.children:
            return _BAD_VERSION
        return self.delete((*command, -1), zxid)

    def reap(self, command: Command, zxid: int) -> Code:
        """Execute [REAP, path, czxid]; return OK if the znode was due and is gone, else nothing changes.

        NO_NODE if it is another one by now, NOT_EMPTY or BAD_VERSION if it was used since.
        """
        if len(command) != 3 or command[1].__class__ is not str:
            return _MALFORMED
        _, path, czxid = command
        node = self.find(path)
        if node is None or node.czxid != czxid:
            return _NO_NODE
        if node.children:
            return Code.NOT_EMPTY
        if node.lifetime is None or not is_due(node, node.lifetime, self.log_time, self.settings):
            return _BAD_VERSION
        self.remove(path, zxid)
        return _OK

    def set_acl(self, command: Command, zxid: int) -> Znode | Code:
        """Execute [SET_ACL, path, acl, version]; return the znode.

        Nobody who watches it is told, and only `aversion` moves.
        """
        try:
            _, path, acl, version = command
        except ValueError:
            return _MALFORMED
        if path.__class__ is not str or version.__class__ is not int:
            return _MALFORMED
        if not is_valid_path(path):
            return _BAD_ARGUMENTS
        acl = OPEN_ACL if acl is None else checked_acl(acl, self.ids)
        if isinstance(acl, Code):
            return acl
        node = self.find(path)
        if node is None:
            return _NO_NODE
        if not permits(node.acl, ADMIN, self.ids):
            return _NO_AUTH
        if path in self.topic_acls.guarded and not is_super(self.ids):
            return _NO_AUTH
        if version not in (-1, node.aversion):
            return _BAD_VERSION
        self.digest.dirty_nodes.add(path)
        if self.journal is not None:
            self.journal.append((self._undo_set_acl, (path, node, node.acl, node.aversion)))
        self._change_acl(path, node, acl, _next_version(node.aversion))
        return node

    def _change_acl(self, path: str, node: Znode, acl: Acl, aversion: int) -> None:
        self.acls.release(node.acl)
        node.acl = self.acls.hold(acl)
        node.aversion = aversion
        if path in self.topic_acls.guarded:
            self.topic_acls.changed()

    def _undo_set_acl(self, path: str, node: Znode, acl: Acl, aversion: int) -> None:
        self._change_acl(path, node, acl, aversion)

    def check(self, command: Command, zxid: int) -> Code:
        """Execute [CHECK, path, version], a part of multi only, which changes nothing."""
        try:
            _, path, version = command
        except ValueError:
            return _MALFORMED
        if path.__class__ is not str or version.__class__ is not int:
            return _MALFORMED
        node = self.find(path)
        if node is None:
            return _NO_NODE if is_valid_path(path) else _BAD_ARGUMENTS
        if not permits(node.acl, READ, self.ids):
            return _NO_AUTH
        return _OK if version in (-1, node.version) else _BAD_VERSION

    def set_configuration(self, text: bytes, zxid: int) -> Znode:
        """Show these members in /zookeeper/config.

        Its version is -1 after each change, as ZooKeeper's reconfig leaves it.
        """
        node = self.nodes.get(CONFIG)
        assert node is not None, f"{CONFIG} cannot be deleted"
        self.digest.dirty_nodes.add(CONFIG)
        growth = len(text) - node.data_length
        self.nodes.data_bytes += growth
        node.data = text
        node.mzxid = zxid
        node.mtime = self.wall_time
        node.version = -1
        if self.quotas.limited:
            count_usage(self, CONFIG, 0, growth)
        self.events.append((NODE_DATA_CHANGED, CONFIG, node.acl))
        return node

    def adopt(self, state: ImageState) -> Remains:
        """Become what an image says; tables that others hold keep their identity."""
        remains = Remains(
            self.nodes.shards,
            self.sessions.values(),
            (
                self.mortal,
                self.quotas.limited,
                self.digest.dirty_nodes,
                *(part for children in self.hidden.values() for part in children.parts()),
            ),
        )
        self.hidden.clear()
        self.hidden.update(state.hidden)
        self.nodes.replace(state.nodes)
        self.sessions.clear()
        self.sessions.update(state.sessions)
        self.attended.clear()
        self.attended.update(Counter(session.owner[0] for session in state.sessions.values()))
        self.digest.restart(state.shares)
        self.acls = state.acls
        self.mortal = state.mortal
        self.quotas.limited = state.limited
        self.quotas.exceeded.clear()
        self.events.clear()
        self.settings = state.settings
        self.wall_time = state.wall_time
        self.log_time = state.log_time
        return remains

    # -- effects without checks, and their inverses

    def remove(self, path: str, zxid: int) -> None:
        """Take away a childless znode; a session's end does so too, where no ACL counts."""
        parent_path, name = split(path)
        parent = self.nodes.get(parent_path)
        assert parent is not None, f"{path} has no parent"
        digest = self.digest
        digest.dirty_nodes.add(path)
        digest.dirty_nodes.add(parent_path)
        node = self.nodes.remove(path)
        if self.journal is not None:
            self.journal.append((self._undo_remove, (path, node, parent, parent.pzxid)))
        parent.children = without_child(parent.children, path)
        parent.pzxid = zxid
        if node.ephemeral_owner:
            owner = self.sessions.get(node.ephemeral_owner)
            if owner is not None:
                owner.ephemerals.discard(path)
        self.acls.release(node.acl)
        if node.lifetime is not None:
            self.mortal.remove(path)
        if path in self.topic_acls.guarded:
            self.topic_acls.removed(path)
        if name == LIMITS:
            limits_gone(self, parent_path)
        if self.quotas.limited:
            count_usage(self, path, -1, -node.data_length)
        digest.total -= node.folded
        if self.observed:
            self.events.append((NODE_DELETED, path, node.acl))
            self.events.append((NODE_CHILDREN_CHANGED, parent_path, parent.acl))

    def _undo_create(self, path: str, parent: Znode, pzxid: int, creates: int) -> None:
        node = self.nodes.remove(path)
        parent.children = without_child(parent.children, path)
        parent.pzxid = pzxid
        parent.creates = creates
        if node.ephemeral_owner:
            self.sessions[node.ephemeral_owner].ephemerals.remove(path)
        self.mortal.discard(path)
        if path in self.topic_acls.guarded:
            self.topic_acls.removed(path)
        self.acls.release(node.acl)

    def _undo_remove(self, path: str, node: Znode, parent: Znode, pzxid: int) -> None:
        node.acl = self.acls.hold(node.acl)
        self.nodes.insert(path, node)
        parent.children = with_child(parent.children, path)
        parent.pzxid = pzxid
        if node.ephemeral_owner:
            self.sessions[node.ephemeral_owner].ephemerals.add(path)
        if node.lifetime is not None:
            self.mortal.add(path)
        guarded = self.topic_acls.guarded
        if path in guarded or split(path)[0] in guarded:
            self.topic_acls.made(path)

    def _undo_set_data(
        self,
        node: Znode,
        data: bytes | None,
        mzxid: int,
        mtime: int,
        version: int,
        lifetime: Lifetime | None,
    ) -> None:
        self.nodes.data_bytes += (len(data) if data else 0) - node.data_length
        node.data = data
        node.mzxid = mzxid
        node.mtime = mtime
        node.version = version
        node.lifetime = lifetime
