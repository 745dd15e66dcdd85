"""A run of everything: its plan, and what it demands of the audit; the run itself is a command of its own."""

from __future__ import annotations

from typing import Any

from onyxlog.audits.rules.catalogue import RULES
from tests.onyxlog.audits.everything import judged
from tests.onyxlog.audits.everything_plan import FIRST_S, Kind, plan


def test_a_plan_follows_from_its_seed_and_strikes_everybody_however_short_it_is() -> None:
    assert plan(7, 30.0) == plan(7, 30.0)
    assert plan(7, 30.0) != plan(8, 30.0)
    for seed in range(50):
        found = plan(seed, 6.0)
        assert {one.kind for one in found} == set(Kind)
        assert [one.at_s for one in found] == sorted(one.at_s for one in found)
        assert all(FIRST_S <= one.at_s <= 6.0 for one in found)
    assert len(plan(1, 600.0)) > 100


def findings(**verdicts: str) -> dict[str, Any]:
    rules = [
        {"rule": id, "title": rule.title, "verdict": verdicts.get(id, "holds")} for id, rule in RULES.items()
    ]
    return {"rules": rules, "violations": []}


def test_a_rule_that_judged_nothing_fails_the_run_unless_it_is_about_results_files() -> None:
    assert judged(findings(S22="no data")) == []
    (line,) = judged(findings(S17="no data"))
    assert line.startswith("S17 ")
    assert line.endswith(": no data")
    broken = findings(S4="broken")
    broken["violations"] = [{"rule": "S4", "subject": "entry 3", "expected": "a", "found": "b"}]
    assert len(judged(broken)) == 2
