"""TLS of one client connection, without I/O: encrypted bytes in and out on one side, plain ones on the other.

Bytes of a connection are already read when its first ones show that it is TLS, so the socket cannot be handed to
asyncio's TLS; OpenSSL works on buffers here. Steps of the handshake are
taken by `zraft.server.process.security.handshakes`, when there is time for them.
"""

from __future__ import annotations

import ssl
from typing import Final

from zraft_core.errors import ProtocolError

CLIENT_HELLO: Final = b"\x16\x03"
"""A handshake record of TLS 1.x. No four-letter word, and as the length of a frame far above any limit."""

HANDSHAKE_BYTES_MAX: Final = 128 * 1024
"""A client's side of a handshake, a long certificate chain included. What came with it in the same read may be more."""

READ_BYTES: Final = 64 * 1024
SLICE_BYTES: Final = 16 * 1024
"""Handed to OpenSSL at once, the size of a record: its buffers keep for as long as the connection what they once grew to."""


class TlsError(ProtocolError):
    """The client broke off, or does not speak TLS as we do; the connection is over."""


class TlsStream:
    """The server's end of one TLS connection. After an error, only `take_output` may be called: it holds the alert."""

    __slots__ = ("_at", "_fed", "_handshake_bytes", "_incoming", "_outgoing", "_ssl", "ended", "established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_bytes = 0
        self._fed = b""
        self._at = 0
        """The place up to which OpenSSL was handed what was fed."""
        self.established = False
        self.ended = False
        """The client said that it sends nothing more."""

    def feed(self, data: bytes) -> None:
        """Take what the socket gave; nothing is done with it yet.

        Raises:
            TlsError: the handshake takes more bytes than any honest one.
        """
        if not self.established:
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise TlsError(
                    f"TLS handshake of more than {HANDSHAKE_BYTES_MAX} bytes; is the client's certificate chain that long?"
                )
            self._handshake_bytes += len(data)
        self._fed = self._fed[self._at :] + data
        self._at = 0

    def _hand_over(self) -> bool:
        """Hand over the next slice of what was fed; return False if there is nothing left."""
        some = self._fed[self._at : self._at + SLICE_BYTES]
        if not some:
            self._fed = b""
            self._at = 0
            return False
        self._incoming.write(some)
        self._at += len(some)
        return True

    def handshake(self) -> bool:
        """Go as far as what was fed allows; True once the handshake is done. Costs up to milliseconds.

        Raises:
            TlsError: there is no agreement, or the client's certificate is missing or not good.
        """
        assert not self.established, "the handshake is done"
        while self._hand_over():
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise TlsError(f"TLS handshake failed: {_reason(error)}") from error
            self.established = True
            return True
        return False

    def read(self) -> bytes:
        """Return all that can be decrypted now.

        Sets `ended` when the client closed its side.

        Raises:
            TlsError: a record was altered, or makes no sense.
        """
        plain: list[bytes] = []
        while True:
            try:
                part = self._ssl.read(READ_BYTES)
            except ssl.SSLWantReadError:
                if self._hand_over():
                    continue
                break
            except ssl.SSLError as error:
                raise TlsError(f"TLS: {_reason(error)}") from error
            if not part:
                self.ended = True
                break
            plain.append(part)
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def encrypt(self, data: bytes) -> bytes:
        """Return `data` as records, together with what else waits to be sent.

        Raises:
            TlsError: the connection is over.
        """
        sealed: list[bytes] = []
        view = memoryview(data)
        try:
            while view:
                view = view[self._ssl.write(view[:SLICE_BYTES]) :]
                sealed.append(self._outgoing.read())
        except ssl.SSLError as error:
            raise TlsError(f"TLS: {_reason(error)}") from error
        return sealed[0] if len(sealed) == 1 else b"".join(sealed)

    def close(self) -> bytes:
        """Return the last bytes: that nothing more will come (close_notify).

        So nobody can cut our answer unnoticed.
        """
        try:
            self._ssl.unwrap()
        except ssl.SSLError:
            # The client's own goodbye is not waited for; and after a failed handshake there is nothing to close.
            pass
        return self._outgoing.read()

    def take_output(self) -> bytes:
        """Return what OpenSSL wants sent: its side of the handshake, alerts, answers to key updates."""
        return self._outgoing.read()

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER; None if it gave none or was not asked."""
        return self._ssl.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The version of TLS, "none" before the handshake."""
        return self._ssl.version() or "none"


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's words without the place in its source, and with why a certificate was refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
