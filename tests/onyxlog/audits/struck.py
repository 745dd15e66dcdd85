"""The servers of a chaos run and what strikes them, as helpers of other tests know a cluster."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.chaos.links import Links, open_links
from tests.chaos.schedule import Fault
from tests.chaos.servers import Server, Servers
from tests.chaos.shim import build
from tests.chaos.strikes import Strikes
from tests.processes.cluster import ASK_TIMEOUT_S, ROOT, read_mntr
from zraft.checkers.history import Violation
from zraft.cli.status import UnreachableError, ask

SETTINGS: Final = {
    "snapshot.log_bytes_min": 65_536,
    "snapshot.commands_min": 500,
    "snapshot.retain_bytes": 64 << 20,
    "snapshot.retain_bytes_max": 256 << 20,
}
"""Beside those of chaos runs: many snapshots, and all of the log is kept, so that audits have something to judge."""


class StruckServers:
    """A `tests.processes.reachable.Reachable` that suffers. `opened` makes it."""

    def __init__(self, servers: Servers, links: Links, log: Callable[[str], None]) -> None:
        self._all = servers
        self._strikes = Strikes(servers, links.proxy, log)

    # -- where they are

    @property
    def servers(self) -> Mapping[int, Server]:
        return self._all.all

    def hosts(self, first: int | None = None) -> str:
        numbers = sorted(self.servers, key=lambda n: (n != first, n))
        return ",".join(str(self.servers[n].address) for n in numbers)

    def environment(self, hash_seed: int) -> dict[str, str]:
        paths = f"{ROOT}:{ROOT / 'client'}"
        return {**self._all.environment, "PYTHONPATH": paths, "PYTHONHASHSEED": str(hash_seed)}

    def running(self) -> list[int]:
        return [number for number, server in self.servers.items() if server.running]

    def mntr(self, number: int) -> dict[str, str] | None:
        try:
            return read_mntr(ask(self.servers[number].address, "mntr", ASK_TIMEOUT_S))
        except UnreachableError:
            return None

    # -- what happens to them

    async def start(self) -> None:
        """Until all serve."""
        for number in self.servers:
            self._all.start(number)
        await self._all.wait_ready()

    async def suffer(self, faults: Collection[Fault]) -> None:
        """All of it, from now on. What ends by itself meanwhile is started again, and told by `violations`."""
        watching = asyncio.ensure_future(self._all.watch())
        try:
            await self._strikes.run(sorted(faults, key=lambda fault: fault.at_s))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def heal(self) -> None:
        """Every server runs and is well, every link is whole; until all serve."""
        await self._strikes.heal()
        await self._all.wait_ready()

    async def end(self) -> None:
        """In good order. Raises AssertionError with a server that does not."""
        for number in self.servers:
            code = await self._all.end(number, signal.SIGTERM)
            assert code == 0, f"server {number} ended with code {code}"

    def struck(self) -> Mapping[str, int]:
        """How many faults there were of each kind."""
        return self._strikes.struck

    def violations(self) -> list[Violation]:
        """What servers did or logged that no fault accounts for."""
        logged, _ = self._all.check_logs()
        return [*self._strikes.violations, *logged]


@asynccontextmanager
async def opened(
    directory: Path,
    work: Path,
    count: int,
    seed: int,
    log: Callable[[str], None],
    *,
    ports: Sequence[int] = (),
    settings: Mapping[str, object] = SETTINGS,
) -> AsyncIterator[StruckServers]:
    """Servers 1 to `count`, not started; leaving ends every process.

    Args:
        directory: of their data, which may be there already.
        work: what steers their disks and clocks.
        ports: all that they and the links between them need, if they have to be the same as before.
    """
    links = await open_links(count, random.Random(f"{seed}/links"), ports)
    try:
        servers = Servers(directory, links.addresses, links.peers, build(work), settings)
        try:
            yield StruckServers(servers, links, log)
        finally:
            servers.close()
    finally:
        await links.proxy.close()
