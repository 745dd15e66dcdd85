"""The search: right on what is known, equal to brute force on what is small, quick on what is long."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence

import pytest

from tests.unit.testing.checkers.histories import op, read, wrote
from zraft.checkers import linearizability
from zraft.checkers.history import Kind, Operation, Outcome
from zraft.checkers.linearizability import Call, UndecidedError, check
from zraft.checkers.registers import Absent, Present, Register, State, check_registers
from zraft_core.errors import Code

PATH = "/r/1"
START = {PATH: Present("first", 0)}


def found(*history: Operation) -> list[str]:
    return [violation.found for violation in check_registers([history], start=START)]


def test_overlapping_writes_in_either_order_are_fine() -> None:
    a = wrote(PATH, (0, 10), "a", version=2)
    b = wrote(PATH, (0, 10), "b", version=1)
    assert not found(a, b, read(PATH, (11, 12), "a", 2))


def test_a_lost_write_is_caught() -> None:
    assert found(wrote(PATH, (0, 1), "a", version=1), read(PATH, (2, 3), "first", 0))


def test_a_stale_read_is_caught() -> None:
    assert found(
        wrote(PATH, (0, 1), "a", version=1),
        wrote(PATH, (2, 3), "b", version=2),
        read(PATH, (4, 5), "a", 1),
    )


def test_a_read_that_goes_back_within_one_slow_write_is_caught() -> None:
    slow = wrote(PATH, (0, 100), "a", version=1)
    assert not found(slow, read(PATH, (1, 2), "first", 0), read(PATH, (3, 4), "a", 1))
    assert found(slow, read(PATH, (1, 2), "a", 1), read(PATH, (3, 4), "first", 0))


def test_a_write_without_answer_may_happen_much_later_or_never() -> None:
    unknown = wrote(PATH, (0, None), "a")
    assert not found(unknown, read(PATH, (1, 2), "first", 0), read(PATH, (90, 91), "a", 1))
    assert not found(unknown, read(PATH, (90, 91), "first", 0))


def test_a_write_without_answer_that_happens_twice_is_caught() -> None:
    unknown = wrote(PATH, (0, None), "a")
    between = wrote(PATH, (10, 11), "b", version=2)
    assert found(unknown, read(PATH, (1, 2), "a", 1), between, read(PATH, (90, 91), "a", 3))


def test_a_write_that_was_refused_and_still_happened_is_caught() -> None:
    refused = wrote(PATH, (0, 1), "a", expected=0, code=Code.BAD_VERSION)
    assert found(refused)


def test_a_compare_and_set_that_succeeds_twice_on_one_version_is_caught() -> None:
    a = wrote(PATH, (0, 5), "a", expected=0, version=1)
    b = wrote(PATH, (0, 5), "b", expected=0, version=1)
    assert not found(a)
    assert found(a, b)


def test_an_unanswered_write_of_which_only_the_version_tells_is_allowed_once() -> None:
    unknown = wrote(PATH, (0, None), "a")
    assert not found(unknown, wrote(PATH, (5, 6), "b", version=2))
    assert found(unknown, wrote(PATH, (5, 6), "b", version=3))


def test_a_delete_without_answer_explains_that_the_znode_is_gone() -> None:
    gone = op(Kind.SYNC_GET, PATH, (5, 6), code=Code.NO_NODE)
    assert found(gone)
    assert not found(op(Kind.DELETE, PATH, (0, None)), gone)


def test_a_multi_is_seen_on_both_its_znodes_or_on_none() -> None:
    start = {"/a": Present("first", 0), "/b": Present("first", 0)}
    both = op(Kind.MULTI_SET, "/a", (0, 1), value="x", expected=0, version=1, further=("/b",))
    half = [both, read("/a", (2, 3), "x", 1), read("/b", (2, 3), "first", 0)]
    whole = [both, read("/a", (2, 3), "x", 1), read("/b", (2, 3), "x", 1)]
    assert not check_registers([whole], start=start)
    assert check_registers([half], start=start)


def test_values_that_are_not_unique_are_refused_instead_of_judged() -> None:
    assert "unique" in found(wrote(PATH, (0, 1), "a", version=1), wrote(PATH, (2, 3), "a", version=2))[0]


def test_a_search_beyond_its_bound_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "CONFIGURATIONS_MAX", 3)
    open_writes = [wrote(PATH, (0, None), f"{n}") for n in range(9)]
    history = [*open_writes, wrote(PATH, (5, 6), "z", version=7)]
    calls = [Call(one, one.invoked_us, one.returned_us) for one in history]
    with pytest.raises(UndecidedError):
        check(calls, Register(history, Present("first", 0)))
    assert "undecided" in found(*history)[0]


# -- brute force


def step(state: State, one: Operation, after_unknown: bool) -> list[State]:
    """Written again, from the protocol: all states after an operation in a state, with its answer."""
    absent, version = isinstance(state, Absent), getattr(state, "version", -1)
    fits = one.expected in (-1, version)
    if one.kind is Kind.SYNC_GET:
        if one.outcome is Outcome.OK:
            return [state] if state == Present(one.value, one.version or 0) else []
        return [state] if absent else []
    works: bool
    code: Code
    result: State
    if one.kind is Kind.CREATE:
        works, code, result = absent, Code.NODE_EXISTS, Present(one.value, 0)
    elif absent:
        works, code, result = False, Code.NO_NODE, state
    elif one.kind is Kind.DELETE:
        works, code, result = fits, Code.BAD_VERSION, Absent()
    else:
        works, code, result = fits, Code.BAD_VERSION, Present(one.value, version + 1)
    if one.outcome is Outcome.UNKNOWN:
        return [result if works else state]
    if one.outcome is Outcome.OK:
        shown = one.version is None or getattr(result, "version", None) in (None, one.version)
        return [result] if works and shown else []
    return [state] if not works and code == one.code else []


def brute_force(history: Sequence[Operation], start: State) -> bool:
    """Every subset of the unanswered, in every order."""
    answered = [one for one in history if one.outcome is not Outcome.UNKNOWN]
    unanswered = [one for one in history if one.outcome is Outcome.UNKNOWN]
    for count in range(len(unanswered) + 1):
        for chosen in itertools.combinations(unanswered, count):
            for order in itertools.permutations([*answered, *chosen]):
                late = [
                    b.returned_us is not None and b.returned_us < a.invoked_us
                    for place, a in enumerate(order)
                    for b in order[place + 1 :]
                ]
                if any(late):
                    continue
                state = start
                for one in order:
                    states = step(state, one, True)
                    if not states:
                        break
                    state = states[0]
                else:
                    return True
    return False


def random_history(rng: random.Random, *, deletes: bool) -> list[Operation]:
    """Operations executed in a random order on a true register; then, half of the time, one answer is falsified."""
    state: State = Present("first", 0)
    history: list[Operation] = []
    for number in range(rng.randint(2, 6)):
        middle = 10 * number + 5
        at = (middle - rng.randint(0, 25), middle + rng.randint(0, 25))
        kinds = [Kind.SET, Kind.SET, Kind.SYNC_GET] + ([Kind.CREATE, Kind.DELETE] if deletes else [])
        kind = rng.choice(kinds)
        version = getattr(state, "version", 0)
        expected = rng.choice([-1, version, version + 1]) if kind in (Kind.SET, Kind.DELETE) else -1
        value = f"v{number}" if kind in (Kind.SET, Kind.CREATE) else None
        unknown = rng.random() < 0.25 and kind is not Kind.SYNC_GET
        guess = op(kind, PATH, (at[0], None), value=value, expected=expected)
        if kind is Kind.SYNC_GET:
            if isinstance(state, Present):
                history.append(read(PATH, at, state.value or "", state.version))
            else:
                history.append(op(kind, PATH, at, code=Code.NO_NODE))
            continue
        if unknown:
            if rng.random() < 0.5:
                state = step(state, guess, True)[0]
            history.append(guess)
            continue
        after = step(state, guess, True)[0]
        if after != state:
            state = after
            shown = state.version if isinstance(state, Present) else None
            history.append(op(kind, PATH, at, value=value, expected=expected, version=shown))
        else:
            exists = isinstance(state, Present)
            code = Code.NODE_EXISTS if kind is Kind.CREATE else Code.BAD_VERSION if exists else Code.NO_NODE
            history.append(op(kind, PATH, at, value=value, expected=expected, code=code))
    if rng.random() < 0.5:
        place = rng.randrange(len(history))
        one = history[place]
        if one.returned_us is not None and one.kind is Kind.SYNC_GET:
            history[place] = read(
                PATH, (one.invoked_us, one.returned_us), f"v{rng.randint(0, 5)}", rng.randint(0, 4)
            )
        elif one.returned_us is not None and one.version is not None:
            history[place] = op(
                one.kind,
                PATH,
                (one.invoked_us, one.returned_us),
                value=one.value,
                expected=one.expected,
                version=rng.randint(0, 4) if one.kind is Kind.SET else 0,
            )
    return history


@pytest.mark.parametrize("deletes", [False, True])
def test_the_search_agrees_with_brute_force_on_small_random_histories(deletes: bool) -> None:
    rng = random.Random(20_261_122)
    verdicts = {True: 0, False: 0}
    for _ in range(1_500):
        history = random_history(rng, deletes=deletes)
        expected = brute_force(history, Present("first", 0))
        calls = [Call(one, one.invoked_us, one.returned_us) for one in history]
        assert (check(calls, Register(history, Present("first", 0))) is None) == expected, history
        verdicts[expected] += 1
    assert min(verdicts.values()) > 100, verdicts


def long_history(rng: random.Random, count: int) -> list[Operation]:
    """Overlapping operations on a true register; one in two hundred has no answer."""
    history: list[Operation] = []
    value, version = "first", 0
    for number in range(count):
        middle = 10 * number
        at = (middle - rng.randint(0, 60), middle + rng.randint(0, 60))
        roll = rng.random()
        if roll < 0.4:
            history.append(read(PATH, at, value, version))
        elif roll < 0.405:
            if rng.random() < 0.5:
                value, version = f"v{number}", version + 1
            history.append(wrote(PATH, (at[0], None), f"v{number}"))
        elif roll < 0.5:
            history.append(wrote(PATH, at, f"v{number}", expected=version + 7, code=Code.BAD_VERSION))
        else:
            value, version = f"v{number}", version + 1
            expected = version - 1 if roll < 0.7 else -1
            history.append(wrote(PATH, at, value, expected=expected, version=version))
    return history


def test_twenty_thousand_overlapping_operations_on_one_key_are_judged_in_seconds() -> None:
    history = long_history(random.Random(4), 20_000)
    began = time.process_time()
    assert not found(*history)
    assert time.process_time() - began < 30
    # and one stale read among them is found
    victim = max(n for n, one in enumerate(history) if one.kind is Kind.SYNC_GET and n < 15_000)
    one = history[victim]
    earlier = next(
        r for r in history if r.kind is Kind.SYNC_GET and (r.version or 0) < (one.version or 0) - 100
    )
    history[victim] = read(PATH, (one.invoked_us, one.returned_us), earlier.value or "", earlier.version or 0)
    assert found(*history)
