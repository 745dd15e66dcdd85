"""The command `zraft doctor`: looks, judges, and prints what it found and what to do."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from attrs import asdict

from zraft.cli.client_options import Identity, connects, shows_identity
from zraft.cli.listings.listing import Listing
from zraft.cli.listings.listing_options import OUTPUTS, output_option, print_listing
from zraft_core.address import Address, parse_address
from zraft_core.errors import ZraftError

if TYPE_CHECKING:
    from zraft.cli.doctor.findings import Finding

EXIT_ERRORS: Final = 1
EXIT_WARNINGS: Final = 4


@click.command(short_help="Say what is open, unencrypted, close to a limit or about to expire.")
@connects
@shows_identity
@click.option(
    "--admin",
    metavar="HOST:PORT,…",
    help="The servers' admin HTTP servers, which tell settings, disks and clocks; found for those of `zraft dev`.",
)
@click.option(
    "--config",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also look at this configuration file, and on this machine at the files that it names; may be repeated.",
)
@click.option("--offline", is_flag=True, help="Look at the files of --config only, and ask no server.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=3.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long one question to a server may take; they are asked at the same time.",
)
@output_option(*OUTPUTS)
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
def doctor(
    connect: str,
    identity: Identity,
    admin: str | None,
    files: tuple[Path, ...],
    offline: bool,
    timeout: float,
    output: str,
    as_json: bool,
) -> None:
    """Say what is open, unencrypted, close to a limit or about to expire in a cluster, and what to do about it.

    \b
        zraft doctor                                                      # servers of `zraft dev`
        zraft doctor --connect zk1:2181,zk2:2181,zk3:2181 --admin zk1:8080,zk2:8080,zk3:8080
        zraft doctor --offline --config /etc/zraft/zraft.toml             # before a server starts

    It only looks. Each finding says what was found, why it matters and what to do. Run it on a server's machine with
    --config, too: who may read keys, and where data are, is seen there only. JSON has one object per finding.

    \b
    Exit code:
        0  nothing was found, or only notes
        1  errors were found, or there is no server to look at
        2  the command line is wrong
        4  warnings were found, and no errors
    """
    from zraft.cli.doctor.exposure_rules import EXPOSURE_RULES
    from zraft.cli.doctor.findings import judged
    from zraft.cli.doctor.health_rules import HEALTH_RULES
    from zraft.cli.doctor.looking import look

    if offline and not files:
        raise click.UsageError("--offline: expected --config FILE with it, there is nothing else to look at")
    servers: Sequence[Address] = []
    admins: Sequence[Address] = []
    if not offline:
        servers, admins = _whom(connect, admin)
    sights = look(servers, admins, files, identity, timeout_s=timeout, guessed=admin is None)
    if servers and all(server.silent for server in sights.servers) and not files:
        raise ZraftError(
            "no server answers: " + "; ".join(dict.fromkeys(server.silent for server in sights.servers))
        )
    found = judged(sights, (*HEALTH_RULES, *EXPOSURE_RULES))
    print_listing(listing_of(found, sights.unseen), as_json=as_json or output == "json")
    sys.exit(exit_code(found))


def _whom(connect: str, admin: str | None) -> tuple[Sequence[Address], Sequence[Address]]:
    """Return the servers and their admin servers; those of a running `zraft dev` are known."""
    from zraft.cli.dev_clusters import notes
    from zraft.cli.doctor.looking import admin_of_dev
    from zraft.cli.operator_options import servers_and_cluster

    source = click.get_current_context().get_parameter_source("connect")
    addresses = [parse_address(part, "--connect") for part in connect.split(",")]
    chosen = source is not click.core.ParameterSource.DEFAULT
    servers, cluster = servers_and_cluster(addresses, notes(os.environ), chosen=chosen)
    if admin is not None:
        return servers, [parse_address(part, "--admin") for part in admin.split(",")]
    from zraft.cli.dev import ADMIN_PORT_OFFSET

    return servers, [] if cluster is None else admin_of_dev(servers, ADMIN_PORT_OFFSET)


def exit_code(found: Sequence[Finding]) -> int:
    """Return the exit code for these findings."""
    from zraft.cli.doctor.findings import Severity

    worst = max((one.severity for one in found), default=Severity.NOTE)
    return {Severity.ERROR: EXIT_ERRORS, Severity.WARNING: EXIT_WARNINGS}.get(worst, 0)


def listing_of(found: Sequence[Finding], unseen: Sequence[str]) -> Listing:
    """Return what is printed: a paragraph for each finding, what could not be seen, and how many there are."""
    import textwrap

    values = tuple({**asdict(one), "severity": one.severity.name.lower()} for one in found)
    parts = []
    for one in found:
        parts.append(f"{one.severity.name}  {one.where}  [{one.check}]")
        for label, text in (("found", one.found), ("why", one.why), ("do", one.do)):
            parts += textwrap.wrap(
                text,
                WIDTH,
                initial_indent=f"  {label + ':':<7}",
                subsequent_indent=" " * 9,
                break_on_hyphens=False,
                break_long_words=False,
            )
        parts.append("")
    if unseen:
        parts += ["Not looked at:", *(f"  {text}" for text in unseen), ""]
    counts = Counter(one.severity.name.lower() for one in found)
    parts.append(", ".join(f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}" for name in NAMES))
    return Listing(values, tuple(parts))


WIDTH: Final = 80
NAMES: Final = ("error", "warning", "note")
