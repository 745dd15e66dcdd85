"""The client's side of DIGEST-MD5 against the server's, as they ship."""

from __future__ import annotations

import random

import pytest

from zraft.server.clients.authentication.sasl import AuthenticationError, DigestMd5
from zraft_client import AuthFailedError
from zraft_client.sasl import DigestLogin

USERS = {"bob": "secret", "jürgen": "hütte", "水": "火:", 'quo"te\\': 'pass"\\'}
CNONCE = b"00112233445566778899aabbccddeeff"


def server(seed: int = 1) -> DigestMd5:
    return DigestMd5(USERS, entropy=random.Random(seed).randbytes)


@pytest.mark.parametrize("user", USERS)
def test_client_and_server_prove_to_each_other_that_they_know_the_password(user: str) -> None:
    one, other = DigestLogin(f"{user}:{USERS[user]}".encode(), CNONCE), server()
    step = other.respond(one.response(other.respond(b"").token))
    assert step.user == user
    one.check(step.token)


@pytest.mark.parametrize("credentials", [b"bob:wrong", b"eve:secret"])
def test_a_wrong_password_or_user_is_not_believed(credentials: bytes) -> None:
    other = server()
    response = DigestLogin(credentials, CNONCE).response(other.respond(b"").token)
    with pytest.raises(AuthenticationError, match="wrong user or password"):
        other.respond(response)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    login = DigestLogin(b"bob:secret", CNONCE)
    login.response(server().respond(b"").token)
    for proof in (None, b"", b"rspauth=", b"rspauth=" + bytes(32)):
        with pytest.raises(AuthFailedError, match="did not prove"):
            login.check(proof)


@pytest.mark.parametrize(
    "challenge", [None, b"", b'realm="x"', b'nonce="x"', b"rspauth=1", b'xnonce="a",realm="b"']
)
def test_what_is_no_challenge_is_refused(challenge: bytes | None) -> None:
    with pytest.raises(AuthFailedError, match="no challenge"):
        DigestLogin(b"bob:secret", CNONCE).response(challenge)


@pytest.mark.parametrize("credentials", [b"", b"bob", b":secret", b"bob:"])
def test_credentials_without_a_user_or_a_password_are_refused(credentials: bytes) -> None:
    with pytest.raises(AuthFailedError, match="expected user:password"):
        DigestLogin(credentials, CNONCE)


def test_a_password_is_in_no_text_of_a_login() -> None:
    login = DigestLogin(b"bob:secret", CNONCE)
    assert b"secret" not in login.response(server().respond(b"").token)
    assert "secret" not in repr(login)
