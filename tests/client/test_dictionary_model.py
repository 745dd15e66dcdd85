"""The judge of recorded histories of dictionaries finds what it should: a checker that cannot fail proves nothing."""

from __future__ import annotations

import pytest

from tests.client.dictionary_model import ABSENT, Kind, Operation, Present, check_dictionary
from zraft.checkers.linearizability import Call


def put(value: str, version: int, invoked: int, returned: int) -> Call[Operation]:
    return Call(Operation("k", Kind.PUT, value, seen=Present(value, version)), invoked, returned)


def get(seen: Present | None, invoked: int, returned: int) -> Call[Operation]:
    return Call(Operation("k", Kind.GET, seen=seen or ABSENT), invoked, returned)


def unanswered(kind: Kind, value: str, invoked: int) -> Call[Operation]:
    return Call(Operation("k", kind, value, answered=False), invoked, None)


FINE = {
    "in order": [
        put("a", 0, 0, 1),
        get(Present("a", 0), 2, 3),
        put("b", 1, 4, 5),
        get(Present("b", 1), 6, 7),
    ],
    "a read without a version": [put("a", 0, 0, 1), get(Present("a", -1), 2, 3)],
    "overlapping": [put("a", 0, 0, 10), get(None, 1, 2), get(Present("a", 0), 3, 4)],
    "an unanswered write that happened late": [
        unanswered(Kind.PUT, "a", 0),
        get(None, 1, 2),
        get(Present("a", 0), 3, 4),
    ],
    "an unanswered write that never happened": [unanswered(Kind.PUT, "a", 0), get(None, 1, 2)],
    "a delete that found nothing": [Call(Operation("k", Kind.DELETE), 0, 1)],
    "versions begin anew": [
        put("a", 0, 0, 1),
        Call(Operation("k", Kind.DELETE, seen=ABSENT), 2, 3),
        put("b", 0, 4, 5),
        Call(Operation("k", Kind.REPLACE, "c", 0, Present("c", 1)), 6, 7),
        Call(Operation("k", Kind.PUT_IF_ABSENT, "d"), 8, 9),
    ],
}

BROKEN = {
    "a stale read": [put("a", 0, 0, 1), put("b", 1, 2, 3), get(Present("a", 0), 4, 5)],
    "a read that goes back": [put("a", 0, 0, 10), get(Present("a", 0), 1, 2), get(None, 3, 4)],
    "a stale value without its version": [put("a", 0, 0, 1), put("b", 1, 2, 3), get(Present("a", -1), 4, 5)],
    "a lost write": [put("a", 0, 0, 1), put("b", 0, 2, 3)],
    "a write that happened twice": [put("a", 0, 0, 1), put("b", 2, 2, 3)],
    "two that both were first": [
        Call(Operation("k", Kind.PUT_IF_ABSENT, "a", seen=Present("a", 0)), 0, 9),
        Call(Operation("k", Kind.PUT_IF_ABSENT, "b", seen=Present("b", 0)), 0, 9),
    ],
    "two that replaced one version": [
        put("a", 0, 0, 1),
        Call(Operation("k", Kind.REPLACE, "b", 0, Present("b", 1)), 2, 9),
        Call(Operation("k", Kind.REPLACE, "c", 0, Present("c", 1)), 2, 9),
    ],
    "a delete that found nothing where something was": [
        put("a", 0, 0, 1),
        Call(Operation("k", Kind.DELETE), 2, 3),
    ],
    "an effect before its cause": [get(Present("a", 0), 0, 1), put("a", 0, 2, 3)],
}


@pytest.mark.parametrize("history", FINE.values(), ids=FINE)
def test_a_history_that_some_order_explains_passes(history: list[Call[Operation]]) -> None:
    assert check_dictionary(history) == []


@pytest.mark.parametrize("history", BROKEN.values(), ids=BROKEN)
def test_a_history_that_no_order_explains_is_found(history: list[Call[Operation]]) -> None:
    assert len(check_dictionary(history)) == 1
