"""The connect exchange: both forms of the request, and answers in the form that was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol.serialization import Connect

from zraft_core.errors import MarshallingError
from zraft_core.wire.connect import (
    NO_PASSWORD,
    ConnectRequest,
    ConnectResponse,
    decode_connect_request,
    decode_connect_response,
    encode_connect_request,
    encode_connect_response,
    encode_greeting,
    encode_session_refusal,
)

PASSWORD_HEX = "000102030405060708090a0b0c0d0e0f"
REQUEST_HEX = f"00000000 0000000100000002 00002710 0123456789abcdef 00000010 {PASSWORD_HEX}"
REQUEST = ConnectRequest(0, 0x1_0000_0002, 10_000, 0x0123456789ABCDEF, bytes.fromhex(PASSWORD_HEX), None)


@pytest.mark.parametrize(("tail", "read_only"), [("", None), ("00", False), ("01", True)])
def test_request_golden_bytes(tail: str, read_only: bool | None) -> None:
    """44 bytes from clients before 3.4, 45 from all others."""
    body = bytes.fromhex(REQUEST_HEX + tail)
    expected = ConnectRequest(0, 0x1_0000_0002, 10_000, REQUEST.session, REQUEST.password, read_only)
    assert len(body) == (44 if read_only is None else 45)
    assert decode_connect_request(body) == expected
    assert encode_connect_request(expected) == len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(("tail", "read_only"), [("", None), ("00", False), ("01", True)])
def test_response_golden_bytes(tail: str, read_only: bool | None) -> None:
    body = bytes.fromhex(f"00000000 00001770 fe00000000000001 00000010 {PASSWORD_HEX} {tail}")
    response = ConnectResponse(0, 6000, -0x01FF_FFFF_FFFF_FFFF, bytes.fromhex(PASSWORD_HEX), read_only)
    assert decode_connect_response(body) == response
    assert encode_connect_response(response) == len(body).to_bytes(4, "big") + body
    assert encode_greeting(6000, response.session, response.password, read_only) == encode_connect_response(
        response
    )


@pytest.mark.parametrize(("asked", "answered"), [(None, None), (False, False), (True, False)])
def test_refusal_is_all_zero_and_mirrors_the_read_only_byte(
    asked: bool | None, answered: bool | None
) -> None:
    """Traps 17 and 18: timeout 0, id 0, 16 zero bytes; the byte only if the client sent one."""
    request = ConnectRequest(0, 0, 1, 5, NO_PASSWORD, asked)
    raw = encode_session_refusal(request)
    assert raw[4:] == bytes(16) + (16).to_bytes(4, "big") + bytes(16) + (b"" if asked is None else b"\0")
    assert decode_connect_response(raw[4:]) == ConnectResponse(0, 0, 0, bytes(16), answered)


def test_kazoo_writes_what_we_read() -> None:
    body = bytes(Connect(0, 77, 4000, -5, b"p" * 16, True).serialize())
    assert decode_connect_request(body) == ConnectRequest(0, 77, 4000, -5, b"p" * 16, True)


def test_kazoo_reads_what_we_write() -> None:
    raw = encode_connect_response(ConnectResponse(0, 4000, -5, b"p" * 16, False))
    connect, end = Connect.deserialize(raw, 4)
    assert (connect.time_out, connect.session_id, connect.passwd) == (4000, -5, b"p" * 16)
    assert connect.read_only is False
    assert end == len(raw)


def test_a_null_password_proves_nothing() -> None:
    body = bytes.fromhex("00000000 0000000000000000 00000001 0000000000000005 ffffffff 00")
    assert decode_connect_request(body).password == b""


def test_every_truncation_is_a_declared_error_but_the_old_form() -> None:
    body = bytes.fromhex(REQUEST_HEX + "00")
    for size in range(44):
        with pytest.raises(MarshallingError):
            decode_connect_request(body[:size])
    assert decode_connect_request(body[:44]) == REQUEST


def test_trailing_bytes_are_ignored() -> None:
    body = bytes.fromhex(REQUEST_HEX + "01")
    assert decode_connect_request(body + b"more") == decode_connect_request(body)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_a_record_or_a_declared_error(body: bytes) -> None:
    for decode in (decode_connect_request, decode_connect_response):
        try:
            decode(body)
        except MarshallingError:
            pass


@given(st.binary(min_size=45, max_size=45))
def test_the_usual_request_is_read_in_one_step_as_field_by_field(body: bytes) -> None:
    """The same bytes with one more behind them take the other way."""
    results: list[ConnectRequest | str] = []
    for one in (body, body + b"\0"):
        try:
            results.append(decode_connect_request(one))
        except MarshallingError as error:
            results.append(str(error).split(":")[0])
    if not isinstance(results[0], str):
        assert results[0] == results[1]
