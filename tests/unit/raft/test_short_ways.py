"""What the ordinary case leaves out: the short ways come to the same as the general ones behind them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.raft.network import GROUP, entries_of, lead, make_raft, membership_of
from zraft.raft.log import Log
from zraft.raft.matching import find_conflict, new_entries
from zraft.raft.messages import AppendEntries
from zraft.raft.replication import Replication
from zraft.raft.settings import RaftSettings
from zraft_core.ids import ServerId

TERMS = st.lists(st.integers(0, 2), max_size=6).map(
    lambda steps: tuple(1 + sum(steps[:n]) for n in range(len(steps)))
)


@given(st.integers(1, 5), st.integers(0, 2), st.lists(st.integers(0, 8), min_size=6), st.integers(0, 8))
def test_what_a_quorum_holds_is_found_alike_by_looking_only_above_the_commit(
    voters: int, learners: int, held: list[int], commit: int
) -> None:
    servers = range(1, voters + 1)
    others = range(voters + 1, voters + learners + 1)
    raft = make_raft(1, membership=membership_of(servers, others))
    lead(raft, [server for server in servers if server != 1])
    raft._writes.durable_index = held[0]
    for progress, match_index in zip(raft._replication.followers.values(), held[1:], strict=False):
        progress.match_index = match_index
    raft.commit_index = commit
    assert max(commit, raft._held_by_quorum()) == max(commit, raft._agreed(raft._match_of))


@given(TERMS, st.integers(0, 6), TERMS.filter(bool))
def test_an_append_that_goes_on_where_the_log_ends_conflicts_with_nothing_and_is_new(
    log_terms: tuple[int, ...], commit: int, terms: tuple[int, ...]
) -> None:
    log = Log(entries=entries_of(log_terms))
    entries = entries_of((log.last_term + term for term in terms), log.last_index + 1)
    message = AppendEntries(GROUP, entries[-1].term, log.last_index, log.last_term, 0, entries)
    assert find_conflict(log, min(commit, log.last_index), ServerId(2), message) is None
    assert new_entries(log, message) == entries


@given(
    st.lists(st.sampled_from(["append", "send", "accept", "probe", "compact", "add", "remove"]), max_size=30)
)
def test_a_flag_of_followers_is_down_only_while_it_is_true_of_none(steps: list[str]) -> None:
    log = Log(entries=entries_of((1, 1)))
    replication = Replication(GROUP, RaftSettings(), log)
    replication.lead(1, [ServerId(2), ServerId(3)])
    for now, step in enumerate(steps):
        progress = next(iter(replication.followers.values()), None)
        match step:
            case "append":
                log.append(entries_of((1,), log.last_index + 1)[0])
                replication.unsent = True
            case "send":
                replication.appends(now, 0)
            case "accept" if progress is not None:
                progress.accepted(min(progress.next_index, log.last_index), now)
            case "probe" if progress is not None:
                replication._probe_from(progress, progress.match_index + 1)
            case "compact" if log.last_index - 1 >= log.first_index:
                log.compact_to(log.last_index - 1)
                replication.may_need_snapshot = True
            case "add":
                replication.add(ServerId(4))
            case "remove":
                replication.remove(ServerId(4))
        next_indices = [progress.next_index for progress in replication.followers.values()]
        assert replication.unsent or all(index > log.last_index for index in next_indices)
        assert replication.may_need_snapshot or all(index >= log.first_index for index in next_indices)
        assert bool(replication.needing_snapshot()) == any(index < log.first_index for index in next_indices)
