"""The first exchange of a connection: ConnectRequest, and the ConnectResponse that grants or refuses it.

Neither carries a request or reply header. The trailing `readOnly` byte came with ZooKeeper 3.4; a client that
does not send it cannot read it either, so the response repeats the request's form (None = no such byte).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from attrs import frozen

from zraft_core.wire.framing import frame
from zraft_core.wire.jute import INT, JuteReader, encode_bool, encode_buffer

PASSWORD_BYTES: Final = 16
NO_PASSWORD: Final = bytes(PASSWORD_BYTES)

_REQUEST_HEAD: Final = Struct(">iqiq")
_RESPONSE_HEAD: Final = Struct(">iiq")
_USUAL_REQUEST: Final = Struct(">iqiqi16sB")
_GREETING: Final = Struct(">iiiqi16s?")
"""The response that nearly every client gets, with the frame's length in front."""
_GREETING_BYTES: Final = _GREETING.size - INT.size


@frozen
class ConnectRequest:
    """Request of a client for a session; `session` 0 asks for a new one.

    `timeout_ms` is a wish, not yet clamped.
    """

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool | None


@frozen
class ConnectResponse:
    """Answer of the server about a session; a `timeout_ms` of 0 or less says that the session is gone."""

    protocol_version: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool | None


def decode_connect_request(body: bytes) -> ConnectRequest:
    """Return the request in a frame.

    Raises:
        MarshallingError: there is none; the caller closes the connection, as no reply could carry
            the code.
    """
    if len(body) == _USUAL_REQUEST.size:
        # Nearly every client sends this form, which is read in one step: a storm of reconnects is thousands
        # of these.
        version, last_zxid, timeout_ms, session, size, password, flag = _USUAL_REQUEST.unpack(body)
        if size == PASSWORD_BYTES:
            return ConnectRequest(version, last_zxid, timeout_ms, session, password, flag != 0)
    reader = JuteReader(body)
    return ConnectRequest(
        protocol_version=reader.read_int(),
        last_zxid_seen=reader.read_long(),
        timeout_ms=reader.read_int(),
        session=reader.read_long(),
        password=reader.read_buffer() or b"",
        read_only=reader.read_bool() if reader.remaining else None,
    )


def encode_connect_request(request: ConnectRequest) -> bytes:
    """Return the request as a frame."""
    head = _REQUEST_HEAD.pack(
        request.protocol_version, request.last_zxid_seen, request.timeout_ms, request.session
    )
    return frame(head + encode_buffer(request.password) + _read_only(request.read_only))


def decode_connect_response(body: bytes) -> ConnectResponse:
    """Return the response in a frame.

    Raises:
        MarshallingError: there is none.
    """
    reader = JuteReader(body)
    return ConnectResponse(
        protocol_version=reader.read_int(),
        timeout_ms=reader.read_int(),
        session=reader.read_long(),
        password=reader.read_buffer() or b"",
        read_only=reader.read_bool() if reader.remaining else None,
    )


def encode_connect_response(response: ConnectResponse) -> bytes:
    """Return the response as a frame."""
    head = _RESPONSE_HEAD.pack(response.protocol_version, response.timeout_ms, response.session)
    return frame(head + encode_buffer(response.password) + _read_only(response.read_only))


def encode_greeting(timeout_ms: int, session: int, password: bytes, read_only: bool | None) -> bytes:
    """Return the response of a server that has attached a client, as a frame.

    Args:
        timeout_ms: what the client got, which may be another one than it asked for.
        password: the session's, of `PASSWORD_BYTES`.
        read_only: whether the client may only read; None for a client that knows no such servers.
    """
    if read_only is None:
        return encode_connect_response(ConnectResponse(0, timeout_ms, session, password, None))
    return _GREETING.pack(_GREETING_BYTES, 0, timeout_ms, session, PASSWORD_BYTES, password, read_only)


def encode_session_refusal(request: ConnectRequest) -> bytes:
    """Return the answer to a session that is unknown, expired or not proven by its password; close after it."""
    read_only = None if request.read_only is None else False
    return encode_connect_response(ConnectResponse(0, 0, 0, NO_PASSWORD, read_only))


def _read_only(flag: bool | None) -> bytes:
    return b"" if flag is None else encode_bool(flag)
