"""Partitions in trouble, by name and in words, and what `zraft status` makes of several servers' answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from attrs import asdict

from zraft.cli.status import Problem, parse_problems, problems_left_out
from zraft.groups.statistics import AbsentVoter
from zraft.monitoring.statistics import Listing
from zraft.operator.requests import Done, Refused, TopicGiveUp
from zraft.server.operators.partition_problems import PROBLEMS_MAX, Coordinator, partition_problems
from zraft.server.operators.status import PartitionProblem
from zraft.server.operators.topics import give_up
from zraft.server.partitions.troubles import Trouble, TroubleKind
from zraft.topics.registry import Registry
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    GiveUp,
    PlaceGroup,
)
from zraft_core.topics.registry_values import Disks, Result
from zraft_core.znodes.txn import TOPICS

S1, S2, S3, S4 = (ServerId(number) for number in (1, 2, 3, 4))


def disk(server: ServerId, which: int = 0) -> Instance:
    return Instance(bytes((server, which)) + bytes(14))


def disks(*servers: ServerId) -> Disks:
    return tuple((server, disk(server)) for server in servers)


def members(*servers: ServerId) -> dict[ServerId, Instance]:
    return dict(disks(*servers))


class Topics:
    """A registry, and the groups of its topics by name and number."""

    def __init__(self, **partitions: int) -> None:
        self.registry = Registry()
        self._zxid = 100
        self.groups: dict[tuple[str, int], GroupId] = {}
        for name, count in partitions.items():
            topic = self.log(CreateTopic(name, count))
            for number in range(count):
                self.groups[name, number] = GroupId(self.log(CreateGroup(topic, disks(S1, S2, S3), S1)))

    def log(self, command: object) -> int:
        self._zxid += 1
        result = self.registry.apply(command, self._zxid)  # type: ignore[arg-type]
        assert result.refusal is None
        return result.created or 0

    def problems(
        self,
        *troubles: Trouble,
        silent: Mapping[ServerId, int] | None = None,
        present: Mapping[ServerId, Instance] | None = None,
    ) -> Listing[PartitionProblem]:
        coordinator = None
        if silent is not None or present is not None:
            coordinator = Coordinator(present or members(S1, S2, S3, S4), silent or {})
        return partition_problems(self.registry, S1, troubles, coordinator)


def reasons(found: Listing[PartitionProblem]) -> dict[str, str]:
    return {f"{one.topic}/{one.partition}": one.reason for one in found.items}


def test_a_lost_majority_is_said_with_the_servers_and_since_when() -> None:
    topics = Topics(orders=2)
    absent = (AbsentVoter(S2, 12_400), AbsentVoter(S3, None))
    trouble = Trouble(topics.groups["orders", 1], TroubleKind.NO_MAJORITY, 11_000, 3, absent)
    (one,) = topics.problems(trouble).items
    assert (one.topic, one.partition, one.kind, one.for_ms) == ("orders", 1, "no_majority", 11_000)
    assert one.reason == (
        "2 of its 3 replicas do not answer: server 2 (for 12 s), server 3 (not heard of since this server started)"
    )


def test_messages_that_wait_are_said_with_the_partitions_that_they_wait_for_as_far_as_there_is_room() -> None:
    topics = Topics(audit=5, orders=1)
    awaited = tuple((topics.groups["audit", number], 9 - number) for number in range(5))
    trouble = Trouble(topics.groups["orders", 0], TroubleKind.WAITING, 61_000, pending=17, awaited=awaited)
    assert reasons(topics.problems(trouble)) == {
        "orders/0": "17 messages wait for other partitions to agree on the order: 9 for audit/0, 8 for audit/1, "
        "7 for audit/2, and others for 2 more partitions"
    }


def test_a_partition_of_a_deleted_topic_is_named_by_its_group_where_others_wait_for_it() -> None:
    topics = Topics(audit=1, orders=1)
    topics.log(DeleteTopic("audit"))
    doomed = topics.groups["audit", 0]
    trouble = Trouble(
        topics.groups["orders", 0], TroubleKind.WAITING, 61_000, pending=1, awaited=((doomed, 1),)
    )
    found = reasons(topics.problems(trouble, Trouble(doomed, TroubleKind.NO_LEADER, 1_000, 3)))
    assert found.keys() == {"orders/0", f"(deleted)/{doomed}"}
    assert found["orders/0"].endswith(f"1 for a partition of a deleted topic (group {doomed})")
    topics.log(GiveUp(doomed))
    assert topics.problems(silent={S1: 5_000, S2: 7_000}).items[0].topic == "orders", (
        "nobody waits for it any more"
    )


@pytest.mark.parametrize(("leader", "end"), [(None, ""), (S1, ""), (S2, "; server 2 has another and leads")])
def test_a_copy_that_cannot_be_used_is_said_with_the_error(leader: ServerId | None, end: str) -> None:
    topics = Topics(orders=1)
    trouble = Trouble(
        topics.groups["orders", 0], TroubleKind.COPY_FAILED, leader=leader, error="segment 7:\ncorrupt"
    )
    assert reasons(topics.problems(trouble)) == {
        "orders/0": f"its copy on server 1 cannot be used: segment 7: corrupt{end}"
    }


def test_group_0s_leader_names_partitions_whose_servers_are_all_silent() -> None:
    topics = Topics(orders=1)
    found = topics.problems(silent={S1: 5_000, S2: 7_000, S3: 8_000})
    (one,) = found.items
    assert (one.kind, one.for_ms) == ("no_majority", 5_000)
    assert one.reason.startswith("3 of its 3 replicas do not answer: server 1 (for 5 s), server 2")
    assert topics.problems(silent={S2: 7_000}).total == 0


def test_group_0s_leader_names_partitions_whose_disks_are_gone() -> None:
    topics = Topics(orders=1)
    found = topics.problems(present={S1: disk(S1), S2: disk(S2, 1)})
    assert reasons(found) == {
        "orders/0": "2 of its 3 replicas do not answer: server 2 (the disk that held it is gone), "
        "server 3 (the disk that held it is gone)"
    }


def test_a_partition_that_moves_is_not_called_lost_while_one_set_of_its_disks_may_decide() -> None:
    topics = Topics(orders=1)
    topics.log(PlaceGroup(topics.groups["orders", 0], disks(S2, S3, S4), S2))
    assert topics.problems(silent={S1: 9_000, S2: 9_000}).total == 0
    assert topics.problems(silent={S1: 9_000, S2: 9_000, S3: 9_000}).total == 1
    trouble = Trouble(topics.groups["orders", 0], TroubleKind.NO_LEADER, 2_000, 3)
    assert reasons(topics.problems(trouble)) == {
        "orders/0": "no leader is known, though all of its replicas answer; it is being moved to servers 2, 3, 4"
    }


def test_partitions_that_are_not_set_up_yet_are_named_by_group_0s_leader_alone() -> None:
    topics = Topics(orders=1)
    topics.log(AlterTopic("orders", 3))
    topics.log(CreateGroup(topics.registry.names["orders"], disks(S1, S2, S3), S1))
    assert reasons(topics.problems(silent={})) == {
        "orders/1": "it is being added to the topic",
        "orders/2": "it is not created yet",
    }
    assert topics.problems().total == 0


def test_the_list_is_bounded_and_says_how_many_are_left_out() -> None:
    topics = Topics(orders=PROBLEMS_MAX + 7)
    found = topics.problems(silent={S2: 3_000, S3: 3_000})
    assert (len(found.items), found.total, found.left_out) == (PROBLEMS_MAX, PROBLEMS_MAX + 7, 7)
    assert [one.partition for one in found.items] == list(range(PROBLEMS_MAX))


def problem(
    number: int, kind: str = "no_leader", for_ms: int | None = 2_000, reason: str = "why"
) -> PartitionProblem:
    return PartitionProblem("orders", number, 100 + number, kind, reason, for_ms)


def mntr(rows: Sequence[PartitionProblem], total: int | None = None) -> dict[str, str]:
    return {
        "topic_partitions_in_trouble": str(len(rows) if total is None else total),
        "topic_partition_problems": json.dumps([asdict(row) for row in rows]),
    }


def test_status_takes_of_each_partition_what_tells_the_most() -> None:
    answers = [
        mntr([problem(0), problem(1, "waiting", 9_000, "waits")]),
        mntr([problem(0, "no_majority", 5_000, "lost")]),
        mntr(
            [problem(0, "no_majority", 7_000, "lost for longer"), problem(1, "copy_failed", None, "broken")]
        ),
        {},
    ]
    assert parse_problems(answers) == [
        Problem("orders", 0, "no_majority", "lost for longer", 7_000),
        Problem("orders", 1, "copy_failed", "broken", None),
        Problem("orders", 1, "waiting", "waits", 9_000),
    ]
    assert problems_left_out(answers) == 0


def test_status_counts_what_servers_do_not_name() -> None:
    assert problems_left_out([mntr([problem(0)], 31), mntr([problem(1)], 2), {}]) == 30


@pytest.mark.parametrize(
    "text", ["", "nonsense", "7", "{}", "[7, {}]", '[{"topic": 1}]', "[[[[", '[{"topic": "a"}]']
)
def test_an_answer_that_is_not_understood_names_nothing(text: str) -> None:
    assert parse_problems([{"topic_partition_problems": text}]) == []
    assert problems_left_out([{"topic_partition_problems": text, "topic_partitions_in_trouble": "x"}]) == 0


def give(
    registry: Registry, request: TopicGiveUp, reason: str | None, level: int = 6
) -> tuple[object, list[object]]:
    """What an operator is answered, and what goes into the log for it."""
    said: list[object] = []
    submitted: list[object] = []

    def submit(command: object, done: object) -> None:
        submitted.append(command)
        done(Result())  # type: ignore[operator]

    give_up(registry, level, request, reason, submit, said.append)
    (one,) = said
    return one, submitted


def test_only_a_partition_without_a_majority_is_given_up_and_only_when_the_operator_is_sure() -> None:
    topics = Topics(audit=1, orders=1)
    group, registry = topics.groups["orders", 0], topics.registry
    sure = TopicGiveUp(group, sure=True)
    for request, reason, level, expected in (
        (sure, "lost", 5, "feature level 6"),
        (TopicGiveUp(999, sure=True), "lost", 6, "there is no such group"),
        (sure, None, 6, "a majority of its disks answers"),
    ):
        answer, submitted = give(registry, request, reason, level)
        assert isinstance(answer, Refused)
        assert expected in answer.text
        assert submitted == []
    answer, submitted = give(registry, TopicGiveUp(group, sure=False), "lost")
    assert submitted == []
    assert isinstance(answer, Done)
    assert "It is partition 0 of topic orders" in answer.text
    answer, submitted = give(registry, sure, "lost")
    assert isinstance(answer, Done)
    assert "an empty partition takes its place" in answer.text
    topics.log(DeleteTopic("orders"))
    answer, submitted = give(registry, sure, None)
    assert isinstance(answer, Refused)
    assert "a majority of its disks answers" in answer.text
    assert give(registry, TopicGiveUp(group, sure=False), "lost") == (Done("lost"), [])
    answer, submitted = give(registry, sure, "lost")
    assert isinstance(answer, Done)
    assert submitted == [(TOPICS, encode_registry(GiveUp(group)))]
    topics.log(GiveUp(group))
    assert give(registry, sure, "lost") == (Done(f"group {group} is given up already"), [])
