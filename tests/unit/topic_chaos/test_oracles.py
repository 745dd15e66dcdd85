"""The oracles over what real consumers read: each promise broken once, and a run that keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from tests.simulation.broken import BrokenPromiseError
from tests.topic_chaos.journal import Journal, Key, Outcome, Sent, key_of, payload_of, read_journal
from tests.topic_chaos.oracles import Judged, Place, Read, Reading, judge

A, B, C = ("a", 0), ("a", 1), ("b", 0)
History = tuple[dict[Key, Sent], dict[Place, list[Read]], dict[str, list[list[Key]]]]


def history() -> History:
    """Twelve messages, to one, two and three places in turn, one after the other; the last one's fate was never told."""
    sent: dict[Key, Sent] = {}
    logs: dict[Place, list[Read]] = {A: [], B: [], C: []}
    for number in range(12):
        places = [(A,), (A, B), (A, B, C), (C,)][number % 4]
        key = Key("p", number)
        sent[key] = Sent(key, frozenset(places), 100 * number, Outcome.DELIVERED, 100 * number + 50)
        for place in places:
            single = len(places) == 1
            stamp = (number + 1, 1, 1, 9) if single else (number + 1, 1, 0, 0)
            logs[place].append(Read(len(logs[place]), stamp, (5, number + 1), payload_of(key)))
    last = Key("p", 11)
    sent[last] = evolve(sent[last], outcome=Outcome.OPEN, told_ns=0)
    merged = [key for key in sent if sent[key].places & {A, B}]
    return sent, logs, {"a": [merged, list(merged)]}


def judged(found: History) -> Judged:
    sent, logs, merged = found
    readings = [Reading(server, place, tuple(log)) for server in (1, 2, 3) for place, log in logs.items()]
    return judge(sent, readings, merged)


def renumber(log: list[Read]) -> None:
    stamps = sorted(read.stamp for read in log)
    log[:] = [
        evolve(read, offset=n, stamp=stamp) for n, (read, stamp) in enumerate(zip(log, stamps, strict=True))
    ]


def test_a_run_that_keeps_its_promises_passes_and_is_counted() -> None:
    assert judged(history()) == Judged(sent=12, delivered=12, several=6, open=1, replicas=9)


def test_what_was_open_may_be_delivered_nowhere() -> None:
    sent, logs, merged = history()
    logs[C].pop()
    assert judged((sent, logs, merged)).delivered == 11


def lost_at_one(found: History) -> None:
    del found[1][B][0]
    found[1][B][:] = [evolve(read, offset=n) for n, read in enumerate(found[1][B])]


def lost_everywhere(found: History) -> None:
    _, logs, merged = found
    del logs[A][0]
    logs[A][:] = [evolve(read, offset=n) for n, read in enumerate(logs[A])]
    for one in merged["a"]:
        del one[0]


def twice(found: History) -> None:
    log = found[1][C]
    log.append(evolve(log[1], offset=len(log)))


def gap_in_offsets(found: History) -> None:
    found[1][A][3] = evolve(found[1][A][3], offset=4)


def elsewhere(found: History) -> None:
    sent, logs, _ = found
    logs[C].append(Read(len(logs[C]), (99, 1, 1, 9), (5, 99), payload_of(Key("p", 0))))
    assert C not in sent[Key("p", 0)].places


def unsent(found: History) -> None:
    log = found[1][C]
    log.append(Read(len(log), (99, 1, 1, 9), (5, 99), payload_of(Key("q", 0))))


def two_stamps(found: History) -> None:
    found[1][C][0] = evolve(found[1][C][0], stamp=(3, 2, 0, 0))


def stamps_back(found: History) -> None:
    log = found[1][A]
    log[0], log[1] = evolve(log[1], offset=0), evolve(log[0], offset=1)


def other_order(found: History) -> None:
    """B has the second and the third message the other way round, and so have their stamps, everywhere the same."""
    _, logs, _ = found
    log = logs[B]
    log[0], log[1] = log[1], log[0]
    logs[B][:] = [evolve(read, offset=n) for n, read in enumerate(log)]


def never_but_there(found: History) -> None:
    key = Key("p", 4)
    found[0][key] = evolve(found[0][key], outcome=Outcome.NEVER)


def overtaken(found: History) -> None:
    """A message to C alone before one that was delivered before it was sent."""
    log = found[1][C]
    log[0], log[1] = log[1], log[0]
    stamps = [log[1].stamp, log[0].stamp]
    log[0], log[1] = evolve(log[0], offset=0), evolve(log[1], offset=1)
    assert stamps[0] < stamps[1]
    singles = (2, 9, 0, 0)
    log[0] = evolve(log[0], stamp=singles)


def out_of_turn(found: History) -> None:
    sent, logs, _ = found
    for key in sent:
        sent[key] = evolve(sent[key], sent_ns=0, told_ns=10**6)
    log = [read for read in logs[C] if len(sent[key_of(read.payload)].places) == 1]
    a, b = logs[C].index(log[0]), logs[C].index(log[1])
    logs[C][a], logs[C][b] = (
        evolve(log[1], offset=a, stamp=log[0].stamp),
        evolve(log[0], offset=b, stamp=log[1].stamp),
    )


def gap_in_singles(found: History) -> None:
    """An open single is missing though a later one is there."""
    sent, logs, merged = found
    key = Key("p", 4)
    sent[key] = evolve(sent[key], outcome=Outcome.OPEN)
    logs[A][:] = [evolve(r, offset=n) for n, r in enumerate(r for r in logs[A] if key_of(r.payload) != key)]
    for one in merged["a"]:
        one.remove(key)


def merged_differ(found: History) -> None:
    order = found[2]["a"][1]
    order[0], order[1] = order[1], order[0]


def merged_misses(found: History) -> None:
    for order in found[2]["a"]:
        del order[3]


def merged_cycle(found: History) -> None:
    for order in found[2]["a"]:
        order[0], order[1] = order[1], order[0]


@pytest.mark.parametrize(
    ("breaks", "promise"),
    [
        (lost_at_one, "agreement"),
        (lost_everywhere, "answers"),
        (twice, "exactly once"),
        (gap_in_offsets, "offsets"),
        (elsewhere, "integrity"),
        (unsent, "integrity"),
        (two_stamps, "stamps"),
        (stamps_back, "stamps"),
        (other_order, "stamps"),
        (never_but_there, "answers"),
        (overtaken, "stamps|real time"),
        (out_of_turn, "stamps|producer order"),
        (gap_in_singles, "producer order"),
        (merged_differ, "order|merged"),
        (merged_misses, "merged"),
        (merged_cycle, "order"),
    ],
)
def test_a_broken_promise_is_found(breaks: Callable[[History], None], promise: str) -> None:
    found = history()
    breaks(found)
    with pytest.raises(BrokenPromiseError, match=promise):
        judged(found)


def test_replicas_that_differ_are_found() -> None:
    sent, logs, _ = history()
    readings = [Reading(1, A, tuple(logs[A])), Reading(2, A, tuple(logs[A][:-1]))]
    with pytest.raises(BrokenPromiseError, match=r"determinism: servers 1 \(9\) and 2 \(8\) differ"):
        judge(sent, readings)


def test_two_logs_with_other_orders_and_stamps_that_fit_each_are_found() -> None:
    """Stamps alone would not tell: each log's own ascend, and these two messages have different ones there."""
    from tests.topic_chaos.oracles import check_order

    with pytest.raises(BrokenPromiseError, match="order"):
        check_order({A: [Key("p", 0), Key("p", 1)], B: [Key("p", 1), Key("p", 0)]}, {})
    triangle = {A: [Key("p", 0), Key("p", 1)], B: [Key("p", 1), Key("p", 2)], C: [Key("p", 2), Key("p", 0)]}
    with pytest.raises(BrokenPromiseError, match="cycle"):
        check_order(triangle, {})


def test_real_time_is_checked_where_stamps_are_fine() -> None:
    from tests.topic_chaos.oracles import check_real_time

    early, late = Key("p", 0), Key("q", 0)
    sent = {
        early: Sent(early, frozenset({A}), 0, Outcome.DELIVERED, 10),
        late: Sent(late, frozenset({A}), 11, Outcome.DELIVERED, 20),
    }
    check_real_time(sent, {A: [early, late]})
    with pytest.raises(BrokenPromiseError, match="real time"):
        check_real_time(sent, {A: [late, early]})


def test_a_journal_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    journal = Journal(descriptor)
    one, two, three = Key("p-1", 0), Key("p-1", 1), Key("p-1", 2)
    journal.note("producer 17")
    journal.sending(one, [A, C], 5)
    journal.sending(two, [B], 6)
    journal.told(one, Outcome.DELIVERED, 9)
    journal.sending(three, [B], 10)
    os.close(descriptor)
    text = path.read_text()
    found = read_journal(text[:-3])
    assert found == {
        one: Sent(one, frozenset({A, C}), 5, Outcome.DELIVERED, 9),
        two: Sent(two, frozenset({B}), 6),
    }
    assert three in read_journal(text)


def test_payloads_name_their_message_and_changed_ones_are_refused() -> None:
    packed = payload_of(Key("p", 3))
    assert key_of(packed) == Key("p", 3)
    with pytest.raises(ValueError, match="changed"):
        key_of(packed[:-1] + b"x")
