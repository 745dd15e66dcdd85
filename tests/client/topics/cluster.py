"""A cluster with topics in the test's own loop: partitions, leaders, claims and the connection's side as they ship, no Raft.

What is committed is applied at once, by all servers; who leads is what the test says. Servers are ports that can be stopped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from tests.client.fake import FakeCluster, FakeConnection, Fault, KeptSession, Refused, _stop_listening
from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_RECORDS
from zraft.server.clients.audit import Denial
from zraft.server.clients.native.topics import ConnectionTopics, read_topics
from zraft.topics.leader import PartitionLeader
from zraft.topics.leader_settings import LeaderSettings
from zraft.topics.partition import Partition
from zraft.topics.registry import Registry
from zraft.topics.registry_leader import RegistryLeader
from zraft.topics.service import Consumers, Fetched, Offset, TopicClient, TopicRefusal
from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.node import Znode, table_at_birth
from zraft.tree.topic_acls import TopicAcls
from zraft_core.claims.commands import ClaimCommand
from zraft_core.claims.expiry import ClaimExpiry
from zraft_core.claims.state import Claims
from zraft_core.errors import Code
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.records import check_batch
from zraft_core.topics.codec import decode_registry, encode_message
from zraft_core.topics.commands import Batch, PartitionCommand, Seek
from zraft_core.topics.message import Delivery
from zraft_core.topics.messages import GroupMessage, Need, Reply, StartRequest
from zraft_core.topics.registry_commands import CloseProducer, CreateGroup, RegistryCommand
from zraft_core.topics.registry_values import Result
from zraft_core.topics.stamps import Stamp
from zraft_core.wire.native.answers import encode_result
from zraft_core.wire.native.partition_requests import SubscribeProducer
from zraft_core.wire.native.requests import decode_request
from zraft_core.wire.native.results import Member
from zraft_core.wire.native.topic_requests import register_command
from zraft_core.znodes.acl import OPEN_ACL, Acl, Ids

TICK_S = 0.01
HEARTBEAT_MS = 1_000
SETTINGS = LeaderSettings(resend_ticks=2, resend_ticks_max=8, floor_ticks=2, advance_ticks=1, report_ticks=2)
DIRECT = frozenset(
    ("produce", "fetch", "need", "claim", "claims", "seek", "offset", "offset_at", "consumers")
)


class Group:
    """One partition of a topic and who leads it."""

    def __init__(self, cluster: TopicCluster, group: GroupId, leader: int, *, born: bool) -> None:
        self.cluster = cluster
        self.group = group
        self.leads: int | None = leader
        self.preferred = leader
        self.partition = Partition(group, cluster.registry.view(), born=born)
        self.leader = PartitionLeader(self.partition, SETTINGS)
        self.claims = Claims(HEARTBEAT_MS)
        self.expiry = ClaimExpiry()
        self.round = 0
        self.position = 1
        self.deliveries: list[Delivery] = []
        self.times: list[int] = []
        """Deliveries happened at these times, in ms."""
        self.first = 0
        self.owners: dict[int, tuple[TopicClient, int]] = {}
        self.waiting: list[tuple[FakeService, TopicClient, int, int, int, asyncio.TimerHandle]] = []
        self.silent = False
        """The leader takes everything and says nothing: its quorum is gone."""
        self.left: set[int] = set()
        """Servers that the group has left: who has read everything there is sent elsewhere."""
        self.behind: dict[int, int] = {}
        """Followers that lag, with the offset at which their replica ends."""

    def move(self, *gone: int, leader: int) -> None:
        """The group leaves these servers."""
        self.left |= set(gone)
        self.preferred = leader
        self.lead(leader)

    def log(self, commands: tuple[PartitionCommand, ...]) -> None:
        before = self.partition.frontier()
        applied = self.partition.apply(Batch(self.cluster.now_ms, commands), self.position)
        self.position += len(commands)
        self.deliveries += applied.delivered
        self.times += [self.cluster.now_ms] * len(applied.delivered)
        self.leader.on_applied(applied)
        if applied.delivered or self.partition.frontier() > before:
            for one in list(self.waiting):
                one[0].answer_poll(self, one)

    def claim(self, command: ClaimCommand) -> Any:
        self.position += 1
        return self.claims.apply(command, self.position, self.cluster.now_ms, self.partition.next_offset)

    def flush(self) -> None:
        if self.leads is None or self.silent:
            return
        while True:
            output = self.leader.take()
            for to, messages in output.messages.items():
                self.cluster.carry(to, messages)
            for reply in output.replies:
                self.reply(reply)
            for report in output.reports:
                command = self.cluster.registry_leader.on_report(report)
                if command is not None:
                    self.cluster.log_command(command)
            if not output.commands:
                return
            self.log(output.commands)

    def reply(self, reply: Reply) -> None:
        if reply.mid.producer == 0:
            command = self.cluster.registry_leader.on_reply(reply)
            if command is not None:
                self.cluster.log_command(command)
        elif reply.mid.producer in self.owners:
            client, number = self.owners[reply.mid.producer]
            client.on_reply(number, reply)

    def tick(self) -> None:
        if self.leads is None or self.silent:
            return
        self.leader.tick()
        self.expiry.advance(10)
        self.expiry.wants_round(self.claims, self.round + 1)
        self.round += 1
        for command in self.expiry.proposals(self.claims, self.round):
            self.claim(command)
        self.flush()

    def lead(self, server: int | None) -> None:
        """Another server leads: what only the last one knew is forgotten."""
        self.leads = server
        self.owners.clear()
        self.leader = PartitionLeader(self.partition, SETTINGS)


class FakeService:
    """The partitions as one server's connections see them."""

    def __init__(self, cluster: TopicCluster, server: int) -> None:
        self.cluster = cluster
        self.server = server

    def _leading(self, client: TopicClient, id: int, group: GroupId) -> Group | None:
        found = self.cluster.groups.get(group)
        if found is None:
            client.on_refused(id, TopicRefusal("no_group", group))
        elif found.leads != self.server:
            leader = None if found.leads is None else ServerId(found.leads)
            client.on_refused(id, TopicRefusal("not_leader", group, leader))
        elif found.silent:
            return None
        else:
            return found
        return None

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        found = self._leading(client, id, group)
        for request in requests if found is not None else ():
            assert found is not None
            self.cluster.starts += 1
            if request.message.records:
                assert self.cluster.features >= LEVEL_OF_RECORDS
                assert check_batch(request.message.payload).count == request.message.records
            found.owners[request.message.mid.producer] = (client, id)
            found.leader.on_start(request)
            self.cluster.later(found)

    def fetch(
        self, client: TopicClient, id: int, group: GroupId, offset: int, bytes_max: int, wait_ms: int
    ) -> None:
        found = self.cluster.groups.get(group)
        self.cluster.fetches += 1
        if found is None:
            client.on_refused(id, TopicRefusal("no_group", group))
        elif offset < found.first:
            client.on_refused(id, TopicRefusal("gone", group, first=found.first))
        elif self.server in found.left and offset >= found.partition.next_offset:
            client.on_refused(id, TopicRefusal("no_group", group, ServerId(found.leads or 0) or None))
        elif not wait_ms and offset > self.end(found):
            if self._leading(client, id, group) is not None:
                client.on_fetched(id, self.read(found, offset, bytes_max))
        elif not wait_ms or offset < self.end(found):
            client.on_fetched(id, self.read(found, offset, bytes_max))
        else:
            loop = asyncio.get_running_loop()
            frontier = found.partition.frontier()
            entry = (self, client, id, offset, bytes_max)
            timer = loop.call_later(wait_ms / 1000, lambda: self._expire(found, id, client))
            found.waiting.append((*entry, timer))
            assert frontier == found.partition.frontier()

    def _expire(self, group: Group, id: int, client: TopicClient) -> None:
        for one in list(group.waiting):
            if one[1] is client and one[2] == id:
                self.answer_poll(group, one)

    def answer_poll(self, group: Group, one: Any) -> None:
        _, client, id, offset, bytes_max, timer = one
        timer.cancel()
        group.waiting.remove(one)
        client.on_fetched(id, self.read(group, offset, bytes_max))

    def end(self, group: Group) -> int:
        return group.behind.get(self.server, group.partition.next_offset)

    def read(self, group: Group, offset: int, bytes_max: int) -> Fetched:
        found: list[tuple[int, Stamp, bytes]] = []
        size = 0
        end = following = self.end(group)
        begin = bisect_left(group.deliveries, offset + 1, key=lambda one: one.end)
        for delivery in group.deliveries[begin : begin + 1000]:
            if delivery.end > end:
                break
            packed = encode_message(delivery.message)
            size += len(packed)
            if found and size > bytes_max:
                following = delivery.offset
                break
            found.append((delivery.offset, delivery.stamp, packed))
            following = delivery.end
        following = following if found else min(offset, end)
        frontier = group.partition.frontier() if following >= end else found[-1][1]
        return Fetched(group.group, found, group.first, following, end, frontier)

    def need(self, group: GroupId, time: int) -> None:
        self.cluster.needs += 1
        self.cluster.carry(group, [Need(time)])

    def claim(self, client: TopicClient, id: int, group: GroupId, command: ClaimCommand) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            client.on_claim(id, found.claim(command))

    def claims_view(self, client: TopicClient, id: int, group: GroupId, name: str) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            client.on_claim(id, found.claims.view(name, self.cluster.now_ms))

    def seek(self, client: TopicClient, id: int, group: GroupId, consumer: bytes, offset: int | None) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            found.log((Seek(consumer, offset),))
            client.on_offset(id, Offset(group, found.partition.offsets.get(consumer)))

    def offset_of(self, client: TopicClient, id: int, group: GroupId, consumer: bytes) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            client.on_offset(id, Offset(group, found.partition.offsets.get(consumer)))

    def offset_at(self, client: TopicClient, id: int, group: GroupId, time_ms: int) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            each = zip(found.times, found.deliveries, strict=True)
            late = (one.offset for time, one in each if time >= time_ms and one.offset >= found.first)
            client.on_offset(id, Offset(group, next(late, found.partition.next_offset)))

    def consumers(self, client: TopicClient, id: int, group: GroupId) -> None:
        found = self._leading(client, id, group)
        if found is not None:
            rows: list[tuple[bytes, int, tuple[str, ...] | None]] = [
                (name, offset, None) for name, offset in sorted(found.partition.offsets.items())
            ]
            for one in found.claims.groups():
                view = found.claims.view(one.name)
                owners = tuple(claim.owner.client for claim in view.claims)
                rows.append((one.name.encode(), view.start, owners))
            client.on_consumers(id, Consumers(group, tuple(rows), found.partition.next_offset))

    def drop(self, client: TopicClient) -> None:
        for group in self.cluster.groups.values():
            group.owners = {p: owner for p, owner in group.owners.items() if owner[0] is not client}
            for one in [one for one in group.waiting if one[1] is client]:
                one[5].cancel()
                group.waiting.remove(one)


class _Services:
    """What `ConnectionTopics` asks of the server of its connection."""

    def __init__(self, connection: TopicConnection) -> None:
        self._connection = connection
        self.turn = SimpleNamespace(taken=0)  # no turn is ever full here

    @property
    def topics(self) -> FakeService | None:
        return self._connection.cluster.services[self._connection.server]

    def on_topics(self, connection: TopicConnection) -> None:
        connection.push_soon()

    def on_denied(self, denial: Denial, *, first: bool) -> None:
        """Nobody counts here, and there is no audit log."""


class TopicConnection(FakeConnection):
    """One client of one server; its topics are handled by what ships."""

    cluster: TopicCluster

    def __init__(self, cluster: TopicCluster, server: int) -> None:
        super().__init__(cluster)
        self.server = server
        self.clients = _Services(self)
        self.ids: Ids = (("ip", "127.0.0.1"),)
        self.last_operation = ""
        self.topics = ConnectionTopics(self)  # type: ignore[arg-type]
        self._due = False
        self.due_bytes = 0
        self.wants_flush = False  # what is answered is written at once
        self.closing = False

    # what ConnectionTopics needs of a connection

    @property
    def machine(self) -> Any:
        cluster = self.cluster
        return SimpleNamespace(
            last_zxid=cluster.zxid,
            sessions=cluster.sessions,
            registry=cluster.placed(),
            feature_level=cluster.features,
            topic_acls=cluster.topic_acls,
        )

    @property
    def view(self) -> Any:
        return SimpleNamespace(members=self.cluster.addresses_of_servers)

    def refuse(self, number: int, code: Code, why: str, *, retriable: bool | None = None) -> None:
        answer = self.cluster.refusal(code, why)
        answer["retriable"] = code is Code.CONNECTION_LOSS if retriable is None else retriable
        self.send({"id": number, **answer})

    def answer(self, number: int, result: object = None) -> None:
        self.push(encode_result(number, self.cluster.zxid, result))

    def push(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def push_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._push_all)

    def _push_all(self) -> None:
        self._due = False
        if self._transport is not None:
            self.topics.push()

    # requests

    def _forget(self) -> None:
        super()._forget()
        self.topics.release()

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = self.last_operation = message["type"]
        if kind == "subscribe" and "producer" not in message:
            super()._take(message)
        elif kind in DIRECT or kind == "subscribe":
            self.cluster.requests.append(message)
            fault = self.cluster.fault_of(kind)
            if fault is Fault.CUT_BEFORE:
                self.cut()
            elif fault is not Fault.SILENCE:
                request: Any = decode_request(message)
                if isinstance(request, SubscribeProducer):
                    assert not self.topics.has(request.id)
                self.topics.act(request)
                if fault is Fault.CUT_AFTER:
                    self.cut()
        elif kind == "unsubscribe" and self.topics.unsubscribe(message["subscription"]):
            self.answer(message["id"])
        elif kind == "topics":
            self.cluster.requests.append(message)
            if self.cluster.fault_of(kind) is Fault.CUT_BEFORE:
                self.cut()
                return
            query: Any = decode_request(message)
            self.push(read_topics(self, message["id"], query.query.digest))  # type: ignore[arg-type]
        else:
            super()._take(message)


class TopicCluster(FakeCluster):
    """`servers` 1 to n; group k is led by server k mod n at first."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.registry_leader = RegistryLeader(self.registry)
        self.groups: dict[GroupId, Group] = {}
        self.services: dict[int, FakeService] = {}
        self.now_ms = 0
        self.starts = self.fetches = self.needs = 0
        self.features = FEATURE_LEVEL_MAX
        self.hold_groups = False
        """Topics get no partitions while it is set."""
        self._nodes = table_at_birth()
        self.topic_acls = TopicAcls(self._nodes)
        self._flushing: dict[Group, None] = {}
        self._ticker: asyncio.Task[None] | None = None

    async def listen(self, count: int = 1) -> None:
        loop = asyncio.get_running_loop()
        for number in range(1, count + 1):
            await self._listen(number, 0)
        self._ticker = loop.create_task(self._tick())

    async def _listen(self, number: int, port: int) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: TopicConnection(self, number), "127.0.0.1", port)
        if number <= len(self.servers):
            self.servers[number - 1] = server
        else:
            self.servers.append(server)
            self.addresses.append(server.sockets[0].getsockname()[:2])
            self.services[number] = FakeService(self, number)

    async def close(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        await super().close()
        for group in self.groups.values():
            for one in group.waiting:
                one[5].cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.now_ms += 10
            self.keep_topics()
            for group in list(self.groups.values()):
                group.tick()

    def addresses_of_servers(self) -> list[Member]:
        return [
            Member(number, f"{host}:{port}", "voter", leader=number == 1)
            for number, (host, port) in enumerate(self.addresses, 1)
        ]

    # -- faults

    async def stop(self, number: int, *, hand_over: bool = True) -> None:
        """A server is gone; by default others lead what it led."""
        await _stop_listening(self.servers[number - 1])
        for connection in list(self.connections):
            if isinstance(connection, TopicConnection) and connection.server == number:
                connection.cut()
        others = [one for one in self.services if one != number]
        for place, group in enumerate(g for g in self.groups.values() if g.leads == number):
            group.lead(others[place % len(others)] if hand_over else None)

    async def start(self, number: int) -> None:
        await self._listen(number, self.addresses[number - 1][1])

    def expire(self, session: int) -> None:
        super().expire(session)
        for producer in sorted(self.registry.owned.get(session, ())):
            self.log_command(CloseProducer(producer))

    # -- group 0

    def acl(self, path: str, acl: Acl) -> None:
        """Give the znode of a topic or a consumer this ACL, on all servers at once."""
        for one in (path, path.rpartition("/")[0]):
            if one not in self._nodes:
                self._nodes.insert(one, Znode(b"", OPEN_ACL, 0, 0, 0))
        node = self._nodes.get(path)
        assert node is not None
        node.acl = acl
        self.topic_acls.begin(in_force=True)

    def log_command(self, command: RegistryCommand) -> Result:
        return self.registry.apply(command, self.next_zxid())

    def command(self, message: Mapping[str, Any], session: int) -> dict[str, Any]:
        if message["type"].endswith(("_topic", "_producer")):
            write: Any = decode_request(message)
            blob = write.command[1]
            if message["type"] == "register_producer":
                blob = register_command(session)[1]
            result = self.registry.apply(decode_registry(blob), self.zxid)
            if result.refusal is not None:
                code = outcome_of(write.command, result, self.zxid, self.position)[2]
                raise Refused(Code(code), result.refusal.value)
            return {"created": result.created}
        return super().command(message, session)

    def keep_topics(self) -> None:
        """What group 0's leader does: partitions, changes, views."""
        if not self.hold_groups:
            for topic in list(self.registry.topics.values()):
                while (
                    len(self.registry.topics[topic.topic].partitions)
                    + len(self.registry.topics[topic.topic].adding)
                    < topic.wanted
                ):
                    self._found(topic.topic)
        for gone in [group for group in self.groups if group not in self.registry.groups]:
            del self.groups[gone]
        for group, update in self.registry_leader.views():
            self.carry(group, [update])
        for group, request in self.registry_leader.changes():
            self.groups[group].leader.on_start(request)
            self.later(self.groups[group])

    def _found(self, topic: int) -> None:
        created = self.log_command(create_group(topic)).created
        assert created is not None
        group = GroupId(created)
        born = self.registry.groups[group].born
        leader = 1 + len(self.groups) % len(self.services)
        self.groups[group] = Group(self, group, leader, born=born)

    def placed(self) -> Any:
        """The registry with everything on all servers, where group 0's leader would place it."""
        registry = self.registry
        return SimpleNamespace(
            position=registry.position,
            epoch=registry.epoch,
            topics=registry.topics,
            deleting=registry.deleting,
            settings=registry.settings,
            producers=registry.producers,
            groups={
                group: SimpleNamespace(
                    group=group,
                    topic=record.topic,
                    preferred=self.groups[group].preferred,
                    wanted=[
                        (server, b"") for server in self.services if server not in self.groups[group].left
                    ],
                )
                for group, record in registry.groups.items()
                if group in self.groups
            },
        )

    # -- between groups

    def carry(self, to: GroupId, messages: list[GroupMessage]) -> None:
        group = self.groups.get(to)
        if group is None or group.leads is None or group.silent:
            return
        for message in messages:
            group.leader.on_message(message)
        self.later(group)

    def later(self, group: Group) -> None:
        """The group's turn ends with that of the loop."""
        if not self._flushing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._flushing[group] = None

    def _flush(self) -> None:
        flushing, self._flushing = self._flushing, {}
        for group in flushing:
            group.flush()

    def group(self, topic: str, partition: int = 0) -> Group:
        found = self.registry.topics[self.registry.names[topic]]
        return self.groups[found.partitions[partition]]


def create_group(topic: int) -> RegistryCommand:
    """The next partition of a topic, on nobody's disk in particular."""
    return CreateGroup(topic, ((ServerId(1), Instance(bytes(16))),))


@asynccontextmanager
async def topic_cluster(servers: int = 3) -> AsyncIterator[TopicCluster]:
    cluster = TopicCluster()
    await cluster.listen(servers)
    try:
        yield cluster
    finally:
        await cluster.close()


__all__ = ["Fault", "KeptSession", "TopicCluster", "topic_cluster"]
