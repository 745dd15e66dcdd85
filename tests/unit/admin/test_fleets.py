"""Fleets in the console: what groups publish, read from znodes that anybody may have written."""

from __future__ import annotations

from typing import Any, Final

import msgpack
import pytest
from attrs import evolve

from tests.unit.admin.test_console import ANYONE, Server, served
from zraft.admin.console.fleets import (
    GROUPS_MAX,
    JOBS_SHOWN_MAX,
    FleetRead,
    Pulse,
    Told,
    audit_of,
    fleet_of,
    pulses_of,
    told_of,
)
from zraft.admin.console.values import FleetWorker, GossipNumbers
from zraft_core.fleets import (
    AuditReport,
    GossipReport,
    GroupReport,
    JobReport,
    RuleVerdict,
    WorkerReport,
    encode_audit,
    encode_report,
)

NOW_MS: Final = 1_700_000_000_000
A: Final = GroupReport(
    "a",
    NOW_MS,
    40,
    5_000,
    peers=2,
    workers=(WorkerReport("a.0", "words", "lines", 1, 500, 90, 50, 300, 1_000, 200),),
    gossip=GossipReport(10, 1, 5, 4, 3, 1_000, 2_000),
    jobs=(JobReport("old", "completed", 3, None), JobReport("words", "running", 7, 77)),
)
B: Final = GroupReport(
    "b",
    NOW_MS,
    41,
    5_000,
    peers=1,
    workers=(WorkerReport("b.0", "words", "lines", 0, 400, 10, 5, 200, 1_000, 50),),
    gossip=GossipReport(20, 2, 6, 7, 8, 3_000, 4_000),
)


def a_fleet(*reports: GroupReport, **others: Any) -> FleetRead:
    return evolve(
        FleetRead(
            "default",
            43,
            43,
            tuple([Pulse(one.group, 300, 10_000) for one in reports]),
            len(reports),
            {one.group: Told(one, NOW_MS - 2_000, one.position) for one in reports},
            (),
            0,
            None,
            (),
        ),
        **others,
    )


def state(data: bytes) -> bytes:
    """Data as a small znode of a tenancy's state has it."""
    packed: bytes = msgpack.packb([1, 4, data])
    return packed


def test_a_task_is_the_sum_of_what_its_workers_report() -> None:
    fleet = fleet_of(a_fleet(A, B), NOW_MS)
    assert [(job.job, job.state, job.since, job.since_ms) for job in fleet.jobs] == [
        ("old", "completed", 3, None),
        ("words", "running", 7, 77),
    ]
    (task,) = fleet.jobs[1].tasks
    assert (task.since_ms, task.segments, task.per_s) == (400, 100, 11.0)
    assert (task.done, task.total, task.left_ms) == (500, 2_000, 30_000)
    assert task.workers == (FleetWorker("b.0", 0, 400, 10), FleetWorker("a.0", 1, 500, 90))


def test_what_is_left_is_not_claimed_where_a_worker_does_not_know_it() -> None:
    (worker,) = B.workers
    unsure = evolve(B, workers=(evolve(worker, done=None, total=None),))
    (task,) = fleet_of(a_fleet(A, unsure), NOW_MS).jobs[1].tasks
    assert (task.done, task.total, task.left_ms) == (None, None, None)
    stuck = evolve(A, workers=(evolve(A.workers[0], recent_done=0),))
    (task,) = fleet_of(a_fleet(stuck), NOW_MS).jobs[1].tasks
    assert (task.done, task.left_ms) == (300, None)


def test_groups_are_shown_with_how_far_they_are_and_gossip_in_sum() -> None:
    fleet = fleet_of(a_fleet(A, B, pulses_total=3), NOW_MS)
    a, b = fleet.groups
    assert (a.position, a.behind, a.reported_ms, a.peers, a.busy) == (40, 2, 2_000, 2, 1)
    assert (b.position, b.behind, b.silent_ms, b.timeout_ms) == (41, 1, 300, 10_000)
    assert fleet.groups_left_out == 1
    assert fleet.gossip == GossipNumbers(30, 11, 3, 11, 4_000, 6_000)


def test_peers_of_an_earlier_release_are_alive_and_their_jobs_are_named() -> None:
    read = a_fleet(
        jobs=("one", "two"), jobs_total=2, pulses=(Pulse("a"),), pulses_total=1, told={"a": Told(position=41)}
    )
    fleet = fleet_of(read, NOW_MS)
    (group,) = fleet.groups
    assert (group.position, group.behind, group.reported_ms, group.peers, group.gossip) == (
        41,
        1,
        None,
        None,
        None,
    )
    assert [(job.job, job.state) for job in fleet.jobs] == [("one", "unknown"), ("two", "unknown")]
    assert fleet.gossip is None


def test_tasks_of_a_job_that_is_over_are_not_shown_from_reports_that_are_late() -> None:
    over = evolve(A, jobs=(JobReport("words", "killed", 40, 78),), position=42)
    (job,) = fleet_of(a_fleet(over, B), NOW_MS).jobs
    assert (job.state, job.tasks) == ("killed", ())


def test_of_two_groups_that_tell_jobs_the_later_one_is_believed() -> None:
    later = evolve(B, jobs=(JobReport("words", "completed", 41, 79),))
    assert [(job.job, job.state) for job in fleet_of(a_fleet(A, later), NOW_MS).jobs] == [
        ("words", "completed")
    ]


def test_many_jobs_are_shown_in_part_and_counted() -> None:
    many = tuple([JobReport(f"job-{n:03}", "completed", n, n) for n in range(JOBS_SHOWN_MAX + 20)])
    fleet = fleet_of(a_fleet(evolve(A, jobs=many, workers=())), NOW_MS)
    assert len(fleet.jobs) == JOBS_SHOWN_MAX
    assert fleet.jobs[-1].job == many[-1].job
    assert fleet.jobs_left_out == 20


@pytest.mark.parametrize(
    "data", [b"\xc1", b"junk", state(b"junk"), state(b"\xc1"), msgpack.packb([1, 4, None, 2, 9, b"d"])]
)
def test_what_cannot_be_read_is_told_and_does_no_harm(data: bytes) -> None:
    told, wrong = told_of(data, NOW_MS, None, "a")
    assert told == Told()
    assert "a" in wrong
    assert told_of(state(encode_report(A)), NOW_MS, data, "a")[0].report == A
    audit, wrong = audit_of(data)
    assert audit is None
    assert wrong


def test_nothing_published_is_nothing_wrong() -> None:
    assert told_of(None, None, None, "a") == (Told(), "")
    assert audit_of(None) == (None, "")
    assert told_of(b"", None, b"", "a") == (Told(), ""), "a znode that is being written"


def test_pulses_are_in_order_with_what_is_known_of_their_sessions() -> None:
    answer = {"owners": [["b", 5, None, 10_000], ["a", 4, 70, 9_000]]}
    assert pulses_of(answer) == (Pulse("a", 70, 9_000), Pulse("b", None, 10_000))


# -- over HTTP


def a_tenancy(server: Server, acl: Any = ANYONE) -> None:
    root = "/onyx/default"
    for path in ("/onyx", root, *(f"{root}/{name}" for name in ("log", "pulse", "jobs", "state"))):
        server.make(path, acl=acl)
    for path in ("reports", "digests"):
        server.make(f"{root}/state/{path}", acl=acl)
    for number in range(3):
        server.make(f"{root}/log/entry-{number:010}", b"entry", acl=acl)
    server.make(f"{root}/pulse/a", acl=acl)
    server.make(f"{root}/jobs/words", b"job", acl=acl)
    server.make(f"{root}/state/reports/a", state(encode_report(A)), acl=acl)
    server.make(f"{root}/state/reports/gone", state(encode_report(evolve(B, group="gone"))), acl=acl)
    server.make(f"{root}/state/digests/a", state(msgpack.packb([1, "a", 42, b"chain"])), acl=acl)
    audit = AuditReport(NOW_MS, "three servers", "1.0", 65, (RuleVerdict("S1", "votes", "holds"),))
    server.make(f"{root}/state/audit", state(encode_audit(audit)), acl=acl)


async def test_a_fleet_is_answered_with_groups_that_live_and_the_last_audit() -> None:
    server = Server()
    async with served(server) as page:
        assert (await page.get("/console/fleets"))[1] == {"fleets": [], "left_out": 0}
        a_tenancy(server)
        status, found = await page.get("/console/fleets")
        assert status == 200
        (fleet,) = found["fleets"]
        assert (fleet["tenancy"], fleet["end"], fleet["entries"]) == ("default", 3, 3)
        # the pulse of a test is no ephemeral: no session is behind it
        assert fleet["groups"] == []
        assert fleet["unreadable"] == []
        assert fleet["audit"]["verdict"] == "holds"
        assert fleet["audit"]["rules"][0]["rule"] == "S1"
        assert [job["job"] for job in fleet["jobs"]] == ["words"]


async def test_fleets_are_shown_to_those_whom_their_acls_let_see_them() -> None:
    server = Server()
    a_tenancy(server, acl=((31, "sasl", "anna"),))
    async with served(server) as page:
        assert (await page.get("/console/fleets"))[1]["code"] == "NO_AUTH"
        assert await page.sign_in(user="anna", password="tea") == 200
        (fleet,) = (await page.get("/console/fleets"))[1]["fleets"]
        assert fleet["audit"]["title"] == "three servers"
    async with served(server, reach="overview") as page:
        assert (await page.get("/console/fleets"))[0] == 403


async def test_groups_of_which_the_sessions_are_not_told_are_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zraft.server.clients.native.reads.OWNERS_MAX", 0)
    server = Server()
    a_tenancy(server)
    for number in range(GROUPS_MAX):
        server.make(f"/onyx/default/pulse/b{number:03}")
    async with served(server) as page:
        (fleet,) = (await page.get("/console/fleets"))[1]["fleets"]
        assert len(fleet["groups"]) == GROUPS_MAX
        assert fleet["groups_left_out"] == 1
        first = fleet["groups"][0]
        assert (first["group"], first["position"], first["behind"], first["busy"]) == ("a", 42, 0, 1)
        assert first["silent_ms"] is None
        assert fleet["jobs"][-1]["tasks"][0]["workers"] == [
            {"peer": "a.0", "slot": 1, "since_ms": 500, "segments": 90}
        ]


async def test_reports_that_are_too_much_together_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zraft.server.clients.native.reads.OWNERS_MAX", 0)
    server = Server()
    a_tenancy(server)
    server.make("/onyx/default/pulse/b")
    server.make("/onyx/default/state/reports/b", state(encode_report(B)))
    monkeypatch.setattr("zraft.admin.console.console.REPORTS_BYTES_MAX", len(state(encode_report(A))))
    async with served(server) as page:
        (fleet,) = (await page.get("/console/fleets"))[1]["fleets"]
        assert [group["busy"] for group in fleet["groups"]] == [1, None]
        assert fleet["unreadable"] == ["reports of 1 groups are not read, as there is too much of them"]
