"""One of each command, answer and view; and a state with everything in it."""

from __future__ import annotations

from tests.unit.claims.scene import HB, LEAST, ONCE, G, Scene
from zraft_core.claims import answers as a
from zraft_core.claims import commands as c
from zraft_core.claims.values import Claim, Owner

CLAIM = Claim(7, Owner("x", "i1"), 3, ONCE, 10, 20, False, HB, 100, 200, 4, 12, 15)

COMMANDS: tuple[c.ClaimCommand, ...] = (
    c.ClaimPartition(G, "x", "i1", 1, 0, ONCE, 5, True),
    c.ClaimMessages(G, "x", "i1", 2, 9, LEAST, 10, 20, 33, 1),
    c.Heartbeat(G, 7, 4, 12),
    c.Commit(G, 7, 13),
    c.CommitBatch(G, 7, 15),
    c.Release(G, 7, 15),
    c.Expire(G, 7, 200),
    c.Pause(G, 5_000, 0),
    c.Forget(G, 7),
    c.Configure(1_000),
    c.CommitRanges(G, 7, 12, ((13, 14), (16, 20))),
    c.ClaimPartition(G, "x", "i1", 1, 0, ONCE, 5, True, 3_000),
    c.ClaimMessages(G, "x", "i1", 2, 9, LEAST, 10, 20, 33, 1, 3_000),
)
ANSWERS: tuple[a.ClaimAnswer, ...] = (
    a.Granted(CLAIM, ((12, 14),), 300),
    a.Accepted(7, 12, 15, False, True, 300),
    a.Refused(a.Reason.FENCED, CLAIM, 9, 300),
    a.Refused(a.Reason.FULL, None, 0, 300),
)


def rich_scene() -> Scene:
    """Claims of every kind, islands, a pause, something unconfirmed."""
    scene = Scene()
    scene.now_ms = 1_000
    whole = scene.owner("w", ONCE)
    scene.accepted(scene.batch(whole, 40))
    scene.accepted(scene.release(whole, 30))
    done = scene.granted(scene.claiming_range("a", 60, 70))
    scene.accepted(scene.commit(done, 70))
    scene.granted(scene.claiming_range("a", 80, 90, ONCE))
    scene.granted(scene.claiming_range("b", 1_100, 1_200))
    scene.apply(c.ClaimPartition("audit", "y", "i", 1, 0, LEAST, 17, True))
    scene.accepted(c.Pause(G, 9_000, 0))
    scene.apply(c.Configure(1_000))
    return scene
