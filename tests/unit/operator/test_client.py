"""The operators' client against the real channel on loopback: whom it finds, follows and waits for, what it complains of."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from tests.unit.operator.fake_cluster import KEY, OTHER_KEY, FakeServer
from zraft.operator.client import OperatorClient
from zraft.operator.errors import OperatorError, RefusedError, UncertainError
from zraft.operator.protocol import PART_BYTES_MAX
from zraft.operator.requests import (
    Done,
    MemberList,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    Refused,
    SettingsListing,
    SettingsShow,
    SnapshotFile,
    SnapshotPart,
    SnapshotRead,
    SnapshotTake,
    Transfer,
)
from zraft.server.process.bulk import BulkSettings
from zraft.transport.keys import ClusterKey, key_ring
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

REMOVE = MemberRemove(ServerId(3))


def done(_: OperatorRequest) -> OperatorReply:
    return Done("done")


def asking(*addresses: str, keys: Sequence[ClusterKey] = (KEY,), timeout_s: float = 5.0) -> OperatorClient:
    return OperatorClient(
        [parse_address(address, "test") for address in addresses],
        key_ring(keys, False) if keys else key_ring(None, True),
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["sealed", "plain"])
def test_a_request_is_answered_at_once_or_later_and_only_once(
    late: bool, keys: tuple[ClusterKey, ...]
) -> None:
    with FakeServer(done, late=late, keys=keys) as server, asking(server.address, keys=keys) as client:
        assert client.call(REMOVE, Done) == Done("done")
        assert client.call(Transfer(None), Done) == Done("done")
        assert server.asked == [REMOVE, Transfer(None)]


def test_it_asks_the_next_server_when_one_is_not_there() -> None:
    with FakeServer(done) as server, asking(_free(), server.address) as client:
        assert client.call(REMOVE, Done)


def test_it_follows_the_leader_and_stays_with_it() -> None:
    with FakeServer(done, server=2) as leader:
        with (
            FakeServer(lambda _: Refused("server 2 leads", leader.address)) as follower,
            asking(follower.address) as client,
        ):
            assert client.call(REMOVE, Done)
            assert client.call(REMOVE, Done)
            assert len(follower.asked) == 1
        assert len(leader.asked) == 2


def test_it_waits_for_a_leader() -> None:
    not_yet = Refused("no leader", retriable=True)
    answers: list[OperatorReply] = [not_yet, not_yet, Done("now")]
    with FakeServer(lambda _: answers.pop(0)) as server, asking(server.address) as client:
        assert client.call(REMOVE, Done) == Done("now")


def test_a_server_that_cannot_help_now_is_left_for_another() -> None:
    """It may have been removed, and would say the same until the time is over."""
    removed = Refused("this server was removed", retriable=True)
    with (
        FakeServer(lambda _: removed) as gone,
        FakeServer(done) as member,
        asking(gone.address, member.address) as client,
    ):
        assert client.call(REMOVE, Done)
        assert gone.asked == [REMOVE]


def test_two_servers_that_name_each_other_do_not_keep_it_for_ever() -> None:
    with FakeServer(lambda _: Refused("not me", other[0])) as one:
        other = [one.address]
        with (
            asking(one.address, timeout_s=0.5) as client,
            pytest.raises(OperatorError, match=r"not me|the time is over"),
        ):
            client.call(REMOVE, Done)


def test_a_refusal_is_told_with_its_reason() -> None:
    with (
        FakeServer(lambda _: Refused("the last voter cannot be removed")) as server,
        asking(server.address) as client,
        pytest.raises(RefusedError, match=rf"{server.address}: the last voter cannot be removed"),
    ):
        client.call(REMOVE, Done)


def test_a_leader_that_cannot_be_reached_is_named() -> None:
    nowhere = _free()
    with (
        FakeServer(lambda _: Refused("not me", nowhere)) as server,
        asking(server.address) as client,
        pytest.raises(
            OperatorError, match=rf"names {nowhere} as the leader, which cannot be asked from here"
        ),
    ):
        client.call(REMOVE, Done)


def test_a_change_whose_answer_is_lost_is_neither_repeated_nor_called_done() -> None:
    with FakeServer(lambda _: None) as server, asking(server.address) as client:
        with pytest.raises(UncertainError, match="may have been carried out or not"):
            client.call(REMOVE, Done)
        assert server.asked == [REMOVE]


def test_a_question_whose_answer_is_lost_is_asked_again() -> None:
    with FakeServer(lambda _: None) as dying, FakeServer(lambda _: SettingsListing((), 1, 1)) as server:
        with asking(dying.address, server.address) as client:
            assert client.call(SettingsShow(), SettingsListing) == SettingsListing((), 1, 1)
        assert dying.asked == [SettingsShow()]


def test_nobody_there_is_told_once_with_all_addresses() -> None:
    one, two = _free(), _free()
    with asking(one, two) as client, pytest.raises(OperatorError) as caught:
        client.call(MemberList(), Done)
    assert str(caught.value) == f"{one}, {two}: cannot connect: Connection refused"


def test_a_wrong_key_is_told_from_no_key_and_from_what_is_no_zraft_server() -> None:
    with FakeServer(done) as server:
        with (
            asking(server.address, keys=(OTHER_KEY,)) as client,
            pytest.raises(
                OperatorError,
                match=rf"zraft server .*does not take cluster key {OTHER_KEY.key_id.hex()}: that is not its key",
            ),
        ):
            client.call(REMOVE, Done)
        with (
            asking(server.address, keys=()) as client,
            pytest.raises(OperatorError, match=r"takes no commands without the cluster key$"),
        ):
            client.call(REMOVE, Done)
        assert server.asked == []
    with (
        FakeServer(
            done, said=b"Zookeeper version: 3.9.4-abcdef, built on today\n", keys=(OTHER_KEY,)
        ) as zookeeper,
        asking(zookeeper.address) as client,
        pytest.raises(OperatorError, match=r"expected a zraft server, found 3\.9\.4-abcdef"),
    ):
        client.call(REMOVE, Done)
    with (
        FakeServer(done, said=b"", keys=(OTHER_KEY,)) as mute,
        asking(mute.address) as client,
        pytest.raises(OperatorError, match="closed the connection without a word"),
    ):
        client.call(REMOVE, Done)


@pytest.mark.parametrize("keys", [(), (OTHER_KEY,)])
def test_what_to_do_about_the_key_is_said_once_however_many_servers_refuse(
    keys: tuple[ClusterKey, ...],
) -> None:
    hint = "The key is in the drawer."
    with FakeServer(done, server=1) as one, FakeServer(done, server=2) as two:
        ring = key_ring(keys, False) if keys else key_ring(None, True)
        addresses = [parse_address(server.address, "--connect") for server in (one, two)]
        with (
            OperatorClient(addresses, ring, timeout_s=5.0, key_hint=hint) as client,
            pytest.raises(OperatorError, match=f"^{one.address}, {two.address}: a zraft server") as caught,
        ):
            client.call(REMOVE, Done)
    assert str(caught.value).count("which") == 1 + bool(keys)
    assert str(caught.value).endswith(f"\n{hint}")
    nobody = parse_address(_free(), "--connect")
    with (
        OperatorClient([nobody], key_ring(None, True), key_hint=hint) as client,
        pytest.raises(OperatorError) as caught,
    ):
        client.call(REMOVE, Done)
    assert hint not in str(caught.value), "the key has nothing to do with it"


def test_a_server_that_answers_something_else_is_no_zraft_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(200))

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with asking(address) as client, pytest.raises(OperatorError, match="no zraft server of this release"):
            client.call(REMOVE, Done)
        thread.join()


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with asking(address, timeout_s=0.2) as client, pytest.raises(OperatorError, match="no answer within"):
            client.call(REMOVE, Done)


def test_a_snapshot_larger_than_a_message_comes_in_pieces() -> None:
    content = random.Random(1).randbytes(2 * PART_BYTES_MAX + 1000)
    snapshot = bytes(range(16))

    def answer(request: OperatorRequest) -> OperatorReply:
        if isinstance(request, SnapshotTake):
            return SnapshotFile(ServerId(1), snapshot, len(content), 7, 9)
        assert isinstance(request, SnapshotRead)
        assert request.snapshot == snapshot
        return SnapshotPart(request.offset, content[request.offset : request.offset + request.length])

    with FakeServer(answer) as server, asking(server.address) as client:
        file = client.call(SnapshotTake(), SnapshotFile)
        parts = list(client.download(file))
    assert b"".join(parts) == content
    assert len(parts) == 3


def test_a_snapshot_that_stops_coming_is_an_error_and_not_a_short_file() -> None:
    file = SnapshotFile(ServerId(1), bytes(16), 100, 7, 9)
    with (
        FakeServer(lambda _: SnapshotPart(0, b"")) as server,
        asking(server.address) as client,
        pytest.raises(OperatorError, match="begin again"),
    ):
        list(client.download(file))


def test_operators_are_bounded_in_number() -> None:
    with FakeServer(done, settings=BulkSettings(operators_max=1)) as server:
        with asking(server.address) as first:
            assert first.call(REMOVE, Done)
            with asking(server.address, timeout_s=1) as second, pytest.raises(OperatorError):
                second.call(REMOVE, Done)
            assert first.call(REMOVE, Done)
        with asking(server.address) as third:
            assert third.call(REMOVE, Done)


def test_the_log_tells_who_asked_for_what_and_no_secret() -> None:
    with capture_logs() as logs, FakeServer(done) as server, asking(server.address) as client:
        client.call(REMOVE, Done)
    (line,) = [line for line in logs if line["event"] == "operator request"]
    assert line["request"] == "MemberRemove(server=3)"
    assert line["address"].startswith("127.0.0.1:")
    assert KEY.secret.hex() not in str(logs)


def test_without_an_address_nothing_is_asked() -> None:
    with pytest.raises(ConfigError, match="--connect"):
        OperatorClient([], key_ring([KEY], False), entropy=os.urandom)


def _free() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
