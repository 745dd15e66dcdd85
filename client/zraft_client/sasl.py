"""The client's side of SASL DIGEST-MD5 (RFC 2831): proves that it knows a password, without sending it.

MD5 is what the mechanism is made of: whoever reads a login can guess passwords offline, so use TLS. Pure.
"""

from __future__ import annotations

import hmac
import re
from hashlib import md5
from typing import Final

from zraft_client.errors import AuthFailedError
from zraft_core.errors import Code

URI: Final = b"zookeeper/zk-sasl-md5"
"""Servers are named so by all clients, whatever they are called."""

_NONCE: Final = re.compile(rb'(?:^|,)\s*nonce="([^"\\]+)"')
_REALM: Final = re.compile(rb'(?:^|,)\s*realm="([^"\\]*)"')
_FIXED: Final = b"nc=00000001,qop=auth,charset=utf-8"


class DigestLogin:
    """One login.

    Args:
        credentials: "user:password".
        cnonce: hexadecimal digits that nobody can guess, for this login alone.

    Raises:
        AuthFailedError: there is no user, or no password.
    """

    def __init__(self, credentials: bytes, cnonce: bytes) -> None:
        user, _, password = credentials.partition(b":")
        if not user or not password:
            raise _failed(
                "the credentials have no colon, or nothing before or behind it; expected user:password"
            )
        self._user = user
        self._password = password
        self._cnonce = cnonce
        self._proof = b""

    def response(self, challenge: bytes | None) -> bytes:
        """Return the answer to a server's challenge.

        Raises:
            AuthFailedError: it is no challenge.
        """
        nonce, realm = _NONCE.search(challenge or b""), _REALM.search(challenge or b"")
        if nonce is None or realm is None:
            raise _failed("the server sent no challenge of DIGEST-MD5")
        secret = md5(b":".join((self._user, realm[1], self._password)), usedforsecurity=False).digest()
        key = _hex(b":".join((secret, nonce[1], self._cnonce)))

        def digest(of: bytes) -> bytes:
            return _hex(b":".join((key, nonce[1], b"00000001", self._cnonce, b"auth", _hex(of))))

        self._proof = b"rspauth=" + digest(b":" + URI)
        fields = {b"username": self._user, b"realm": realm[1], b"nonce": nonce[1], b"cnonce": self._cnonce}
        quoted = b",".join([name + b'="' + _quoted(value) + b'"' for name, value in fields.items()])
        response = digest(b"AUTHENTICATE:" + URI)
        return quoted + b"," + _FIXED + b',digest-uri="' + URI + b'",response=' + response

    def check(self, proof: bytes | None) -> None:
        """Check that the server knows the password, too.

        Raises:
            AuthFailedError: it does not.
        """
        if not hmac.compare_digest(proof or b"", self._proof):
            raise _failed("the server did not prove that it knows the password")


def _hex(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).hexdigest().encode()


def _quoted(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _failed(why: str) -> AuthFailedError:
    return AuthFailedError(f"sasl: {why}", Code.AUTH_FAILED)
