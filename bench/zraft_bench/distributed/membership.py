"""Changes of the cluster under test by the head, through the operators' command `zraft member`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve, frozen

from zraft_bench.cluster import server_environment, zraft_command
from zraft_bench.distributed.board import Board, BoardError
from zraft_bench.distributed.messages import Membership, Restart, ServerClaim
from zraft_bench.processes import ServerError

HEAD: Final = 1
"""The number of the head's own server."""

VOTING_TIMEOUT_S: Final = 120.0
RETRY_S: Final = 0.3


@frozen(kw_only=True)
class Cluster:
    """Values that the head needs to add servers: its server's address, the key file, and all settings.

    `tells_key`: the key is a throw-away one that other servers get from the board; otherwise their operators
    have it.
    """

    address: str
    key: Path
    tells_key: bool = True
    settings: tuple[str, ...] = ()
    addresses: dict[int, str]

    @property
    def hosts(self) -> str:
        """The servers' addresses, separated by commas."""
        return ",".join(self.addresses[n] for n in sorted(self.addresses))

    @property
    def listed(self) -> str:
        """The servers as `--cluster` takes them."""
        return ",".join(f"{n}={self.addresses[n]}" for n in sorted(self.addresses))


async def _member(cluster: Cluster, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *zraft_command("member", *arguments, "--connect", cluster.hosts, "--key", str(cluster.key)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=server_environment(),
    )
    output, complaints = await process.communicate()
    if process.returncode != 0:
        raise ServerError(
            f"zraft member {' '.join(arguments)}: {complaints.decode(errors='replace').strip()}"
        )
    return output.decode()


def voters_of(listed: str) -> set[int]:
    """Return servers that vote, by the answer of `zraft member list --json`."""
    found: dict[str, Any] = json.loads(listed)
    return {one["server"] for one in found["members"] if one["role"] == "voter"}


async def gather_servers(board: Board, cluster: Cluster, wanted: int) -> Cluster:
    """Wait until `wanted` servers vote, the head's included.

    Each that claims a number is added and told how to start.

    Raises:
        BoardError: the cluster was lost.
        ServerError: one could not be added, or does not vote in time.
    """
    while len(cluster.addresses) < wanted:
        known = set(cluster.addresses)

        def unknown(view: Board, known: set[int] = known) -> list[int] | None:
            return [n for n in view.numbers("server") if n not in known] or None

        number = (await board.wait(unknown, f"{wanted - len(known)} more server machines"))[0]
        claim = board.get(ServerClaim, f"server/{number}")
        assert claim is not None
        before = cluster
        cluster = evolve(cluster, addresses={**cluster.addresses, number: claim.address})
        await _member(before, "add", str(number), claim.address)
        membership = Membership(
            cluster=cluster.listed,
            key=cluster.key.read_text() if cluster.tells_key else "",
            settings=cluster.settings,
        )
        await board.put(f"member/{number}", membership)
        await _until_voting(before, cluster)
    return cluster


async def _until_voting(asked: Cluster, cluster: Cluster) -> None:
    until = time.monotonic() + VOTING_TIMEOUT_S
    while True:
        voting: set[int] = set()
        with contextlib.suppress(ServerError):
            voting = voters_of(await _member(asked, "list", "--json"))
        if voting >= set(cluster.addresses):
            return
        if time.monotonic() >= until:
            missing = sorted(set(cluster.addresses) - voting)
            raise ServerError(f"servers {missing} do not vote after {VOTING_TIMEOUT_S:.0f} s; see their logs")
        await asyncio.sleep(RETRY_S)


async def restart_servers(board: Board, numbers: Sequence[int], generation: int, timeout_s: float) -> None:
    """Restart one server after the other, so that the rest keeps a quorum.

    Raises:
        BoardError: one was not restarted.
    """
    for number in numbers:
        await board.put(f"restart/{number}", Restart(generation=generation))

        def restarted(view: Board, number: int = number) -> Restart | None:
            found = view.get(Restart, f"restarted/{number}")
            return found if found is not None and found.generation >= generation else None

        done = await board.wait(restarted, f"server {number} to be restarted", timeout_s)
        if done.error:
            raise BoardError(f"server {number} was not restarted: {done.error}")
