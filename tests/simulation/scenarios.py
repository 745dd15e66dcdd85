"""Every system that is simulated: how a run of it is made, which bugs are planted, and what runs must have seen."""

from __future__ import annotations

from typing import Any, Final

import click

from tests.simulation import known_seeds
from tests.simulation.claims.planted import PLANTS as CLAIMS_PLANTS
from tests.simulation.claims.simulation import Report as ClaimsReport
from tests.simulation.claims.simulation import Simulation as ClaimsSimulation
from tests.simulation.client_checks import KINDS
from tests.simulation.connections import ConnectedSimulation
from tests.simulation.directed_schedules import DIRECTED
from tests.simulation.groups.planted import PLANTS as GROUPS_PLANTS
from tests.simulation.groups.simulation import GroupsReport, GroupsSimulation
from tests.simulation.hosting_simulation import HostingRun, HostingStatistics
from tests.simulation.multicast.directed import DIRECTED as MULTICAST_DIRECTED
from tests.simulation.multicast.planted import PLANTS as MULTICAST_PLANTS
from tests.simulation.multicast.profile import Size
from tests.simulation.multicast.world import Summary, World
from tests.simulation.natives import KINDS as NATIVE_KINDS
from tests.simulation.partitions.planted import PLANTS as PARTITIONS_PLANTS
from tests.simulation.partitions.simulation import PartitionsReport, PartitionsSimulation
from tests.simulation.planted import PLANTS
from tests.simulation.planted_hosting import PLANTS as HOSTING_PLANTS
from tests.simulation.profile import Mode
from tests.simulation.scenario import TRACE, Enough, Scenario
from tests.simulation.simulation import Report, Simulation
from tests.simulation.topics import KINDS as TOPIC_KINDS


def _cluster(
    seed: int, *, mode: Mode | str | None = None, trace: bool = False, connections: bool = False
) -> Simulation:
    kind = ConnectedSimulation if connections else Simulation
    return kind(seed, mode=None if mode is None else Mode(mode), trace=trace)


PLANTED_GROUPS: Final = 25
"""Of a seed that looks for a planted bug: fewer groups show the same and cost less."""

CLUSTER: Final = Scenario[Report](
    name="cluster",
    about="Simulate clusters, clients and faults.",
    make=_cluster,
    plants=PLANTS,
    planted_seeds_max=300,
    planted_options=lambda plant: {"mode": plant.mode},
    directed=DIRECTED,
    known=known_seeds.CLUSTER,
    figures=(
        *(
            "commands",
            "replies",
            "writes",
            "events",
            "entries",
            "leader_changes",
            "faults",
            "snapshots_taken",
        ),
        *("snapshots_adopted", "configurations", "sessions_expired", "turns", "settled"),
    ),
    seen=lambda report: report.operations,
    enough=Enough(
        each={"commands": 200, "leader_changes": 1, "faults": 3},
        means={
            "commands": 500,
            "leader_changes": 3,
            "faults": 5,
            "snapshots_taken": 10,
            "snapshots_adopted": 1.5,
            "configurations": 2.5,
            "settled": 100,
        },
        means_from_seeds=20,
        kinds=(*KINDS, *NATIVE_KINDS, *TOPIC_KINDS),
        kinds_from_seeds=100,
    ),
    options=(
        click.Option(["--mode"], type=click.Choice([mode.value for mode in Mode]), help="Prevailing faults."),
        click.Option(
            ["--connections"], is_flag=True, help="Servers have connections to each other, and these end."
        ),
        TRACE,
    ),
)

GROUPS: Final = Scenario[GroupsReport](
    name="groups",
    about="Simulate servers that host many groups, with faults, and check every promise for every group.",
    make=GroupsSimulation,
    plants=GROUPS_PLANTS,
    planted_seeds_max=40,
    planted_options=lambda plant: {"groups": PLANTED_GROUPS},
    figures=(
        *("groups", "created", "removed", "entries", "leaders", "faults", "moves", "exchanges", "snapshots"),
        *(
            "installed",
            "recoveries",
            "reads",
            "covered",
            "idle_datagrams",
            "idle_datagrams_max",
            "idle_turns",
        ),
    ),
    seen=lambda report: report.kinds,
    options=(click.Option(["--groups"], type=click.IntRange(1), help="Instead of what the seed rolls."),),
)

PARTITIONS: Final = Scenario[PartitionsReport](
    name="partitions",
    about="Simulate servers with partitions, with faults, and check the promises of multicast and of the disks.",
    make=PartitionsSimulation,
    plants=PARTITIONS_PLANTS,
    planted_seeds_max=20,
    known=known_seeds.PARTITIONS,
    figures=(
        *(
            "servers",
            "groups",
            "removed",
            "entries",
            "messages",
            "deliveries",
            "several",
            "leaders",
            "faults",
        ),
        *("snapshots", "installed", "recoveries", "claims", "idle_datagrams", "idle_datagrams_max"),
    ),
)

HOSTING: Final = Scenario[HostingStatistics](
    name="hosting",
    about="Simulate whole servers with partitions of topics, whose power fails at any moment.",
    make=HostingRun,
    plants=HOSTING_PLANTS,
    planted_seeds_max=24,
    known=known_seeds.HOSTING,
    figures=("decided", "deliveries", "crashes", "snapshots", "installed", "refused", "compared"),
)

MULTICAST: Final = Scenario[Summary](
    name="multicast",
    about="Let groups multicast under an adversary, and check what was promised.",
    make=World,
    plants=MULTICAST_PLANTS,
    planted_seeds_max=3_000,
    planted_options=lambda plant: {"size": Size.SMALL, "mode": plant.mode},
    directed=MULTICAST_DIRECTED,
    figures=("messages", "deliveries", "commands", "strikes", "proposals"),
    seen=lambda summary: summary.faults.items(),
    enough=Enough(means={"messages": 200, "strikes": 5}, means_from_seeds=100),
    options=(TRACE,),
)

CLAIMS: Final = Scenario[ClaimsReport](
    name="claims",
    about="Simulate consumers that claim partitions, under faults, and check every promise.",
    make=ClaimsSimulation,
    plants=CLAIMS_PLANTS,
    planted_seeds_max=60,
    known=known_seeds.CLAIMS,
    figures=("partitions", "consumers", "messages", "faults", "leader_changes"),
    seen=lambda report: report.seen,
    enough=Enough(
        means={"messages": 200, "faults": 5, "leader_changes": 2},
        means_from_seeds=10,
        kinds=(
            *("granted", "grants repeated", "handed out", "handed out again", "Commit", "CommitRanges"),
            *("CommitBatch", "Heartbeat", "durable commits", "Release", "Pause", "Heartbeat refused FENCED"),
            *("CommitBatch refused FENCED", "ClaimPartition refused MOVED", "ended by expiry"),
            *(
                "ended by release",
                "ended by takeover",
                "ended by completion",
                "snapshots",
                "digests compared",
            ),
        ),
        kinds_from_seeds=10,
    ),
    options=(
        click.Option(["--partitions"], type=click.IntRange(1, 256), help="Instead of what the seed says."),
        click.Option(
            ["--consumers"],
            type=click.IntRange(1, 256),
            help="Of all groups together, instead of what the seed says.",
        ),
    ),
)

SCENARIOS: Final[dict[str, Scenario[Any]]] = {
    one.name: one for one in (CLUSTER, GROUPS, PARTITIONS, HOSTING, MULTICAST, CLAIMS)
}
