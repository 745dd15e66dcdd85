"""S1: whose vote it is that a leader has counted, when servers get other disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.election_safety import LEADERS
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.members import MembershipRow
from tests.onyxlog.audits.reading import read

OLD, NEW = "aa" * 16, "bb" * 16
PLACE: dict[str, Any] = {"file": "f", "file_offset": 8}


def configuration(index: int, disk: str) -> MembershipRow:
    return MembershipRow(
        **PLACE, server=2, instance="22" * 16, group=0, index=index, term=3, frame=index, servers=(1, 2, 3),
        instances=(disk, "22" * 16, "33" * 16), voters=(1, 2, 3), source="founders" if not index else "entry",
    )  # fmt: skip


def hard_state(disk: str, vote: int | None) -> HardStateRow:
    return HardStateRow(
        **PLACE, server=1, instance=disk, group=0, frame=4, term=3, voted_for=vote, last_index=9, last_term=2
    )


def found(*hard_states: HardStateRow, members: tuple[MembershipRow, ...]) -> list[str]:
    elected = EventRow(
        **PLACE, server=2, instance="22" * 16, boot=1, seq=5, kind="became_leader", group=0, term=3, index=10,
        votes=(1, 2),
    )  # fmt: skip
    tables: dict[str, list[Any]] = {
        "events": [elected, evolve(elected, kind="committed", seq=6, votes=())],
        "hard_states": list(hard_states),
        "members": list(members),
    }
    return [one.found for one in RULES["S1"].judged(tables) if one.promise == LEADERS]


def test_a_disk_that_came_in_the_same_term_has_not_given_the_vote_that_was_counted() -> None:
    members = (configuration(0, OLD), configuration(12, NEW))
    assert found(hard_state(NEW, None), members=members) == []
    assert found(hard_state(NEW, 3), hard_state(OLD, 2), members=members) == []


def test_a_vote_that_was_counted_and_is_not_on_the_disk_that_gave_it_is_found() -> None:
    for members in ((configuration(0, OLD),), (configuration(0, NEW), configuration(7, OLD)), ()):
        assert found(hard_state(OLD, None), members=members) == ["none"]
        assert found(hard_state(OLD, 3), members=members) == ["server 3"]
    members = (configuration(0, NEW), configuration(7, OLD))
    assert found(hard_state(OLD, None), hard_state(NEW, 2), members=members) == ["none"]


def test_who_founded_a_group_is_its_first_configuration(generated: Path) -> None:
    rows = [row for row in read(generated, "members") if row.source == "founders"]
    assert {row.server for row in rows} == {1, 2, 3}
    assert {(row.index, row.term, row.standing, row.voters) for row in rows} == {
        (0, 0, "committed", (1, 2, 3))
    }
    assert {row.instances for row in rows} == {rows[0].instances}
    assert rows[0].instance == rows[0].instances[rows[0].servers.index(rows[0].server)]
