"""Replicas that are equal have one digest and one chain, however they came about."""

from __future__ import annotations

from typing import Any

import attrs
import msgpack
from attrs import evolve

from onyxlog.replica.codec import encode_origin
from onyxlog.replica.commands import Gc, GroupLeave, KillJob, PrepareJoin, SubmitJob
from onyxlog.replica.digests import CHAIN_START, digest
from onyxlog.replica.replica import Parameters, Replica
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import JobScheduler
from tests.onyxlog.replica.scripts import Log, job, worker
from tests.onyxlog.replica.test_collection import overtaken
from tests.onyxlog.replica.test_jobs_in_the_log import fleet


def test_every_field_of_the_replica_is_in_its_digest() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    full, empty = log.replica, Replica()
    others: dict[str, Any] = {"streams": 7, "collected": 7, "parameters": Parameters(JobScheduler.GREEDY)}
    digests = {digest(full), digest(empty)}
    for name in attrs.fields_dict(Replica):
        now, before = getattr(full, name), getattr(empty, name)
        other = before if now != before else others.get(name, Table({"same": 1}))
        assert other != now
        change: dict[str, Any] = {name: other}
        digests.add(digest(evolve(full, **change)))
    assert len(digests) == 2 + len(attrs.fields(Replica))


def test_who_starts_at_an_origin_goes_on_with_the_same_chain() -> None:
    log = fleet("abc", workers=2)
    log.write(SubmitJob(job()), "client")
    log.write(Gc("tidy"))
    late = Log(overtaken(log), log.chain)
    for each in (log, late):
        each.write(KillJob("count", each.submitted("count")), "client")
        each.write(SubmitJob(job("next")), "client")
    assert late.chain == log.chain
    assert late.replica == log.replica
    assert digest(late.replica) == digest(log.replica)


def test_the_chain_tells_of_another_entry_that_led_to_the_same_replica() -> None:
    one, other = Log(), Log()
    one.write(KillJob("no", 0, "one reason"), "client")
    other.write(KillJob("no", 0, "another"), "client")
    assert one.replica == other.replica
    assert one.chain != other.chain != CHAIN_START


def test_origin_digest_and_chain_are_these_for_ever() -> None:
    """Peers of two versions play one log together: whoever changes one of these needs another format."""
    tables: list[list[object]] = [[] for _ in range(19)]
    replica = [["balanced", "direct", 1], -1, *tables[:6], -1, 2, *tables[6:]]
    assert msgpack.unpackb(encode_origin(Replica(), CHAIN_START))[:3] == [2, replica, bytes(16)]
    log = Log()
    log.write(worker("a", "a1", tags=("gpu",)), "a")
    log.write(PrepareJoin("a"), "a")
    log.write(GroupLeave("a"), "b")
    assert digest(log.replica).hex() == "e56e7c0a3e6758fcf21a2fbdff3a5767"
    assert log.chain.hex() == "a010856aa71bd7ff42ec29e833e88288"
