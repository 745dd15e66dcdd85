"""TLS in memory: a real OpenSSL client on one end, the server's sans-I/O stream on the other."""

from __future__ import annotations

import resource
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certificates import Authority, subject_of
from zraft.config.sections import TlsConfig
from zraft.server.process.security.certificates import load_certificates
from zraft.server.process.security.tls import CLIENT_HELLO, HANDSHAKE_BYTES_MAX, TlsError, TlsStream


class Client:
    """The client's end, in memory."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost", session=session
        )
        self.done = False

    def take(self) -> bytes:
        """Go on with the handshake; what is to be sent."""
        if not self.done:
            try:
                self.ssl.do_handshake()
                self.done = True
            except ssl.SSLWantReadError:
                pass
        return self._outgoing.read()

    def give(self, data: bytes) -> None:
        self._incoming.write(data)

    def write(self, data: bytes) -> bytes:
        self.ssl.write(data)
        return self._outgoing.read()

    def read(self) -> bytes:
        found = b""
        try:
            while part := self.ssl.read(65_536):
                found += part
        except ssl.SSLWantReadError:
            pass
        return found

    def close(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.ssl.unwrap()
        return self._outgoing.read()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def config(authority: Authority, directory: Path) -> TlsConfig:
    certificate, key = authority.issue().write(directory, "server")
    return TlsConfig(certificate=certificate, key=key)


@pytest.fixture(scope="module")
def mutual(authority: Authority, directory: Path, config: TlsConfig) -> TlsConfig:
    return TlsConfig(
        certificate=config.certificate,
        key=config.key,
        client_ca=authority.write(directory),
        client_auth="need",
    )


def client_context(authority: Authority, **options: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    for name, value in options.items():
        setattr(context, name, value)
    return context


def shake(client: Client, server: TlsStream, cut: int | None = None) -> None:
    """Until both are done, `cut` bytes at a time."""
    for _ in range(10):
        data = client.take()
        for at in range(0, len(data), cut or max(1, len(data))):
            server.feed(data[at : at + (cut or len(data))])
            if not server.established:
                server.handshake()
        client.give(server.take_output())
        if client.done and server.established:
            return
    raise AssertionError("no end of the handshake")


def pair(authority: Authority, config: TlsConfig, **options: Any) -> tuple[Client, TlsStream]:
    client = Client(client_context(authority, **options))
    server = TlsStream(load_certificates(config).context)
    shake(client, server)
    return client, server


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("cut", [None, 1, 7])
def test_a_handshake_succeeds_in_any_cut(
    authority: Authority, config: TlsConfig, version: ssl.TLSVersion, cut: int | None
) -> None:
    client = Client(client_context(authority, minimum_version=version, maximum_version=version))
    server = TlsStream(load_certificates(config).context)
    shake(client, server, cut)
    assert server.version == version.name.replace("_", ".")
    data = client.write(b"request")
    plain = b""
    for at in range(0, len(data), cut or len(data)):
        server.feed(data[at : at + (cut or len(data))])
        plain += server.read()
    assert plain == b"request"
    client.give(server.encrypt(b"reply"))
    assert client.read() == b"reply"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_connections_keep_little_of_what_went_through_them(authority: Authority, config: TlsConfig) -> None:
    """OpenSSL's buffers never shrink: with thousands of connections their size counts."""
    context = load_certificates(config).context
    pairs = []
    for _ in range(60):
        client, server = Client(client_context(authority)), TlsStream(context)
        shake(client, server)
        pairs.append((client, server))
    before = resident()
    for client, server in pairs:
        server.feed(b"".join(client.write(bytes(8_192)) for _ in range(32)))
        assert len(server.read()) == 32 * 8_192
        assert len(server.encrypt(bytes(900_000))) > 900_000
    assert resident() - before < 60 * 250_000, "a fifth of what went through one"


def test_every_client_hello_begins_with_the_bytes_that_tell_it_from_a_frame(authority: Authority) -> None:
    assert Client(client_context(authority)).take().startswith(CLIENT_HELLO)
    assert int.from_bytes(CLIENT_HELLO + b"\0\0") > 2_097_152, "the largest client.jute_maxbuffer"


def test_what_came_behind_the_handshake_in_the_same_read_is_not_lost(
    authority: Authority, config: TlsConfig
) -> None:
    client = Client(client_context(authority))
    server = TlsStream(load_certificates(config).context)
    server.feed(client.take())
    server.handshake()
    client.give(server.take_output())
    server.feed(client.take() + client.write(b"connect request"))
    assert server.handshake()
    assert server.read() == b"connect request"


def test_large_data_passes_both_ways(authority: Authority, config: TlsConfig) -> None:
    client, server = pair(authority, config)
    large = bytes(range(256)) * 12_000
    client.give(server.encrypt(large))
    assert client.read() == large
    server.feed(client.write(large))
    assert server.read() == large


def test_both_ends_say_goodbye(authority: Authority, config: TlsConfig) -> None:
    client, server = pair(authority, config)
    client.give(server.encrypt(b"last words") + server.close())
    assert client.read() == b"last words"
    assert client.ssl.read(1) == b"", "the end is told, not cut"
    other, end = pair(authority, config)
    end.feed(other.write(b"bye") + other.close())
    assert not end.ended
    assert end.read() == b"bye"
    assert end.ended


def test_an_altered_record_ends_the_connection(authority: Authority, config: TlsConfig) -> None:
    client, server = pair(authority, config)
    data = bytearray(client.write(b"request"))
    data[-1] ^= 1
    server.feed(bytes(data))
    with pytest.raises(TlsError, match=r"bad record mac|decryption failed"):
        server.read()
    server.close()  # and does not raise


def test_a_handshake_without_end_is_not_kept(config: TlsConfig) -> None:
    """Memory per connection is bounded before anybody has shown who he is."""
    server = TlsStream(load_certificates(config).context)
    for _ in range(HANDSHAKE_BYTES_MAX // 1000 + 1):
        server.feed(bytes(1000))
    with pytest.raises(TlsError, match="handshake of more than"):
        server.feed(bytes(1000))


def test_versions_below_the_configured_one_are_refused(authority: Authority, config: TlsConfig) -> None:
    strict = TlsConfig(certificate=config.certificate, key=config.key, version_min="1.3")
    client = Client(client_context(authority, maximum_version=ssl.TLSVersion.TLSv1_2))
    server = TlsStream(load_certificates(strict).context)
    with pytest.raises(TlsError, match="unsupported protocol"):
        shake(client, server)
    client.give(server.take_output())
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        client.take()


def test_a_client_without_certificate_learns_that_one_is_needed(
    authority: Authority, mutual: TlsConfig
) -> None:
    client = Client(client_context(authority))
    server = TlsStream(load_certificates(mutual).context)
    with pytest.raises(TlsError, match="did not return a certificate"):
        shake(client, server)
    client.give(server.take_output())
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        client.read()


@pytest.mark.parametrize(
    ("who", "why"), [("stranger", "unable to get local issuer"), ("expired", "has expired")]
)
def test_a_certificate_that_is_not_good_is_refused_with_the_reason(
    authority: Authority, mutual: TlsConfig, directory: Path, who: str, why: str
) -> None:
    issued = Authority("other").issue() if who == "stranger" else authority.issue(days=-1)
    context = client_context(authority)
    context.load_cert_chain(*issued.write(directory, who))
    with pytest.raises(TlsError, match=why):
        shake(Client(context), TlsStream(load_certificates(mutual).context))


def test_the_clients_certificate_is_known_after_the_handshake(
    authority: Authority, mutual: TlsConfig, config: TlsConfig, directory: Path
) -> None:
    issued = authority.issue(subject_of(O="z", CN="client"))
    context = client_context(authority)
    context.load_cert_chain(*issued.write(directory, "client"))
    for settings_, expected in ((mutual, issued.der), (config, None)):
        server = TlsStream(load_certificates(settings_).context)
        shake(Client(context), server)
        assert server.peer_certificate == expected


def test_a_resumed_session_keeps_its_identity_and_ends_with_a_reload(
    authority: Authority, mutual: TlsConfig, directory: Path
) -> None:
    issued = authority.issue(subject_of(CN="resumed"))
    context = client_context(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
    context.load_cert_chain(*issued.write(directory, "resumed"))
    loaded = load_certificates(mutual)
    first = Client(context)
    shake(first, TlsStream(loaded.context))
    for certificates, reused in ((loaded, True), (load_certificates(mutual), False)):
        again, server = Client(context, first.ssl.session), TlsStream(certificates.context)
        shake(again, server)
        assert again.ssl.session_reused is reused
        assert server.peer_certificate == issued.der
    modern = client_context(authority, minimum_version=ssl.TLSVersion.TLSv1_3)
    modern.load_cert_chain(*issued.write(directory, "resumed"))
    one, server = Client(modern), TlsStream(loaded.context)
    shake(one, server)
    one.give(server.encrypt(b"x"))
    assert one.read() == b"x"
    assert one.ssl.session is None or not one.ssl.session.has_ticket


def test_tls_1_2_cannot_be_renegotiated(config: TlsConfig) -> None:
    context = load_certificates(config).context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.num_tickets == 0


@given(st.data())
@settings(max_examples=60)
def test_spoilt_handshakes_raise_a_declared_error_only(
    authority: Authority, config: TlsConfig, data: st.DataObject
) -> None:
    server = TlsStream(load_certificates(config).context)
    client = Client(client_context(authority))
    hello = bytearray(client.take())
    for _ in range(data.draw(st.integers(0, 3))):
        hello[data.draw(st.integers(0, len(hello) - 1))] = data.draw(st.integers(0, 255))
    try:
        server.feed(bytes(hello) + data.draw(st.binary(max_size=100)))
        if server.handshake():
            server.read()
    except TlsError:
        pass
    server.take_output()
    server.close()
