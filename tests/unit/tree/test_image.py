"""Images: the state of one moment, written while the machine goes on, and the same machine again from it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.unit.tree.histories import History, whole
from tests.unit.tree.scenario import EPHEMERAL, ONE, TWO, Scenario, create
from zraft.config.features import FEATURE_LEVEL_MAX, FeatureLevelError
from zraft.tree.children import SPLIT_AT, ManyChildren
from zraft.tree.commands import truncation
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.digest import node_hash
from zraft.tree.image.layout import ACL, END, HEAD, MEMBER, ROW, SESSION, ZNODE, record_of
from zraft.tree.image.reader import ImageReader, ImageState
from zraft.tree.image.writer import ImageWriter
from zraft.tree.image.znodes_reader import ZnodesReader
from zraft.tree.machine import Machine
from zraft.tree.node import BORN, HASH_BYTES, Znode, awake, node_form, share_of
from zraft_core.errors import Code, ProtocolError
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.txn import CREATE_TTL, FEATURE, MEMBERS

LOCAL = ((31, "ip", "127.0.0.1"),)


def asleep(machine: Machine) -> set[str]:
    """The paths at which znodes rest."""
    return {
        path for shard in machine.nodes.shards for path, placed in shard.items() if placed.__class__ is bytes
    }


def written(writer: ImageWriter, items: int = 50, bytes_max: int = 4096) -> bytes:
    pieces = []
    while piece := writer.step(items, bytes_max):
        assert len(piece) <= bytes_max
        pieces.append(piece)
    assert writer.done
    return b"".join(pieces)


def read(image: bytes, items: int = 50, block: int = 1000) -> ImageState:
    reader = ImageReader()
    for begin in range(0, len(image), block):
        reader.feed(image[begin : begin + block])
        while reader.step(items):
            pass
    return reader.finish()


def restored(image: bytes) -> Machine:
    machine = Machine([ONE])
    machine.adopt(read(image))
    return machine


@pytest.mark.parametrize("seed", range(30))
def test_restored_machine_is_the_one_of_the_beginning_and_goes_on_alike(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens while the image is written: failing multis, ends of sessions, quotas, lifetimes, truncations."""
    monkeypatch.setattr(truncation, "REMOVED_PER_ENTRY_MAX", seed % 3 + 1)
    if seed % 2:
        monkeypatch.setattr("zraft.tree.digest.PENDING_AT_POINT", 0)  # new znodes are hashed at once
    history = History(seed)
    rng, machine = history.rng, history.machine
    for _ in range(rng.randint(0, 250)):
        history.step()
        if rng.random() < 0.05:
            machine.fold_digest(rng.randint(1, 20))
    at_begin, digest = whole(machine), machine.full_digest()
    if seed % 3 == 0:
        machine.digest()
    writer = ImageWriter(machine)
    # The same history must be played to what is restored, so it is remembered from here on.
    pieces, played = [], []
    play = history.play
    state = (history.index, history.term, history.wall_time, dict(history.next))

    def remembered(*call):  # type: ignore[no-untyped-def]
        told = play(*call)
        played.append((history.term, call, told))
        return told

    history.play = remembered  # type: ignore[method-assign]
    while piece := writer.step(rng.randint(1, 4), rng.randint(1, 400)):
        pieces.append(piece)
        for _ in range(rng.randint(0, 3)):
            history.step()
        if rng.random() < 0.1:
            machine.fold_digest(rng.randint(1, 20))
    assert machine.digest() == machine.full_digest()
    assert machine.image_writer is None
    assert machine.marks.dirty_nodes.__class__ is set
    assert writer.digest == digest

    again = restored(b"".join(pieces))
    assert whole(again) == at_begin
    assert again.digest() == again.full_digest() == digest
    # The same commands again, on the restored machine: same results, events and state.
    before = whole(machine)
    history.machine, history.play = again, play  # type: ignore[method-assign]
    history.index, history.term, history.wall_time, history.next = state
    for term, call, told in played:
        history.term = term
        assert history.play(*call) == told
    assert whole(again) == before
    assert again.digest() == again.full_digest() == machine.digest()
    # And on with both, with folding and digests now here, now there.
    history.machine, history.twin = machine, again
    for _ in range(150):
        history.step()
        if rng.random() < 0.1:
            assert machine.digest() == again.digest()
    assert whole(again) == whole(machine)
    assert len(history.kinds) > 12, "the history did next to nothing"


def test_image_is_the_same_state_however_it_is_cut_and_whatever_is_folded() -> None:
    history = History(1)
    for _ in range(200):
        history.step()
    images = []
    for items, bytes_max, fold in ((1, 1, 0), (7, 64, 3), (10_000, 10**6, 10_000)):
        history.machine.fold_digest(fold)
        images.append(written(ImageWriter(history.machine), items, bytes_max))
    for image, block in zip(images, (1, 13, 10**6), strict=True):
        state = read(image, items=3, block=block)
        again = Machine()
        again.adopt(state)
        assert whole(again) == whole(history.machine)


def test_large_data_ends_a_step_by_its_bytes() -> None:
    scenario = Scenario()
    for number in range(40):
        scenario.create(f"/n{number}", b"x" * 10_000)
    writer = ImageWriter(scenario.machine)
    pieces = []
    while piece := writer.step(1_000, 15_000):
        pieces.append(piece)
        # 64 items are swept between two looks at the bytes, but shards here hold one or two.
        assert writer.backlog < 40_000
    assert len(pieces) > 25
    assert restored(b"".join(pieces)).image() == scenario.machine.image()


@pytest.mark.parametrize("count", [SPLIT_AT - 1, SPLIT_AT, SPLIT_AT + 5])
def test_large_directory_is_restored_as_one_that_grew(count: int) -> None:
    scenario = Scenario()
    scenario.create("/d")
    for first in range(0, count, 1_000):
        numbers = range(first, min(first + 1_000, count))
        scenario.multi(*(create(f"/d/n{number}") for number in numbers))
    again = restored(written(ImageWriter(scenario.machine), 5_000, 2**20))
    children = again.nodes.get("/d").children  # type: ignore[union-attr]
    assert children.__class__ is (ManyChildren if count >= SPLIT_AT else dict)
    assert whole(again) == whole(scenario.machine)
    if isinstance(children, ManyChildren):
        assert children.path_bytes == scenario.node("/d").children.path_bytes  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(8))
def test_many_znodes_at_once_are_read_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, lifetimes, ACLs, quotas and truncated directories are among them."""
    history = History(seed)
    for _ in range(300):
        history.step()
    image = written(ImageWriter(history.machine))
    at_once = restored(image)
    monkeypatch.setattr(ZnodesReader, "take_many", lambda self, records: None)
    one_by_one = restored(image)
    assert whole(at_once) == whole(one_by_one) == whole(history.machine)
    assert at_once.quotas.limited == one_by_one.quotas.limited
    assert at_once.nodes.data_bytes == one_by_one.nodes.data_bytes == history.machine.nodes.data_bytes


def test_only_what_is_not_ordinary_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario()
    for number in range(1_000):
        scenario.create(f"/n{number}", b"1", flags=EPHEMERAL if number % 2 else 0)
    image = written(ImageWriter(scenario.machine))
    taken = []
    take = ZnodesReader.take

    def noted(self: ZnodesReader, record: tuple[Any, ...], *, may_be_truncated: bool) -> int:
        taken.append(record[1])
        return take(self, record, may_be_truncated=may_be_truncated)

    monkeypatch.setattr(ZnodesReader, "take", noted)
    assert whole(restored(image)) == whole(scenario.machine)
    # Beside the root, the head and the end are none: three slices of 50 are looked at one by one.
    assert len(taken) <= 3 * 50


def test_equal_times_are_one_object_after_a_restart() -> None:
    scenario = Scenario()
    scenario.multi(*(create(f"/n{number}", acl=LOCAL) for number in range(100)))
    again = restored(written(ImageWriter(scenario.machine)))
    nodes = [again.nodes.get(f"/n{number}") for number in range(100)]
    assert len({id(time) for node in nodes if node is not None for time in (node.ctime, node.mtime)}) == 1


def test_leaves_without_an_owner_that_an_image_brings_rest_until_they_are_used() -> None:
    scenario = Scenario()
    for path in ("/a", "/a/b", "/a/c", "/d", "/e"):
        scenario.create(path, b"x" * 100)
    scenario.create("/local", acl=LOCAL)
    scenario.create("/ephemeral", flags=EPHEMERAL)
    image = written(ImageWriter(scenario.machine))
    scenario.machine.adopt(read(image, items=1))  # a slice with the head in it is looked at one by one
    machine = scenario.machine
    assert asleep(machine) - set(BORN) == {"/a/b", "/a/c", "/d", "/e"}
    assert machine.digest() == machine.full_digest()
    assert len(written(ImageWriter(machine))) == len(image)
    assert asleep(machine) - set(BORN) == {"/a/b", "/a/c", "/d", "/e"}, "a look at everything wakes nobody"
    for path in ("/a/b", "/d"):
        assert not isinstance(scenario.set_data(path, b"y"), Code)
    assert scenario.delete("/e") == Code.OK
    scenario.create("/a/c/below")
    assert asleep(machine) - set(BORN) == set()
    assert machine.digest() == machine.full_digest()


def test_what_is_made_in_bulk_rests_and_is_in_images_as_if_it_did_not() -> None:
    """More than a thousand changes between two points of the digest are bulk."""
    scenario = Scenario()
    machine = scenario.machine
    scenario.multi(*(create(f"/early-{number}", b"x") for number in range(1_100)))
    early = ImageWriter(machine)
    digests, images = [machine.full_digest()], [early.step(1, 1)]
    scenario.multi(
        *(create(f"/n{number}", b"x" * number) for number in range(50)), create("/local", acl=LOCAL)
    )
    for number in range(50, 100):
        scenario.create(f"/n{number}", b"y")
    scenario.create("/e", flags=EPHEMERAL)
    made = {f"/n{number}" for number in range(100)}
    assert asleep(machine) == made
    scenario.set_data("/n3", b"changed soon")
    scenario.delete("/n4")
    failed = scenario.multi(create("/n5/below"), create("/undone"), create("/n6"))
    assert isinstance(failed, MultiFailed)
    assert asleep(machine) == made - {"/n3", "/n4", "/n5"}
    images[0] += written(early)
    digests.append(machine.full_digest())
    late = ImageWriter(machine)
    images.append(late.step(1, 1))
    scenario.set_data("/n7", b"z")
    machine.fold_digest(30)
    images[1] += written(late)
    assert [restored(image).digest() for image in images] == [early.digest, late.digest] == digests
    assert machine.digest() == machine.full_digest()
    assert asleep(machine) == made - {f"/n{number}" for number in (3, 4, 5, 7)}


def test_quotas_count_in_a_znode_that_was_made_in_bulk() -> None:
    scenario = Scenario()
    scenario.multi(*(create(f"/a{number}") for number in range(1_100)))
    scenario.create("/zookeeper/quota/a1")
    scenario.create("/zookeeper/quota/a1/zookeeper_limits", b"count=10,bytes=100")
    scenario.create("/zookeeper/quota/a1/zookeeper_stats")
    scenario.create("/a1/b", b"xyz")
    assert scenario.node("/zookeeper/quota/a1/zookeeper_stats").data == b"count=2,bytes=3"
    assert scenario.machine.digest() == scenario.machine.full_digest()


@pytest.mark.parametrize("data", [None, b"", msgpack.packb(OPEN_ACL), msgpack.packb(OPEN_ACL) * 3])
@pytest.mark.parametrize("number", [0, 2**40, 2**63 - 1])
def test_the_record_of_what_rests_is_made_of_its_form(data: bytes | None, number: int) -> None:
    node = Znode(data, OPEN_ACL, number, number, 0)
    node.version, node.creates, node.aversion = -1, 2**31 - 1, 7
    form = node_form("/wörld/anyone", node)
    placed = share_of(form).to_bytes(HASH_BYTES, "big") + form
    record = (ZNODE, "/wörld/anyone", data, 0, *(number,) * 5, -1, 2**31 - 1, 7, 0)
    assert msgpack.unpackb(record_of(placed), use_list=False) == record
    again = awake(placed)
    assert (again.stat(), again.data, again.creates) == (node.stat(), data, node.creates)
    assert again.folded == node_hash("/wörld/anyone", node)


@pytest.mark.parametrize("at_once", [False, True])
def test_failed_multi_during_the_image_leaves_it_exact(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-26: what a multi did and undid was packed as it was before the multi, with its share of the digest."""
    if at_once:
        monkeypatch.setattr("zraft.tree.digest.PENDING_AT_POINT", 0)  # new znodes are hashed at once
    scenario = Scenario()
    machine = scenario.machine
    for path in ("/a", "/b", "/b/c", "/keep"):
        scenario.create(path, b"1")
    machine.digest()
    scenario.set_data("/a", b"marked before")
    expected, digest = machine.image(), machine.full_digest()
    writer = ImageWriter(machine)
    failing = [
        (5, "/a", b"2", -1), (2, "/b/c", -1), (2, "/b", -1), create("/b"), create("/new"), (2, "/no-such", -1),
    ]  # fmt: skip
    scenario.multi(*failing)
    scenario.multi(*failing[:-1])
    image = written(writer)
    assert writer.digest == digest
    assert restored(image).image() == expected
    assert machine.digest() == machine.full_digest()


def test_only_one_image_is_written_at_a_time_and_closing_ends_its_costs() -> None:
    scenario = Scenario()
    machine = scenario.machine
    writer = ImageWriter(machine)
    with pytest.raises(RuntimeError, match="being written already"):
        ImageWriter(machine)
    assert machine.marks.dirty_nodes.__class__ is not set
    writer.close()
    assert machine.marks.dirty_nodes.__class__ is set
    assert machine.marks.dirty_sessions.__class__ is set
    with pytest.raises(RuntimeError, match="given up"):
        writer.step(1, 1)
    scenario.create("/later")
    assert restored(written(ImageWriter(machine))).image() == machine.image()


def test_adopting_gives_up_an_image_being_written_and_keeps_what_others_hold() -> None:
    scenario = Scenario()
    scenario.create("/e", flags=EPHEMERAL)
    machine = scenario.machine
    image = written(ImageWriter(machine))
    held = (
        machine.nodes,
        machine.sessions,
        machine.events,
        machine.quotas,
        machine.nodes.shards,
        machine.origins,
    )
    writer = ImageWriter(machine)
    scenario.create("/lost")
    scenario.new_session(TWO)
    machine.behind = True
    machine.adopt(read(image))
    assert writer.closed
    assert not machine.behind, "whoever applies entries says anew whether more are waiting"
    with pytest.raises(RuntimeError, match="given up"):
        writer.step(1, 1)
    assert machine.events == []
    now = (
        machine.nodes,
        machine.sessions,
        machine.events,
        machine.quotas,
        machine.nodes.shards,
        machine.origins,
    )
    assert all(before is after for before, after in zip(held, now, strict=True))
    assert "/lost" not in machine.nodes
    # The handlers work on the new state: a session's end takes its ephemeral along.
    scenario.next[TWO] = (1, 1)
    scenario.next[ONE] = machine.rows[ONE].boot, machine.rows[ONE].seq + 1
    assert scenario.close(scenario.session) == 0
    assert "/e" not in machine.nodes
    assert machine.digest() == machine.full_digest()


def test_restored_digest_needs_no_hashing() -> None:
    scenario = Scenario()
    for number in range(50):
        scenario.create(f"/n{number}")
    again = restored(written(ImageWriter(scenario.machine)))
    assert again.undigested == 0


def test_replaced_state_is_taken_apart_in_steps() -> None:
    scenario = Scenario()
    scenario.create("/d")
    scenario.multi(*(create(f"/d/n{number}") for number in range(SPLIT_AT + 10)))
    for number in range(300):
        scenario.create(f"/e{number}", flags=EPHEMERAL)
    image = written(ImageWriter(Machine()))
    remains = scenario.machine.adopt(read(image))
    steps = 1
    while remains.step(100):
        steps += 1
    assert steps > 2 * SPLIT_AT / 100
    assert len(scenario.machine.nodes) == 4


def test_image_is_read_by_a_server_with_another_hash_seed() -> None:
    """D-5: shards are swept and filled in another order there."""
    root = Path(__file__).parents[3]
    program = (
        "import sys\n"
        "from tests.unit.tree.histories import History\n"
        "from tests.unit.tree.test_image import ImageWriter, written\n"
        "history = History(5)\n"
        "for _ in range(300): history.step()\n"
        "sys.stdout.buffer.write(written(ImageWriter(history.machine)))\n"
    )
    images = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert images[0] != images[1]
    first, second = map(restored, images)
    assert first.image() == second.image()
    assert first.digest() == second.digest()


# -- images that are none


def records(machine: Machine) -> list[list[Any]]:
    return [list(record) for record in msgpack.Unpacker(BytesIO(written(ImageWriter(machine))))]


def packed(items: list[Any]) -> bytes:
    return b"".join(map(msgpack.packb, items))


@pytest.fixture
def story() -> Machine:
    scenario = Scenario()
    scenario.create("/a", b"1", acl=((31, "ip", "10.0.0.0/8"), (1, "world", "anyone")))
    scenario.create("/b/", b"")
    scenario.create("/b", b"")
    scenario.create("/b/e", b"", flags=EPHEMERAL)
    scenario.run((CREATE_TTL, "/t", b"", None, 5, 1_000))
    scenario.by_leader((FEATURE, 2))
    scenario.by_leader((MEMBERS, True, -1, ((1, 1, "a:1"), (2, 2, "b:1"))))
    return scenario.machine


def change(kind: int, path: Any, field: int, value: Any) -> Callable[[list[Any]], None]:
    def changed(items: list[Any]) -> None:
        (item,) = (item for item in items if item[0] == kind and (path is None or item[1] == path))
        item[field] = value

    return changed


def drop(path: str) -> Callable[[list[Any]], None]:
    return lambda items: items.remove(next(item for item in items if item[0] == ZNODE and item[1] == path))


def again(kind: int) -> Callable[[list[Any]], None]:
    return lambda items: items.insert(-1, next(item for item in items if item[0] == kind))


def insert(*item: Any) -> Callable[[list[Any]], None]:
    return lambda items: items.insert(-1, list(item))


HOSTILE = [
    (change(HEAD, None, 1, 2), "format 2, this release knows 1"),
    (change(HEAD, None, 3, "1"), "head: wrong fields"),
    (change(HEAD, None, 3, -1), "head: a counter out of bounds"),
    (change(HEAD, None, 10, {"tick_time_ms": 0}), "settings out of bounds"),
    (change(HEAD, None, 10, {"no_such": 0}), "settings out of bounds"),
    (lambda items: items.pop(0), "not with its head"),
    (lambda items: items.insert(0, items[-3]), "not with its head"),
    (again(HEAD), "a second head"),
    (again(ROW), "row of server 1, .*twice"),
    (insert(ROW, 255, b"i", 1, 1, b""), "row of server 255: out of bounds"),
    (insert(ROW, 1, "i", 1, 1, b""), "row: wrong fields"),
    (insert(MEMBER, 4, True, "a:1"), "digest"),
    (insert(MEMBER, 255, True, "a:1"), "member 255: .*out of bounds"),
    (insert(MEMBER, 4, True, "no port"), "member 4: .*out of bounds"),
    (insert(MEMBER, 4, 1, "a:1"), "member: wrong fields"),
    (again(MEMBER), "member 1: it comes twice"),
    (again(SESSION), "session 0x.*twice"),
    (change(SESSION, None, 2, b"short"), "session 0x.*out of bounds"),
    (change(SESSION, None, 2, "text"), "session: wrong fields"),
    (change(SESSION, None, 4, [1, 2, 3]), "session 0x.*out of bounds"),
    (change(SESSION, None, 5, 2**62), "session 0x.*out of bounds"),
    (change(SESSION, None, 3, 1), "digest"),
    (again(ACL), "ACL 1: it comes twice"),
    (insert(ACL, 9, []), "ACL 9: expected"),
    (insert(ACL, 9, [[1, "world", b"x"]]), "ACL 9: expected"),
    (insert(ACL, "9", []), "ACL: wrong fields"),
    (change(ZNODE, "/a", 3, 77), "znode '/a': it has ACL 77"),
    (change(ZNODE, "/a", 2, "text"), "znode: wrong fields"),
    (change(ZNODE, "/a", 4, True), "znode: wrong fields"),
    (change(ZNODE, "/a", 4, 1.5), "znode: wrong fields"),
    (change(ZNODE, "/a", 4, -1), "znode '/a': a number out of bounds"),
    (change(ZNODE, "/a", 8, 2**63), "znode '/a': a number out of bounds"),
    (change(ZNODE, "/a", 9, 2**31), "znode '/a': a number out of bounds"),
    (change(ZNODE, "/a", 1, "/a/"), "this is no path"),
    (change(ZNODE, "/a", 1, "a"), "this is no path"),
    (change(ZNODE, "/a", 1, "/x/../y"), "znode '/x/..' is missing"),
    (change(ZNODE, "/a", 1, "//x"), "this is no path"),
    (change(ZNODE, "/a", 1, b"/a"), "znode: wrong fields"),
    (change(ZNODE, "/a", 2, b"2"), "digest"),
    (again(ZNODE), "znode .*twice"),
    (drop("/a"), "end record says"),
    (drop("/b"), "end record says"),
    (insert(ZNODE, "/no/child", b"", 0, *[0] * 8, 0), "end record says|is missing"),
    (change(ZNODE, "/b/e", 12, 77), "ephemeral '/b/e' belongs to session 0x4d, which is missing"),
    (change(ZNODE, "/b/e", 12, 2**63), "no number of 64 bits"),
    (change(ZNODE, "/b", 12, 77), "an ephemeral with children"),
    (change(ZNODE, "/t", 12, [1]), r"znode '/t': expected \[ttl_ms, since_ms\]"),
    (change(ZNODE, "/t", 12, [1, -1]), r"znode '/t': expected \[ttl_ms, since_ms\]"),
    (insert(ZNODE, "/x"), "expected 13 fields"),
    (insert(9, "x"), "kind 9, which this release does not know"),
    (insert("x"), r"expected \[kind"),
    (lambda items: items.append([ZNODE, "/z", b"", 0, *[0] * 8, 0]), "follows the end record: .*'/z'"),
    (lambda items: items.append(items[-1]), "follows the end record"),
    (lambda items: items.append(5), "expected"),
    (lambda items: items.pop(), "cut off"),
    (change(END, None, 3, b"x" * 16), "digest"),
    (change(END, None, 3, b"x"), "end record: expected"),
    (change(END, None, 1, 3), "holds 8 znodes and 1 sessions, its end record says 3"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), HOSTILE)
@pytest.mark.parametrize("backwards", [False, True])
def test_malformed_image_is_refused_and_the_item_named(
    story: Machine, spoil: Callable[[list[Any]], None], message: str, backwards: bool
) -> None:
    items = records(story)
    if backwards:
        # Znodes in another order, children before their parents or after.
        znodes = [item for item in items if item[0] == ZNODE]
        others = [item for item in items if item[0] != ZNODE]
        items = [*others[:-1], *sorted(znodes, key=lambda item: item[1], reverse=True), others[-1]]
    assert restored(packed(items)).digest() == story.digest()
    spoil(items)
    with pytest.raises(ProtocolError, match=message):
        read(packed(items))


def test_missing_parent_and_missing_born_znode_are_named(story: Machine) -> None:
    for path, message in (
        ("/b", "znode '/b' is missing"),
        ("/zookeeper/config", "'/zookeeper/config' is missing"),
    ):
        items = records(story)
        drop(path)(items)
        items[-1][1] -= 1
        with pytest.raises(ProtocolError, match=message):
            read(packed(items))


def test_image_cut_anywhere_is_refused(story: Machine) -> None:
    image = written(ImageWriter(story))
    for end in range(len(image)):
        with pytest.raises(ProtocolError):
            read(image[:end])
    with pytest.raises(ProtocolError, match="more bytes"):
        read(image + b"\x93")


def test_noise_is_refused_with_the_one_error(story: Machine) -> None:
    rng = random.Random(4)
    image = written(ImageWriter(story))
    refused = 0
    for _ in range(2_000):
        spoilt = bytearray(image)
        for _ in range(rng.randint(1, 3)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        try:
            read(bytes(spoilt))
        except (ProtocolError, FeatureLevelError):
            refused += 1
    assert refused > 1_950


def test_image_of_a_newer_feature_level_stops_the_server(story: Machine) -> None:
    items = records(story)
    change(HEAD, None, 2, FEATURE_LEVEL_MAX + 1)(items)
    with pytest.raises(FeatureLevelError, match="install the release"):
        read(packed(items))
