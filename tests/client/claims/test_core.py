"""What a consumer decides, against the claims themselves in memory (M-5 to M-10, and flaws 4 to 6)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.client.claims.service import GROUP, HB, LEAST, ONCE, TOPIC, World
from zraft_client.claims.messages import CommitToken
from zraft_client.claims.requests import Fetch, Submit
from zraft_core.claims.answers import Granted
from zraft_core.claims.commands import ClaimPartition, Heartbeat, Pause
from zraft_core.claims.values import Mode


def test_a_consumer_claims_and_consumes_from_where_its_group_stands() -> None:
    """M-5, M-8."""
    world = World(messages=10)
    x = world.consumer()
    world.run(200)
    assert x.process(4) == [0, 1, 2, 3]
    x.terminate(release=True)
    assert x.core.is_released
    y = world.consumer("y")
    world.run(200)
    assert y.process() == [4, 5, 6, 7, 8, 9]


def test_a_claim_is_followed_by_a_heartbeat_at_once() -> None:
    """M-5."""
    world = World()
    x = world.consumer()
    world.run(200)
    kinds = [type(one.command) for one in x.effects if isinstance(one, Submit)]
    assert kinds == [ClaimPartition, Heartbeat]


def test_heartbeats_come_between_a_quarter_and_three_quarters_of_an_interval() -> None:
    """M-10: drawn, so that many consumers do not beat together."""
    world = World()
    world.consumer()
    beats: list[int] = []
    claims = world.service.partition(TOPIC, 0).claims
    while len(beats) < 20:
        world.run(50)
        claim = claims.view(GROUP).whole
        if claim is not None and (not beats or claim.heard_ms != beats[-1]):
            beats.append(claim.heard_ms)
    gaps = [b - a for a, b in pairwise(beats)]
    assert all(HB // 4 <= gap <= 3 * HB // 4 + 50 for gap in gaps[1:])
    assert max(gaps) - min(gaps) > HB // 8


def test_consumers_share_partitions() -> None:
    world = World(partitions=8)
    world.consumer("x")
    world.consumer("y")
    world.run(5_000)
    owners = [world.live(partition)[0] for partition in range(8)]
    assert set(owners) == {"x/i", "y/i"}


def test_a_consumer_that_is_not_heard_stops_within_one_interval() -> None:
    """Flaws 5 and 6: with messages at hand, and although nobody has told it anything."""
    world = World(messages=50)
    x = world.consumer()
    world.run(200)
    assert x.process(1) == [0]
    x.cut_off = True
    world.run(HB // 2)
    assert x.process(1) == [1]
    world.run(HB // 2)
    assert x.take() == []
    assert world.live() == ["x/i"]


def test_a_consumer_that_is_heard_again_in_time_goes_on() -> None:
    world = World(messages=5)
    x = world.consumer()
    world.run(200)
    assert x.process(2) == [0, 1]
    x.cut_off = True
    world.run(3 * HB // 2)
    assert x.take() == []
    x.cut_off = False
    world.run(HB // 4)
    assert x.process() == [2, 3, 4]


def test_a_process_that_was_stopped_does_not_go_on_with_what_it_had_fetched() -> None:
    """Flaw 5: a thousand messages at hand; the answers of before the stop are there when it wakes up."""
    world = World(messages=1_000)
    x = world.consumer()
    world.run(200)
    assert x.process(10) == list(range(10))
    world.run(HB)
    x.stopped = True
    y = world.consumer("y", release_claims_if_behind=False)
    world.run(4 * HB)
    assert world.live() == ["y/i"]
    assert y.process(1) == [10]
    x.stopped = False
    assert x.core.next_message(world.now_ms) is None
    world.run(200)
    assert x.take() == []
    assert x.core.statistics().lost == 1


def test_a_dead_consumers_partition_is_claimed_after_two_intervals_not_before() -> None:
    """M-9."""
    world = World(messages=10)
    x = world.consumer()
    world.run(200)
    x.process(3)
    x.stopped = True
    world.consumer("y")
    world.run(2 * HB - 500)
    assert world.live() == ["x/i"]
    world.run(HB)
    assert world.live() == ["y/i"]


def test_what_was_committed_and_not_told_is_processed_again_and_no_more() -> None:
    """M-8: at least once; what nobody waits for is told a moment later."""
    world = World(messages=10)
    x = world.consumer()
    world.run(200)
    x.process(3)
    world.run(150)
    x.process(2)
    x.stopped = True
    y = world.consumer("y", release_claims_if_behind=False)
    world.run(4 * HB)
    assert y.process() == [3, 4, 5, 6, 7, 8, 9]


def test_a_restarted_client_goes_on_at_once() -> None:
    """M-6, FastReclaim; where the process before it had told it was."""
    world = World(partitions=3, messages=4)
    x = world.consumer("x", "one", greedy_claims=True)
    world.run(200)
    x.process(6)
    x.terminate(release=False)
    x.stopped = True
    again = world.consumer("x", "two")
    world.run(50)
    assert [world.live(partition) for partition in range(3)] == [["x/two"]] * 3
    assert len(again.process()) == 6


def test_without_fast_reclaim_a_restarted_client_waits_like_anybody() -> None:
    world = World()
    x = world.consumer("x", "one")
    world.run(200)
    x.stopped = True
    world.consumer("x", "two", fast_reclaim=False)
    world.run(HB)
    assert world.live() == ["x/one"]
    world.run(2 * HB)
    assert world.live() == ["x/two"]


def test_of_two_processes_with_one_client_id_the_later_one_keeps_the_claim() -> None:
    """Flaw 7: no tug of war, whatever an operator has done."""
    world = World(messages=10)
    one = world.consumer("x", "one")
    world.run(200)
    world.consumer("x", "two", release_claims_if_behind=False)
    world.run(4 * HB)
    assert world.live() == ["x/two"]
    assert one.core.statistics().lost == 1
    assert one.take() == []


# At most once -------------------------------------------------------------------------------------------------------


def test_a_message_is_handed_out_only_after_its_batch_was_accepted() -> None:
    """M-7."""
    world = World(messages=10)
    x = world.consumer(mode=ONCE, batch_messages=4)
    world.run(200)
    claims = world.service.partition(TOPIC, 0).claims
    for offset in range(10):
        (message,) = x.take(1)
        claim = claims.view(GROUP).whole
        assert claim is not None
        assert message.offset == offset < claim.claimed <= offset + 2 * 4


def test_a_batch_without_an_answer_is_not_handed_out_and_asked_for_again() -> None:
    """Flaw 4: whether it was carried out is not known."""
    world = World(messages=3)
    x = world.consumer(mode=ONCE)
    world.service.fail_next(carried_out=True)
    world.service.fail_next(carried_out=True)
    world.service.fail_next(carried_out=True)
    world.service.fail_next(carried_out=True)
    x.step()
    assert x.take() == []
    world.run(3_000)
    assert [message.offset for message in x.take()] == [0, 1, 2]


def test_a_successor_does_not_get_what_was_claimed_by_who_died() -> None:
    """M-7: lost rather than twice."""
    world = World(messages=10)
    x = world.consumer(mode=ONCE, batch_messages=4)
    world.run(200)
    taken = [message.offset for message in x.take(1)]
    x.stopped = True
    y = world.consumer("y", mode=ONCE)
    world.run(4 * HB)
    given = [message.offset for message in y.take()]
    assert not set(given) & set(taken)
    assert given == list(range(given[0], 10))
    # The batch that it was in, and the one claimed ahead.
    assert given[0] <= 8


def test_a_program_that_pauses_its_group_loses_nothing_at_most_once() -> None:
    """What was claimed ahead is handed out before the claim is given up."""
    world = World(messages=10)
    x = world.consumer(mode=ONCE, batch_messages=4)
    world.run(200)
    first = x.process(2)
    world.service.partition(TOPIC, 0).apply(Pause(GROUP, world.now_ms + HB, 0), world.now_ms)
    rest = []
    for _ in range(40):
        world.run(HB // 20)
        rest += x.process()
    while world.now_ms < 1_000_000 + 4 * HB:
        world.run(100)
        rest += x.process()
    assert first + rest == list(range(10))
    assert x.core.statistics().released == 1


# Options ------------------------------------------------------------------------------------------------------------


def test_maximum_claims_is_the_most() -> None:
    world = World(partitions=5)
    world.consumer(maximum_claims=2, greedy_claims=True)
    world.run(3_000)
    assert sum(bool(world.live(partition)) for partition in range(5)) == 2


def test_greedy_claims_all_at_once_others_one_at_a_time() -> None:
    greedy, modest = World(partitions=6), World(partitions=6)
    greedy.consumer(greedy_claims=True).step()
    modest.consumer(fast_reclaim=False, claim_interval_ms=10_000)
    modest.run(100)
    assert sum(bool(greedy.live(partition)) for partition in range(6)) == 6
    assert sum(bool(modest.live(partition)) for partition in range(6)) <= 1


def test_an_entire_topic_is_one_consumers() -> None:
    """ClaimEntireTopic: partition 0 is the key."""
    world = World(partitions=4, messages=2)
    consumers = [world.consumer(client, claim_entire_topic=True) for client in ("x", "y")]
    world.run(2_000)
    owner = world.live(0)
    assert [world.live(partition) for partition in range(4)] == [owner] * 4
    first = next(one for one in consumers if f"{one.core.identity.client}/i" in owner)
    first.terminate(release=True)
    first.stopped = True
    world.run(2_000)
    other = world.live(0)
    assert other != owner
    assert [world.live(partition) for partition in range(4)] == [other] * 4


def test_who_loses_the_key_gives_the_topic_up() -> None:
    world = World(partitions=3)
    world.consumer("x", claim_entire_topic=True)
    world.run(1_000)
    view = world.service.partition(TOPIC, 0).claims.view(GROUP)
    assert view.whole is not None
    # Another process of the same client takes partition 0 over.
    taken = world.service.partition(TOPIC, 0).apply(
        ClaimPartition(GROUP, "x", "other", 1, view.last_epoch, LEAST), world.now_ms
    )
    assert isinstance(taken, Granted)
    world.run(HB)
    assert [world.live(partition) for partition in (1, 2)] == [[], []]


def test_who_falls_behind_releases_for_somebody_else() -> None:
    """ReleaseClaimsIfBehind: after three beats, and it does not claim it again at once."""
    world = World(messages=100)
    x = world.consumer("x", queue_max=10_000)
    for _ in range(100):
        world.add(40)
        world.run(HB // 4)
        x.process(2)
        if not world.live():
            break
    assert world.live() == []
    assert x.core.statistics().released == 1
    world.run(HB // 2)
    assert world.live() == []
    world.consumer("y")
    world.run(500)
    assert world.live() == ["y/i"]


@pytest.mark.parametrize("options", [{"release_claims_if_behind": False}, {"claim_entire_topic": True}])
def test_who_falls_behind_may_be_told_to_stay(options: dict[str, Any]) -> None:
    world = World(messages=100)
    x = world.consumer("x", queue_max=10_000, **options)
    for _ in range(60):
        world.add(40)
        world.run(HB // 4)
        x.process(2)
    assert world.live() == ["x/i"]


def test_a_queue_is_bounded() -> None:
    """MaxMessageQueue: what is fetched and not committed, whatever the program does."""
    world = World(messages=100)
    x = world.consumer(queue_max=7)
    world.run(HB)
    assert len(x.take()) == 7
    fetched = [effect for effect in x.effects if isinstance(effect, Fetch)]
    assert {effect.count for effect in fetched} == {7}
    world.run(HB)
    assert x.take() == []


def test_commits_come_in_any_order() -> None:
    world = World(messages=6)
    x = world.consumer()
    world.run(200)
    messages = x.take()
    for position in (1, 2, 4, 5, 0):
        assert x.core.commit(messages[position].token, world.now_ms)
    targets = x.core.flush(world.now_ms)
    assert not x.core.is_flushed(targets)
    x.step()
    assert x.core.is_flushed(targets)
    assert world.service.partition(TOPIC, 0).claims.view(GROUP).start == 3


def test_a_commit_under_a_claim_that_is_gone_is_refused() -> None:
    """CommitByToken."""
    world = World(messages=2)
    x = world.consumer()
    world.run(200)
    token = x.take(1)[0].token
    assert not x.core.commit(CommitToken(TOPIC, 0, 0, token.epoch + 5), world.now_ms)
    x.terminate(release=True)
    assert not x.core.commit(token, world.now_ms)
    assert x.core.statistics().late_commits == 2


def test_a_group_that_is_paused_gives_everything_up_and_comes_back() -> None:
    world = World(partitions=2)
    world.consumer("x")
    world.run(1_000)
    for partition in range(2):
        world.service.partition(TOPIC, partition).apply(Pause(GROUP, world.now_ms + 2 * HB, 0), world.now_ms)
    world.run(HB)
    assert [world.live(partition) for partition in range(2)] == [[], []]
    world.run(2 * HB)
    assert [world.live(partition) for partition in range(2)] == [["x/i"], ["x/i"]]


def test_a_claim_that_is_granted_too_late_is_given_back() -> None:
    """Its answer was under way for so long that nobody waited any more."""
    world = World()
    x = world.consumer(request_timeout_ms=100, claim_interval_ms=600_000)
    x.core.on_time(world.now_ms)
    (look,) = x.core.take_effects()
    x.core.on_reply(look.number, x.answer(look), look, world.now_ms)
    x.core.on_time(world.now_ms + 600_000)
    (look,) = x.core.take_effects()
    x.core.on_reply(look.number, x.answer(look), look, world.now_ms + 600_000)
    (claim,) = x.core.take_effects()
    granted = x.answer(claim)
    x.core.terminate(world.now_ms + 600_000, release=True)
    x.core.on_reply(claim.number, granted, claim, world.now_ms + 600_000)
    assert world.live() == ["x/i"]
    world.now_ms += 600_000
    x.step()
    assert world.live() == []


def test_a_late_answer_to_a_claim_that_was_asked_for_again_gives_nothing_back() -> None:
    """Found by the simulation, seed 49: the claim was released, and used when the answer to the second copy came."""
    world = World(messages=5)
    x = world.consumer(request_timeout_ms=100, fast_reclaim=False)
    world.now_ms += 100
    x.core.on_time(world.now_ms)
    (look,) = x.core.take_effects()
    x.core.on_reply(look.number, x.answer(look), look, world.now_ms)
    (first,) = x.core.take_effects()
    world.now_ms += 100
    x.core.on_time(world.now_ms)
    (second,) = x.core.take_effects()
    granted = x.answer(first)
    x.core.on_reply(first.number, granted, first, world.now_ms)
    assert x.core.take_effects() == []
    x.core.on_reply(second.number, x.answer(second), second, world.now_ms)
    world.run(1_000)
    assert world.live() == ["x/i"]
    assert x.process() == [0, 1, 2, 3, 4]


def test_messages_that_retention_removed_are_not_waited_for() -> None:
    world = World(messages=20)
    x = world.consumer(queue_max=5)
    world.run(200)
    assert x.process(5) == [0, 1, 2, 3, 4]
    world.service.cut(TOPIC, 0, 20)
    world.run(HB)
    x.process()
    world.add(2)
    world.run(500)
    assert x.process()[-2:] == [20, 21]


# Ranges -------------------------------------------------------------------------------------------------------------


def test_consumers_share_one_partition_by_ranges() -> None:
    """M-9: every message once while nobody dies, by both."""
    world = World(messages=100)
    x, y = (world.consumer(client, range_messages=10, mode=LEAST) for client in ("x", "y"))
    found: dict[str, list[int]] = {"x": [], "y": []}
    for _ in range(60):
        world.run(100)
        found["x"] += x.process(4)
        found["y"] += y.process(4)
    assert sorted(found["x"] + found["y"]) == list(range(100))
    assert found["x"]
    assert found["y"]


def test_ranges_are_claimed_before_their_messages_come() -> None:
    """M-9: so that the first message waits for no claim."""
    world = World()
    x = world.consumer(range_messages=10, ranges_ahead=1)
    world.run(500)
    claims = world.service.partition(TOPIC, 0).claims.view(GROUP).claims
    assert [(claim.first, claim.upto) for claim in claims] == [(0, 10), (10, 20)]
    world.add(1)
    world.run(100)
    assert x.process() == [0]


def test_who_waits_for_messages_still_takes_what_a_dead_consumer_left() -> None:
    """Found by the simulation: everybody sat on ranges of the future, and the rest of a dead one's was nobody's."""
    world = World(messages=15)
    x = world.consumer("x", range_messages=10, maximum_claims=2)
    world.run(300)
    processed = x.process(5)
    y = world.consumer("y", range_messages=10, maximum_claims=2)
    world.run(HB)
    x.stopped = True
    found = []
    for _ in range(10):
        world.run(HB // 2)
        found += y.process()
    assert sorted(found + processed) == list(range(15))


def test_ranges_below_what_retention_kept_are_passed_over() -> None:
    world = World(messages=50)
    world.service.cut(TOPIC, 0, 45)
    claims = world.service.partition(TOPIC, 0).claims
    # The group stands at 0, from before the messages were removed.
    first = claims.apply(ClaimPartition(GROUP, "w", "i", 1, 0, LEAST), claims.position + 1, world.now_ms, 50)
    assert isinstance(first, Granted)
    world.run(3 * HB)
    x = world.consumer(range_messages=10)
    world.run(HB)
    assert x.process() == [45, 46, 47, 48, 49]
    world.run(HB)
    assert claims.view(GROUP).floor >= 45


def test_a_range_is_completed_by_its_last_commit_at_once() -> None:
    world = World(messages=10)
    x = world.consumer(range_messages=10, mode=ONCE, ranges_ahead=0)
    world.run(300)
    assert x.process() == list(range(10))
    x.step()
    assert world.service.partition(TOPIC, 0).claims.view(GROUP).floor == 10
    assert x.core.statistics().completed == 1


def test_a_release_waits_for_what_the_program_has_but_not_for_ever() -> None:
    """A pause or a slow consumer costs no message twice, unless the program is stuck."""
    world = World(messages=10)
    pause_ms = 3 * HB
    for stuck in (False, True):
        x = world.consumer("x", str(stuck), fast_reclaim=False)
        world.run(500)
        messages = x.take(2)
        partition = world.service.partition(TOPIC, 0)
        seen = partition.claims.view(GROUP, world.now_ms)
        partition.apply(Pause(GROUP, world.now_ms + pause_ms, seen.paused_at), world.now_ms)
        world.run(3 * HB // 4 + 200)
        assert x.take() == []
        assert world.live() == [f"x/{stuck}"]
        if not stuck:
            for message in messages:
                x.core.commit(message.token, world.now_ms)
        world.run(100 if not stuck else 5 * HB // 4)
        assert world.live() == []
        assert partition.claims.view(GROUP).start == 2
        x.stopped = True
        world.run(pause_ms)


@pytest.mark.parametrize("mode", [LEAST, ONCE])
def test_a_program_that_no_longer_iterates_gives_the_partition_up(mode: Mode) -> None:
    """Its health says so: with messages at hand it commits none."""
    world = World(messages=10)
    world.consumer("x", mode=mode)
    world.run(5 * HB)
    assert world.service.partition(TOPIC, 0).claims.view(GROUP).last is not None


def test_a_flush_does_not_wait_for_the_next_interval_when_a_heartbeat_is_under_way() -> None:
    world = World(messages=3)
    x = world.consumer()
    world.run(200)
    messages = x.take(2)
    x.core.commit(messages[0].token, world.now_ms)
    x.core.flush(world.now_ms)
    (under_way,) = [effect for effect in x.core.take_effects() if isinstance(effect, Submit)]
    x.core.commit(messages[1].token, world.now_ms)
    targets = x.core.flush(world.now_ms)
    assert x.core.take_effects() == []
    x.core.on_reply(under_way.number, x.answer(under_way), under_way, world.now_ms)
    assert not x.core.is_flushed(targets)
    x.step()
    assert x.core.is_flushed(targets)
