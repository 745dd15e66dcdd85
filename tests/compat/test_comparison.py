"""The differential run judges rightly: what it must notice, what it must put aside, and that a seed is a script."""

from __future__ import annotations

import time

import pytest

from tests.compat.differential.compare import Comparison, Ranks
from tests.compat.differential.protocol import (
    Closed,
    Connected,
    Event,
    LastZxid,
    Observed,
    Op,
    Reader,
    Reply,
    SessionId,
    Time,
    Zxid,
    decode_body,
    encode_request,
)
from tests.compat.differential.run import shrink
from tests.compat.differential.script import PINNED, Requests, Round, script
from tests.simulation.jute import (
    CREATE,
    GET_DATA,
    MULTI,
    SET_ACL,
)


def reply(zxid: int, err: int = 0, body: object = None) -> Reply:
    return Reply(1, 7, Zxid(zxid), err, body)


def event(zxid: int, path: str = "/a", kind: int = 1) -> Event:
    return Event(Zxid(zxid), kind, 3, path)


def connected(session: int, password: bytes = b"p" * 16) -> Connected:
    return Connected(30_000, SessionId(session), 16, False, password)


def test_zxids_are_related_by_rank_and_keep_their_relation() -> None:
    ranks = Ranks()
    assert ranks.fits(100, 7)
    assert ranks.fits(300, 9)
    assert ranks.fits(200, 8)
    assert ranks.fits(100, 7)
    assert not ranks.fits(100, 8), "one zxid, two relations"
    assert not ranks.fits(150, 9), "two zxids, one relation"
    assert not ranks.fits(400, 6), "the order is turned round"
    assert not ranks.fits(0, 7), "none, and one"
    assert ranks.fits(0, 0)


def test_last_zxid_of_a_read_may_be_any_between_the_same_two() -> None:
    ranks = Ranks()
    assert ranks.fits(100, 7)
    assert ranks.fits(200, 20)
    assert ranks.fits_between(100, 15)
    assert ranks.fits_between(200, 20)
    assert not ranks.fits_between(200, 19)
    assert not ranks.fits_between(99, 7)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([reply(1)], [reply(1, err=-101)]),
        ([reply(1)], []),
        ([reply(1), event(1)], [event(1), reply(1)]),
        ([reply(1, body=(b"", 1))], [reply(1, body=(None, 1))]),
        ([reply(1, body=(Zxid(5), Zxid(5)))], [reply(1, body=(Zxid(5), Zxid(6)))]),
        ([reply(1, body=Time(0))], [reply(1, body=Time(5))]),
        ([reply(1, body=SessionId(9))], [reply(1, body=SessionId(0))]),
        ([reply(1, body=False)], [reply(1, body=0)]),
        ([event(1, kind=3)], [event(1, kind=4)]),
        ([event(1), event(1, "/b")], [event(1, "/b"), event(1)]),
        ([reply(1)], [Closed()]),
        ([event(-1)], [event(5)]),
        ([reply(-1)], [reply(5)]),
        ([connected(5), connected(6)], [connected(5), connected(5)]),
        ([connected(5), connected(5)], [connected(5), connected(5, b"q" * 16)]),
    ],
)
def test_a_difference_is_noticed(theirs: list[Observed], ours: list[Observed]) -> None:
    assert Comparison().differences(theirs, ours)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([reply(100), reply(200)], [reply(3), reply(4)]),
        ([reply(1, body=(Time(5), SessionId(77)))], [reply(1, body=(Time(6), SessionId(88)))]),
        ([event(-1)], [event(-1)]),
        ([connected(5), connected(5)], [connected(8, b"q" * 16), connected(8, b"q" * 16)]),
        ([Reply(1, 1, LastZxid(9), 0, None)], [Reply(1, 1, LastZxid(12), 0, None)]),
    ],
)
def test_what_two_systems_cannot_share_is_put_aside(theirs: list[Observed], ours: list[Observed]) -> None:
    assert not Comparison().differences(theirs, ours)


def test_an_old_zookeeper_has_no_zxid_in_events_and_none_in_replies_to_the_unknown() -> None:
    assert not Comparison(events_have_zxids=False).differences([event(-1)], [event(5)])
    assert Comparison(events_have_zxids=False).differences([event(-1, kind=1)], [event(5, kind=2)])
    assert not Comparison().differences([reply(-1, err=-6)], [reply(5, err=-6)])


def test_events_of_a_sessions_end_may_come_in_any_order_and_no_others() -> None:
    theirs: list[Observed] = [event(4, "/z", 2), event(4, "/a", 2), event(5, "/b")]
    ours: list[Observed] = [event(4, "/a", 2), event(4, "/z", 2), event(5, "/b")]
    assert not Comparison().differences_unordered(theirs, ours)
    assert Comparison().differences(theirs, ours)
    assert Comparison().differences_unordered(theirs, [ours[2], ours[0], ours[1]])


def test_a_seed_is_a_script() -> None:
    assert script(5, 500) == script(5, 500)
    assert script(5, 500) != script(6, 500)


def test_a_script_has_the_requests_asked_for_and_none_that_are_left_out() -> None:
    rounds = script(1, 4_000)
    ops = [op for one in rounds if isinstance(one, Requests) for _, op in one.steps]
    assert len(ops) >= 4_000
    assert {SET_ACL, CREATE, MULTI} <= {op.opcode for op in ops}
    fewer = [
        op for one in script(1, 4_000, {SET_ACL, CREATE}) if isinstance(one, Requests) for _, op in one.steps
    ]
    parts = [part for op in fewer if op.opcode == MULTI for part in op.fields[0]]
    assert not {SET_ACL, CREATE} & {op.opcode for op in (*fewer, *parts)}


def test_every_request_of_a_script_can_be_written() -> None:
    for one in script(2, 2_000):
        if isinstance(one, Requests):
            for _, op in one.steps:
                assert encode_request(
                    op,
                    1,
                    lambda value: getattr(value, "instead", 0) if not isinstance(value, str | int) else value,
                )


def test_shrinking_finds_the_few_requests_that_matter() -> None:
    rounds = script(3, 800)

    def touched(attempt: list[Round]) -> set[int]:
        return {step for one in attempt if isinstance(one, Requests) for step, _ in one.steps}

    matter = {17, 402}
    found = shrink(rounds, lambda attempt: matter <= touched(attempt), time.monotonic() + 30)
    assert touched(found) == matter


def test_a_reply_of_another_form_is_shown_as_it_is() -> None:
    assert decode_body(GET_DATA, Reader(b"\0\0\0\1x")) == (
        "not of the form of this operation's reply",
        b"\0\0\0\1x",
    )
    assert decode_body(CREATE, Reader(b"\0\0\0\2/aRST")) == ("followed by", "/a", b"RST")


def test_pinned_sessions_never_move_or_end() -> None:
    """Each server needs one, to catch up with before the next round."""
    for one in script(4, 3_000)[len(PINNED) :]:
        if one.session in PINNED:
            assert isinstance(one, Requests)
            assert all(op != Op(-11, ()) for _, op in one.steps)
