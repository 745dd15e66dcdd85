"""Which right of which znode an operation needs."""

from __future__ import annotations

import pytest

from tests.simulation.jute import (
    CREATE2,
    CREATE_CONTAINER,
)
from tests.traps.one import Server
from tests.traps.protocol import (
    CONTAINER,
    INVALID_ACL,
    NO_AUTH,
    NO_NODE,
    OK,
    WORLD,
    A,
    Ask,
    C,
    D,
    R,
    W,
    auth,
    check,
    create,
    delete,
    exists,
    get_acl,
    get_children,
    get_data,
    multi,
    multi_results,
    set_acl,
    set_data,
)

# sha1("bob:secret") in base64, from `printf bob:secret | openssl dgst -sha1 -binary | base64`.
BOB = "bob:fyVmFCwVbTJYrznoSu1koqYEYF0="


@pytest.mark.parametrize(
    ("ask", "on_parent", "on_znode"),
    [
        (create("/p/new"), C, 0),
        (delete("/p/n"), D, 0),
        (exists("/p/n"), 0, R),
        (get_data("/p/n"), 0, R),
        (get_children("/p/n"), 0, R),
        (set_data("/p/n"), 0, W),
        (set_acl("/p/n", WORLD), 0, A),
        (multi(check("/p/n", -1)), 0, R),
        (get_acl("/p/n"), 0, R),
        (get_acl("/p/n"), 0, A),
    ],
)
def test_each_operation_needs_one_right_of_the_znode_or_its_parent(
    server: Server, ask: Ask, on_parent: int, on_znode: int
) -> None:
    """Trap 14: create and delete ask the parent, all others the znode; getACL wants READ or ADMIN, and masks."""

    def outcome(parent_bits: int, znode_bits: int) -> int:
        fresh = Server()
        maker, user = fresh.peer(), fresh.peer()
        fresh.done(maker, auth("digest", b"bob:secret"), create("/p"))
        acl = [(31, "digest", BOB)]
        fresh.done(maker, create("/p/n", acl=[*acl, (znode_bits, "world", "anyone")]))
        fresh.done(maker, set_acl("/p", [*acl, (parent_bits, "world", "anyone")]))
        (answer,) = fresh.ask(user, ask)
        if ask.opcode == 14:
            return int(multi_results(answer)[0][1])
        if ask.opcode == 6 and answer.err == OK:
            shown = answer.acl()[0]
            assert shown == (31, "digest", BOB if znode_bits & A else "bob:x"), "ADMIN alone shows the hash"
        return answer.err

    every = R | W | C | D | A
    enough = (R | A) if ask.opcode == 6 else on_znode
    assert outcome(on_parent, on_znode) == OK, "this right is enough"
    assert outcome(every & ~on_parent, every & ~enough) == NO_AUTH, "and nothing else replaces it"
    user = server.peer()
    if ask.opcode == 3:
        # The right is asked for only if the znode exists, so this tells nobody more than the watch would.
        assert server.one(user, exists("/none")).err == NO_NODE


@pytest.mark.parametrize(
    ("scheme", "who"),
    [
        *((None, None), (None, "anyone"), (None, "")),
        *((known, None) for known in ("world", "digest", "ip", "auth", "sasl", "x509", "nonsense")),
    ],
)
def test_an_acl_whose_scheme_or_id_is_null_is_an_invalid_acl(
    server: Server, scheme: str | None, who: str | None
) -> None:
    """As ZooKeeper's `ClientTest.testACLs` has it for `new Id()`: -114, not -5, wherever an ACL may stand."""
    client = server.peer()
    server.done(client, create("/a"))
    for acl in ([(31, scheme, who)], [*WORLD, (31, scheme, who)]):
        for ask in (
            create("/n", acl=acl),
            create("/n", acl=acl, opcode=CREATE2),
            create("/n", acl=acl, flags=CONTAINER, opcode=CREATE_CONTAINER),
            set_acl("/a", acl),
            set_acl("/none", acl),
        ):
            assert server.one(client, ask).err == INVALID_ACL
        parts = multi_results(server.one(client, multi(check("/a", -1), create("/n", acl=acl))))
        assert parts == [(-1, 0, 0), (-1, INVALID_ACL, INVALID_ACL)]
    assert server.one(client, get_acl("/a")).acl() == list(WORLD)
