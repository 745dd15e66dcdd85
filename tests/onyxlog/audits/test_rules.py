"""Every rule: quiet over sound tables, and over spoiled ones it names exactly what was spoiled, with its place."""

from __future__ import annotations

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.rules.catalogue import RULES, rules_named
from onyxlog.audits.rules.reexecution import EPHEMERALS, NUMBERS, ONCE_ONLY
from onyxlog.audits.rules.violation import COLUMNS, Violation, as_row
from tests.onyxlog.audits.planted import PLANTS, Plant
from tests.onyxlog.audits.sound import sound


def test_there_is_a_rule_for_each_of_s1_to_s22() -> None:
    assert list(RULES) == [f"S{n}" for n in range(1, 23)]
    assert all(rule.title and rule.claim and rule.checks for rule in RULES.values())
    promises = [check.promise for rule in RULES.values() for check in rule.checks]
    assert len(promises) == len(set(promises)), "a promise names one check"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_sound_tables_break_no_rule(rule: object) -> None:
    assert rule in RULES.values()
    tables = sound()
    for check in rule.checks:  # type: ignore[attr-defined]
        assert all(tables[name] for name in check.tables), f"{check.promise}: judged nothing"
    assert not rule.judged(tables)  # type: ignore[attr-defined]


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_violation_is_found_by_its_rule_and_no_other(plant: Plant) -> None:
    tables = plant.tables()
    found = {rule.id: rule.judged(tables) for rule in RULES.values()}
    assert {id for id, some in found.items() if some} == {plant.rule, *plant.also}, show(found)
    assert any(is_witness(one, plant) for one in found[plant.rule]), show(found)


def is_witness(one: Violation, plant: Plant) -> bool:
    return one.promise == plant.promise and all(
        getattr(one, name) == value or (isinstance(value, str) and str(getattr(one, name)).startswith(value))
        for name, value in plant.witness.items()
    )


def show(found: dict[str, list[Violation]]) -> str:
    return "\n".join(one.line() for some in found.values() for one in some)


def test_every_check_has_a_planted_violation() -> None:
    planted = {plant.promise for plant in PLANTS.values()}
    promises = {check.promise for rule in RULES.values() for check in rule.checks}
    # Not to be spoiled by what a log holds: test_claim_intervals and test_reexecution plant bugs into state machines.
    assert promises - planted == {"claims are disjoint", ONCE_ONLY, EPHEMERALS, NUMBERS}


def test_a_violation_is_a_row_of_its_columns_and_a_line_for_people() -> None:
    one = Violation(
        rule="S1",
        promise="p",
        subject="term 3",
        server=2,
        group=0,
        index=7,
        file="wal/1",
        offset=99,
        expected="a",
        found="b" * 3000,
    )
    assert dict(zip(COLUMNS, as_row(one), strict=True))["offset"] == 99
    assert len(one.found) == 2000
    assert one.line().startswith("S1 p: term 3: expected a, found bbb")
    assert one.line().endswith("(server 2, group 0, index 7, wal/1:99)")


def test_rules_are_named_singly_or_by_ranges() -> None:
    assert [rule.id for rule in rules_named(["s4", "S1-S2"])] == ["S1", "S2", "S4"]
    assert len(rules_named([])) == 22
    with pytest.raises(AuditError, match="--rules S99"):
        rules_named(["S99"])
