"""The tables that audits read, by name. Row types are plain values: nothing here needs Spark or Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onyxlog.audits.tables.claims import CLAIMS
from onyxlog.audits.tables.commands import COMMANDS
from onyxlog.audits.tables.deliveries import DELIVERIES
from onyxlog.audits.tables.entries import ENTRIES
from onyxlog.audits.tables.events import EVENTS
from onyxlog.audits.tables.files import FILES
from onyxlog.audits.tables.gossip import GOSSIP, LOG_READS
from onyxlog.audits.tables.hard_states import HARD_STATES
from onyxlog.audits.tables.histories import HISTORIES
from onyxlog.audits.tables.members import MEMBERS
from onyxlog.audits.tables.multicast import MULTICAST
from onyxlog.audits.tables.onyx_entries import ONYX_ENTRIES
from onyxlog.audits.tables.replica_digests import REPLICA_DIGESTS
from onyxlog.audits.tables.snapshots import SNAPSHOTS
from onyxlog.audits.tables.table import Table
from onyxlog.audits.tables.truncations import TRUNCATIONS

TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        *(ENTRIES, COMMANDS, HARD_STATES, TRUNCATIONS, MEMBERS, SNAPSHOTS, DELIVERIES, MULTICAST, CLAIMS),
        *(EVENTS, REPLICA_DIGESTS, ONYX_ENTRIES, GOSSIP, LOG_READS, HISTORIES, FILES),
    )
}
