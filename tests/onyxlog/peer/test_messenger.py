"""Groups that get their entries by gossip: as they do by the log alone, and with few reads of it (O-21, O-25, O-26)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from attrs import define, field

from onyxlog.gossip.buffer import Ready
from onyxlog.gossip.codec import DatagramError
from onyxlog.gossip.messenger import Messenger
from onyxlog.gossip.settings import GossipSettings, settings_for
from onyxlog.gossip.spreading import Mode
from onyxlog.peer.entry_source import EntrySource
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.gossip.link import open_udp
from onyxlog.peer.gossip.seal import SALT_BYTES, Sealer
from onyxlog.peer.gossip.source import LOOK_AGAIN_S, GossipSource, gossip_sources
from onyxlog.peer.group import PeerGroup
from onyxlog.peer.log.port import LogPort
from onyxlog.replica.commands import BackpressureOff, Entry, Gc, GroupLeave, KillJob, Record
from onyxlog.replica.replica import JoinMode
from tests.event_loops import EVERY_LOOP
from tests.onyxlog.peer.fleets import Scene, seeded_ids
from tests.onyxlog.simulation.datagrams import Network
from tests.onyxlog.simulation.memory_log import MemoryPort
from zraft.transport.keys import ClusterKey
from zraft_client.errors import ClientError
from zraft_core.address import Address
from zraft_core.errors import Code

pytestmark = pytest.mark.loops("virtual")

KEY = ClusterKey(bytes(range(32)))
OTHER = ClusterKey(bytes(range(1, 33)))


@define
class Gossiping:
    """A scene whose groups gossip over a network in memory."""

    scene: Scene
    network: Network = field(factory=Network)
    settings: GossipSettings = field(factory=GossipSettings)
    sources: list[GossipSource] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        dice = iter(range(10_000))
        make = gossip_sources(
            self.network.open,
            (KEY,),
            "tests",
            self.settings,
            new_dice=lambda: random.Random(next(dice)),
            entropy=random.Random(1).randbytes,
        )

        async def kept(port: LogPort, group: str) -> EntrySource:
            source = await make(port, group)
            assert isinstance(source, GossipSource)
            self.sources.append(source)
            return source

        self.scene.fleet = Fleet(
            self.scene.log.opened,
            self.scene._make_runner,
            make_source=kept,
            rng=random.Random(7),
            new_id=seeded_ids(self.scene.seed),
        )

    def note(self, group: PeerGroup) -> None:
        """An entry that changes nothing, by this group."""
        incarnation = group.incarnation
        assert incarnation is not None
        incarnation.append(BackpressureOff("nobody"))

    def is_sentinel(self, group: PeerGroup) -> bool:
        """Whether the log pushes its entries to this group."""
        (source,) = [source for source in self.sources if source._group == group.id]
        return source._messenger is not None and source._messenger._tailing

    def gossiped(self) -> int:
        return sum(source.counters.applied["gossip"] for source in self.sources)

    def read(self) -> int:
        """Entries that the log gave, by reads or pushes."""
        return sum(source.counters.read_entries + source.counters.tailed_entries for source in self.sources)


async def note_all(world: Gossiping, groups: list[PeerGroup], count: int, pause_s: float = 0.05) -> None:
    for number in range(count):
        world.note(groups[number % len(groups)])
        await asyncio.sleep(pause_s)


@pytest.mark.parametrize("mode", list(Mode))
async def test_groups_join_and_agree_whatever_way_events_spread(mode: Mode) -> None:
    world = Gossiping(Scene(JoinMode.DIRECT), settings=settings_for(mode))
    groups = world.scene.start(9)
    await world.scene.settled()
    await note_all(world, groups, 30)
    replica = await world.scene.settled()
    assert len(replica.groups) == 9
    assert world.scene.log.end >= 9 + 30
    await world.scene.fleet.stop()


@pytest.mark.parametrize("seed", [8, 9])
async def test_a_group_that_left_reads_no_further(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these ids entries wait behind a group's own leave: it was given the first of them for ever."""
    given: Counter[tuple[str, int]] = Counter()
    read = GossipSource._read

    def counted(source: GossipSource, messenger: Messenger, ready: Ready) -> Entry | None:
        given[source._group, ready.event.position] += 1
        assert given[source._group, ready.event.position] == 1, "or it goes on for ever"
        return read(source, messenger, ready)

    monkeypatch.setattr(GossipSource, "_read", counted)

    world = Gossiping(Scene(JoinMode.DIRECT, seed=seed), settings=settings_for(Mode.VISITED_STREAMS))
    groups = world.scene.start(9)
    await world.scene.settled()
    await note_all(world, groups, 30)
    await world.scene.settled()
    await world.scene.fleet.stop()
    left = {
        entry.command.group
        for entry in world.scene.log.slice(0, world.scene.log.end)
        if isinstance(entry.command, GroupLeave)
    }
    assert len(left) == 9
    assert set(given.values()) == {1}, "an entry was given more than once"


async def test_joining_by_the_ring_works_over_gossip_too() -> None:
    world = Gossiping(Scene(JoinMode.RING))
    world.scene.start(7)
    replica = await world.scene.settled()
    assert len(replica.pairs) == 7
    await world.scene.fleet.stop()


async def test_in_the_calm_entries_come_by_gossip_and_the_log_is_read_for_one_sentinel() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(21)
    await world.scene.settled()
    before, end = world.read(), world.scene.log.end
    reads = sum(source.counters.reads.total() for source in world.sources)
    await note_all(world, groups, 100)
    await world.scene.settled()
    entries = world.scene.log.end - end
    assert entries == 100
    assert world.read() - before == entries
    assert sum(source.counters.reads.total() for source in world.sources) == reads
    assert sum(source.refused for source in world.sources) == 0
    await world.scene.fleet.stop()


@pytest.mark.parametrize("seed", range(3))
async def test_loss_doubles_and_flipped_bits_change_nothing_but_how_entries_come(seed: int) -> None:
    network = Network(random.Random(seed), loss=0.1, doubled=0.1, flipped=0.05, delay_s=(0.001, 0.05))
    world = Gossiping(Scene(JoinMode.DIRECT), network)
    groups = world.scene.start(9)
    await world.scene.settled()
    await note_all(world, groups, 60)
    await world.scene.settled()
    assert sum(source.refused for source in world.sources) > 10
    assert sum(source.counters.applied["peer"] for source in world.sources) > 0
    assert [group.incarnations for group in groups] == [1] * 9
    await world.scene.fleet.stop()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sentinel", [False, True])
async def test_a_will_and_a_clients_entry_reach_everybody_though_no_group_wrote_them(
    seed: int, sentinel: bool
) -> None:
    """Of a group that the log has lost, while its process runs and reaches the others: any, or the sentinel."""
    world = Gossiping(Scene(JoinMode.DIRECT, seed=seed))
    groups = world.scene.start(9)
    await world.scene.settled()
    gone = random.Random(seed).choice([group for group in groups if world.is_sentinel(group) == sentinel])
    port = world.scene.port(gone)
    world.scene.log.hold(port)
    world.scene.log.expire(port)
    world.scene.fleet.groups.remove(gone)
    client = world.scene.log.open()
    await client.append(Record(KillJob("none", 0), "client"))
    # Nobody pushes or tells then: the others look by themselves, after so long at the latest since they were told.
    await asyncio.sleep(1.5 * world.settings.poll_ms_max / 1000 + 1 if sentinel else 1)
    present = [group.incarnation for group in world.scene.fleet.groups]
    assert {one.core.version for one in present if one is not None} == {world.scene.log.end - 1}
    assert len(present[0].core.replica.groups) == 8  # type: ignore[union-attr]
    gone.start().cancel()
    await world.scene.fleet.stop()


@pytest.mark.parametrize("mode", [Mode.POOL, Mode.PLUMTREE])
async def test_an_entry_that_no_datagram_holds_is_read_from_the_log_soon_and_others_after_it_come_by_gossip(
    mode: Mode,
) -> None:
    world = Gossiping(Scene(JoinMode.DIRECT), settings=settings_for(mode))
    groups = world.scene.start(9)
    await world.scene.settled()
    before = world.gossiped()
    writer = next(group for group in groups if not world.is_sentinel(group)).incarnation
    assert writer is not None
    writer.append(BackpressureOff("x" * 70_000))
    # Nothing comes after it that would show that it is there. Waiting for it, asking two peers, and the log's answer.
    settings = world.settings
    await asyncio.sleep(1.5 * (settings.gap_ms + settings.repair_attempts * settings.repair_ms) / 1000 + 0.1)
    assert {one.core.version for one in world.scene.present()} == {world.scene.log.end - 1}
    assert sum(source.counters.reads["gap"] for source in world.sources) == 9 - 1 - 1, (
        "not writer, not sentinel"
    )
    await note_all(world, groups, 9)
    await asyncio.sleep(1)
    assert {one.core.version for one in world.scene.present()} == {world.scene.log.end - 1}
    assert sum(source.counters.reads["gap"] for source in world.sources) == 7
    assert world.gossiped() - before >= 9 * 7
    await world.scene.fleet.stop()


async def test_a_partitioned_half_goes_on_by_the_log_and_nobody_begins_again() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(8)
    await world.scene.settled()
    world.network.connected = lambda a, b: a.port % 2 == b.port % 2
    await note_all(world, groups, 40)
    await world.scene.settled()
    world.network.connected = lambda a, b: True
    await note_all(world, groups, 10)
    await world.scene.settled()
    assert [group.incarnations for group in groups] == [1] * 8
    await world.scene.fleet.stop()


async def test_garbage_collection_overtakes_a_group_that_hears_nothing() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT), settings=GossipSettings(history=64))
    groups = world.scene.start(6)
    await world.scene.settled()
    deaf = world.sources[4]
    deaf_address = deaf._link.address  # type: ignore[union-attr]
    world.network.connected = lambda a, b: deaf_address not in (a, b)
    port = world.scene.port(groups[4])
    if not deaf._messenger._tailing:  # type: ignore[union-attr]
        world.scene.log.hold(port)
    others = [group for group in groups if group is not groups[4]]
    await note_all(world, others, 100, 0.01)
    incarnation = others[0].incarnation
    assert incarnation is not None
    incarnation.append(GroupLeave("nobody"))
    incarnation.append(Gc(incarnation.group))
    await asyncio.sleep(1)
    world.scene.log.release(port)
    world.network.connected = lambda a, b: True
    await world.scene.settled()
    assert groups[4].incarnations == 1
    await world.scene.fleet.stop()


async def test_a_group_jumps_to_an_origin_that_is_one_entry_ahead() -> None:
    """The origin was taken for the next entry, which nobody had brought, and the incarnation ended by that."""
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(6)
    await world.scene.settled()
    deaf, source = next(
        pair for pair in zip(groups, world.sources, strict=True) if not world.is_sentinel(pair[0])
    )
    deaf_address = source._link.address  # type: ignore[union-attr]
    world.network.connected = lambda a, b: deaf_address not in (a, b)
    behind = deaf.incarnation
    collecting = next(group for group in groups if group is not deaf).incarnation
    assert behind is not None
    assert collecting is not None
    before = behind.core.version
    collecting.append(Gc(collecting.group))
    await asyncio.sleep(0.1)
    assert (behind.core.version, world.scene.log.first) == (before, before + 2)
    await world.scene.settled()
    assert source.counters.begun_again == 1
    # It goes on from there, by what others tell it, too.
    world.network.connected = lambda a, b: True
    await note_all(world, groups, 12)
    await world.scene.settled()
    assert deaf.incarnations == 1
    await world.scene.fleet.stop()


async def test_datagrams_that_were_recorded_change_nothing_when_they_are_played_again() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT), Network(record=[]))
    groups = world.scene.start(5)
    await world.scene.settled()
    await note_all(world, groups, 10)
    await world.scene.settled()
    record, world.network.record = world.network.record, None
    await asyncio.sleep(1)  # what was recorded has arrived
    refused = sum(source.refused for source in world.sources)
    assert record
    for sender, receiver, datagram in record:
        world.network.deliver(sender, receiver, datagram)
    assert sum(source.refused for source in world.sources) - refused == len(record)
    await world.scene.settled()
    await world.scene.fleet.stop()


async def test_addresses_of_groups_that_left_go_from_the_directory() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(3)
    await world.scene.settled()
    assert len([name for name in world.scene.log.states if name.startswith("gossip/")]) == 3
    await groups[0].stop()
    assert len([name for name in world.scene.log.states if name.startswith("gossip/")]) == 2
    world.scene.fleet.groups.remove(groups[0])
    await world.scene.fleet.stop()


async def test_a_group_that_cannot_say_where_it_is_leaves_no_socket_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a port of its own the next incarnation could not open it."""
    world = Gossiping(Scene(JoinMode.DIRECT))
    put, failures = MemoryPort.put_state, iter(range(3))

    async def lost(port: MemoryPort, path: str, data: bytes) -> None:
        if next(failures, None) is not None:
            raise ClientError("the connection was lost", Code.CONNECTION_LOSS)
        await put(port, path, data)

    monkeypatch.setattr(MemoryPort, "put_state", lost)
    (group,) = world.scene.start(1)
    await world.scene.settled()
    assert (group.incarnations, world.network.ends) == (4, 1)
    await world.scene.fleet.stop()
    assert world.network.ends == 0


async def test_a_group_that_cannot_look_for_addresses_for_now_looks_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(3)
    await world.scene.settled()
    port, asked = world.scene.port(groups[1]), 0

    async def lost(path: str) -> tuple[str, ...]:
        nonlocal asked
        asked += 1
        raise ClientError("the connection was lost", Code.CONNECTION_LOSS)

    (source,) = [source for source in world.sources if source._group == groups[1].id]
    world.network.connected = lambda a, b: False
    source._addresses.clear()
    with monkeypatch.context() as patch:
        patch.setattr(port, "states", lost)
        await note_all(world, groups[1:2], 10, 2 * LOOK_AGAIN_S / 10)
    assert asked == 2
    await note_all(world, groups[1:2], 10, 2 * LOOK_AGAIN_S / 10)
    assert len(source._addresses) == 3
    assert groups[1].incarnations == 1
    await world.scene.fleet.stop()


@pytest.mark.loops(*EVERY_LOOP)
async def test_groups_gossip_over_udp() -> None:
    scene = Scene(JoinMode.DIRECT)
    world = Gossiping(scene)
    make = gossip_sources(open_udp(Address("127.0.0.1", 0)), (KEY,), "tests", GossipSettings())
    scene.fleet = Fleet(scene.log.opened, scene._make_runner, make_source=make)
    groups = scene.start(8)
    await scene.fleet.joined()
    await note_all(world, groups, 20, 0.005)
    for _ in range(400):
        present = [group.incarnation for group in groups]
        if all(one is not None and one.core.version == scene.log.end - 1 for one in present):
            break
        await asyncio.sleep(0.025)
    assert len({one.core.chain for one in present if one is not None}) == 1
    assert scene.log.end >= 28
    await scene.fleet.stop()


def sealer(
    me: str = "a", keys: tuple[ClusterKey, ...] | None = (KEY,), tenancy: str = "t", salt: int = 1
) -> Sealer:
    return Sealer(keys, tenancy, me, bytes((salt,)) * SALT_BYTES)


def test_a_sealed_datagram_opens_for_everybody_with_the_key_once_and_says_who_sent_it() -> None:
    one, other = sealer("b", salt=2), sealer("c", salt=3)
    datagram = sealer("a").seal(b"message")
    assert b"message" not in datagram
    for receiver in (one, other):
        assert receiver.open(datagram) == ("a", b"message")
        with pytest.raises(DatagramError, match="came before"):
            receiver.open(datagram)


def test_every_changed_byte_of_a_sealed_datagram_is_noticed() -> None:
    datagram = sealer("a").seal(b"message")
    for place in range(len(datagram)):
        broken = bytearray(datagram)
        broken[place] ^= 1
        with pytest.raises(DatagramError):
            sealer("b", salt=2).open(bytes(broken))
    for length in range(len(datagram)):
        with pytest.raises(DatagramError):
            sealer("b", salt=2).open(datagram[:length])


def test_another_key_or_tenancy_or_none_does_not_open_it() -> None:
    datagram = sealer("a").seal(b"message")
    for receiver in (sealer("b", (OTHER,)), sealer("b", tenancy="u"), sealer("b", None)):
        with pytest.raises(DatagramError):
            receiver.open(datagram)
    with pytest.raises(DatagramError):
        sealer("b").open(sealer("a", None).seal(b"message"))


def test_a_key_can_be_changed_while_groups_talk() -> None:
    assert sealer("b", (KEY, OTHER), salt=2).open(sealer("a", (OTHER, KEY)).seal(b"m")) == ("a", b"m")


def test_no_two_datagrams_of_a_run_share_a_nonce_and_no_two_runs_a_key() -> None:
    group = sealer("a")
    assert group.seal(b"same") != group.seal(b"same")
    assert sealer("a", salt=1).seal(b"same")[30:] != sealer("a", salt=2).seal(b"same")[30:]
