"""Reading of a ZooKeeper's tree through a client's requests, into an image.

Pure, without a socket.

The caller sends what `requests` returns, in order, and tells `answered` every reply, in order. What a client
cannot see cannot be copied: sessions and their ephemeral znodes are left out, and a ZooKeeper since 3.5.3
does not tell containers and znodes with a time to live from others, so they become ordinary ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgpack
from attrs import Factory, define, frozen

from zraft.config.features import FEATURE_LEVEL_MIN
from zraft.offline.errors import OfflineError
from zraft.tree.digest import MODULUS, item_hash
from zraft.tree.image.layout import ACL, DIGEST_BYTES, END, FORMAT, HEAD, ZNODE
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.small_items import small_shares
from zraft.tree.lifetime import CONTAINER, TTL_MS_MAX
from zraft.tree.machine import Machine
from zraft.tree.members import WantedMember
from zraft.tree.node import BORN, table_at_birth
from zraft.tree.origins import Origin, OriginRow
from zraft.tree.settings import Settings
from zraft_core.errors import Code
from zraft_core.ids import ServerId
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import GetAcl, GetChildren, GetData, Request
from zraft_core.znodes.acl import OPEN_ACL, Acl
from zraft_core.znodes.stat import Stat

NAMED_MAX: Final = 20
"""The number of paths that cannot be read which a message names; all are counted."""

_ZOOKEEPER: Final = "/zookeeper"
_QUOTA: Final = "/zookeeper/quota"
_MASKED: Final = ":x"
"""The digest that a server shows in an ACL to a client that may not administer the znode.

No digest is one letter long.
"""

_CONTAINER_OWNER: Final = -(2**63)
_TTL_OWNER: Final = 0xFF
"""The highest byte of what servers before 3.5.3 show as the owner of a znode with a time to live."""


@define
class Counts:
    """Counts of what happened. `unreadable` are names of some, `unreadable_total` their number."""

    znodes: int = 0
    data_bytes: int = 0
    ephemerals: int = 0
    excluded: int = 0
    vanished: int = 0
    unreadable_total: int = 0
    unreadable: list[str] = Factory(list)


@frozen
class _Small:
    """The part of the state that is no znode, as the head of the image says."""

    log_time: int
    wall_time: int
    last_zxid: int = 0
    feature_level: int = FEATURE_LEVEL_MIN
    position: int = 0
    index: int = 1
    term: int = 1
    faults: int = 0
    settings: Settings = Factory(Settings)
    rows: dict[Origin, OriginRow] = Factory(dict)
    members: Mapping[ServerId, WantedMember] = Factory(dict)
    ghosts: Mapping[str, int] = Factory(dict)


@define(eq=False)
class _Visit:
    """A znode that was asked for: three requests together, whose answers may be of three moments."""

    path: str
    answers: list[Reply] = Factory(list)


_REQUESTS_PER_VISIT: Final = 3
_STEP: Final = 16


class Walk:
    """One reading of a tree.

    Args:
        exclude: paths that are left out, with all below them.
        skip_unreadable: leave out what may not be read, with all below it, instead of failing at the end.
        wall_ms: now; the ages of znodes with a time to live count from it.
    """

    def __init__(self, *, exclude: Iterable[str], skip_unreadable: bool, wall_ms: int) -> None:
        self._exclude = frozenset(exclude)
        self._skip_unreadable = skip_unreadable
        self._wall_ms = wall_ms
        self._due: deque[str] = deque(path for path in ("/", _QUOTA) if path not in self._exclude)
        self._asked: deque[_Visit] = deque()
        self._reader = ImageReader()
        self._packer = msgpack.Packer(use_bin_type=True)
        self._acl_numbers: dict[Acl, int] = {}
        self._shares = 0
        self._born: set[str] = set()
        self.counts = Counts()
        self.first_zxid: int | None = None
        """The server's last zxid when it answered first, and last: the tree was at rest if they are equal."""
        self.last_zxid = 0
        self._highest_zxid = 0
        # The last zxid is known at the end; until then the image says 0.
        self._small = small = _Small(wall_ms, wall_ms)
        self._feed(
            (
                HEAD, FORMAT, small.feature_level, small.last_zxid, small.position, small.log_time, small.wall_time,
                small.index, small.term, small.faults, small.settings.known_at(small.feature_level),
            )
        )  # fmt: skip

    @property
    def done(self) -> bool:
        """True when every request was answered."""
        return not self._due and not self._asked

    @property
    def due(self) -> int:
        """The number of znodes that are known and were not asked for yet."""
        return len(self._due)

    def requests(self, room: int) -> list[Request[Any]]:
        """Return the next requests, about `room` of them at most."""
        asked: list[Request[Any]] = []
        while self._due and len(asked) + _REQUESTS_PER_VISIT <= room:
            # The last comes first: then what waits is bounded by the depth of the tree times the width of
            # directories.
            path = self._due.pop()
            self._asked.append(_Visit(path))
            asked += (GetData(path), GetAcl(path), GetChildren(path))
        return asked

    def answered(self, reply: Reply) -> None:
        """Take the reply to the oldest request that has none.

        Raises:
            OfflineError: the server answers with an error that has nothing to do with the znode.
        """
        if self.first_zxid is None:
            self.first_zxid = reply.zxid
        self.last_zxid = max(self.last_zxid, reply.zxid)
        visit = self._asked[0]
        visit.answers.append(reply)
        if len(visit.answers) == _REQUESTS_PER_VISIT:
            self._asked.popleft()
            self._visited(visit.path, *visit.answers)

    def _visited(self, path: str, data: Reply, acl: Reply, children: Reply) -> None:
        counts = self.counts
        codes = {data.code, acl.code, children.code}
        if Code.NO_NODE in codes:
            if path not in BORN:
                counts.vanished += 1
            return
        if Code.NO_AUTH in codes or (acl.code is Code.OK and _is_masked(acl.value[0])):
            counts.unreadable_total += 1
            if len(counts.unreadable) < NAMED_MAX:
                counts.unreadable.append(path)
            if path in BORN and self._skip_unreadable:
                raise OfflineError(f"{path}: cannot be read, and no tree is without it; {_ADVICE}")
            return
        if codes != {Code.OK}:
            (code, *_) = codes - {Code.OK}
            raise OfflineError(
                f"{path}: the server answered {code.name} ({int(code)}); run the command again"
            )
        bytes_, stat = data.value
        if stat.ephemeral_owner and _lifetime(stat, self._wall_ms) is None:
            counts.ephemerals += 1
            return
        self._emit(path, bytes_, _acl_of(acl), stat)
        top = path.rstrip("/")
        for name in children.value:
            below = f"{top}/{name}"
            if below == _ZOOKEEPER:
                continue
            if below in self._exclude:
                counts.excluded += 1
                continue
            self._due.append(below)

    def _emit(self, path: str, data: bytes | None, acl: Acl, stat: Stat) -> None:
        self.counts.znodes += 1
        self.counts.data_bytes += len(data or b"")
        self._highest_zxid = max(self._highest_zxid, stat.czxid, stat.mzxid, stat.pzxid)
        if path in BORN:
            self._born.add(path)
        whose: Any = _lifetime(stat, self._wall_ms) or 0
        self._put(
            path, data, acl, stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime, stat.version,
            _creates(stat), stat.aversion, whose,
        )  # fmt: skip

    def _put(self, path: str, data: bytes | None, acl: Acl, *numbers: Any) -> None:
        number = 0
        if acl != OPEN_ACL:
            number = self._acl_numbers.get(acl, 0)
            if not number:
                number = self._acl_numbers[acl] = len(self._acl_numbers) + 1
                self._feed((ACL, number, acl))
        record = (ZNODE, path, data, number, *numbers)
        self._shares += item_hash("node", path, data, acl, *record[4:])
        self._feed(record)

    def _feed(self, record: tuple[Any, ...]) -> None:
        self._reader.feed(self._packer.pack(record))
        while self._reader.step(_STEP):
            pass

    def finish(self) -> Machine:
        """Return the state, as one in which a cluster can begin; it is checked like any image.

        Raises:
            OfflineError: something could not be read.
            ProtocolError: the server showed what no tree can be.
        """
        assert self.done
        counts = self.counts
        if counts.unreadable_total and not self._skip_unreadable:
            raise OfflineError(
                f"{counts.unreadable_total} znodes cannot be read, or their ACLs not in full: "
                f"{', '.join(counts.unreadable)}{', ...' if counts.unreadable_total > len(counts.unreadable) else ''}; "
                f"{_ADVICE}"
            )
        for path, node in table_at_birth().items():
            if path not in self._born:
                if path == "/":
                    raise OfflineError("/: is not there: the server has no tree")
                self.counts.znodes += 1
                self._put(
                    path, node.data, node.acl, node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime,
                    node.version, node.creates, node.aversion, 0,
                )  # fmt: skip
        digest = (self._shares + sum(small_shares(self._small))) % MODULUS
        self._feed((END, counts.znodes, 0, digest.to_bytes(DIGEST_BYTES, "big")))
        machine = Machine()
        machine.adopt(self._reader.finish())
        machine.last_zxid = max(self.last_zxid, self._highest_zxid)
        if counts.ephemerals or counts.excluded or counts.vanished or counts.unreadable_total:
            machine.recount_quotas()
        return machine


_ADVICE: Final = (
    "prove who may read them, and ADMIN for their ACLs (a super user of the old servers may all), with --auth-file, or "
    "leave them out, with all below them, with --skip-unreadable"
)


def _is_masked(acl: Iterable[tuple[int, str, str]]) -> bool:
    return any(scheme == "digest" and id_.endswith(_MASKED) for _, scheme, id_ in acl)


def _acl_of(reply: Reply) -> Acl:
    entries = tuple((int(bits), scheme, id_) for bits, scheme, id_ in reply.value[0])
    return entries or OPEN_ACL


def _lifetime(stat: Stat, wall_ms: int) -> tuple[int, int] | None:
    """Return the lifetime of a container or a znode with a time to live, as far as the server shows it.

    Times count from their clock's.
    """
    owner = stat.ephemeral_owner
    if owner == _CONTAINER_OWNER:
        return CONTAINER, min(wall_ms, max(0, stat.ctime))
    if owner < 0 and (owner >> 56) & 0xFF == _TTL_OWNER:
        return owner & TTL_MS_MAX, min(wall_ms, max(0, stat.mtime))
    return None


def _creates(stat: Stat) -> int:
    """Return how many children were ever created: what a client sees counts creates and deletes together.

    It is rounded up, as the two numbers may be of a server that counts otherwise: no name may come twice.
    """
    return (((stat.cversion + stat.num_children) % 2**32) + 1) // 2
