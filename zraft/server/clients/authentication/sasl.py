"""The server's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's clients speak it.

A login is: an empty token from the client, our challenge, the client's response, our proof that we know the password
too (`rspauth`). The password itself does not travel. MD5 is what the mechanism is made of and what clients have; whoever
reads a login can guess passwords offline, so use TLS and long passwords.

Each `DigestMd5` is one login: its nonce is used once. Left out as by ZooKeeper: logging in again with an old nonce
("subsequent authentication"), and integrity or privacy layers.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from hashlib import md5
from typing import Final

from attrs import field, frozen

from zraft_core.errors import ZraftError

REALM: Final = "zk-sasl-md5"
SERVICE: Final = "zookeeper"
HOST: Final = "zk-sasl-md5"
"""Clients name this host in their digest-uri, not the one they connect to."""

NONCE_BYTES: Final = 24
TOKEN_BYTES_MAX: Final = 4096
"""RFC 2831 asks for this limit."""

_DIRECTIVES: Final = frozenset(
    (
        *("username", "realm", "nonce", "cnonce", "nc", "qop", "digest-uri", "response"),
        *("maxbuf", "charset", "cipher", "authzid"),
    )
)
_SEPARATORS: Final = frozenset(b'()<>@,;:\\"/[]?={} \t')
_SPACES: Final = b" \t\r\n"


class AuthenticationError(ZraftError):
    """A login failed. What it says is for the operator: the client learns only that it failed."""


@frozen
class SaslStep:
    """Step of a login: the token to answer. `user` is set once the login is done, with the last answer."""

    token: bytes = field(repr=False)
    user: str | None = None


class DigestMd5:
    """One login. `respond` is called with each token of the client, and not again once it raised."""

    __slots__ = ("_done", "_entropy", "_nonce", "_realm", "_uri", "_users")

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        entropy: Callable[[int], bytes],
        realm: str = REALM,
        service: str = SERVICE,
        host: str = HOST,
    ) -> None:
        """Begin a login. `users` maps names to passwords; `entropy` gives that many random bytes."""
        self._users = users
        self._entropy = entropy
        self._realm = realm
        self._uri = f"{service}/{host}"
        self._nonce: bytes | None = None
        self._done = False

    def respond(self, token: bytes) -> SaslStep:
        """Return the next step.

        Raises:
            AuthenticationError: the login has failed.
        """
        if self._done:
            raise AuthenticationError("SASL: a token after the end of the login; a nonce is good for one")
        if self._nonce is None:
            if token:
                raise AuthenticationError(
                    f"SASL: expected an empty token to begin with, found {len(token)} bytes; only DIGEST-MD5 is spoken"
                )
            self._nonce = base64.b64encode(self._entropy(NONCE_BYTES))
            return SaslStep(self._challenge(self._nonce))
        self._done = True  # whatever becomes of it: there is no second try with this nonce
        return self._judge(self._nonce, parse_directives(token))

    def _challenge(self, nonce: bytes) -> bytes:
        return f'realm="{self._realm}",nonce="{nonce.decode()}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()

    def _judge(self, nonce: bytes, given: Mapping[str, bytes]) -> SaslStep:
        for name in ("username", "nonce", "cnonce", "nc", "digest-uri", "response"):
            if name not in given:
                raise AuthenticationError(f"SASL: the response has no {name}")
        if not hmac.compare_digest(given["nonce"], nonce):
            raise AuthenticationError("SASL: the response is to another challenge")
        if given["nc"] != b"00000001":
            raise AuthenticationError("SASL: nc is not 00000001; a nonce is good for one login")
        if given.get("qop", b"auth") != b"auth":
            raise AuthenticationError("SASL: only qop=auth is spoken")
        if given.get("charset", b"utf-8").lower() != b"utf-8":
            raise AuthenticationError("SASL: charset is not utf-8")
        if given.get("realm", self._realm.encode()) != self._realm.encode():
            raise AuthenticationError(f"SASL: the realm is not {self._realm}")
        if given["digest-uri"].lower() != self._uri.encode():
            raise AuthenticationError(f"SASL: digest-uri is not {self._uri}")
        user = _user(given["username"], utf8="charset" in given)
        if given.get("authzid", b"") not in (b"", given["username"], user.encode()):
            raise AuthenticationError("SASL: nobody may act as somebody else (authzid)")
        password = self._users.get(user)
        known = password is not None
        if password is None:
            # This does as much work as for a user who exists: the time must not tell the two apart.
            password = base64.b64encode(self._entropy(NONCE_BYTES)).decode()
        found: bytes | None = None
        for spelt_user, spelt_password in _spellings(given["username"], user, password):
            session = _session_key(spelt_user, spelt_password, nonce, given)
            expected = _response(session, nonce, given, b"AUTHENTICATE:" + given["digest-uri"])
            if hmac.compare_digest(expected, given["response"].lower()):
                found = session
        if found is None or not known:
            raise AuthenticationError(f"SASL: wrong user or password (user {user!r})")
        proof = _response(found, nonce, given, b":" + given["digest-uri"])
        return SaslStep(b"rspauth=" + proof, user)


def _user(name: bytes, *, utf8: bool) -> str:
    """Return the user's name as text.

    Without a charset the RFC means ISO 8859-1, but pure-sasl (kazoo) sends UTF-8 and does not say so.
    """
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        if utf8:
            raise AuthenticationError("SASL: username is not utf-8") from error
        return name.decode("latin-1")


def _spellings(name: bytes, user: str, password: str) -> set[tuple[bytes, bytes]]:
    """Return the bytes that clients hash a user and a password as.

    The RFC wants ISO 8859-1 where that is possible, which Java does; pure-sasl hashes UTF-8 in any case.
    """
    found = {(name, password.encode())}
    try:
        found.add((user.encode("latin-1"), password.encode("latin-1")))
    except UnicodeEncodeError:
        pass
    return found


def _session_key(user: bytes, password: bytes, nonce: bytes, given: Mapping[str, bytes]) -> bytes:
    """Return H(A1) in hexadecimal. A realm that the client leaves out is empty."""
    secret = md5(b":".join((user, given.get("realm", b""), password)), usedforsecurity=False).digest()
    parts = [secret, nonce, given["cnonce"]]
    if "authzid" in given:
        parts.append(given["authzid"])
    return md5(b":".join(parts), usedforsecurity=False).hexdigest().encode()


def _response(session_key: bytes, nonce: bytes, given: Mapping[str, bytes], a2: bytes) -> bytes:
    ha2 = md5(a2, usedforsecurity=False).hexdigest().encode()
    parts = (session_key, nonce, given["nc"], given["cnonce"], b"auth", ha2)
    return md5(b":".join(parts), usedforsecurity=False).hexdigest().encode()


def parse_directives(token: bytes) -> dict[str, bytes]:
    r"""Return the directives of a digest-response: `name=value` or `name="quoted \" value"`, with commas between them.

    Unknown names are left out.

    Raises:
        AuthenticationError: it has another form, names something twice, or is too long.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise AuthenticationError(f"SASL: token of {len(token)} bytes, expected at most {TOKEN_BYTES_MAX}")
    found: dict[str, bytes] = {}
    at = 0
    while at < len(token):
        if token[at] in b"," or token[at] in _SPACES:
            at += 1  # lists may have empty elements
            continue
        end = at
        while end < len(token) and token[end] not in _SEPARATORS and 32 < token[end] < 127:
            end += 1
        name = token[at:end].decode("ascii").lower()
        at = _skip_spaces(token, end)
        if not name or token[at : at + 1] != b"=":
            raise AuthenticationError(f"SASL: expected name=value at byte {end} of the response")
        value, at = _value(token, _skip_spaces(token, at + 1))
        at = _skip_spaces(token, at)
        if at < len(token) and token[at : at + 1] != b",":
            raise AuthenticationError(f"SASL: expected a comma at byte {at} of the response")
        if name not in _DIRECTIVES:
            continue
        if name in found:
            raise AuthenticationError(f"SASL: the response has {name} twice")
        found[name] = value
    return found


def _skip_spaces(token: bytes, at: int) -> int:
    while at < len(token) and token[at] in _SPACES:
        at += 1
    return at


def _value(token: bytes, at: int) -> tuple[bytes, int]:
    """Return the value that begins here, and where it ends."""
    if token[at : at + 1] != b'"':
        end = at
        # This is not strictly a token of the RFC: clients send digest-uri, base64 and the like without
        # quotes.
        while end < len(token) and token[end] not in b'," \t\r\n':
            end += 1
        return token[at:end], end
    value = bytearray()
    at += 1
    while at < len(token) and token[at : at + 1] != b'"':
        if token[at : at + 1] == b"\\":
            at += 1
        value += token[at : at + 1]
        at += 1
    if at >= len(token):
        raise AuthenticationError("SASL: a quoted value does not end")
    return bytes(value), at + 1
