"""A random script from a seed: rounds of requests by sessions, to be applied alike to two systems.

In a round one session acts and all others only listen, so that the order of everything is defined although requests of
a round are pipelined. A script knows nothing of the answers. Where a request needs something that only an answer tells,
such as the name of a sequential znode, it holds a `Made` or a `ZxidOf`, which each side fills in for itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Container
from random import Random
from typing import Any, Final

from attrs import evolve, frozen

from tests.compat.differential.protocol import (
    Made,
    Op,
    ZxidOf,
)
from tests.simulation.jute import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CHECK_WATCHES,
    CLOSE,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    EXISTS,
    GET_ACL,
    GET_ALL_CHILDREN_NUMBER,
    GET_CHILDREN,
    GET_CHILDREN2,
    GET_DATA,
    GET_EPHEMERALS,
    MULTI,
    MULTI_READ,
    PING,
    REMOVE_WATCHES,
    SET_ACL,
    SET_DATA,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    WHO_AM_I,
)

SERVERS: Final = 3
PINNED: Final = ("one", "two", "three")
"""Sessions that stay on their server and never end, so that each server always has one to catch up with."""
WANDERING: Final = ("four", "five", "six")
ROUND_STEPS: Final = (1, 1, 2, 4, 8, 14, 20, 28)
TIMEOUTS_MS: Final = (30_000, 40_000, 25_000)
"""Long ones: nothing may expire while the slower side catches up."""

CONFIG: Final = "/zookeeper/config"
"""Not read: ZooKeeper shows its addresses there, zraft leaves it empty (docs/reference/compatibility.md)."""
NAMES: Final = ("a", "b", "c", "é√", "with blank")
SPECIAL_PATHS: Final = ("/", "/zookeeper", "/zookeeper/quota", CONFIG, "")
INVALID_PATHS: Final = (
    "a",
    "/a/",
    "//",
    "/a//b",
    "/./a",
    "/a/../b",
    "/..",
    "/a\0b",
    "/a\x01",
    "/a\x7f",
    "/\uf8ff",
    "/\ufff0",
)
DATA: Final = (None, b"", b"x", b"some data", b"\0\xff\xfe", b"long " * 200)
VERSIONS: Final = (-1, -1, -1, 0, 0, 1, 2, 3, -2)
USERS: Final = (("ann", "secret"), ("bob", "x:y"), ("é", "√"))
READING: Final = (EXISTS, GET_DATA, GET_CHILDREN2, GET_ACL)
FLAGS: Final = (0, 0, 0, 0, 1, 1, 2, 2, 3, 4)
FLAGS_OF: Final = {CREATE_CONTAINER: (4,), CREATE_TTL: (5, 6)}
TTLS: Final = (1_000_000_000, 1 << 39, (1 << 40) - 1)
"""In ms; long enough that none passes."""
WRONG_TTLS: Final = (1 << 40, 0, -1)
UNKNOWN_FLAGS: Final = (7, 9, -1, 100)
WORLD: Final = ((31, "world", "anyone"),)


def digest_of(user: str, password: str) -> str:
    """The id that scheme digest gives to this user."""
    raw = hashlib.sha1(f"{user}:{password}".encode()).digest()
    return f"{user}:{base64.b64encode(raw).decode()}"


ACLS: Final[tuple[tuple[tuple[int, str | None, str | None], ...] | None, ...]] = (
    *(WORLD,) * 12,
    ((1, "world", "anyone"),),
    ((3, "world", "anyone"),),
    ((30, "world", "anyone"), (31, "digest", digest_of(*USERS[0]))),
    ((31, "digest", digest_of(*USERS[0])), (1, "world", "anyone")),
    ((31, "digest", digest_of(*USERS[1])),),
    ((17, "digest", digest_of(*USERS[2])), (31, "ip", "127.0.0.1")),
    ((31, "ip", "127.0.0.1"),),
    ((31, "ip", "127.0.0.0/8"), (1, "ip", "127.0.0.1/32")),
    ((31, "ip", "10.0.0.0/8"), (15, "world", "anyone")),
    ((31, "auth", ""),),
    ((31, "auth", None),),
    ((31, "auth", "ignored"), (1, "world", "anyone")),
    ((31, "world", "anyone"), (31, "world", "anyone"), (1, "world", "anyone")),
    ((0, "world", "anyone"),),
    (),
    None,
    ((31, "world", "somebody"),),
    ((31, "digest", "without-a-colon"),),
    ((31, "digest", "a:b:c"),),
    ((31, "ip", "not an address"),),
    ((31, "ip", "127.0.0.1/33"),),
    ((31, "nonsense", "x"),),
    ((31, "", ""),),
    ((31, None, None),),
    ((31, None, "anyone"),),
)


@frozen
class Requests:
    """`session` sends these in one go; it is connected first if it is not."""

    session: str
    server: int
    steps: tuple[tuple[int, Op], ...]


@frozen
class Attach:
    """`session` drops its connection, if it has one, and goes to `server`. A `password` of None is its own."""

    session: str
    server: int
    timeout_ms: int
    password: bytes | None


Round = Requests | Attach


def script(seed: int, operations: int, without: Container[int] = ()) -> list[Round]:
    """Rounds with `operations` requests in all, none of them with an opcode of `without`."""
    return _Author(Random(seed), without).write(operations)


class _Author:
    def __init__(self, rng: Random, without: Container[int]) -> None:
        self._rng = rng
        self._without = without
        self._step = 0
        self._sequential: list[tuple[int, str]] = []
        self._used: list[str] = ["/a"]

    def write(self, operations: int) -> list[Round]:
        rounds: list[Round] = [
            Attach(name, server, TIMEOUTS_MS[0], None) for server, name in enumerate(PINNED)
        ]
        at = dict(zip(PINNED, range(SERVERS), strict=True))
        while self._step < operations:
            name = self._rng.choice((*PINNED, *WANDERING, *WANDERING))
            if name in WANDERING and (name not in at or self._rng.random() < 0.08):
                at[name] = self._rng.randrange(SERVERS)
                wrong = self._rng.random() < 0.03
                rounds.append(
                    Attach(
                        name, at[name], self._rng.choice(TIMEOUTS_MS), b"wrong".ljust(16) if wrong else None
                    )
                )
                if self._rng.random() < 0.7 and SET_WATCHES not in self._without:
                    rounds.append(Requests(name, at[name], (self._numbered(self._set_watches()),)))
                continue
            rounds.append(self._round(name, at[name]))
            if self._rng.random() < 0.02:
                # In zraft the answer may pass those that wait for a write.
                rounds.append(Requests(name, at[name], (self._numbered(Op(PING, ())),)))
            if self._rng.random() < 0.01:
                # Answered before those that wait, and it ends the connection: alone in its round.
                unknown = self._rng.choice((Op(CHECK, ("/a", -1)), Op(10, (b"",)), Op(999, (b"\0\0\0\0",))))
                rounds.append(Requests(name, at[name], (self._numbered(unknown),)))
            if self._rng.random() < 0.04 and AUTH not in self._without:
                rounds.append(Requests(name, at[name], (self._numbered(self._auth()),)))
        return rounds

    def _round(self, name: str, server: int) -> Requests:
        count = self._rng.choice(ROUND_STEPS)
        steps: list[tuple[int, Op]] = []
        while len(steps) < count:
            steps.append(self._numbered(self._any(self._step + 1)))
            if steps[-1][1].opcode == SET_ACL:
                # While it is under way, ZooKeeper judges what is behind it by the old list; zraft never does.
                break
        # A session that is closed cannot be asked afterwards what it may read, as setWatches needs.
        may_close = not any(op.opcode in (SET_WATCHES, SET_WATCHES2) for _, op in steps)
        if name in WANDERING and self._rng.random() < 0.03 and may_close:
            steps.append(self._numbered(Op(CLOSE, ())))
        return Requests(name, server, tuple(steps))

    def _numbered(self, op: Op) -> tuple[int, Op]:
        self._step += 1
        return self._step, op

    # -- values

    def _path(self) -> Any:
        chance = self._rng.random()
        if chance < 0.02:
            return self._rng.choice(INVALID_PATHS)
        if chance < 0.06:
            return self._rng.choice(SPECIAL_PATHS)
        if chance < 0.25 and self._sequential:
            return Made(*self._rng.choice(self._sequential[-20:]))
        return self._plain()

    def _plain(self) -> str:
        if self._rng.random() < 0.3:
            return self._rng.choice(self._used[-12:])
        # Few paths, so that requests meet.
        names = [self._rng.choice(NAMES) for _ in range(self._rng.choice((1, 1, 1, 2, 2, 3)))]
        path = "/" + "/".join(names)
        self._used.append(path)
        return path

    def _flags(self) -> int:
        return self._rng.choice(FLAGS if self._rng.random() < 0.98 else UNKNOWN_FLAGS)

    def _set_watches(self) -> Op:
        relative = self._rng.choice(
            (0, ZxidOf(max(1, self._step - self._rng.randrange(60))), ZxidOf(self._step))
        )
        lists = [tuple(self._plain() for _ in range(self._rng.randrange(4))) for _ in range(5)]
        if self._rng.random() < 0.5 or SET_WATCHES2 in self._without:
            return Op(SET_WATCHES, (relative, *lists[:3]))
        return Op(SET_WATCHES2, (relative, *lists))

    def _auth(self) -> Op:
        """Always alone in its round: in ZooKeeper the answer may overtake those before it."""
        if self._rng.random() < 0.1:
            return Op(
                AUTH,
                self._rng.choice(
                    (
                        *((0, "nonsense", b"x"), (0, "", b""), (0, "world", b"anyone"), (0, "auth", b"")),
                        *((0, None, b"a:b"), (0, "digest", None)),
                    )
                ),
            )
        user, password = self._rng.choice(USERS)
        return Op(AUTH, (0, "digest", f"{user}:{password}".encode()))

    # -- requests

    def _any(self, step: int) -> Op:
        kinds = (
            *((self._create, 22), (self._delete, 12), (self._set, 12), (self._read, 24), (self._multi, 8)),
            *((self._acl, 6), (self._watching, 7), (self._rare, 6)),
        )
        while True:
            made = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0](step)
            if not self._is_left_out(made):
                return made

    def _is_left_out(self, op: Op) -> bool:
        paths = [one.instead if isinstance(one, Made) else one for one in op.fields]
        if op.opcode in self._without or (op.opcode in READING and CONFIG in paths):
            return True
        return op.opcode in (MULTI, MULTI_READ) and any(
            self._is_left_out(part) for part in op.fields[0] if isinstance(part, Op)
        )

    def _create(self, step: int) -> Op:
        acl = self._rng.choice(ACLS) if self._rng.random() < 0.35 else WORLD
        data = self._rng.choice(DATA)
        path = self._path()
        chance = self._rng.random()
        if chance < 0.08:
            return Op(CREATE_CONTAINER, (path, data, acl, self._rng.choice((4, 4, 4, 0))))
        if chance < 0.16:
            flags = self._rng.choice((5, 5, 6, 0))
            if flags == 6:
                self._sequential.append((step, str(path)))
            # With flags that are none of a TTL znode's, ZooKeeper takes a ttl below 0 and makes a plain znode.
            ttl = self._rng.choice((*TTLS, *WRONG_TTLS) if flags in (5, 6) else TTLS)
            return Op(CREATE_TTL, (path, data, acl, flags, ttl))
        flags = self._flags()
        if flags in (2, 3):
            if self._rng.random() < 0.2 and isinstance(path, str):
                path = path.rstrip("/") + "/"
            self._sequential.append((step, "/a"))
        return Op(self._rng.choice((CREATE, CREATE2)), (path, data, acl, flags))

    def _delete(self, step: int) -> Op:
        return Op(DELETE, (self._path(), self._rng.choice(VERSIONS)))

    def _set(self, step: int) -> Op:
        return Op(SET_DATA, (self._path(), self._rng.choice(DATA), self._rng.choice(VERSIONS)))

    def _read(self, step: int) -> Op:
        opcode = self._rng.choice((EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2))
        return Op(opcode, (self._path(), self._rng.random() < 0.5))

    def _multi(self, step: int) -> Op:
        def part() -> Op:
            chance = self._rng.random()
            if chance < 0.45:
                made = self._create(step)
                # In a multi, ZooKeeper goes by the flags alone, not by the opcode, and refuses all for unknown ones.
                flags = FLAGS_OF.get(made.opcode, (0, 1, 2, 3))
                if made.fields[3] not in flags:
                    made = evolve(made, fields=(*made.fields[:3], flags[0], *made.fields[4:]))
                if made.fields[2] is None:
                    # No server of ZooKeeper's ensemble answers anybody any more.
                    made = evolve(made, fields=(*made.fields[:2], WORLD, *made.fields[3:]))
                # The path made by a multi is not known to the script: its answer has many.
                self._sequential[:] = [one for one in self._sequential if one[0] != step]
                return made
            if chance < 0.65:
                return self._delete(step)
            if chance < 0.85:
                return self._set(step)
            return Op(CHECK, (self._path(), self._rng.choice(VERSIONS)))

        return Op(MULTI, (tuple(part() for _ in range(self._rng.choice((0, 1, 2, 2, 3, 4, 6)))),))

    def _acl(self, step: int) -> Op:
        if self._rng.random() < 0.5:
            return Op(GET_ACL, (self._path(),))
        return Op(SET_ACL, (self._path(), self._rng.choice(ACLS), self._rng.choice(VERSIONS)))

    def _watching(self, step: int) -> Op:
        chance = self._rng.random()
        if chance < 0.5:
            return Op(
                ADD_WATCH,
                (self._path(), self._rng.choice((0, 1, 1) if self._rng.random() < 0.97 else (2, -1))),
            )
        if chance < 0.8:
            return Op(REMOVE_WATCHES, (self._path(), self._rng.choice((1, 2, 3, 3, 4, 5))))
        if chance < 0.95:
            return Op(CHECK_WATCHES, (self._path(), self._rng.choice((1, 2, 3, 4, 5))))
        return self._set_watches()

    def _rare(self, step: int) -> Op:
        chance = self._rng.random()
        if chance < 0.2:
            return Op(SYNC, (self._path(),))
        if chance < 0.4:
            return Op(GET_EPHEMERALS, (self._rng.choice(("/", "", "/a", "/b/", "/nowhere")),))
        if chance < 0.6:
            # For "", ZooKeeper counts the root among its own descendants.
            return Op(GET_ALL_CHILDREN_NUMBER, (self._path() or "/",))
        if chance < 0.7:
            return Op(WHO_AM_I, ())
        if chance < 0.81:
            # Malformed. Not those of writes: after a truncated create, ZooKeeper's ensemble answers nobody any more.
            opcode = self._rng.choice((EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2))
            return Op(opcode, (self._rng.choice((b"", b"\0\0\0\x08/a", b"\0\0")),))
        opcode = self._rng.choice((GET_DATA, GET_CHILDREN))
        parts = tuple(Op(opcode, (self._path(), False)) for _ in range(self._rng.randrange(4)))
        return Op(MULTI_READ, (parts,))
