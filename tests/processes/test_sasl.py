"""Unmodified kazoo logs in by SASL DIGEST-MD5, and its ACLs of scheme sasl hold, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError, SessionClosedRequireSaslError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, CREATOR_ALL_ACL, Id, Permissions

from tests.processes.cluster import DEADLINE_S, Cluster, wait_until
from tests.processes.conftest import StartCluster

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_text("bob:hunter2\nroot:toor\n")
    return path


@contextmanager
def client(cluster: Cluster, login: tuple[str, str] | None = None) -> Iterator[KazooClient]:
    options: dict[str, Any] = {}
    if login is not None:
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": login[0], "password": login[1]}
    one = KazooClient(hosts=str(cluster.servers[1].address), timeout=10.0, **options)
    try:
        one.start(timeout=DEADLINE_S)
        yield one
    finally:
        one.stop()
        one.close()


def assert_refused(cluster: Cluster, login: tuple[str, str]) -> None:
    """kazoo connects first: its `start` fails if it hears of the refusal before it has looked, else the first request."""
    with pytest.raises((AuthFailedError, KazooTimeoutError)), client(cluster, login) as nobody:
        nobody.exists("/")


def test_acls_of_scheme_sasl_hold(start_cluster: StartCluster, users: Path) -> None:
    cluster = start_cluster(servers=1, ZRAFT_AUTH__SASL_USERS_FILE=str(users), ZRAFT_AUTH__SUPER_USER="root")
    his = ACL(Permissions.ALL, Id("sasl", "bob"))
    with client(cluster, ("bob", "hunter2")) as bob:
        bob.create("/his", b"x", acl=[his])
        bob.create("/also-his", b"x", acl=CREATOR_ALL_ACL)
        assert bob.get_acls("/also-his")[0] == [his]
        assert bob.get("/his")[0] == b"x"
    with client(cluster) as nobody, pytest.raises(NoAuthError):
        nobody.get("/his")
    with client(cluster, ("root", "toor")) as root:
        assert root.get("/his")[0] == b"x"


def test_a_wrong_password_does_not_connect_and_a_new_user_needs_no_restart(
    start_cluster: StartCluster, users: Path
) -> None:
    cluster = start_cluster(servers=1, ZRAFT_AUTH__SASL_USERS_FILE=str(users))
    for login in (("bob", "wrong"), ("eve", "new")):
        assert_refused(cluster, login)
    log = cluster.servers[1].log_text
    wait_until(lambda: "wrong user or password" in log(), "the log to tell of it")
    users.write_text("bob:hunter2\neve:new\n")
    wait_until(lambda: "event=reloaded" in log(), "the new users")
    with client(cluster, ("eve", "new")) as eve:
        assert eve.exists("/")
    users.chmod(0o644)
    users.write_text("bob:hunter2\n")
    wait_until(lambda: "reload failed" in log(), "the log to tell that others can read the passwords")
    with client(cluster, ("eve", "new")) as eve:
        assert eve.exists("/")
    users.chmod(0o600)
    wait_until(
        lambda: log().count("event=reloaded") == 2, "the users again, now that nobody else can read them"
    )
    assert_refused(cluster, ("eve", "new"))
    assert "hunter2" not in log()


def test_where_sasl_is_required_nobody_else_is_served(start_cluster: StartCluster, tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.touch(mode=0o600)
    jaas.write_text(
        'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_bob="hunter2";\n};\n'
    )
    cluster = start_cluster(
        servers=1, ZRAFT_AUTH__SASL_USERS_FILE=str(jaas), ZRAFT_AUTH__REQUIRED_SCHEMES="sasl"
    )
    with client(cluster, ("bob", "hunter2")) as bob:
        assert bob.create("/by-bob") == "/by-bob"
    with client(cluster) as nobody, pytest.raises(SessionClosedRequireSaslError):
        nobody.create("/by-nobody")
    with client(cluster, ("bob", "hunter2")) as bob:
        assert not bob.exists("/by-nobody")
