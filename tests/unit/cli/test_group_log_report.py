"""Entries of partitions' groups in `zraft log dump`: every command by its name, payloads only if asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zraft.cli.group_log_report import group_entry_value
from zraft.cli.log_report import record_lines, record_value
from zraft.raft.messages import Entry, EntryKind
from zraft.storage.records import EntryRecord
from zraft.topics.entries import BatchEntry, encode_entry
from zraft_core.claims.commands import ClaimPartition, Heartbeat
from zraft_core.claims.values import Mode
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.commands import Advance, Batch, Remote, Seek, Settled, Stage, Start
from zraft_core.topics.message import After, Condition, Message, Round
from zraft_core.topics.stamps import FinalTime, MessageId

A, B = GroupId(7), GroupId(9)
MESSAGE = Message(
    MessageId(ProducerId(5), 3),
    (A, B),
    b"secret",
    after=After(MessageId(ProducerId(5), 2), (A,)),
    condition=Condition(A, b"billing", 4, 5),
    depends=17,
)
ENTRY = BatchEntry(
    1_700_000_000_000,
    Batch(
        12,
        (
            Start(MESSAGE, 1, 2),
            Remote(MESSAGE.mid, B, 30, None, 1, bytes(16)),
            Advance(40),
            Settled(B, FinalTime(30, B)),
            Seek(b"billing", None),
        ),
    ),
    (ClaimPartition("g", "c", "i", 1, 0, Mode.AT_LEAST_ONCE), Heartbeat("g", 8, 2, 6)),
)


def value_of(*, data: bool = False) -> dict[str, Any]:
    return group_entry_value(encode_entry(ENTRY), data=data)


def test_every_command_is_named_with_its_fields() -> None:
    value = value_of()
    json.dumps(value)
    assert (value["log_time_ms"], value["wall_time_ms"]) == (12, 1_700_000_000_000)
    start, remote, advance, settled, seek, claim, heartbeat = value["commands"]
    assert start == {
        "command": "start",
        "id": [5, 3],
        "destinations": [7, 9],
        "payload": "<6 bytes>",
        "after": [5, 2],
        "condition": {"home": 7, "consumer": "billing", "expected": 4, "following": 5},
        "depends": 17,
        "floor": 1,
        "epoch": 2,
    }
    assert (remote["command"], remote["id"], remote["sender"], remote["time"]) == ("remote", [5, 3], 9, 30)
    assert advance == {"command": "advance", "time": 40}
    assert settled == {"command": "settled", "group": 9, "floor": [30, 9]}
    assert seek == {"command": "seek", "consumer": "billing", "offset": None}
    assert (claim["command"], claim["client"], claim["mode"]) == ("claim_partition", "c", "at_least_once")
    assert (heartbeat["command"], heartbeat["epoch"]) == ("heartbeat", 8)


def test_staged_messages_and_the_round_that_puts_them_in_order_are_shown() -> None:
    staged = Message(MessageId(ProducerId(5), 4), (A,), b"", number=1)
    round_ = Message(MessageId(ProducerId(5), 5), (A,), round=Round(4, 4))
    entry = BatchEntry(0, Batch(1, (Stage(staged, 3, 2), Start(round_, 3, 2))), ())
    first, second = group_entry_value(encode_entry(entry), data=False)["commands"]
    assert (first["command"], first["id"], first["floor"]) == ("stage", [5, 4], 3)
    assert (second["command"], second["id"], second["round"]) == ("start", [5, 5], [4, 4])


def test_payloads_are_shown_only_if_asked_for() -> None:
    assert b"secret".hex() not in str(value_of())
    assert value_of(data=True)["commands"][0]["payload"] == b"secret".hex()


def test_the_dump_shows_a_groups_entry_as_a_line_for_each_command() -> None:
    record = EntryRecord(A, Entry(3, 1, EntryKind.COMMANDS, 3, 7, encode_entry(ENTRY)))
    head, *lines = record_lines(record_value(record, data=False))
    assert head.startswith("entry      group=7 index=3")
    assert [line.split()[0] for line in lines] == [
        *("start", "remote", "advance", "settled", "seek", "claim_partition", "heartbeat")
    ]


def test_what_is_no_entry_of_a_group_is_shown_as_unreadable() -> None:
    with pytest.raises(ProtocolError):
        group_entry_value(b"\x93\x01\x02\x03", data=False)
    record = EntryRecord(A, Entry(3, 1, EntryKind.COMMANDS, 3, 7, b"\x93\x01\x02\x03"))
    assert "unreadable" in record_value(record, data=False)
