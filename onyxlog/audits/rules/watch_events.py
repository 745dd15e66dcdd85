"""S12: watches tell every change once, in order, and before the client can see it otherwise. Pure."""

from __future__ import annotations

from typing import Final

from onyxlog.audits.rules.check import Rule
from onyxlog.audits.rules.client_records import of_all_clients
from zraft.checkers.watches import check_watches

RULE: Final = "S12"

WATCH_EVENTS: Final = Rule(
    id=RULE,
    title="Watches",
    claim="each watch fires once, at the first change after it was set, before any answer that shows the change",
    checks=(
        of_all_clients(
            RULE,
            "an event for each change, before it shows",
            "each change told once, in order of zxids",
            check_watches,
        ),
    ),
)
