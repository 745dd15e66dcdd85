"""`zraft user`: the file of SASL users, which servers read as it is written, and ids for ACLs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zraft.cli.main import main
from zraft.server.clients.authentication.proofs import digest_id
from zraft.server.process.security.sasl_users import read_users


def run(*arguments: object, password: str = "") -> Result:
    return CliRunner().invoke(main, ["user", *map(str, arguments)], input=f"{password}\n" if password else "")


def ok(*arguments: object, password: str = "") -> str:
    result = run(*arguments, password=password)
    assert result.exit_code == 0, result.output
    return result.output


def test_users_are_added_changed_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert "is added" in ok("add", file, "bob", password="x y")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "is added" in ok("add", file, "alice", password="wonder:land")
    assert "another password" in ok("add", file, "bob", password="builder")
    assert read_users(file) == {"alice": "wonder:land", "bob": "builder"}
    assert ok("list", file) == "sasl:alice\nsasl:bob\n"
    ok("remove", file, "bob")
    assert read_users(file) == {"alice": "wonder:land"}


def test_a_changed_file_stays_that_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "users"
    ok("add", file, "bob", password="builder")
    # Only root may give a file to somebody else, and only root can take it from the server by a change.
    owner = (12_345, 54_321) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(file, *owner)
    file.chmod(0o400)
    ok("add", file, "alice", password="wonder")
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, 0o400)
    assert read_users(file).keys() == {"alice", "bob"}


def test_the_last_user_stays_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "users"
    ok("add", file, "bob", password="builder")
    assert "last user" in run("remove", file, "bob").output
    assert "'eve'" in run("remove", file, "eve").output
    assert read_users(file) == {"bob": "builder"}


@pytest.mark.parametrize("name", ["", "a:b", " a", "#a", "a\nb"])
def test_a_name_that_the_file_cannot_hold_is_refused(name: str, tmp_path: Path) -> None:
    result = run("add", tmp_path / "users", name, password="x")
    assert result.exit_code != 0
    assert "without colons" in result.output
    assert not (tmp_path / "users").exists()


@pytest.mark.parametrize("password", ["", " x", "x\0"])
def test_a_password_that_the_file_cannot_hold_is_refused(password: str, tmp_path: Path) -> None:
    result = run("add", tmp_path / "users", "bob", password=password)
    assert result.exit_code != 0
    assert not (tmp_path / "users").exists()


def test_a_jaas_file_is_read_and_not_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.touch(0o600)
    text = 'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_bob="x";\n};\n'
    file.write_text(text)
    assert ok("list", file) == "sasl:bob\n"
    assert "edit it by hand" in run("add", file, "eve", password="x").output
    assert file.read_text() == text


def test_an_id_of_scheme_digest_is_the_one_that_servers_compare() -> None:
    assert ok("digest", "alice", password="wonderland") == f"digest:{digest_id(b'alice:wonderland')}\n"
