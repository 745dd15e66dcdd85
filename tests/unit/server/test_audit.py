"""The audit log: a line per write of this server's clients, in ZooKeeper's form, and nothing secret in any."""

from __future__ import annotations

import os
import re
import threading
from datetime import datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.server.one_server import TIMEOUT_MS, Client, OneServer, create
from tests.unit.tree.level3 import Level3
from tests.unit.tree.scenario import NOBODY
from tests.unit.tree.scenario import create as created
from zraft.server.clients.audit import TEXT_CHARS_MAX, AuditTap, server_line
from zraft.server.coordination.expiry import SessionExpiry
from zraft.server.process import audit_file
from zraft.server.process.audit_file import AuditFile
from zraft_core.errors import ConfigError
from zraft_core.ids import GroupId
from zraft_core.topics.access import Guarded
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    GiveUp,
    RegisterProducer,
    RetainTopic,
)
from zraft_core.topics.registry_values import KEEP_ALL
from zraft_core.znodes.acl import OF_OPERATORS
from zraft_core.znodes.txn import (
    ADD,
    CHECK,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    MULTI,
    ONCE,
    PUT,
    REAP,
    SET_ACL,
    SET_DATA,
    TOPICS,
    TRUNCATE,
    Command,
    pack_batch,
)

DEADLINE_S = 20.0
WHO = "user=127.0.0.1\tip=127.0.0.1\t"


TIME = re.compile(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t")


def timeless(line: str) -> str:
    """A line without its time, which it must have."""
    assert TIME.match(line), line
    return TIME.sub("", line, count=1)


class Audited(OneServer):
    """One server with an audit log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[bytes] = []
        self.applier.audit = AuditTap(self.chunks.append)

    def lines(self, client: Client | None = None) -> list[str]:
        """The lines since the last call; those of `client` without their session, which must be its own."""
        lines = list(map(timeless, self.raw().splitlines()))
        if client is None:
            return lines
        head = f"session=0x{client.session:x}\t"
        assert all(line.startswith(head) for line in lines), lines
        return [line.removeprefix(head) for line in lines]

    def raw(self) -> str:
        """What was written since the last call."""
        taken = b"".join(self.chunks).decode()
        self.chunks.clear()
        return taken

    def write(self, client: Client, *commands: Command) -> list[str]:
        client.send(*(client.codec.write(command) for command in commands))
        self.run()
        return self.lines(client)


@pytest.fixture
def server() -> Audited:
    return Audited()


def test_every_write_has_a_line_with_its_result_and_a_session_has_none(server: Audited) -> None:
    client = server.attached()
    assert server.lines() == []
    assert server.write(
        client,
        create("/a", b"secret data"),
        create("/a"),
        (SET_DATA, "/a", b"more secrets", 0),
        (SET_DATA, "/a", b"", 7),
        (DELETE, "/a", -1),
    ) == [
        f"{WHO}operation=create\tznode=/a\tznode_type=persistent\tresult=success",
        f"{WHO}operation=create\tznode=/a\tznode_type=persistent\tresult=failure",
        f"{WHO}operation=setData\tznode=/a\tresult=success",
        f"{WHO}operation=setData\tznode=/a\tresult=failure",
        f"{WHO}operation=delete\tznode=/a\tresult=success",
    ]


def test_every_line_begins_with_the_time_of_its_write_as_the_stat_of_its_znode_has_it(
    server: Audited,
) -> None:
    """An audit log without times is no evidence of anything."""
    client = server.attached()
    client.send(
        *(client.codec.write(command) for command in (create("/a"), create("/b"), (DELETE, "/none", -1)))
    )
    server.run()
    lines = server.raw().splitlines()
    assert len(lines) == 3
    stat = server.machine.nodes.get("/b")
    assert stat is not None
    said = datetime.fromisoformat(lines[1].partition("\t")[0].removeprefix("time="))
    assert round(said.timestamp() * 1000) == stat.mtime
    assert len({line.partition("\t")[0] for line in lines}) == 1, "one batch, one time"


def test_a_time_that_no_calendar_has_stops_no_line() -> None:
    """A leader's clock may be wrong by any number that fits."""
    assert server_line("serverStart", 2**62).startswith(b"time=4611686018427387904\t")
    assert server_line("serverStop", 0) == (
        b"time=1970-01-01T00:00:00.000Z\tuser=zraft\toperation=serverStop\tresult=success\n"
    )


@pytest.mark.parametrize(
    ("flags", "path", "kind"),
    [
        (0, "/n", "persistent"),
        (1, "/n", "ephemeral"),
        (2, "/n0000000000", "persistent_sequential"),
        (3, "/n0000000000", "ephemeral_sequential"),
        (4, "/n", "persistent"),
    ],
)
def test_a_create_shows_the_path_that_was_made_and_its_kind(
    server: Audited, flags: int, path: str, kind: str
) -> None:
    client = server.attached()
    assert server.write(client, (1, "/n", b"", None, flags, 0)) == [
        f"{WHO}operation=create\tznode={path}\tznode_type={kind}\tresult=success"
    ]


def test_a_multi_has_a_line_per_part_or_one_for_its_failure(server: Audited) -> None:
    client = server.attached()
    good: Command = (
        MULTI,
        [create("/m"), (CHECK, "/m", 0), (1, "/m/s", b"", None, 2, 0), (DELETE, "/m/s0000000000", -1)],
    )
    assert server.write(client, good, (MULTI, [create("/x"), (DELETE, "/none", -1)])) == [
        f"{WHO}operation=create\tznode=/m\tznode_type=persistent\tresult=success",
        f"{WHO}operation=create\tznode=/m/s0000000000\tznode_type=persistent_sequential\tresult=success",
        f"{WHO}operation=delete\tznode=/m/s0000000000\tresult=success",
        f"{WHO}operation=multiOperation\tresult=failure",
    ]


def test_the_end_of_a_session_names_the_ephemerals_that_went_with_it(server: Audited) -> None:
    client = server.attached()
    server.write(client, create("/e", ephemeral=True), create("/stays"))
    assert server.write(client, (CLOSE_SESSION,)) == [
        f"{WHO}operation=ephemeralZNodeDeleteOnSessionClose\tznode=/e\tresult=success"
    ]


def test_an_expiry_is_written_by_the_leader_only(server: Audited) -> None:
    for leads in (False, True):
        client = server.attached()
        server.write(client, create(f"/e{leads}", ephemeral=True))
        session = client.session
        server.applier.expiry = SessionExpiry(2_000) if leads else None
        server.expired(client)
        server.apply()
        expected = [
            f"session=0x{session:x}\tuser=zraft\toperation=ephemeralZNodeDeleteOnSessionClose\tznode=/eTrue\tresult=success"
        ]
        assert server.lines() == (expected if leads else [])


def test_writes_of_other_servers_clients_are_theirs_to_tell(server: Audited) -> None:
    client = server.attached()
    server.moved(client)
    server.apply()
    server.other_server((client.session, [create("/elsewhere")]))
    server.apply()
    assert "/elsewhere" in server.machine.nodes
    assert server.lines() == []


def test_no_batch_of_a_faulty_leader_stops_the_audit_log(server: Audited) -> None:
    server.applier.expiry = SessionExpiry(2_000)
    wrong: list[Any] = [
        b"x",
        (),
        ({},),
        ([],),
        (None,),
        (REAP,),
        (REAP, 1, 2),
        (202, "x"),
        (SET_ACL, 1, 2, 3),
        (-11,),
    ]
    server.log.append(pack_batch(0, b"", 0, 0, [(0, (), wrong)]))  # type: ignore[arg-type]
    server.apply()
    assert server.lines() == []


def test_a_numbered_write_is_told_once_and_as_what_it_is() -> None:
    """Repeats execute nothing, so they are nobody's write."""
    scenario = Level3()
    chunks: list[bytes] = []
    tap = AuditTap(chunks.append)

    def lines(*commands: Command) -> list[str]:
        scenario.batch()
        scenario.machine.begin_run(scenario.session.id, NOBODY)
        execute = tap.executing(scenario.machine)
        for command in commands:
            execute(command)
        tap.finish([(scenario.session.id, NOBODY, commands)])
        told = b"".join(chunks).decode().splitlines()
        chunks.clear()
        return [line.partition("operation=")[2] for line in told]

    first = (ONCE, 1, 0, created("/a", flags=2))
    assert lines(first, first, (PUT, "/b/c", b"", None), (ONCE, 2, 0, (DELETE, "/none", -1))) == [
        "create\tznode=/a0000000000\tznode_type=persistent_sequential\tresult=success",
        "put\tznode=/b/c\tresult=success",
        "delete\tznode=/none\tresult=failure",
    ]
    multi = (ONCE, 3, 0, (MULTI, (created("/m"), (ADD, "/n", b"", 1), (DELETE, "/m", -1))))
    assert lines(multi, first, (ONCE, 4, 0, ()), (ONCE,), (ONCE, 5, 0, None)) == [
        "create\tznode=/m\tznode_type=persistent\tresult=success",
        "add\tznode=/n\tresult=success",
        "delete\tznode=/m\tresult=success",
    ]
    assert lines((ONCE, 6, 0, (MULTI, (created("/m"), created("/m"))))) == ["multiOperation\tresult=failure"]


def test_what_a_truncation_left_is_no_ephemeral_of_a_session_that_ends() -> None:
    """D-20: it leaves memory with the first command of an entry, whatever that is."""
    scenario = Level3()
    chunks: list[bytes] = []
    scenario.multi(created("/log"), created("/log/e-", flags=2), created("/log/e-", flags=2))
    scenario.run((TRUNCATE, "/log", 2, None, None))
    scenario.events()
    tap = AuditTap(chunks.append)
    scenario.batch()
    scenario.machine.begin_run(scenario.session.id, NOBODY)
    assert scenario.machine.events, "nothing left memory, or this test shows nothing"
    tap.executing(scenario.machine)((CLOSE_SESSION,))
    tap.finish([(scenario.session.id, NOBODY, [(CLOSE_SESSION,)])])
    assert chunks == []


def test_of_a_digest_only_the_user_is_shown_and_of_super_its_name(server: Audited) -> None:
    connection = server.clients.connect(
        "10.0.0.7:1", (("ip", "10.0.0.7"), ("digest", "bob:hash="), ("super", ""), ("x509", "CN=bob,O=x"))
    )
    assert connection is not None
    client = Client(server, connection)
    client.send(client.codec.connect(timeout_ms=TIMEOUT_MS))
    server.run()
    # The wire has no setACL in this test's codec: the command goes the way that a decoded one goes.
    server.write(client, create("/a"))
    acl = ((31, "digest", "eve:hash="), (1, "world", "anyone"), (16, "ip", "10.0.0.0/8"))
    server.clients.submit(connection, [(SET_ACL, "/a", acl, -1)], 1)
    connection.queue.append((SET_DATA, 1, (SET_DATA, "/a", b"", -1)))
    server.propose()
    server.apply()
    [line] = server.lines(client)
    assert line.startswith("user=10.0.0.7,bob,super,CN=bob,O=x\tip=10.0.0.7\toperation=setAcl\tznode=/a\t")
    assert "acl=digest:eve:rwcda,world:anyone:r,ip:10.0.0.0/8:a\t" in line
    assert "hash" not in line


def test_a_path_cannot_begin_another_field_or_line(server: Audited) -> None:
    client = server.attached()
    [line] = server.write(client, create("/a\tresult=success\n\u2028" + "x" * 9_999))
    assert line.count("\t") == 5, line
    assert "znode=/a\\u0009result=success\\u000a\\u2028xx" in line
    assert len(line) < TEXT_CHARS_MAX + 200


# -- the file


class Errors:
    def __init__(self) -> None:
        self.seen: list[OSError | None] = []
        self.changed = threading.Condition()

    def __call__(self, error: OSError | None) -> None:
        with self.changed:
            self.seen.append(error)
            self.changed.notify_all()

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, DEADLINE_S)


def opened(
    path: Path, *, size: int = 10_000, kept: int = 3, pending: int = 100_000, errors: Any = print
) -> AuditFile:
    return AuditFile(path, file_bytes_max=size, files_kept=kept, pending_bytes_max=pending, on_error=errors)


def wait_for_text(path: Path, text: str) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.01)):
        if path.exists() and text in path.read_text():
            return
        pause.wait(0.01)
    raise AssertionError(f"{path} never held {text!r}")


def test_lines_are_appended_in_order_and_all_are_there_after_stop(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    for start in (0, 100):
        file = opened(path)
        for number in range(start, start + 100):
            file.write(f"{number}\n".encode())
        file.stop()
    assert path.read_text().split() == [str(number) for number in range(200)]
    assert path.stat().st_mode & 0o007 == 0


def test_the_file_is_rotated_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(6):
        file = opened(path, size=10, kept=2)
        file.write(f"line {number}..\n".encode())
        file.stop()
    found = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert found == {"audit.log": "line 5..\n", "audit.log.1": "line 4..\n", "audit.log.2": "line 3..\n"}


def test_without_files_to_keep_nothing_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path, size=10, kept=0)
    file.write(b"x" * 50 + b"\n")
    file.stop()
    assert [p.name for p in tmp_path.iterdir()] == ["audit.log"]


def test_a_file_that_another_tool_renamed_is_left_at_its_demand(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    file.write(b"before\n")
    wait_for_text(path, "before\n")
    path.rename(tmp_path / "old")
    file.reopen()
    file.write(b"after\n")
    file.stop()
    assert ((tmp_path / "old").read_text(), path.read_text()) == ("before\n", "after\n")


def test_a_disk_that_takes_nothing_costs_lines_and_their_number_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "RETRY_S", 0.01)
    full = True
    write = os.write

    def writing(fd: int, data: Any) -> int:
        if full:
            raise OSError(28, "no space left on device")
        return write(fd, data)

    # Of this module only: the test runner writes, too.
    monkeypatch.setattr(audit_file, "os", SimpleNamespace(**(vars(os) | {"write": writing})))
    errors = Errors()
    path = tmp_path / "audit.log"
    file = opened(path, pending=40, errors=errors)
    for number in range(10):
        file.write(f"line {number}...\n".encode())
    errors.wait(1)
    assert file.dropped == 6
    full = False
    errors.wait(2)
    file.stop()
    assert [type(error) for error in errors.seen] == [OSError, type(None)]
    *written, told = path.read_text().splitlines()
    assert written == [f"line {number}..." for number in range(4)]
    assert timeless(told) == "user=zraft\toperation=auditLinesDropped\tcount=6\tresult=failure"


def test_a_write_that_was_cut_short_is_not_repeated_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "RETRY_S", 0.01)
    write = os.write
    calls = 0

    def writing(fd: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "no space left on device")
        return write(fd, data[:3]) if calls == 1 else write(fd, data)

    # Of this module only: the test runner writes, too.
    monkeypatch.setattr(audit_file, "os", SimpleNamespace(**(vars(os) | {"write": writing})))
    errors = Errors()
    path = tmp_path / "audit.log"
    file = opened(path, errors=errors)
    file.write(b"one line\n")
    errors.wait(2)
    file.stop()
    assert path.read_text() == "one line\n"


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit\.file: cannot write .*: Is a directory"):
        opened(tmp_path)


def test_writes_of_the_native_protocol_have_lines_and_a_repeat_has_none(server: Audited) -> None:
    client = server.attached()
    server.machine.feature_level = 3
    once = (ONCE, 1, 0, (PUT, "/d/k", b"secret", None))

    def submit(*commands: Command) -> list[str]:
        server.origin.add(None, client.session, client.connection.ids, list(commands), 1)
        server.run()
        return server.lines(client)

    assert submit(once, once, (PUT, "/d/k", b"", None), (ADD, "/d/n", b"", 1)) == [
        f"{WHO}operation=put\tznode=/d/k\tresult=success",
        f"{WHO}operation=put\tznode=/d/k\tresult=success",
        f"{WHO}operation=add\tznode=/d/n\tresult=success",
    ]
    assert submit((ONCE, 2, 1, (MULTI, ((PUT, "/d/k", b"", None), (DELETE, "/d/n", -1))))) == [
        f"{WHO}operation=put\tznode=/d/k\tresult=success",
        f"{WHO}operation=delete\tznode=/d/n\tresult=success",
    ]
    assert submit((ONCE, 3, 1, (PUT, "/d/k", b"", 77)), (TRUNCATE, "/d", 0, None, None)) == [
        f"{WHO}operation=put\tznode=/d/k\tresult=failure",
        f"{WHO}operation=truncate\tznode=/d\tresult=success",
    ]


def test_commands_about_topics_have_lines_whoever_says_them_and_a_denied_one_has_its_own_elsewhere(
    server: Audited,
) -> None:
    client = server.attached()
    server.machine.feature_level = 7
    ids = client.connection.ids

    def submit(*commands: Any, session: int = client.session, ids: Any = ids) -> list[str]:
        packed = [(TOPICS, encode_registry(one)) for one in commands]
        numbered: list[Command] = [(ONCE, next(numbers), 0, one) if session else one for one in packed]
        server.origin.add(None, session, ids, numbered, 1)
        server.run()
        return [line.partition("operation=")[2] for line in server.lines()]

    numbers = count(1)
    created = CreateTopic("orders", 2)
    assert submit(created, created, RegisterProducer(client.session)) == [
        "create_topic\ttopic=orders\tresult=success",
        "create_topic\ttopic=orders\tresult=failure",
    ]
    # An operator has the cluster's key and no ids.
    assert submit(
        RetainTopic("orders", KEEP_ALL), AlterTopic("absent", 3), GiveUp(GroupId(99)), session=0, ids=()
    ) == ["retain_topic\ttopic=orders\tresult=success"]
    nobody = ((0, "world", "anyone"),)
    closed: Command = (CREATE, Guarded.TOPICS.value, b"", nobody, 0, None)
    server.origin.add(None, 0, OF_OPERATORS, [closed], 1)
    server.run()
    assert "result=success" in server.lines()[0]
    assert submit(DeleteTopic("orders")) == []
