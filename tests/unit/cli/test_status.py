"""What `zraft status` makes of answers, good and bad."""

from __future__ import annotations

import io
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import Authority
from tests.unit.cli.fake_server import SRVR
from zraft.cli import status, status_table
from zraft.cli.listings.listing_options import PLAIN_WIDTH, rendered
from zraft.cli.main import main
from zraft.cli.status import (
    ServerStatus,
    UnansweredError,
    UnreachableError,
    ask,
    parse_mntr,
    parse_srvr,
    sole_leader,
)
from zraft.cli.status_table import RATE_S, Health, status_listing, topics_line
from zraft_core.address import Address

HOST = "127.0.0.1"


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], Address]]:
    """Starts listeners that answer the first connection with the given bytes."""
    threads: list[threading.Thread] = []

    def answer(listening: socket.socket, text: bytes) -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(4)
            connection.sendall(text)

    def start(text: bytes) -> Address:
        listening = socket.create_server(("127.0.0.1", 0))
        threads.append(threading.Thread(target=answer, args=(listening, text)))
        threads[-1].start()
        return Address(*listening.getsockname()[:2])

    yield start
    for thread in threads:
        thread.join()


@pytest.fixture
def answering_again() -> Iterator[Callable[[bytes], Address]]:
    """Starts listeners that lead, answer srvr, and mntr twice with the given bytes."""
    threads: list[threading.Thread] = []

    def answer(listening: socket.socket, mntr: bytes) -> None:
        with listening:
            for _ in range(3):
                with listening.accept()[0] as connection:
                    connection.sendall(srvr(b"leader") if connection.recv(4) == b"srvr" else mntr)

    def start(mntr: bytes) -> Address:
        listening = socket.create_server((HOST, 0))
        threads.append(threading.Thread(target=answer, args=(listening, mntr)))
        threads[-1].start()
        return Address(*listening.getsockname()[:2])

    yield start
    for thread in threads:
        thread.join()


@pytest.fixture
def nobody() -> Iterator[Address]:
    """An address where nothing listens: bound, so that nothing else takes it meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield Address(*bound.getsockname())


def srvr(mode: bytes) -> bytes:
    return SRVR.replace(b"MODE", mode)


def show_status(
    addresses: Sequence[Address], out: TextIO, *, as_json: bool = False, rate_s: float = RATE_S
) -> Health:
    """Write what servers answer, as people or programs see it, and return the exit code."""
    found = status_listing(addresses, rate_s=rate_s)
    out.write(json.dumps(found.values[0]) if as_json else rendered(found.parts, PLAIN_WIDTH))
    return Health(found.exit_code)


def test_srvr_is_read_field_by_field() -> None:
    assert parse_srvr(srvr(b"leader").decode()) == ServerStatus(
        version="3.9.5-zraft-0.1.0", mode="leader", zxid=0x1_0000_0007, node_count=5, connections=1
    )


def test_a_server_that_says_it_does_not_serve_has_no_status() -> None:
    assert parse_srvr("This ZooKeeper instance is not currently serving requests\n") is None


@given(st.text())
def test_no_answer_however_strange_raises(answer: str) -> None:
    assert parse_srvr(answer) is None


def test_the_table_shows_every_server_and_says_that_one_leads(
    answering: Callable[[bytes], Address], nobody: Address
) -> None:
    leader, follower, starting = (
        answering(text) for text in (srvr(b"leader"), srvr(b"follower"), b"not currently serving")
    )
    out = io.StringIO()
    assert show_status([follower, leader, starting, nobody], out) is Health.WELL
    rows = out.getvalue().splitlines()
    assert any(str(leader) in row and "leader" in row and "0x100000007" in row for row in rows)
    assert any(str(follower) in row and "follower" in row for row in rows)
    assert any(str(starting) in row and "not serving" in row for row in rows)
    assert any(str(nobody) in row and "unreachable" in row for row in rows)


def test_the_table_has_what_mntr_adds_and_does_without_where_it_is_refused() -> None:
    mntr = (
        "zk_avg_latency\t1.2345\nzk_max_latency\t17\nzk_global_sessions\t42\nzk_raft_term\t9\n"
        "zk_learners\t2\nzk_synced_followers\t1\n"
    )
    refused = "mntr is not executed because it is not in the whitelist.\n"
    for text, expected in (
        (mntr, (" leader ", " 1/2 ", " 9 ", " 42 ", "1.2 / 17")),
        (refused, (" leader ", " - ")),
    ):
        with socket.create_server((HOST, 0)) as listening:
            address = Address(*listening.getsockname())
            answers = {b"srvr": srvr(b"leader"), b"mntr": text.encode()}

            def answer(listening: socket.socket = listening, answers: dict[bytes, bytes] = answers) -> None:
                for _ in answers:
                    with listening.accept()[0] as connection:
                        connection.sendall(answers[connection.recv(4)])

            thread = threading.Thread(target=answer)
            thread.start()
            out = io.StringIO()
            assert show_status([address], out) is Health.WELL
            thread.join()
        [row] = [row for row in out.getvalue().splitlines() if str(address) in row]
        assert all(part in row for part in expected), row


def ask_one(mntr: str, *, as_json: bool = False, mode: bytes = b"leader") -> str:
    """What is shown of one server that answers `mntr` so. The exit code says how it is."""
    with socket.create_server((HOST, 0)) as listening:
        address = Address(*listening.getsockname())
        answers = {b"srvr": srvr(mode), b"mntr": mntr.encode()}

        def answer() -> None:
            for _ in answers:
                with listening.accept()[0] as connection:
                    connection.sendall(answers[connection.recv(4)])

        thread = threading.Thread(target=answer)
        thread.start()
        out = io.StringIO()
        named = "partition_problems" in mntr or "partitions_in_trouble" in mntr
        expected = Health.PARTITIONS_IN_TROUBLE if named else Health.WELL
        if mode != b"leader":
            expected = Health.NO_LEADER
        assert show_status([address], out, as_json=as_json) is expected
        thread.join()
        return out.getvalue()


def in_trouble(count: int) -> str:
    rows = [
        {
            "topic": "orders",
            "partition": number,
            "group": 7,
            "kind": "no_leader",
            "reason": f"why {number}",
            "for_ms": 61_500,
        }
        for number in range(count)
    ]
    return f"zk_topic_partitions_in_trouble\t{count}\nzk_topic_partition_problems\t{json.dumps(rows)}\n"


def test_partitions_in_trouble_are_shown_with_the_reason_and_how_many_more_there_are() -> None:
    shown = ask_one(in_trouble(status_table.PROBLEMS_SHOWN + 3))
    row = next(line for line in shown.splitlines() if "orders/4 " in line)
    assert "61 s" in row
    assert "why 4" in row
    assert "and 3 more" in shown
    assert "partitions that do not take" not in ask_one("zk_raft_term\t9\n")


def test_who_asks_by_the_exit_code_is_told_of_troubles_that_no_server_names_and_of_no_leader_first() -> None:
    """A server names only so many partitions, and without a leader everything else follows from that."""
    assert "and 3 more" not in ask_one("zk_topic_partitions_in_trouble\t3\n"), "none is named"
    ask_one(in_trouble(2), mode=b"follower")
    assert [int(one) for one in Health] == [0, 1, 4]


def test_status_as_json_has_servers_and_partitions_in_trouble() -> None:
    found = json.loads(ask_one(in_trouble(2) + "zk_raft_term\t9\n", as_json=True))
    assert (found["leads"], found["servers"][0]["mode"], found["servers"][0]["term"]) == (True, "leader", 9)
    assert [one["partition"] for one in found["partition_problems"]] == [0, 1]
    assert found["partition_problems"][0]["reason"] == "why 0"
    assert found["partition_problems_left_out"] == 0


def test_mntr_is_read_line_by_line() -> None:
    assert parse_mntr("zk_version\t3.9.5, built on x\nzk_a\t1\nother\t2\nzk_b\n") == {
        "version": "3.9.5, built on x",
        "a": "1",
    }


def test_a_cluster_without_a_leader_is_said_to_have_none(
    answering: Callable[[bytes], Address], nobody: Address
) -> None:
    out = io.StringIO()
    assert show_status([answering(srvr(b"follower")), nobody], out) is Health.NO_LEADER
    assert "none of these servers leads" in out.getvalue()


def test_an_ipv6_address_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets with a letter behind them are markup to the library that draws tables."""

    def unreachable(address: Address, *_: object) -> None:
        raise UnreachableError(f"{address}: no answer")

    monkeypatch.setattr(status_table, "server_status", unreachable)
    out = io.StringIO()
    show_status([Address("fd00::1", 2181)], out)
    assert "\n[fd00::1]:2181  unreachable  " in out.getvalue()
    assert "[fd00::1]:2181: no answer" in out.getvalue()


def test_a_standalone_server_needs_no_leader(answering: Callable[[bytes], Address]) -> None:
    assert show_status([answering(srvr(b"standalone"))], io.StringIO()) is Health.WELL


def test_a_server_that_requires_tls_is_told_from_one_that_does_not_serve(tmp_path: Path) -> None:
    """It closes what speaks plain text; the table said "not serving" of a healthy server."""
    certificate, key = Authority().issue().write(tmp_path, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    if connection.recv(1, socket.MSG_PEEK) == b"\x16":
                        with suppress(ssl.SSLError):
                            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server((HOST, 0)) as listening:
        address = Address(*listening.getsockname())
        thread = threading.Thread(target=serve)
        thread.start()
        out = io.StringIO()
        assert show_status([address], out) is Health.NO_LEADER
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    [row] = [row for row in out.getvalue().splitlines() if row.startswith(f"{address}  ")]
    assert "needs TLS" in row
    assert "--tls-ca" in out.getvalue()


def test_who_closes_without_a_word_is_out_of_reach_whatever_it_is() -> None:
    def close_all() -> None:
        with suppress(OSError):
            while True:
                listening.accept()[0].close()

    with socket.create_server((HOST, 0)) as listening:
        address = Address(*listening.getsockname())
        thread = threading.Thread(target=close_all)
        thread.start()
        out = io.StringIO()
        assert show_status([address], out) is Health.NO_LEADER
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "unreachable" in out.getvalue()
    assert "TLS" not in out.getvalue()


def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(*silent.getsockname())
        with pytest.raises(UnreachableError, match=str(address)):
            ask(address, "srvr", 0.05)


def test_a_server_that_closes_the_connection_without_an_answer_is_an_error(
    answering: Callable[[bytes], Address],
) -> None:
    """A client beyond the bound was told that the answer is empty, if it was refused before it had sent the word."""
    with pytest.raises(UnansweredError, match="closed the connection without an answer to ruok"):
        ask(answering(b""), "ruok", 5.0)


def test_a_reset_connection_is_an_error_that_says_the_same() -> None:
    with socket.create_server((HOST, 0)) as listening:

        def reset() -> None:
            # What was sent is not read, so the system resets the connection.
            with listening.accept()[0] as connection:
                connection.recv(1)

        thread = threading.Thread(target=reset)
        thread.start()
        address = Address(*listening.getsockname())
        with pytest.raises(UnansweredError, match="closed the connection without an answer to ruok"):
            ask(address, "ruok", 5.0)
        thread.join()


def test_an_endless_answer_is_cut_off(answering: Callable[[bytes], Address]) -> None:
    with pytest.raises(UnreachableError, match="more than 1048576 bytes"):
        ask(answering(b"x" * 1_200_000), "srvr", 5.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--tls-ca", "absent.pem"], "absent.pem"),
        (["--tls-certificate", "client.pem"], "--tls-ca"),
    ],
)
def test_tls_options_that_cannot_be_used_are_told(options: list[str], named: str) -> None:
    result = CliRunner().invoke(main, ["status", "--connect", "127.0.0.1:1", *options])
    assert result.exit_code == 2
    assert named in result.output


@pytest.mark.parametrize(
    ("modes", "leader"),
    [
        (("leader", "follower", "follower"), 1),
        (("follower", "follower", "leader"), 3),
        (("standalone",), 1),
        (("follower", "follower", "follower"), None),
        (("leader", "leader", "follower"), None),
        (("leader", "follower", None), None),
        (("leader", "follower", UnreachableError("gone")), None),
        (("leader", "follower", "read-only"), None),
    ],
)
def test_the_sole_leader_is_told_only_if_all_serve(
    modes: tuple[str | UnreachableError | None, ...], leader: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(address: Address, timeout_s: float) -> ServerStatus | None:
        mode = modes[address.port - 1]
        if isinstance(mode, UnreachableError):
            raise mode
        return None if mode is None else ServerStatus("zraft", mode, 1, 1, 1)

    monkeypatch.setattr(status, "server_status", answer)
    addresses = {number: Address("127.0.0.1", number) for number in range(1, len(modes) + 1)}
    assert sole_leader(addresses, 1.0) == leader


SHARED = {"topics": "2", "topic_partitions": "10", "raft_members": "3"}


def told(**changes: int) -> dict[str, str]:
    """The numbers of one server."""
    return SHARED | {name: str(value) for name, value in changes.items()}


def test_a_line_tells_of_topics_what_all_servers_together_know() -> None:
    first = [
        told(
            partitions_leading=6,
            partitions_under_replicated=1,
            partitions_led_records_total=100,
            uptime=1_000,
        ),
        told(
            partitions_leading=3, partitions_under_replicated=2, partitions_led_records_total=5, uptime=9_000
        ),
        told(partitions_leading=0, uptime=50),
    ]
    later = [
        told(partitions_led_records_total=3_100, uptime=2_500),
        told(partitions_led_records_total=5, uptime=10_500),
        told(uptime=1_550),
    ]
    assert topics_line(first, later) == (
        "topics: 2, partitions: 10, records/s: 2,000, without a leader: 1, with too few replicas in sync: 3"
    )


def test_what_servers_lead_that_do_not_answer_is_not_said_to_have_no_leader() -> None:
    line = topics_line([told(partitions_leading=6), {}], [told(partitions_leading=6), {}])
    assert "records/s: 0, led by none of the servers that answer: 4," in line


def test_without_topics_or_numbers_of_them_there_is_no_line() -> None:
    assert topics_line([{}, {"znode_count": "5"}], [{}, {}]) == ""
    none = told(topics=0, topic_partitions=0)
    assert topics_line([none], [none]) == ""


def test_a_server_that_started_again_between_two_looks_has_no_rate() -> None:
    before, after = told(partitions_led_records_total=900, uptime=90_000), told(uptime=300)
    assert "records/s: 0," in topics_line([before], [after])
    assert "records/s: 0," in topics_line([before], [{}])


def test_status_shows_the_line_after_a_second_look(answering_again: Callable[[bytes], Address]) -> None:
    mntr = "".join(f"zk_{name}\t{value}\n" for name, value in told(partitions_leading=10, uptime=70).items())
    out = io.StringIO()
    assert show_status([answering_again(mntr.encode())], out, rate_s=0) is Health.WELL
    assert "topics: 2, partitions: 10, records/s: 0, led by none" in out.getvalue()


def test_the_table_fits_80_columns_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mntr = "zk_raft_term\t12\nzk_global_sessions\t120\nzk_avg_latency\t1.2\nzk_max_latency\t123\n"
    for zxid, left_out in ((0x100000456, "version, term"), (0x12300000456789, "version, term, latency ms")):
        status = ServerStatus("3.9.5-zraft-0.1.0", "follower", zxid, 12_345, 1_234)
        monkeypatch.setattr(status_table, "server_status", lambda *_, status=status: status)
        monkeypatch.setattr(status_table, "ask", lambda *_: mntr)
        found = status_table.status_listing([Address("10.0.0.1", 2181)])
        lines = rendered(found.parts, 80).splitlines()
        assert max(map(len, lines[:3])) <= 80
        assert lines[3] == f"(80 columns have no room for: {left_out}; --output json has all)"
        assert "3.9.5-zraft-0.1.0" in rendered(found.parts, 140)
