"""Sessions: ids, owners, ends (D-3, D-11)."""

from __future__ import annotations

import pytest

from tests.unit.tree.level3 import from_image, image_of
from tests.unit.tree.scenario import (
    EPHEMERAL,
    ONE,
    PASSWORD,
    TWO,
    Scenario,
    create,
    expire_command,
)
from zraft.tree.sessions.session import Session, session_id_for
from zraft_core.errors import Code
from zraft_core.ids import ServerId
from zraft_core.znodes.acl import ALL, CREATE, READ
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, NODE_DELETED
from zraft_core.znodes.txn import (
    ATTACH,
    CLOSE_SESSION,
    CREATE_SESSION,
    EXPIRE,
    MULTI,
    REGISTER,
    SET_DATA,
    SETTINGS,
)


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


# -- ids, timeouts, passwords


def test_session_id_is_made_of_server_and_zxid(scenario: Scenario) -> None:
    assert scenario.new_session(TWO).id == 2 << 56 | scenario.machine.last_zxid
    assert scenario.new_session(ONE).id == 1 << 56 | scenario.machine.last_zxid


@pytest.mark.parametrize("server", [1, 127, 128, 254])
def test_session_id_is_a_signed_64_bit_number_and_never_zero(server: int) -> None:
    for zxid in (1 << 32, 2**56, 2**56 + 1, 2**62):
        number = session_id_for(ServerId(server), zxid)
        assert -(2**63) <= number < 2**63
        assert number != 0
        assert number % 2**64 >> 56 == server


def test_sessions_of_one_batch_have_different_ids(scenario: Scenario) -> None:
    scenario.batch()
    scenario.machine.begin_run(0, ())
    ids = {scenario.machine.execute((CREATE_SESSION, 1, PASSWORD)).id for _ in range(5)}  # type: ignore[attr-defined]
    assert len(ids) == 5


@pytest.mark.parametrize(
    ("asked", "given"), [(0, 4000), (-5, 4000), (4001, 4001), (39_999, 39_999), (2**63, 40_000)]
)
def test_timeout_is_clamped_by_the_replicated_settings_on_create_and_on_attach(
    scenario: Scenario, asked: int, given: int
) -> None:
    session = scenario.new_session(timeout_ms=asked)
    assert session.timeout_ms == given
    scenario.by_leader((SETTINGS, {"session_timeout_ms_min": 50_000, "session_timeout_ms_max": 50_000}))
    scenario.without_session((ATTACH, session.id, asked, PASSWORD))
    assert session.timeout_ms == 50_000


def test_wrong_password_or_unknown_session_cannot_attach(scenario: Scenario) -> None:
    owner = scenario.session.owner
    assert scenario.attach(scenario.session.id, TWO, b"x" * 16) is Code.SESSION_EXPIRED
    assert scenario.attach(scenario.session.id + 1, TWO) is Code.SESSION_EXPIRED
    assert scenario.attach(0, TWO) is Code.SESSION_EXPIRED
    assert scenario.session.owner == owner


@pytest.mark.parametrize(
    "command",
    [
        (CREATE_SESSION, 1),
        (CREATE_SESSION, "1", PASSWORD),
        (CREATE_SESSION, 1, b"short"),
        (CREATE_SESSION, 1, "0123456789abcdef"),
        (ATTACH, 1, 1),
        (ATTACH, None, 1, PASSWORD),
        (ATTACH, 1, 1, None),
        (REGISTER, 5),
        (REGISTER, b""),
        (REGISTER, b"x" * 65),
        (REGISTER,),
    ],
)
def test_malformed_commands_of_an_origin_fail_without_a_trace(
    scenario: Scenario, command: tuple[object, ...]
) -> None:
    """Flaw 23."""
    before = scenario.machine.image()[:2]
    assert scenario.without_session(command) is Code.MARSHALLING_ERROR
    assert scenario.machine.image()[:2] == before


# -- owners


def test_attach_moves_the_session_and_the_old_owner_gets_session_moved(scenario: Scenario) -> None:
    """D-3."""
    assert scenario.attach(scenario.session.id, TWO) is scenario.session
    assert scenario.set_data("/", b"late") is Code.SESSION_MOVED
    assert scenario.set_data("/", b"now", origin=TWO).data == b"now"


def test_sessions_are_counted_where_they_are(scenario: Scenario) -> None:
    machine, first, one, two = scenario.machine, scenario.session, ONE[0], TWO[0]
    assert machine.attended == {one: 1}
    second = scenario.new_session(ONE)
    assert machine.attended == {one: 2}
    scenario.attach(first.id, TWO)
    assert machine.attended == {one: 1, two: 1}
    scenario.attach(first.id, TWO)
    scenario.attach(second.id, TWO)
    assert machine.attended == {two: 2}
    assert from_image(image_of(machine)).attended == {two: 2}
    scenario.by_leader(expire_command(first))
    scenario.by_leader(expire_command(second))
    assert machine.attended == {}


def test_session_of_an_older_boot_of_the_same_server_is_somebody_elses(scenario: Scenario) -> None:
    """D-3: the owner is (server, instance, boot), so a resume on the same server is an attach as well."""
    scenario.restart()
    scenario.without_session((REGISTER, b"boot 2"))
    assert scenario.set_data("/", b"x") is Code.SESSION_MOVED
    assert scenario.attach(scenario.session.id, ONE) is scenario.session
    assert scenario.set_data("/", b"x").data == b"x"


def test_session_moved_does_not_count_as_a_write(scenario: Scenario) -> None:
    scenario.attach(scenario.session.id, TWO)
    position = scenario.session.write_position
    scenario.set_data("/", b"late")
    assert scenario.session.write_position == position


def test_commands_of_a_refused_run_take_positions_and_zxids(scenario: Scenario) -> None:
    """D-15: failed commands too."""
    machine = scenario.machine
    position, zxid = machine.position, machine.last_zxid
    scenario.batch()
    assert machine.begin_run(12345, ()) is Code.SESSION_EXPIRED
    assert [machine.execute(c) for c in (create("/a"), (CLOSE_SESSION,), None)] == [Code.SESSION_EXPIRED] * 3  # type: ignore[arg-type]
    assert (machine.position, machine.last_zxid) == (position + 3, zxid + 3)


@pytest.mark.parametrize(
    ("session", "ids"),
    [
        (None, ()),
        ("1", ()),
        ((), ()),
        (True, ()),
        (0, None),
        (0, ("ip",)),
        (0, ((1, 2),)),
        (0, (("ip", "1", "2"),)),
        (0, [("ip", "1")]),
    ],
)
def test_malformed_run_fails_all_its_commands(scenario: Scenario, session: object, ids: object) -> None:
    """Flaw 23."""
    scenario.batch()
    assert scenario.machine.begin_run(session, ids) is Code.MARSHALLING_ERROR  # type: ignore[arg-type]
    assert scenario.machine.execute((CREATE_SESSION, 1, PASSWORD)) is Code.MARSHALLING_ERROR


def test_run_does_not_inherit_the_ids_of_the_run_before(scenario: Scenario) -> None:
    scenario.create("/a", acl=((ALL, "ip", "1.1.1.1"),))
    scenario.batch()
    machine = scenario.machine
    machine.begin_run(scenario.session.id, (("ip", "1.1.1.1"),))
    assert not isinstance(machine.execute((SET_DATA, "/a", b"", -1)), Code)
    machine.begin_run(scenario.session.id, ())
    assert machine.execute((SET_DATA, "/a", b"", -1)) is Code.NO_AUTH


def test_who_may_send_which_command_is_kept_apart(scenario: Scenario) -> None:
    """An origin cannot expire sessions or change settings, nor the leader write for a client."""
    assert scenario.without_session(expire_command(scenario.session)) is Code.UNIMPLEMENTED
    assert scenario.without_session((SETTINGS, {"data_bytes_max": 1})) is Code.OK, "for an operator"
    assert scenario.without_session(create("/a")) is Code.UNIMPLEMENTED
    assert scenario.by_leader(create("/a")) is Code.UNIMPLEMENTED
    assert scenario.by_leader((CREATE_SESSION, 1, PASSWORD)) is Code.UNIMPLEMENTED
    assert scenario.run((CREATE_SESSION, 1, PASSWORD)) is Code.UNIMPLEMENTED


# -- ends


def test_close_removes_exactly_the_sessions_ephemerals_in_order_of_path(scenario: Scenario) -> None:
    other = scenario.new_session()
    scenario.create("/d")
    for path in ("/d/b", "/a", "/d/a"):
        scenario.create(path, flags=EPHEMERAL)
    scenario.create("/keep", flags=EPHEMERAL, session=other)
    scenario.create("/plain")
    scenario.events()
    assert scenario.close() is Code.OK
    assert scenario.events() == [
        (NODE_DELETED, "/a"),
        (NODE_CHILDREN_CHANGED, "/"),
        (NODE_DELETED, "/d/a"),
        (NODE_CHILDREN_CHANGED, "/d"),
        (NODE_DELETED, "/d/b"),
        (NODE_CHILDREN_CHANGED, "/d"),
    ]
    assert scenario.names("/") == ["d", "keep", "plain", "zookeeper"]
    assert scenario.names("/d") == []
    assert list(scenario.machine.sessions) == [other.id]


def test_close_moves_pzxid_and_cversion_of_the_parents(scenario: Scenario) -> None:
    """Trap 2."""
    scenario.create("/d")
    scenario.create("/d/e", flags=EPHEMERAL)
    scenario.close()
    stat = scenario.stat("/d")
    assert (stat.pzxid, stat.cversion, stat.num_children) == (scenario.machine.last_zxid, 2, 0)


def test_close_asks_no_acl(scenario: Scenario) -> None:
    scenario.create("/d", acl=((CREATE | READ, "world", "anyone"),))
    scenario.create("/d/e", flags=EPHEMERAL)
    assert scenario.delete("/d/e") is Code.NO_AUTH
    scenario.close()
    assert "/d/e" not in scenario.machine.nodes


def test_commands_after_the_close_in_the_same_run_find_no_session(scenario: Scenario) -> None:
    scenario.batch()
    machine = scenario.machine
    machine.begin_run(scenario.session.id, ())
    assert machine.execute((CLOSE_SESSION,)) is Code.OK
    assert machine.execute(create("/e", flags=EPHEMERAL)) is Code.SESSION_EXPIRED
    assert machine.execute((CLOSE_SESSION,)) is Code.SESSION_EXPIRED
    assert machine.digest() == machine.full_digest()


def test_deleted_ephemeral_is_nobodys(scenario: Scenario) -> None:
    """Created again by somebody else, it outlives its first owner."""
    other = scenario.new_session()
    scenario.create("/e", flags=EPHEMERAL)
    assert scenario.stat("/e").ephemeral_owner == scenario.session.id
    scenario.delete("/e", session=other)
    scenario.create("/e", flags=EPHEMERAL, session=other)
    scenario.close()
    assert scenario.stat("/e").ephemeral_owner == other.id
    assert other.ephemerals == {"/e"}


# -- D-11


def test_expire_ends_a_session_that_did_nothing_since(scenario: Scenario) -> None:
    """D-11."""
    scenario.create("/e", flags=EPHEMERAL)
    assert scenario.expire(scenario.session) is Code.OK
    assert scenario.machine.sessions == {}
    assert "/e" not in scenario.machine.nodes


@pytest.mark.parametrize(
    "act", ["write", "failed write", "failed multi", "malformed", "attach", "attach elsewhere"]
)
def test_expire_is_ignored_if_the_session_wrote_or_attached_later(scenario: Scenario, act: str) -> None:
    """D-11: apply compares the positions, failed writes included."""
    scenario.create("/e", flags=EPHEMERAL)
    proposed = expire_command(scenario.session)
    match act:
        case "write":
            scenario.set_data("/", b"x")
        case "failed write":
            assert scenario.set_data("/no", b"x") is Code.NO_NODE
        case "failed multi":
            scenario.multi(create("/no/no"))
        case "malformed":
            scenario.run((MULTI,))
        case "attach":
            scenario.attach(scenario.session.id, ONE)
        case "attach elsewhere":
            scenario.attach(scenario.session.id, TWO)
    assert scenario.by_leader(proposed) is Code.BAD_VERSION
    assert scenario.session.id in scenario.machine.sessions
    assert "/e" in scenario.machine.nodes
    assert scenario.expire(scenario.session) is Code.OK


def test_expire_is_not_ignored_for_a_refused_attach(scenario: Scenario) -> None:
    """D-11: somebody with a wrong password must not keep a session alive."""
    proposed = expire_command(scenario.session)
    scenario.attach(scenario.session.id, TWO, b"x" * 16)
    assert scenario.by_leader(proposed) is Code.OK


def test_expire_of_a_session_that_is_gone_is_ignored(scenario: Scenario) -> None:
    """D-11."""
    proposed = expire_command(scenario.session)
    scenario.close()
    assert scenario.by_leader(proposed) is Code.UNKNOWN_SESSION


@pytest.mark.parametrize("place", [2, 3])
def test_expire_must_name_both_positions_as_they_are(scenario: Scenario, place: int) -> None:
    """D-11: one that was proposed from another history counts for nothing."""
    scenario.set_data("/", b"x")
    right = expire_command(scenario.session)
    assert scenario.by_leader((*right[:place], right[place] - 1, *right[place + 1 :])) is Code.BAD_VERSION
    assert scenario.by_leader(right) is Code.OK


@pytest.mark.parametrize(
    "command",
    [(EXPIRE,), (EXPIRE, 1, 2, 3, 4, 5), (EXPIRE, "1", 2, 3, 4, 5, 6), (EXPIRE, 1, 2, 3, 4, 5, None)],
)
def test_malformed_expire_fails(scenario: Scenario, command: tuple[object, ...]) -> None:
    """Flaw 23."""
    assert scenario.by_leader(command) is Code.MARSHALLING_ERROR


def test_attach_and_write_positions_are_positions_of_commands(scenario: Scenario) -> None:
    """D-16: two commands of one entry are told apart."""
    scenario.batch()
    machine = scenario.machine
    machine.begin_run(0, ())
    first = machine.execute((CREATE_SESSION, 1, PASSWORD))
    second = machine.execute((CREATE_SESSION, 1, PASSWORD))
    assert isinstance(first, Session)
    assert isinstance(second, Session)
    assert (first.attach_position + 1, second.write_position) == (second.attach_position, machine.position)
