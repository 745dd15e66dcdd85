"""Znodes that go away by themselves."""

from __future__ import annotations

from tests.traps.ensemble import REAP_MS, Ensemble
from tests.traps.protocol import DELETED, NO_NODE, OK, create, create_ttl, delete, exists, set_data

TTL_MS = 1_000
SOON_MS = 2 * REAP_MS + 50
"""A round of the leader and a commit."""


def test_ttl_counts_from_the_last_change_of_data_and_only_while_there_are_no_children(
    ensemble: Ensemble,
) -> None:
    """Trap 39: setData renews a time to live; children keep the znode, and what they do renews nothing."""
    client = ensemble.connect(ensemble.wait_leader())
    paths = ("/idle", "/set", "/parent", "/visited")

    def there() -> list[str]:
        return [path for path in paths if ensemble.one(client, exists(path)).err == OK]

    def wait(ms: int) -> None:
        ensemble.pass_alive(ms, client)

    began = ensemble.now_ms
    assert [a.err for a in ensemble.ask(client, *[create_ttl(path, TTL_MS) for path in paths])] == [OK] * 4
    ensemble.ask(client, create("/parent/child"), exists("/idle", watch=True))
    wait(TTL_MS - 300)
    ensemble.ask(client, set_data("/set"), create("/visited/child"), delete("/visited/child"))
    wait(began + TTL_MS - 50 - ensemble.now_ms)
    assert there() == list(paths), "none is due yet"
    client.take()
    wait(50 + SOON_MS)
    assert (DELETED, "/idle") in client.events(), "watches are told, as of any deletion"
    assert there() == ["/set", "/parent"], "a child that came and went renewed nothing"
    wait(TTL_MS)
    assert there() == ["/parent"], "its time is long over, but it has a child"
    ensemble.ask(client, delete("/parent/child"))
    wait(SOON_MS)
    assert there() == [], "once empty it goes with the next round"
    assert ensemble.one(client, exists("/parent")).err == NO_NODE
