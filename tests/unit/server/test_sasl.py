"""DIGEST-MD5 against the RFC's arithmetic written down again here, and against pure-sasl's client."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from puresasl.client import SASLClient

from zraft.server.clients.authentication.sasl import (
    TOKEN_BYTES_MAX,
    AuthenticationError,
    DigestMd5,
    parse_directives,
)

USERS = {"bob": "secret", "jürgen": "hütte", "水": "火", 'quo"te\\': 'pass"\\'}


def entropy(seed: int = 1) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def login(users: Mapping[str, str] = USERS, seed: int = 1, **options: str) -> DigestMd5:
    return DigestMd5(users, entropy=entropy(seed), **options)


def nonce_of(challenge: bytes) -> str:
    return challenge.decode().partition('nonce="')[2].partition('"')[0]


def h(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def response_to(
    challenge: bytes, user: str = "bob", password: str = "secret", **changes: str | None
) -> bytes:
    """RFC 2831, section 2.1.2.1, for qop=auth. A change of None leaves the directive out."""
    values: dict[str, str | None] = {
        "charset": "utf-8",
        "username": user,
        "realm": "zk-sasl-md5",
        "nonce": nonce_of(challenge),
        "nc": "00000001",
        "cnonce": "OA6MHXh6VqTrRk",
        "digest-uri": "zookeeper/zk-sasl-md5",
        "qop": "auth",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }

    def spelt(text: str) -> bytes:
        return text.encode("latin-1" if all(ord(c) < 256 for c in text) else "utf-8")

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    secret = h(spelt(user) + b":" + (values["realm"] or "").encode() + b":" + spelt(password))
    a1 = secret + b":" + (values["nonce"] or "").encode() + b":" + (values["cnonce"] or "").encode()
    if values.get("authzid") is not None:
        a1 += b":" + str(values["authzid"]).encode()
    a2 = f"AUTHENTICATE:{values['digest-uri']}".encode()
    parts = (
        h(a1).hex(),
        values["nonce"],
        values["nc"],
        values["cnonce"],
        values["qop"] or "auth",
        h(a2).hex(),
    )
    response = h(":".join(str(part) for part in parts).encode()).hex()
    values = {"response": response, **values}
    unquoted = ("nc", "qop", "charset", "response")
    return ",".join(
        f"{name}={value if name in unquoted else quoted(value)}"
        for name, value in values.items()
        if value is not None
    ).encode()


def refusal(token_of: Callable[[bytes], bytes], users: Mapping[str, str] = USERS) -> str:
    one = login(users)
    challenge = one.respond(b"").token
    with pytest.raises(AuthenticationError) as refused:
        one.respond(token_of(challenge))
    return str(refused.value)


def test_the_example_of_the_rfc_gives_the_rfcs_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 2831, section 4 (IMAP): user chris, password secret; both digests stand in the RFC."""
    one = DigestMd5(
        {"chris": "secret"},
        entropy=entropy(),
        realm="elwood.innosoft.com",
        service="imap",
        host="elwood.innosoft.com",
    )
    one.respond(b"")
    one._nonce = b"OA6MG9tEQGm2hh"  # the RFC's own, which cannot be had from random bytes
    step = one.respond(
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,'
        b'cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth"
    )
    assert step.user == "chris"
    assert step.token == b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def test_the_challenge_is_what_zookeepers_clients_expect() -> None:
    challenge = login().respond(b"")
    assert challenge.user is None
    fields = dict(part.split("=", 1) for part in challenge.token.decode().split(","))
    nonce = fields.pop("nonce")
    assert len(nonce.strip('"')) == 32
    assert fields == {
        "realm": '"zk-sasl-md5"',
        "qop": '"auth"',
        "charset": "utf-8",
        "algorithm": "md5-sess",
    }


@pytest.mark.parametrize("user", USERS)
def test_the_right_password_logs_in_and_the_server_proves_that_it_knows_it_too(user: str) -> None:
    one = login()
    step = one.respond(response_to(one.respond(b"").token, user, USERS[user]))
    assert step.user == user
    assert step.token.startswith(b"rspauth=")


@pytest.mark.parametrize("user", USERS)
def test_pure_sasl_logs_in_and_believes_the_server(user: str) -> None:
    """What kazoo does: an empty token first, then two answers."""
    client = SASLClient(
        "zk-sasl-md5", service="zookeeper", mechanism="DIGEST-MD5", username=user, password=USERS[user]
    )
    one = login()
    assert client.process(None) is None
    challenge = one.respond(b"").token
    step = one.respond(client.process(challenge))
    assert step.user == user
    assert client.process(step.token) is None
    assert client.complete


def test_pure_sasl_does_not_believe_a_server_without_the_password() -> None:
    client = SASLClient(
        "zk-sasl-md5", service="zookeeper", mechanism="DIGEST-MD5", username="bob", password="secret"
    )
    client.process(None)
    client.process(login().respond(b"").token)
    with pytest.raises(Exception, match="Invalid server auth response"):
        client.process(b"rspauth=" + b"0" * 32)


def test_a_wrong_password_and_an_unknown_user_fail_with_the_same_words() -> None:
    wrong = refusal(lambda challenge: response_to(challenge, password="other"))
    unknown = refusal(lambda challenge: response_to(challenge, user="eve"))
    assert wrong == "SASL: wrong user or password (user 'bob')"
    assert unknown == wrong.replace("bob", "eve")
    assert "secret" not in wrong


def test_a_realm_may_be_left_out_and_may_not_be_another() -> None:
    one = login()
    assert one.respond(response_to(one.respond(b"").token, realm=None)).user == "bob"
    assert "realm" in refusal(lambda challenge: response_to(challenge, realm="example.org"))


def test_nobody_acts_as_somebody_else() -> None:
    one = login()
    assert one.respond(response_to(one.respond(b"").token, authzid="bob")).user == "bob"
    assert "authzid" in refusal(lambda challenge: response_to(challenge, authzid="root"))


def test_a_response_is_good_for_its_own_challenge_and_once() -> None:
    one, other = login(seed=1), login(seed=2)
    token = response_to(one.respond(b"").token)
    other.respond(b"")
    with pytest.raises(AuthenticationError, match="another challenge"):
        other.respond(token)
    assert one.respond(token).user == "bob"
    with pytest.raises(AuthenticationError, match="after the end"):
        one.respond(token)


def test_there_is_no_second_try_with_a_nonce() -> None:
    one = login()
    challenge = one.respond(b"").token
    with pytest.raises(AuthenticationError):
        one.respond(response_to(challenge, password="guess"))
    with pytest.raises(AuthenticationError, match="after the end"):
        one.respond(response_to(challenge))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"nc": "00000002"}, "nc"),
        ({"qop": "auth-int"}, "qop"),
        ({"charset": "iso-8859-1"}, "charset"),
        ({"digest_uri": "imap/zk-sasl-md5"}, "digest-uri"),
        ({"digest_uri": "zookeeper/evil.example.org"}, "digest-uri"),
        ({"cnonce": None}, "cnonce"),
        ({"username": None}, "username"),
        ({"nonce": None}, "nonce"),
        ({"response": None}, "response"),
    ],
)
def test_what_does_not_belong_is_named(changes: dict[str, Any], named: str) -> None:
    assert named in refusal(lambda challenge: response_to(challenge, **changes))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"=",
        b"username",
        b'username="bob',
        b'username="bob\\',
        b'username="a"b',
        b'username="a",username="b"',
        b"\xff=x",
        b"\x00" * 40,
        b"a=b," * (TOKEN_BYTES_MAX // 4 + 1),
    ],
)
def test_a_malformed_response_fails_the_login_only(token: bytes) -> None:
    refusal(lambda _: token)


def test_another_mechanism_is_refused_at_its_first_token() -> None:
    with pytest.raises(AuthenticationError, match="DIGEST-MD5"):
        login().respond(b"\0bob\0secret")


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_arbitrary_tokens_never_log_in_nor_raise_anything_else(tokens: list[bytes]) -> None:
    one = login()
    for token in tokens:
        try:
            assert one.respond(token).user is None
        except AuthenticationError:
            pass


@given(st.data())
def test_a_response_with_any_byte_changed_never_raises_anything_else(data: st.DataObject) -> None:
    one = login()
    token = bytearray(response_to(one.respond(b"").token))
    for _ in range(data.draw(st.integers(1, 3))):
        token[data.draw(st.integers(0, len(token) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert one.respond(bytes(token)).user in (None, "bob")
    except AuthenticationError:
        pass


@given(st.dictionaries(st.sampled_from(("username", "realm", "nonce", "cnonce")), st.binary(max_size=40)))
def test_directives_survive_quoting(values: dict[str, bytes]) -> None:
    token = b", ".join(
        name.encode() + b' = "' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        for name, value in values.items()
    )
    assert parse_directives(token) == values
