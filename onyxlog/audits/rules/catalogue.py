"""All rules, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import evolve

from onyxlog.audits.errors import AuditError
from onyxlog.audits.rules.acyclicity import ACYCLICITY
from onyxlog.audits.rules.check import Check, Rule
from onyxlog.audits.rules.claim_intervals import CLAIM_INTERVALS
from onyxlog.audits.rules.commit_rule import COMMIT_RULE
from onyxlog.audits.rules.configurations import CONFIGURATIONS
from onyxlog.audits.rules.election_safety import ELECTION_SAFETY
from onyxlog.audits.rules.exactly_once import EXACTLY_ONCE
from onyxlog.audits.rules.gossip_completeness import GOSSIP_COMPLETENESS
from onyxlog.audits.rules.leader_completeness import LEADER_COMPLETENESS
from onyxlog.audits.rules.linearizability import LINEARIZABILITY
from onyxlog.audits.rules.log_integrity import LOG_INTEGRITY
from onyxlog.audits.rules.log_matching import LOG_MATCHING
from onyxlog.audits.rules.merged_delivery import MERGED_DELIVERY
from onyxlog.audits.rules.multicast_integrity import MULTICAST_INTEGRITY
from onyxlog.audits.rules.onyx_invariants import ONYX_INVARIANTS
from onyxlog.audits.rules.partition_logs import PARTITION_LOGS
from onyxlog.audits.rules.published_figures import PUBLISHED_FIGURES
from onyxlog.audits.rules.published_gossip import GOSSIP_FIGURES
from onyxlog.audits.rules.published_multicast import MULTICAST_FIGURES
from onyxlog.audits.rules.reexecution import EPHEMERALS, NUMBERS, ONCE_ONLY, STATES, Reexecution
from onyxlog.audits.rules.replica_digests import REPLICA_DIGESTS
from onyxlog.audits.rules.sequential_znodes import SEQUENTIAL_ZNODES
from onyxlog.audits.rules.session_ends import SESSION_ENDS
from onyxlog.audits.rules.stamps import STAMPS
from onyxlog.audits.rules.state_machine_safety import STATE_MACHINE_SAFETY
from onyxlog.audits.rules.watch_events import WATCH_EVENTS
from onyxlog.audits.snapshot_states import state_of

_REEXECUTION: Final = Reexecution(state_of)
_MORE: Final[dict[str, tuple[Check, ...]]] = {
    "S6": (_REEXECUTION.check(STATES),),
    "S8": (_REEXECUTION.check(ONCE_ONLY),),
    "S10": (_REEXECUTION.check(EPHEMERALS),),
    "S11": (_REEXECUTION.check(NUMBERS),),
    "S22": (MULTICAST_FIGURES, GOSSIP_FIGURES),
}
"""Promises that the log shows only when it is executed again, and figures of other benchmarks."""


def _with_more(rule: Rule) -> Rule:
    return evolve(rule, checks=(*rule.checks, *_MORE.get(rule.id, ())))


RULES: Final[dict[str, Rule]] = {
    rule.id: _with_more(rule)
    for rule in (
        *(
            ELECTION_SAFETY,
            LOG_MATCHING,
            LEADER_COMPLETENESS,
            STATE_MACHINE_SAFETY,
            COMMIT_RULE,
            LOG_INTEGRITY,
        ),
        *(CONFIGURATIONS, EXACTLY_ONCE, LINEARIZABILITY, SESSION_ENDS, SEQUENTIAL_ZNODES, WATCH_EVENTS),
        *(REPLICA_DIGESTS, ONYX_INVARIANTS, GOSSIP_COMPLETENESS, STAMPS, ACYCLICITY, MULTICAST_INTEGRITY),
        *(MERGED_DELIVERY, PARTITION_LOGS, CLAIM_INTERVALS, PUBLISHED_FIGURES),
    )
}


def rules_named(names: Iterable[str]) -> list[Rule]:
    """Return rules by id, such as "S4", or a range of them, "S1-S7", in the catalogue's order; all if there is no name.

    Raises:
        AuditError: there is no such rule.
    """
    wanted: set[str] = set()
    for name in names:
        first, dash, last = name.upper().partition("-")
        ids = list(RULES)
        if first not in RULES or (dash and last not in RULES):
            raise AuditError(f"--rules {name}: expected S1 to S{len(RULES)}, or a range such as S1-S7")
        wanted.update(ids[ids.index(first) : ids.index(last if dash else first) + 1])
    return [rule for rule in RULES.values() if not wanted or rule.id in wanted]
