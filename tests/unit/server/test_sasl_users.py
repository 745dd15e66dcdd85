"""Who may log in by SASL: our file, ZooKeeper's file, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.server.process.security.sasl_users import parse_users, read_users
from zraft_core.errors import ConfigError

JAAS = """
// of the old cluster
QuorumServer {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_peer="of no concern";
};
Server {
    /* people */
    org.apache.zookeeper.server.auth.DigestLoginModule required
        user_super="adm\\"in"
        user_bob=secret
        debug=true;
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="secret"; };
"""


def test_lines_name_users_and_passwords() -> None:
    text = "# people\n\nbob:secret\n  alice : with:colon and space \n"
    assert parse_users(text, "x") == {"bob": "secret", "alice ": " with:colon and space"}


def test_zookeepers_own_file_is_understood() -> None:
    assert parse_users(JAAS, "x") == {"super": 'adm"in', "bob": "secret"}


@pytest.mark.parametrize(
    "text",
    [
        "bob",
        "bob:",
        ":hunter2",
        "bob:hunter2\nbob:hunter2",
        'Server { Digest required user_bob="hunter2',
        'Server { Digest required user_bob="hunter2" };',
        'Server { Digest required user_bob "hunter2"; };',
        "Server { DigestLoginModule required user_bob=; };",
        "Server { DigestLoginModule required user_bob=hunter2; }",
        "Server hunter2 { }",
        'Server { DigestLoginModule required user_bob="hunter2"; };\nServer { DigestLoginModule required user_bob="x"; };',
    ],
)
def test_a_file_with_another_form_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_users(text, "the-file")
    assert "auth.sasl_users_file" in str(refused.value)
    assert "the-file" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(st.text() | st.text('Serv{};="\\ \n/*user_DigestLoginModule'))
def test_any_text_gives_users_or_a_declared_error(text: str) -> None:
    for one in (text, "Server {" + text):
        try:
            assert isinstance(parse_users(one, "x"), dict)
        except ConfigError:
            pass


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("bob:secret\n")
    path.chmod(0o604)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_users(path)
    path.chmod(0o620)
    with pytest.raises(ConfigError, match="mode 0620"):
        read_users(path)
    for mode in (0o600, 0o400, 0o640):
        path.chmod(mode)
        assert read_users(path) == {"bob": "secret"}


def test_a_file_without_a_user_or_that_is_no_file_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    with pytest.raises(ConfigError, match="names no user"):
        read_users(empty)
    with pytest.raises(ConfigError, match="no regular file"):
        read_users(tmp_path)
    with pytest.raises(ConfigError, match="cannot open"):
        read_users(tmp_path / "absent")
    empty.write_bytes(b"\xff:\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_users(empty)
