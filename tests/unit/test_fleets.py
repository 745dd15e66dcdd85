"""Values that peers publish for people: releases beside each other read them, and nothing else."""

from __future__ import annotations

import msgpack
import pytest

from zraft_core.errors import ProtocolError
from zraft_core.fleets import (
    AuditReport,
    GossipReport,
    GroupReport,
    JobReport,
    RuleVerdict,
    WorkerReport,
    decode_audit,
    decode_report,
    digest_position,
    encode_audit,
    encode_report,
    inline_data,
)

REPORT = GroupReport(
    group="a-1",
    at_ms=1_700_000_000_000,
    position=41,
    interval_ms=5_000,
    peers=2,
    workers=(WorkerReport("a-1.0", "words", "lines", 0, 1_699_999_999_000, 70, 7, 1_000, 4_000, 100),),
    gossip=GossipReport(30, 2, 9, 4, 11, 5_000, 6_000),
    jobs=(JobReport("words", "running", 7, None),),
)


def test_a_report_is_read_back_as_it_was_written() -> None:
    assert decode_report(encode_report(REPORT), "reports/a-1") == REPORT


def test_fields_of_a_later_release_are_ignored_and_those_of_an_earlier_one_have_defaults() -> None:
    least = {"group": "a-1", "at_ms": 1, "position": 2, "interval_ms": 3}
    later = msgpack.packb({**least, "colour": {"of": [1, 2]}, "peers": 4})
    assert decode_report(later, "r") == GroupReport("a-1", 1, 2, 3, peers=4)
    assert decode_report(msgpack.packb(least), "r") == GroupReport("a-1", 1, 2, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([1, 2]),
        msgpack.packb({"group": "a", "at_ms": 1, "position": 2}),
        msgpack.packb({"group": "a", "at_ms": 1, "position": 2, "interval_ms": 0}),
        msgpack.packb({"group": 5, "at_ms": 1, "position": 2, "interval_ms": 1}),
        msgpack.packb({"group": "a", "at_ms": 1.5, "position": 2, "interval_ms": 1}),
        msgpack.packb({"group": "a", "at_ms": 1, "position": 2, "interval_ms": 1, "workers": [{}]}),
        msgpack.packb({"group": "a" * 201, "at_ms": 1, "position": 2, "interval_ms": 1}),
    ],
)
def test_anything_else_is_a_declared_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_report(data, "reports/a")


def test_an_audit_is_broken_by_one_rule_and_holds_only_if_something_was_judged() -> None:
    def audit(*verdicts: str) -> AuditReport:
        rules = tuple(RuleVerdict(f"S{n}", "a rule", one, 2) for n, one in enumerate(verdicts))
        return AuditReport(5, "three servers", "1.0", 60, rules)

    assert decode_audit(encode_audit(audit("holds", "no data")), "audit") == audit("holds", "no data")
    assert audit("holds", "broken", "no data").verdict == "broken"
    assert audit("no data", "holds").verdict == "holds"
    assert audit("no data").verdict == audit().verdict == "no data"


def test_a_head_tells_its_data_unless_the_data_stands_in_parts() -> None:
    small = msgpack.packb([1, 12, b"data"])
    large = msgpack.packb([1, 12, None, 3, 1_200_000, b"digest"])
    assert inline_data(small, "r") == b"data"
    for wrong in (large, b"", msgpack.packb([2, 12, b"data"]), msgpack.packb([1, 12]), msgpack.packb("text")):
        with pytest.raises(ProtocolError):
            inline_data(wrong, "r")


def test_a_digest_tells_its_position() -> None:
    assert digest_position(msgpack.packb([1, "a", 41, b"chain"]), "d") == 41
    for wrong in (b"", msgpack.packb([1, "a", -1, b"chain"]), msgpack.packb([1, "a", 41])):
        with pytest.raises(ProtocolError):
            digest_position(wrong, "d")


def test_damaged_reports_are_read_as_something_or_are_a_declared_error() -> None:
    whole = encode_report(REPORT)
    refused = 0
    for at in range(len(whole)):
        for damaged in (
            whole[:at],
            whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :],
            whole + whole[at:],
        ):
            try:
                decode_report(damaged, "reports/a-1")
            except ProtocolError:
                refused += 1
    assert refused > len(whole)
