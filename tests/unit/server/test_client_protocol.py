"""The shell of one connection over a transport that only remembers: which bytes are TLS, and what is closed when."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
from attrs import evolve

from tests.certificates import Authority, subject_of
from tests.so_far import so_far
from tests.unit.server.one_server import TIMEOUT_MS, create
from tests.unit.server.shells import End, Node
from tests.unit.server.test_tls import Client, client_context
from zraft.config.sections import AuthConfig, TlsConfig
from zraft.config.server import ServerConfig
from zraft.server.clients.connection import Phase
from zraft.server.clients.native.connection import NativeConnection
from zraft.server.process.client_protocol import NOT_SENT, NOT_SENT_BYTES_MAX, prepare_listener
from zraft.server.process.security.client_tls import ClientTls
from zraft.transport.bulk import MAGIC
from zraft_core.address import Address
from zraft_core.ids import ServerId
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.client_requests import AddWatch
from zraft_core.znodes.events import AddWatchMode

GREETING = ZkClientCodec().connect(timeout_ms=TIMEOUT_MS)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def config(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ServerConfig:
    directory = tmp_path_factory.mktemp("protocol")
    certificate, key = authority.issue().write(directory, "server")
    address = Address("127.0.0.1", 2181)
    return ServerConfig(
        id=ServerId(1),
        data=directory,
        address=address,
        cluster={ServerId(1): address},
        tls=TlsConfig(
            certificate=certificate,
            key=key,
            client_ca=authority.write(directory),
            client_auth="want",
            handshakes_max=3,
        ),
        auth=AuthConfig(x509_super_user="CN=root"),
    )


@pytest.fixture
def node(config: ServerConfig) -> Node:
    return Node(ClientTls(config, lambda: 0.0))


def secured(authority: Authority, end: End, context: ssl.SSLContext | None = None) -> Client:
    """A client whose handshake with `end` is done."""
    client = Client(context or client_context(authority))
    for _ in range(4):
        data = client.take()
        if data:
            end.arrive(data)
        client.give(end.take())
    assert client.done
    return client


def test_the_end_of_the_certificate_that_is_told_follows_a_reload(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue(days=10).write(tmp_path, "server")
    address = Address("127.0.0.1", 2181)
    tls = ClientTls(
        ServerConfig(
            id=ServerId(1),
            data=tmp_path,
            address=address,
            cluster={ServerId(1): address},
            tls=TlsConfig(certificate=certificate, key=key),
        ),
        lambda: 0.0,
    )
    former = tls.certificate_ends_s
    renewed = authority.issue(days=20)
    renewed.write(tmp_path, "server")
    assert tls.certificate_ends_s == former
    assert tls.certificates.poll(now=True)
    assert tls.certificate_ends_s == renewed.certificate.not_valid_after_utc.timestamp()
    assert tls.certificate_ends_s > former + 9 * 86_400
    certificate.write_bytes(b"no certificate")
    assert not tls.certificates.poll(now=True)
    assert tls.certificate_ends_s > former + 9 * 86_400


def test_plain_text_is_known_in_any_cut(node: Node) -> None:
    for cut in (1, 2, 3, 44):
        end = End(node)
        for at in range(0, len(GREETING), cut):
            end.arrive(GREETING[at : at + cut])
        assert end.connection.phase is Phase.ATTACHED, f"{cut=}"
        assert end.take()


def test_a_plain_connection_pays_nothing_for_tls(node: Node) -> None:
    """Once it is known to be plain, what arrives goes to the connection itself, with no layer in between."""
    end = End(node)
    end.arrive(GREETING)
    assert end.protocol._take == end.connection.data_received


def test_tls_is_known_byte_by_byte_and_serves(node: Node, authority: Authority) -> None:
    end = End(node)
    client = Client(client_context(authority))
    for _ in range(4):
        for byte in client.take():
            end.arrive(bytes([byte]))
        client.give(end.take())
    end.arrive(client.write(GREETING))
    assert end.connection.phase is Phase.ATTACHED
    client.give(end.take())
    (greeting,) = received_by(client)
    assert greeting.timeout_ms == TIMEOUT_MS
    assert len(node.tls.handshakes) == 0  # type: ignore[union-attr]


def received_by(client: Client) -> list[Any]:
    codec = ZkClientCodec()
    codec.connect(timeout_ms=TIMEOUT_MS)
    return list(codec.receive(client.read()))


def test_the_first_byte_of_tls_with_another_behind_it_is_plain_and_refused(node: Node) -> None:
    end = End(node)
    end.arrive(b"\x16")
    assert so_far(end.transport.ended) is None
    end.arrive(b"\x00\x00\x00")
    assert end.transport.ended == "closed"
    assert "client.jute_maxbuffer" in node.reasons


def test_tls_to_a_server_without_a_certificate_says_what_to_set() -> None:
    node = Node()
    end = End(node)
    end.arrive(b"\x16\x03\x01\x02\x00")
    assert end.transport.ended == "closed"
    assert "tls.certificate" in node.reasons


def test_plain_text_where_tls_is_required_is_refused_once(node: Node) -> None:
    end = End(node, plain=False)
    end.arrive(b"ruok")
    assert end.transport.ended == "closed"
    assert end.take() == b""
    assert node.reasons.count("tls.required") == 1


def test_a_certificate_gives_its_ids_before_the_session_begins(
    node: Node, authority: Authority, tmp_path: Path
) -> None:
    for name, ids in (("alice", ()), ("root", (("super", ""),))):
        end = End(node)
        context = client_context(authority)
        context.load_cert_chain(*authority.issue(subject_of(CN=name)).write(tmp_path, name))
        client = secured(authority, end, context)
        expected = (("ip", "127.0.0.1"), ("x509", f"CN={name}"), *ids)
        assert so_far(end.connection.phase) is Phase.NEW
        assert end.connection.ids == end.connection.ids_of_writes == expected
        end.arrive(client.write(GREETING))
        assert end.connection.phase is Phase.ATTACHED
    nobody = End(node)
    secured(authority, nobody)
    assert nobody.connection.ids == (("ip", "127.0.0.1"),)


def test_the_last_answer_ends_with_close_notify(node: Node, authority: Authority) -> None:
    end = End(node)
    client = secured(authority, end)
    end.arrive(client.write(b"ruok"))
    assert end.transport.ended == "closed"
    client.give(end.take())
    assert client.ssl.read(100) == b"ruok"
    assert client.ssl.read(100) == b""


def test_a_client_that_says_goodbye_is_released(node: Node, authority: Authority) -> None:
    end = End(node)
    client = secured(authority, end)
    end.arrive(client.write(GREETING))
    end.arrive(client.close())
    assert end.connection.phase is Phase.CLOSED
    assert end.transport.ended == "closed"


def test_a_failed_handshake_tells_the_client_and_frees_its_place(node: Node, authority: Authority) -> None:
    end = End(node)
    client = Client(client_context(authority, maximum_version=ssl.TLSVersion.TLSv1_2))
    hello = bytearray(client.take())
    hello[9:11] = b"\x03\x01"  # TLS 1.0
    end.arrive(bytes(hello))
    assert end.transport.ended == "closed"
    assert end.take().startswith(b"\x15\x03"), "an alert"
    assert "unsupported protocol" in node.reasons
    assert len(node.tls.handshakes) == 0  # type: ignore[union-attr]
    assert node.tls.failed_total == 1  # type: ignore[union-attr]


def test_handshakes_beyond_the_limit_are_refused_and_lost_ones_make_room(
    node: Node, authority: Authority
) -> None:
    hello = Client(client_context(authority)).take()
    ends = [End(node) for _ in range(4)]
    for end in ends:
        end.arrive(hello)
    assert [end.transport.ended for end in ends] == [None, None, None, "closed"]
    assert "tls.handshakes_max" in node.reasons
    ends[0].protocol.connection_lost(None)
    late = End(node)
    late.arrive(hello)
    assert late.transport.ended is None


def test_a_client_that_reads_nothing_is_cut_off_at_the_bound_also_over_tls(
    node: Node, authority: Authority
) -> None:
    end = End(node)
    client = secured(authority, end)
    codec = ZkClientCodec()
    end.arrive(client.write(codec.connect(timeout_ms=TIMEOUT_MS)))
    end.arrive(client.write(codec.ask(AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE))[1]))
    end.transport.room = 0
    writer = End(node)
    writer.arrive(GREETING)
    for number in range(3):
        writer.arrive(codec.write(create(f"/{number}"))[1])
    assert not end.transport.reading, "it gets no more of its requests read"
    assert so_far(end.transport.ended) is None
    clients = node.server.clients
    clients.settings = evolve(clients.settings, output_bytes_max=end.transport.get_write_buffer_size())
    node.turn()
    assert so_far(end.transport.ended) is None
    writer.arrive(codec.write(create("/beyond"))[1])
    node.turn()
    assert end.transport.ended == "aborted"
    assert "client.output_bytes_max" in node.reasons


@pytest.mark.parametrize("stage", ["silent", "half a greeting", "hello", "established"])
def test_who_asks_for_no_session_in_time_is_refused(node: Node, authority: Authority, stage: str) -> None:
    end = End(node)
    assert end.protocol in node.waiting
    if stage == "half a greeting":
        end.arrive(GREETING[:10])
    elif stage == "hello":
        end.arrive(Client(client_context(authority)).take())
    elif stage == "established":
        secured(authority, end)
    end.protocol.on_deadline()
    node.turn()
    assert end.transport.ended == "closed"
    assert ("TLS handshake" if stage == "hello" else "connect request") in node.reasons
    assert "client.handshake_timeout_ms" in node.reasons
    assert end.protocol in node.waiting, "the rest of its answer has a deadline, too"
    end.protocol.connection_lost(None)
    assert end.protocol not in node.waiting
    assert len(node.tls.handshakes) == 0  # type: ignore[union-attr]


def test_a_served_client_has_no_deadline_and_one_that_does_not_go_is_cut(node: Node) -> None:
    end = End(node)
    end.arrive(GREETING)
    end.protocol.on_deadline()
    node.turn()
    assert end.transport.ended is None
    word = End(node)
    node.waiting.clear()
    word.transport.room = 0  # its client does not take the answer, so the socket stays
    word.arrive(b"ruok")
    assert word.transport.ended == "closed"
    assert word.protocol in node.waiting
    word.transport.ended = None
    word.protocol.on_deadline()
    assert so_far(word.transport.ended) == "aborted"


def test_the_end_of_a_connection_that_was_over_asks_for_no_turn(node: Node) -> None:
    """Nothing that others wait for becomes free by it."""
    turns: list[str] = []
    over, served = End(node), End(node)
    over.arrive(b"ruok")
    served.arrive(GREETING)
    over.protocol._schedule = lambda: turns.append("over")
    served.protocol._schedule = lambda: turns.append("served")
    over.protocol.connection_lost(None)
    served.protocol.connection_lost(None)
    assert turns == ["served"]
    stalled = End(node, room=0)
    stalled.arrive(b"ruok")
    stalled.protocol._schedule = lambda: turns.append("stalled")
    stalled.protocol.connection_lost(None)
    assert turns == ["served", "stalled"], "what it did not take is given back"


def test_a_client_that_was_told_everything_is_not_waited_for(node: Node) -> None:
    end = End(node)
    node.waiting.clear()
    end.arrive(b"ruok")
    assert end.transport.ended == "closed"
    assert end.take() == b"ruok"
    assert not node.waiting


# -- streams of other servers and of operators


@pytest.mark.parametrize("pieces", [[4, 100], [1, 1, 1, 1, 96], [104]])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "TLS only"])
def test_a_stream_is_handed_over_whole_however_it_arrives(node: Node, pieces: list[int], plain: bool) -> None:
    """They are sealed by the cluster key: TLS for clients has no say."""
    opening = MAGIC + bytes(range(100))
    end = End(node, plain=plain)
    at = 0
    for size in pieces:
        if not node.streams:
            end.arrive(opening[at : at + size])
            at += size
    [(transport, data)] = node.streams
    assert transport is end.transport
    assert data == opening[:at]
    assert end.transport.ended is None
    assert end.take() == b""
    assert len(node.server.clients) == 0, "it is no client any more"
    assert end.protocol not in node.waiting
    end.protocol.on_deadline()
    assert end.transport.ended is None, "its deadline is somebody else's now"


def test_what_only_begins_like_a_stream_is_a_client_that_is_refused(node: Node) -> None:
    end = End(node)
    end.arrive(MAGIC[:1])
    assert not node.streams
    end.arrive(b"oo!" + bytes(20))
    assert not node.streams
    assert end.transport.ended == "closed"


NATIVE = msgpack.packb({"type": "hello", "id": 1, "timeout_ms": TIMEOUT_MS})


def test_the_native_protocol_is_known_by_its_first_byte_in_any_cut(node: Node) -> None:
    for cut in (1, 2, 5, 100):
        end = End(node)
        for at in range(0, len(NATIVE), cut):
            end.arrive(NATIVE[at : at + cut])
        assert isinstance(end.connection, NativeConnection), f"{cut=}"
        assert end.connection.phase is Phase.ATTACHED
        assert msgpack.unpackb(end.take())["success"]
        assert end.protocol._take == end.connection.data_received
        assert end.connection.handle is end.protocol


def test_the_native_protocol_is_known_inside_of_tls_with_the_ids_of_the_certificate(
    node: Node, authority: Authority, tmp_path: Path
) -> None:
    end = End(node)
    context = client_context(authority)
    context.load_cert_chain(*authority.issue(subject_of(CN="alice")).write(tmp_path, "alice"))
    client = secured(authority, end, context)
    end.arrive(client.write(NATIVE))
    assert isinstance(end.connection, NativeConnection)
    assert end.connection.ids == (("ip", "127.0.0.1"), ("x509", "CN=alice"))
    client.give(end.take())
    assert msgpack.unpackb(client.read())["success"]


def test_native_plain_text_where_tls_is_required_is_refused(node: Node) -> None:
    end = End(node, plain=False)
    end.arrive(NATIVE)
    assert end.transport.ended == "closed"
    assert "tls.required" in node.reasons


def test_a_native_client_that_does_not_finish_its_first_message_in_time_is_refused(node: Node) -> None:
    end = End(node)
    end.arrive(NATIVE[:5])
    end.protocol.on_deadline()
    node.turn()
    assert end.transport.ended == "closed"
    assert "client.handshake_timeout_ms" in node.reasons


def test_a_native_client_that_is_gone_leaves_nothing(node: Node) -> None:
    end = End(node)
    end.arrive(NATIVE)
    end.protocol.connection_lost(None)
    assert len(node.server.clients) == 0
    assert len(node.server.clients.sessions) == 0


@pytest.mark.skipif(not NOT_SENT, reason="this system cannot bound what its kernel takes and does not send")
def test_the_kernel_takes_little_for_a_client_that_does_not_read(node: Node) -> None:
    """It took 2.5 MB for each of any number of connections."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        prepare_listener(listener)
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted = stack.enter_context(listener.accept()[0])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        End(node, accepted=accepted)
        accepted.setblocking(False)
        taken = 0
        with suppress(BlockingIOError):
            while taken <= 4 * NOT_SENT_BYTES_MAX:
                taken += accepted.send(bytes(100_000))
    assert taken <= NOT_SENT_BYTES_MAX + 512 * 1024
