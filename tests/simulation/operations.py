"""Owns what simulated applications ask beyond plain reads and writes: rights, lifetimes, quotas, lasting watches.

One call of `ask` is one such request, or a few that belong together. Everything happens at a handful of paths, so
that clients meet: `/g0` and `/g1` and the subtree of `/w` have changing ACLs, below `/t` znodes go away by
themselves, `/z` has a quota.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation import jute, rights
from tests.simulation.calls import Call
from tests.simulation.rights import Acl, digest_of

if TYPE_CHECKING:
    from tests.simulation.clients import SimulatedClient

SHARED_USERS: Final = ("amy:1", "bob:2")
"""Users that several clients are."""

GUARDED: Final = ("/g0", "/g1", "/w/a", "/w/a/b", "/w/a/b/c")
LIFETIMES: Final = ("/t/c0", "/t/c1", "/t/t0", "/t/t1")
TTLS_MS: Final = (150, 400, 1_000)
DIRECTORIES: Final = ("/w", "/t", "/z", "/zookeeper/quota/z")
LIMITED: Final = "/z"
LIMITS: Final = "/zookeeper/quota/z/zookeeper_limits"
STATS: Final = "/zookeeper/quota/z/zookeeper_stats"
MEMBERS: Final = ("/z/n0", "/z/n1", "/z/n2", "/z/n3")
WATCHED: Final = ("/w", "/w", "/w/a", "/w/a/b", "/t", "/d", "/g0", "/g1", "/k0", "/z/n0", "/t/c0")
LISTED: Final = ("/", "/w", "/t", "/d", "/z", "/g0", "/q", "/nothing")

ACLS: Final[tuple[Acl | None, ...]] = (
    None,
    None,
    ((rights.ALL, "auth", ""),),
    ((rights.ALL, "auth", ""), (rights.READ, "world", "anyone")),
    tuple((rights.ALL, "digest", digest_of(user)) for user in SHARED_USERS),
    ((rights.ALL, "digest", digest_of(SHARED_USERS[0])),),
    ((rights.ALL, "digest", digest_of(SHARED_USERS[1])), (rights.READ, "world", "anyone")),
    ((rights.ALL & ~rights.ADMIN, "world", "anyone"), (rights.ADMIN, "digest", digest_of(SHARED_USERS[0]))),
    ((rights.ALL & ~rights.READ, "world", "anyone"), (rights.READ, "digest", digest_of(SHARED_USERS[1]))),
    ((rights.ALL, "ip", "10.0.0.0/24"),),
    ((rights.ALL, "ip", "192.168.0.0/16"), (rights.ALL, "digest", digest_of(SHARED_USERS[0]))),
    (),
    ((rights.ALL, "nobody", "knows"),),
)
"""What guarded znodes get; the last two are refused."""


def ask(client: SimulatedClient, rng: random.Random) -> None:
    """One request of a rolled kind."""
    rng.choice(_KINDS)(client, rng)


def ask_reading(client: SimulatedClient, rng: random.Random) -> None:
    """One request that changes nothing, as a server without a quorum answers it."""
    rng.choice(_READING_KINDS)(client, rng)


# -- rights


def _authenticate(client: SimulatedClient, rng: random.Random) -> None:
    """Somebody more, or, rarely, with a scheme that no server knows: that ends the connection."""
    if rng.random() < 0.05:
        client.authenticate("", scheme="nothing")
    else:
        client.learn(rng.choice((*SHARED_USERS, *SHARED_USERS, rights.SUPER_CREDENTIALS)))


def _create_guarded(client: SimulatedClient, rng: random.Random) -> None:
    flags = 1 if rng.random() < 0.1 else 0
    client.create(rng.choice(GUARDED), flags, acl=rng.choice(ACLS))


def _set_guarded(client: SimulatedClient, rng: random.Random) -> None:
    client.set(rng.choice(GUARDED), -1)


def _delete_guarded(client: SimulatedClient, rng: random.Random) -> None:
    client.delete(rng.choice(GUARDED), -1)


def _set_acl(client: SimulatedClient, rng: random.Random) -> None:
    path, acl = rng.choice(GUARDED), rng.choice(ACLS) or rights.OPEN
    version = -1 if rng.random() < 0.8 else rng.randint(0, 4)
    client.write(
        jute.SET_ACL,
        path,
        jute.set_acl_body(path, acl, version),
        (jute.SET_ACL, path, acl, version),
    )


def _get_acl(client: SimulatedClient, rng: random.Random) -> None:
    client.query(jute.GET_ACL, rng.choice(GUARDED))


def _read_guarded(client: SimulatedClient, rng: random.Random) -> None:
    opcode = rng.choice((jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN2))
    client.read(opcode, rng.choice(GUARDED), watch=rng.random() < 0.6)


def _who_am_i(client: SimulatedClient, rng: random.Random) -> None:
    client.request(Call(client.next_xid(), jute.WHO_AM_I, "", b""))


# -- lifetimes


def _create_mortal(client: SimulatedClient, rng: random.Random) -> None:
    path = rng.choice(LIFETIMES)
    if "/c" in path:
        client.create(path, rng.choice((jute.FLAG_CONTAINER, 0)), opcode=jute.CREATE_CONTAINER)
        return
    sequential = rng.random() < 0.3
    ttl_ms = 0 if rng.random() < 0.03 else rng.choice(TTLS_MS)
    client.create(
        "/t/s-" if sequential else path,
        jute.FLAG_TTL_SEQUENTIAL if sequential else jute.FLAG_TTL,
        opcode=jute.CREATE_TTL,
        ttl_ms=ttl_ms,
    )


def _renew(client: SimulatedClient, rng: random.Random) -> None:
    client.set(rng.choice(LIFETIMES), -1)


def _use_mortal(client: SimulatedClient, rng: random.Random) -> None:
    """A child comes or goes; the znode above it must not go before."""
    path = rng.choice(LIFETIMES) + "/x"
    if rng.random() < 0.5:
        client.create(path, 0)
    else:
        client.delete(path, -1)


def _delete_container(client: SimulatedClient, rng: random.Random) -> None:
    path = rng.choice((*LIFETIMES, "/e/c0"))
    client.write(jute.DELETE_CONTAINER, path, jute.text(path), (jute.DELETE_CONTAINER, path))


def _multi_with_container(client: SimulatedClient, rng: random.Random) -> None:
    """A container or a znode with a time to live and its first child, at once."""
    path = rng.choice(LIFETIMES)
    with_ttl = "/t0" in path or "/t1" in path
    ttl_ms = rng.choice(TTLS_MS) if with_ttl else None
    parts = [
        client.creation(
            jute.CREATE_TTL if with_ttl else jute.CREATE_CONTAINER,
            path,
            jute.FLAG_TTL if with_ttl else jute.FLAG_CONTAINER,
            ttl_ms=ttl_ms,
        ),
        client.creation(jute.CREATE2, path + "/x", 0),
        client.creation(jute.CREATE, rng.choice(GUARDED), 0, acl=rng.choice(ACLS)),
    ]
    client.multi(parts[: rng.choice((1, 2, 2, 3))])


# -- quotas


def _set_quota(client: SimulatedClient, rng: random.Random) -> None:
    """Limits and usage come and go together, as with every tool that sets quotas."""
    roll = rng.random()
    if roll < 0.15:
        client.multi([client.deletion(STATS), client.deletion(LIMITS)])
    elif roll < 0.6:
        limits, stats = _limits(rng), b"count=0,bytes=0"
        client.multi(
            [
                client.creation(jute.CREATE, LIMITS, 0, data=limits),
                client.creation(jute.CREATE, STATS, 0, data=stats),
            ]
        )
    else:
        client.set(LIMITS, -1, data=_limits(rng))


def _limits(rng: random.Random) -> bytes:
    soft = b"count=%d,bytes=%d" % (rng.choice((-1, 2)), rng.choice((-1, 10)))
    if rng.random() < 0.2:
        return soft
    return soft + b"=;byteHardLimit=%d;countHardLimit=%d" % (rng.choice((-1, 15, 25)), rng.choice((-1, 3, 4)))


def _change_limited(client: SimulatedClient, rng: random.Random) -> None:
    path = rng.choice(MEMBERS)
    roll = rng.random()
    if roll < 0.4:
        client.create(path, 1 if rng.random() < 0.3 else 0)
    elif roll < 0.7:
        client.set(rng.choice((*MEMBERS, LIMITED)), -1)
    elif roll < 0.85:
        client.delete(path, -1)
    else:
        # Fails more often than not, after something that counted.
        client.multi(
            [
                client.setting(rng.choice((path, LIMITED))),
                client.creation(jute.CREATE, path, 0),
                client.checking(rng.choice(MEMBERS), rng.randint(0, 2)),
            ]
        )


def _read_usage(client: SimulatedClient, rng: random.Random) -> None:
    client.read(jute.GET_DATA, STATS, watch=False)


# -- watches


def _add_watch(client: SimulatedClient, rng: random.Random) -> None:
    path, mode = rng.choice(WATCHED), rng.choice((jute.PERSISTENT, jute.RECURSIVE))
    if rng.random() < 0.02:
        path, mode = "/", jute.RECURSIVE
    client.on_watches(jute.ADD_WATCH, path, mode)


def _look_for_watches(client: SimulatedClient, rng: random.Random) -> None:
    """Mostly for what the client believes to have."""
    watches = client.watches
    paths = [*watches.persistent, *watches.recursive, *watches.data, *watches.child]
    path = rng.choice(paths) if paths and rng.random() < 0.8 else rng.choice(WATCHED)
    opcode = jute.REMOVE_WATCHES if rng.random() < 0.5 else jute.CHECK_WATCHES
    client.on_watches(opcode, path, rng.randint(jute.OF_CHILDREN, jute.OF_RECURSIVE))


# -- queries


def _ephemerals(client: SimulatedClient, rng: random.Random) -> None:
    client.query(jute.GET_EPHEMERALS, rng.choice(("/", "/e", "/q/n-0", "/g")))


def _count(client: SimulatedClient, rng: random.Random) -> None:
    client.query(jute.GET_ALL_CHILDREN_NUMBER, rng.choice((*LISTED, "/w/a")))


def _multi_read(client: SimulatedClient, rng: random.Random) -> None:
    paths = [rng.choice((*LISTED, *GUARDED)) for _ in range(rng.randint(0, 4))]
    parts = [(rng.choice((jute.GET_DATA, jute.GET_CHILDREN)), path) for path in paths]
    client.request(Call(client.next_xid(), jute.MULTI_READ, "", jute.multi_read_body(parts), parts=parts))


Kind = Callable[["SimulatedClient", random.Random], None]

_READING_KINDS: Final[tuple[Kind, ...]] = (
    _read_guarded,
    _read_guarded,
    _get_acl,
    _who_am_i,
    _ephemerals,
    _count,
    _multi_read,
    _read_usage,
    _authenticate,
)

_KINDS: Final[tuple[Kind, ...]] = (
    *(_authenticate,) * 2,
    *(_create_guarded,) * 6,
    *(_set_guarded,) * 6,
    *(_delete_guarded,) * 3,
    *(_set_acl,) * 4,
    *(_get_acl,) * 2,
    *(_read_guarded,) * 5,
    _who_am_i,
    *(_create_mortal,) * 6,
    *(_renew,) * 5,
    *(_use_mortal,) * 6,
    _delete_container,
    *(_multi_with_container,) * 2,
    *(_set_quota,) * 3,
    *(_change_limited,) * 6,
    *(_read_usage,) * 2,
    *(_add_watch,) * 4,
    *(_look_for_watches,) * 3,
    _ephemerals,
    _count,
    *(_multi_read,) * 2,
)
"""As often as they stand here."""
