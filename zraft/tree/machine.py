"""The coordination state machine: what the committed entries of group 0 make of the state, everywhere alike.

It reads nothing but the state and the entry (D-5): no clock, no local setting, no order of a set. Nothing an
entry can hold raises: what cannot be understood is answered with a code, the same everywhere. Per entry::

    begin_entry, then per batch: begin_batch -> skip_batch | per run: begin_run, execute, execute, ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from zraft.config.features import (
    FEATURE_LEVEL_MIN,
    LEVEL_OF_ACCESS,
    LEVEL_OF_MEMBERS,
    LEVEL_OF_NATIVE,
    LEVEL_OF_ONE_PORT,
    LEVEL_OF_TOPICS,
    check_level,
)
from zraft.topics.registry import Registry
from zraft.topics.registry_image import registry_image
from zraft.topics.registry_items import full_digest
from zraft.tree.children import names_of
from zraft.tree.commands.multi import execute_multi, part_handlers
from zraft.tree.commands.once import execute_once
from zraft.tree.commands.ordinary import LOOPS, Watched
from zraft.tree.commands.topics import change_topics, limits_of
from zraft.tree.commands.truncation import drain, forget_hidden, truncate
from zraft.tree.commands.upsert import add, put
from zraft.tree.commands.wills import carry_out, register_will
from zraft.tree.digest import DIGEST_EVERY, DIGESTS_KEPT, DIRTY_MAX, PENDING_AT_POINT, TreeDigest
from zraft.tree.hiding import Hidden, is_hidden
from zraft.tree.image.reader import ImageState
from zraft.tree.image.small_items import small_items, small_shares
from zraft.tree.image.writer import ImageWriter
from zraft.tree.members import EVERYWHERE, Wanted, WantedMember, changed_members, config_text
from zraft.tree.node import CONFIG, NodeTable, Znode
from zraft.tree.origins import BOOT_ID_BYTES_MAX, Origin, OriginRow, Origins
from zraft.tree.quota import Quotas
from zraft.tree.quota_usage import recount
from zraft.tree.remains import Remains
from zraft.tree.sessions.session import PASSWORD_BYTES, Owner, Session, session_id_for
from zraft.tree.settings import Settings
from zraft.tree.topic_acls import TopicAcls
from zraft.tree.znodes import Tree
from zraft_core.errors import Code
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId, zxid_after
from zraft_core.topics.registry_commands import EndOwner
from zraft_core.topics.registry_values import Result
from zraft_core.znodes.acl import WRITE, Ids, are_ids, permits
from zraft_core.znodes.events import Event
from zraft_core.znodes.outcome import Outcome
from zraft_core.znodes.txn import (
    ADD,
    ATTACH,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_SESSION,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    EXPIRE,
    FEATURE,
    MEMBERS,
    MULTI,
    ONCE,
    PUT,
    REAP,
    REGISTER,
    SET_ACL,
    SET_DATA,
    SETTINGS,
    TOPICS,
    TRUNCATE,
    WILL,
    Command,
)

Handler = Callable[[Command, int], object]

LEADER: Final = ServerId(0)
"""The server number of the leader's own batches, which are not deduplicated."""
MORE_ORDINARY: Final = 64
"""How many commands of a run are executed in one loop at most, after one that was not ordinary."""

_INT64_MAX: Final = 2**63 - 1
_NO_OWNER: Final[Owner] = (LEADER, Instance(b""), 0)
_NOTHING: Final[Mapping[int, Handler]] = {}


class Machine:
    """The replicated state. Equal sequences of calls give equal states, results and events.

    Read-only for others: `nodes`, `sessions`, `rows`, `settings`, and

    - `last_zxid`, `position`: of the last command executed (D-15, D-16);
    - `log_time`, `wall_time`: of the current entry, milliseconds (D-12);
    - `index`, `term`: of the current entry;
    - `members`: who is to belong to the cluster (`zraft.tree.members`), {} until it was written down;
    - `registry`: producers, topics and groups (docs/explanation/topics.md), empty before feature level 4;
    - `feature_level`: in force (`zraft.config.features`); whoever sets it raises it;
    - `digests`: the newest (index, digest as of after that entry), noted when the entry after it begins (D-26);
    - `image_writer`: the one that is open, if any;
    - `attended`: how many sessions each server has that has some;
    - `wills_dropped`: that could not be carried out (D-19), since this object was made: no part of the state.

    `events` collects what `execute` made happen, in ZooKeeper's order; whoever consumes it clears it. What `begin_entry`
    took out of memory (D-20) is told with the first command after it, at whose zxid nobody has been answered yet. While
    `observed` is false, whoever consumes them has nobody to tell of them, and few are made. `watched` are the paths of
    which somebody has to be told, as long as it is known by path; None: everything may have to be told. While `answered`
    is false, nobody waits for what `execute` returns, and a multi returns (). While `behind` is true, entries wait to be
    applied, and what can be done later is. All four are no part of the state.
    """

    __slots__ = (
        "_checked_ids",
        "_feature_level",
        "_leader_handlers",
        "_next_zxid",
        "_noted_index",
        "_once_handlers",
        "_origin_handlers",
        "_owner",
        "_part_handlers",
        "_run_code",
        "_run_handlers",
        "_session_handlers",
        "_tree",
        "answered",
        "attended",
        "behind",
        "digests",
        "events",
        "image_writer",
        "index",
        "last_zxid",
        "members",
        "nodes",
        "origins",
        "position",
        "registry",
        "sessions",
        "term",
        "watched",
        "wills_dropped",
    )

    def __init__(self, members: Iterable[Origin] = (), settings: Settings | None = None) -> None:
        self._tree = tree = Tree(settings if settings is not None else Settings())
        self.nodes: NodeTable = tree.nodes
        self.sessions: dict[int, Session] = tree.sessions
        self.attended: dict[ServerId, int] = tree.attended
        self.events: list[Event] = tree.events
        self.origins = Origins()
        self.registry = Registry(limits_of(tree.settings))
        self._feature_level = FEATURE_LEVEL_MIN
        self.last_zxid = self.position = self.index = self.term = 0
        self.members: dict[ServerId, WantedMember] = {}
        self.digests: deque[tuple[int, int]] = deque(maxlen=DIGESTS_KEPT)
        self._noted_index = 0
        self.image_writer: ImageWriter | None = None
        self.wills_dropped = 0
        self.watched: Watched | None = None
        self.answered = True
        self.behind = False
        self.set_members(members)
        self._next_zxid = zxid_after(0, 0)
        self._set_handlers()
        self._leader_handlers: Mapping[int, Handler] = {
            EXPIRE: self._expire,
            REAP: tree.reap,
            SETTINGS: self._change_settings,
            MEMBERS: self._change_members,
            FEATURE: self._raise_feature_level,
            TOPICS: self._change_topics,
        }
        self._owner: Owner = _NO_OWNER
        self._checked_ids: Ids = ()
        self._run_handlers = _NOTHING
        self._run_code = Code.BAD_ARGUMENTS

    @property
    def feature_level(self) -> int:
        """The feature level in force."""
        return self._feature_level

    @feature_level.setter
    def feature_level(self, level: int) -> None:
        self._feature_level = level
        self._tree.topic_acls.begin(in_force=level >= LEVEL_OF_ACCESS)
        self._set_handlers()

    def _set_handlers(self) -> None:
        """Set what sessions and origins may ask for at the level in force: a command never looks at the level."""
        tree = self._tree
        self._part_handlers = part_handlers(tree)
        writes: dict[int, Handler] = {
            CREATE: tree.create,
            CREATE2: tree.create,
            CREATE_CONTAINER: tree.create,
            CREATE_TTL: tree.create,
            DELETE: tree.delete,
            DELETE_CONTAINER: tree.delete_container,
            SET_DATA: tree.set_data,
            SET_ACL: tree.set_acl,
            MULTI: self._multi,
        }
        of_sessions: dict[int, Handler] = {
            CLOSE_SESSION: self._close_session,
            MEMBERS: self._change_members,
        }
        of_origins: dict[int, Handler] = {
            CREATE_SESSION: self._create_session,
            ATTACH: self._attach,
            REGISTER: self._register,
            MEMBERS: self._change_members,
            SETTINGS: self._change_settings,
        }
        if self._feature_level >= LEVEL_OF_NATIVE:
            upserts: dict[int, Handler] = {PUT: partial(put, tree), ADD: partial(add, tree)}
            self._part_handlers |= upserts
            writes |= upserts
            of_sessions |= {ONCE: self._once, WILL: partial(register_will, tree)}
            writes |= {TRUNCATE: partial(truncate, tree)}
            of_origins |= writes
        if self._feature_level >= LEVEL_OF_TOPICS:
            topics: dict[int, Handler] = {TOPICS: self._change_topics}
            of_sessions |= topics
            of_origins |= topics
        if self._feature_level >= LEVEL_OF_ACCESS:
            self._part_handlers |= {SET_ACL: tree.set_acl}
        self._session_handlers = writes | of_sessions
        # What a numbered command came to is a part of the state, whoever waits for it.
        self._once_handlers = self._session_handlers | {
            MULTI: partial(execute_multi, tree, self._part_handlers)
        }
        self._origin_handlers = of_origins

    @property
    def observed(self) -> bool:
        """True if somebody is told of what `execute` makes happen."""
        return self._tree.observed

    @observed.setter
    def observed(self, observed: bool) -> None:
        self._tree.observed = observed

    @property
    def rows(self) -> dict[Origin, OriginRow]:
        """The row of each origin."""
        return self.origins.rows

    @property
    def faults(self) -> int:
        """The number of batches that did not follow the protocol."""
        return self.origins.faults

    @property
    def settings(self) -> Settings:
        """The replicated settings."""
        return self._tree.settings

    @property
    def log_time(self) -> int:
        """The log time of the last batch, in ms."""
        return self._tree.log_time

    @property
    def wall_time(self) -> int:
        """The wall time of the last batch, in ms."""
        return self._tree.wall_time

    @property
    def mortal(self) -> Collection[str]:
        """Paths of containers and znodes with a time to live, in no order."""
        return self._tree.mortal

    @property
    def quotas(self) -> Quotas:
        """The quotas and their use."""
        return self._tree.quotas

    @property
    def topic_acls(self) -> TopicAcls:
        """The ACLs of topics and consumers; it stays the same object."""
        return self._tree.topic_acls

    @property
    def hidden(self) -> Hidden:
        """Directories with children that are gone, and still in `nodes` (`zraft.tree.hiding`)."""
        return self._tree.hidden

    def find(self, path: str) -> Znode | None:
        """Return the znode at `path`, as clients may see it: `nodes` also holds what a truncation has hidden."""
        return self._tree.find(path)

    @property
    def ghosts(self) -> dict[str, int]:
        """The deleted directories whose hidden children are still in memory, with their `first`."""
        hidden = self._tree.hidden
        return (
            {path: names.first for path, names in hidden.items() if path not in self.nodes} if hidden else {}
        )

    # -- the frame around commands

    def set_members(self, members: Iterable[Origin]) -> None:
        """Apply a MEMBERSHIP entry: origin rows exist exactly for these (server, instance) from now on (D-3)."""
        members = list(members)
        assert all(SERVER_ID_MIN <= server <= SERVER_ID_MAX for server, _ in members), f"{members=}"
        self._note_digest()
        self.origins.set_members(members)

    def pass_entry(self, index: int, term: int) -> None:
        """Apply an entry without commands (NOOP, MEMBERSHIP)."""
        self._note_digest()
        self.index = index
        self.term = term

    def begin_entry(self, index: int, term: int, position: int, log_time_ms: int, wall_time_ms: int) -> None:
        """Begin a COMMANDS entry; `position` is that of its first command."""
        if self.index % DIGEST_EVERY == 0:
            self._note_digest()
        self.index = index
        self.term = term
        self._next_zxid = zxid_after(self.last_zxid, term)
        # None of the three may go back or leave 64 bits, whatever a faulty leader stamps.
        if position - 1 > self.position:
            self.position = position - 1
        if log_time_ms.__class__ is int and self._tree.log_time < log_time_ms <= _INT64_MAX:
            self._tree.log_time = log_time_ms
        if wall_time_ms.__class__ is int and 0 <= wall_time_ms <= _INT64_MAX:
            self._tree.wall_time = wall_time_ms
        self._tree.digest.relieve(-index % DIGEST_EVERY + 1, behind=self.behind)
        if self._tree.hidden:
            drain(self._tree)

    def begin_batch(self, server: ServerId, instance: Instance, boot: int, seq: int) -> bool:
        """Return whether this batch is to be executed; if not, pass its commands to `skip_batch` (D-2, D-3)."""
        self._end_run(Code.BAD_ARGUMENTS)
        well_formed = (
            server.__class__ is int
            and instance.__class__ is bytes
            and boot.__class__ is int
            and seq.__class__ is int
        )
        if not well_formed:
            return False
        self._owner = (server, instance, boot)
        return server == LEADER or self.origins.accept((server, instance), boot, seq)

    def skip_batch(self, count: int) -> None:
        """Skip a batch that was not accepted: its `count` commands have positions but no zxids (D-15, D-16)."""
        self.position += count

    def begin_run(self, session: int, ids: Ids) -> Code:
        """Begin a run; if the code is not OK, each of its commands fails with it, at its own zxid."""
        tree = self._tree
        if ids != self._checked_ids:
            # Most runs are of clients with the ids of those before them.
            if not are_ids(ids):
                return self._end_run(Code.MARSHALLING_ERROR)
            self._checked_ids = ids
        if session.__class__ is not int:
            return self._end_run(Code.MARSHALLING_ERROR)
        tree.ids = ids
        if session == 0:
            tree.session = None
            self._run_code = Code.OK
            self._run_handlers = self._leader_handlers if self._owner[0] == LEADER else self._origin_handlers
            return Code.OK
        if session not in self.sessions:
            return self._end_run(Code.SESSION_EXPIRED)
        found = self.sessions[session]
        if found.owner != self._owner:
            return self._end_run(Code.SESSION_MOVED)
        tree.session = found
        tree.digest.dirty_sessions.add(session)  # its write_position will move
        self._run_code = Code.OK
        self._run_handlers = self._session_handlers
        return Code.OK

    def execute(self, command: Command) -> object:
        """Execute one command, at the next position and zxid, whether it succeeds or fails.

        Returns:
            A `Code` below 0 for a failure, else by command: SET_DATA, SET_ACL, PUT the `Znode`; creates (path,
            `Znode`); ADD (value, `Znode`); DELETE, CLOSE_SESSION, REGISTER, EXPIRE, REAP, SETTINGS, WILL, TRUNCATE
            `Code.OK`; TOPICS a `Result`; CREATE_SESSION, ATTACH the `Session`; MULTI a tuple of `PartResult` or
            `MultiFailed`; ONCE an `Outcome`, also of a failure. Znodes and sessions go on changing with later
            commands: build the reply before the next one is executed.
        """
        self.position = position = self.position + 1
        self.last_zxid = zxid = self._next_zxid
        self._next_zxid = zxid + 1
        session = self._tree.session
        if session is not None:
            session.write_position = position
        try:
            handler = self._run_handlers[command[0]]
        except (TypeError, LookupError):
            return self._why_not(command)
        return handler(command, zxid)

    def execute_ordinary(self, commands: Sequence[Command], at: int, results: list[Any] | None) -> int:
        """Execute the commands of a run from number `at` on, as long as they are ordinary.

        They come to what `execute` would make of them, and nobody has to be told an event of them; see
        `zraft.tree.commands.ordinary`.

        Args:
            commands: of the run.
            at: there is a command with this number. Behind another one at most `MORE_ORDINARY` are executed at once,
                since a loop that ends soon must not have looked at all that come after it.
            results: gets what each came to, as values that later commands do not change; None if nobody is answered.

        Returns:
            How many were executed: the next one, if there is any, is for `execute`.
        """
        tree = self._tree
        watched = self.watched
        try:
            loop = LOOPS[commands[at][0]]
            handled = commands[at][0] in self._run_handlers
        except (TypeError, LookupError):
            return 0
        if not handled or watched is None or tree.hidden or tree.quotas.limited:
            return 0
        zxid = self._next_zxid
        if at:
            commands = commands[at : at + MORE_ORDINARY]
        done = loop(tree, watched, commands, zxid, results)
        if done:
            self.position += done
            self._next_zxid = zxid + done
            self.last_zxid = zxid + done - 1
            if tree.session is not None:
                tree.session.write_position = self.position
        return done

    def _why_not(self, command: Command) -> Code:
        """Return what a command is answered that cannot be executed in this run."""
        if self._run_code is not Code.OK:
            return self._run_code
        try:
            hash(command[0])
        except (TypeError, LookupError):  # it is no tuple, or an empty one, or its opcode cannot be one
            return Code.MARSHALLING_ERROR
        return Code.UNIMPLEMENTED

    def _end_run(self, code: Code) -> Code:
        """End the run: no command can be executed until the next one begins; each fails with `code`."""
        self._run_code = code
        self._run_handlers = _NOTHING
        self._tree.session = None
        self._tree.ids = ()
        return code

    # -- commands of sessions, origins and leaders

    def _multi(self, command: Command, zxid: int) -> object:
        return execute_multi(self._tree, self._part_handlers, command, zxid, answered=self.answered)

    def _once(self, command: Command, zxid: int) -> Outcome | Code:
        session = self._tree.session
        assert session is not None, "a run without a session was given a numbered command"
        return execute_once(session, self._tree.digest, self._once_handlers, command, zxid, self.position)

    def _create_session(self, command: Command, zxid: int) -> Session | Code:
        try:
            _, timeout_ms, password = command
        except ValueError:
            return Code.MARSHALLING_ERROR
        if (
            timeout_ms.__class__ is not int
            or password.__class__ is not bytes
            or len(password) != PASSWORD_BYTES
        ):
            return Code.MARSHALLING_ERROR
        session_id = session_id_for(self._owner[0], zxid)
        if session_id in self.sessions:
            # This happens only after 2^56 zxids, when the oldest sessions' ids come round again.
            return Code.SYSTEM_ERROR
        timeout_ms = self._tree.settings.clamped_timeout_ms(timeout_ms)
        session = Session(session_id, password, timeout_ms, self._owner, self.position)
        self._tree.digest.dirty_sessions.add(session_id)
        self.sessions[session_id] = session
        self._arrive()
        return session

    def _attach(self, command: Command, zxid: int) -> Session | Code:
        if len(command) != 4:
            return Code.MARSHALLING_ERROR
        _, session_id, timeout_ms, password = command
        if (
            session_id.__class__ is not int
            or timeout_ms.__class__ is not int
            or password.__class__ is not bytes
            or len(password) != PASSWORD_BYTES
        ):
            return Code.MARSHALLING_ERROR
        session = self.sessions.get(session_id)
        if session is None or session.password != password:
            return Code.SESSION_EXPIRED
        self._tree.digest.dirty_sessions.add(session_id)
        self._leave(session)
        session.owner = self._owner
        self._arrive()
        session.timeout_ms = self.settings.clamped_timeout_ms(timeout_ms)
        session.attach_position = session.write_position = self.position
        return session

    def _register(self, command: Command, zxid: int) -> Code:
        if (
            len(command) != 2
            or command[1].__class__ is not bytes
            or not 0 < len(command[1]) <= BOOT_ID_BYTES_MAX
        ):
            return Code.MARSHALLING_ERROR
        server, instance, _ = self._owner
        row = self.rows[server, instance]
        if row.boot_id:
            # One boot registers once; another id under the same number is a copy of the directory (D-1).
            return Code.OK if row.boot_id == command[1] else Code.BAD_ARGUMENTS
        row.boot_id = command[1]
        return Code.OK

    def _close_session(self, command: Command, zxid: int) -> Code:
        try:
            (_,) = command
        except ValueError:
            return Code.MARSHALLING_ERROR
        session = self._tree.session
        assert session is not None, "a run without a session was given a close"
        self._end_session(session, zxid)  # its run has marked it
        self._end_run(Code.SESSION_EXPIRED)
        return Code.OK

    def _expire(self, command: Command, zxid: int) -> Code:
        """Expire a session; return OK if it ended (D-11).

        UNKNOWN_SESSION if there is none, BAD_VERSION if it attached or wrote since: nothing changes.
        """
        if len(command) != 7 or not all(field.__class__ is int for field in command):
            return Code.MARSHALLING_ERROR
        session = self.sessions.get(command[1])
        if session is None:
            return Code.UNKNOWN_SESSION
        if session.attach_position != command[2] or session.write_position != command[3]:
            return Code.BAD_VERSION
        self._tree.digest.dirty_sessions.add(session.id)
        self._end_session(session, zxid)
        return Code.OK

    def _change_settings(self, command: Command, zxid: int) -> Code:
        if len(command) != 2 or command[1].__class__ is not dict:
            return Code.MARSHALLING_ERROR
        settings = self.settings.changed(command[1], self.feature_level)
        if settings is None:
            return Code.BAD_ARGUMENTS
        self._tree.settings = settings
        self.registry.settings = limits_of(settings)
        return Code.OK

    def _change_topics(self, command: Command, zxid: int) -> Result | Code:
        if self.feature_level < LEVEL_OF_TOPICS:
            return Code.UNIMPLEMENTED
        return change_topics(self._tree, self.registry, command, zxid)

    def _change_members(self, command: Command, zxid: int) -> Znode | Code:
        """Execute [MEMBERS, replace, version, [[server, part, address], ...]]; return /zookeeper/config as changed.

        `version` is what the wish must be of (the zxid of its last change), -1 for any. A client, with a session or
        without one, needs the right to write the configuration; servers and the leader, whose operators hold the
        cluster's key, have no ids and need none.
        RECONFIG_IN_PROGRESS before the leader has written down the members that the cluster was founded with.
        """
        if self.feature_level < LEVEL_OF_MEMBERS:
            return Code.UNIMPLEMENTED
        if len(command) != 4 or command[2].__class__ is not int:
            return Code.MARSHALLING_ERROR
        _, replace, version, changes = command
        if not self.members and self._owner[0] != LEADER:
            # The leader writes down first who there is: a change of nothing would throw all present members out.
            return Code.RECONFIG_IN_PROGRESS
        node = self.nodes.get(CONFIG)
        assert node is not None, f"{CONFIG} cannot be deleted"
        # A caller without the right learns no more than what anybody may read; the order is ZooKeeper's.
        if version not in (-1, node.mzxid):
            return Code.BAD_VERSION
        members = changed_members(self.members, replace, changes)
        if self._owner[0] != LEADER and not isinstance(members, Code):
            # The founders may have been started with such an address; nobody can be sent to a new one.
            before = {member.address for member in self.members.values()}
            if any(m.address.startswith(EVERYWHERE) and m.address not in before for m in members.values()):
                members = Code.BAD_ARGUMENTS
        by_client = self._tree.session is not None or self._tree.ids
        allowed = not by_client or permits(node.acl, WRITE, self._tree.ids)
        if isinstance(members, Code):
            # Only here is refused what ZooKeeper would have let pass up to here, such as a number above those
            # of our servers; what nobody can read is an empty tuple.
            ours = members is Code.BAD_ARGUMENTS and () not in changes
            return Code.NO_AUTH if ours and not allowed else members
        if not allowed:
            return Code.NO_AUTH
        self.members = members
        return self._show_members(zxid)

    def _show_members(self, zxid: int) -> Znode:
        """Write the members into /zookeeper/config, in the form of the feature level in force."""
        return self._tree.set_configuration(config_text(self.members, zxid, self.feature_level), zxid)

    def _raise_feature_level(self, command: Command, zxid: int) -> Code:
        """Execute [FEATURE, level]; return BAD_ARGUMENTS if it is not higher than the one in force.

        Raises:
            FeatureLevelError: this release does not know the level, so it cannot apply what follows.
        """
        if len(command) != 2 or command[1].__class__ is not int:
            return Code.MARSHALLING_ERROR
        level: int = command[1]
        if level <= self.feature_level:
            return Code.BAD_ARGUMENTS
        check_level(level, f"the log from entry {self.index} on")
        changes_form = self.feature_level < LEVEL_OF_ONE_PORT <= level
        self.feature_level = level
        if changes_form and self.members:
            self._show_members(zxid)
        return Code.OK

    def _arrive(self) -> None:
        """Count a session more at the server whose batch is executed."""
        server, attended = self._owner[0], self.attended
        attended[server] = attended[server] + 1 if server in attended else 1

    def _leave(self, session: Session) -> None:
        """Count a session less where it is."""
        server, attended = session.owner[0], self.attended
        left = attended[server] - 1
        if left:
            attended[server] = left
        else:
            del attended[server]

    def _end_session(self, session: Session, zxid: int) -> None:
        """End a session that is marked and exactly its ephemerals, in the order of their paths; then its will is done."""
        hidden = self._tree.hidden
        for path in sorted(session.ephemerals) if session.ephemerals else ():
            if hidden and is_hidden(hidden, path):
                forget_hidden(self._tree, path)
            else:
                self._tree.remove(path, zxid)
        del self.sessions[session.id]
        self._leave(session)
        self._tree.digest.total -= session.folded
        if session.id in self.registry.owned:
            self.registry.apply(EndOwner(session.id), zxid)
        if session.will is not None and not carry_out(self._tree, session.will, zxid):
            self.wills_dropped += 1

    # -- images

    @property
    def marks(self) -> TreeDigest:
        """The digest, which tells an `ImageWriter` of each change before it happens."""
        return self._tree.digest

    def adopt(self, state: ImageState) -> Remains:
        """Take on the state of an image, between two entries, in about a millisecond.

        This object, `nodes`, `sessions`, `events`, `quotas` and `origins` stay the same objects; `settings`, `rows`,
        `mortal`, and every `Znode` and `Session`, are others from now on. An image being written is given up. No event
        tells what changed: whoever watches must be caught up, or sent away.

        Returns:
            What is left of the old state, to be taken apart in steps.
        """
        if self.image_writer is not None:
            self.image_writer.close()
        self._end_run(Code.BAD_ARGUMENTS)
        self.behind = False
        remains = self._tree.adopt(state)
        self.feature_level = state.feature_level
        self.last_zxid = state.last_zxid
        self.position = state.position
        self.index = state.index
        self.term = state.term
        self._next_zxid = zxid_after(state.last_zxid, state.term)
        self.members = state.members
        self.registry.become(state.registry)
        self.registry.settings = limits_of(state.settings)
        self.origins.rows = state.rows
        self.origins.faults = state.faults
        # The digests that this server computed before say nothing about the state that it has now.
        self.digests.clear()
        self._noted_index = 0
        return remains

    def begin_anew(
        self, zxid: int, origin: Origin, members: Wanted, registry: Registry | None = None
    ) -> None:
        """Become the state in which another cluster begins, which `origin` founds; the znodes and sessions stay (D-15).

        `zxid` counts as the last one, and is that of the configuration; `members` is who is to belong to the cluster.
        Topics are those of `registry`, which `zraft.topics.anew` makes; without one they go, as producers always do: what
        partitions hold is in groups of the old cluster, which the new one has only if somebody brings them along.
        Between two entries; nobody is told of an event. Index, term, position and the times stay as well.
        """
        assert self.image_writer is None, "a state that is being written as it is"
        assert zxid > self.last_zxid, f"{zxid=:#x} after {self.last_zxid:#x}"
        self._end_run(Code.BAD_ARGUMENTS)
        self.feature_level = max(self.feature_level, LEVEL_OF_MEMBERS)
        self.last_zxid = zxid
        self._next_zxid = zxid_after(zxid, self.term)
        self.origins.rows = {origin: OriginRow()}
        self.origins.faults = 0
        self.registry.become(Registry() if registry is None else registry)
        self.members = {server: members[server] for server in sorted(members)}
        self._show_members(zxid)
        self.events.clear()
        self.digests.clear()
        self._noted_index = 0

    def recount_quotas(self) -> None:
        """Make the usage of all quotas what it is, between two entries: parts of the tree were left out."""
        recount(self._tree)

    def _note_digest(self) -> None:
        """Remember the digest of the complete entry `index` if it is a point. Twice changes nothing.

        A point is passed over if there is too much to hash, as in a long replay and after it: another one is near.
        """
        index = self.index
        marks_max = PENDING_AT_POINT if self.behind else DIRTY_MAX
        if index % DIGEST_EVERY == 0 and index != self._noted_index and self.undigested <= marks_max:
            self._noted_index = index
            self.digests.append((index, self.digest()))

    # -- comparing states

    def digest(self) -> int:
        """Return the digest: 128 bits that equal states share (D-26).

        It costs about 3 us per item changed since the last call.
        """
        return self._tree.digest.folded_total((*small_shares(self), self.registry.digest.value()))

    @property
    def undigested(self) -> int:
        """Items that `digest` would have to hash now."""
        return self._tree.digest.pending + self.registry.digest.pending

    def fold_digest(self, limit: int) -> None:
        """Hash up to `limit` changed items ahead of the next `digest`; changes no result."""
        self._tree.digest.fold(limit)
        self.registry.digest.fold(limit)

    def full_digest(self) -> int:
        """Return the same, computed from every item; for tests and checkers."""
        return self._tree.digest.full_total((*small_shares(self), full_digest(self.registry)))

    def image(self) -> tuple[Any, ...]:
        """Return the whole state as nested sorted tuples, equal if and only if the states are; for checkers."""
        nodes = sorted(
            (
                path,
                node.data,
                node.acl,
                node.stat(),
                node.creates,
                node.first,
                tuple(sorted(names_of(path, node.children))),
                node.lifetime or (),
            )
            for path, node in self.nodes.items()
        )
        sessions = sorted(
            (
                s.id,
                s.password,
                s.timeout_ms,
                s.owner,
                s.attach_position,
                s.write_position,
                tuple(sorted(s.ephemerals)),
                s.memory(),
            )
            for s in self.sessions.values()
        )
        registry = tuple(registry_image(self.registry))
        return (
            ("node", tuple(nodes)),
            ("session", tuple(sessions)),
            ("registry", registry),
            *small_items(self),
        )
