"""The table of znodes."""

from __future__ import annotations

from zraft.tree.node import SHARD_COUNT, NodeTable, Znode
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.stat import Stat


def test_table_finds_what_was_inserted_and_forgets_what_was_removed() -> None:
    table = NodeTable()
    nodes = {f"/n{number}": Znode(None, OPEN_ACL, number, 0, 0) for number in range(1000)}
    for path, node in nodes.items():
        table.insert(path, node)
    assert len(table) == 1000
    assert dict(table.items()) == nodes
    assert table.remove("/n7") is nodes["/n7"]
    assert (table.get("/n7"), "/n7" in table, len(table)) == (None, False, 999)
    assert table.get("/n8") is nodes["/n8"]


def test_no_shard_grows_large_enough_to_stall() -> None:
    """One dict of all paths would be copied whole when it grows."""
    table = NodeTable()
    for number in range(100 * SHARD_COUNT):
        table.insert(f"/services/database/member-{number:010d}", Znode(None, OPEN_ACL, 1, 0, 0))
    assert max(map(len, table.shards)) < 200


def test_stat_is_a_copy_and_its_fields_are_in_the_order_of_the_wire() -> None:
    node = Znode(b"abc", OPEN_ACL, 5, 7, 9)
    stat = node.stat()
    assert Stat._fields == (
        "czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "ephemeral_owner",
        "data_length", "num_children", "pzxid",
    )  # fmt: skip
    assert stat == (5, 5, 7, 7, 0, 0, 0, 9, 3, 0, 5)
    node.children = {"/n/x": None}
    node.version = 4
    assert (stat.version, stat.num_children) == (0, 0)
    assert all(getattr(node, field) == value for field, value in node.stat()._asdict().items())
