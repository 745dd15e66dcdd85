"""S11: sequential znodes are numbered once each, in log order, and lists show exactly those that exist. Pure."""

from __future__ import annotations

from typing import Final

from onyxlog.audits.rules.check import Rule
from onyxlog.audits.rules.client_records import of_all_clients
from zraft.checkers.sequences import check_lists, check_sequences

RULE: Final = "S11"

SEQUENTIAL_ZNODES: Final = Rule(
    id=RULE,
    title="Sequential znodes",
    claim="numbers of sequential znodes grow in log order, each is given once, and lists of children are complete",
    checks=(
        of_all_clients(
            RULE, "numbers grow and are given once", "one path per create, in order of zxids", check_sequences
        ),
        of_all_clients(
            RULE, "lists show what is there", "all that was made up to its zxid and not deleted", check_lists
        ),
    ),
)
