"""The distributed benchmark with a network namespace for each machine; needs root and a kernel with veth.

    python -m tests.bench.namespaces --schedule smoke --out DIRECTORY

One head with its server, two more servers, two client machines: five namespaces on a bridge. Nothing is configured but
the head, to which all arguments go; the others know its address.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from tests.chaos.namespaces import NamespaceNetwork

REPOSITORY: Final = Path(__file__).parents[2]
PORT: Final = 7000
HEAD: Final = 1
ROLES: Final = {1: "head", 2: "server", 3: "server", 4: "client", 5: "client"}


async def run(head_options: tuple[str, ...], logs: Path) -> dict[int, int]:
    """Exit codes of all five, by number."""
    network = NamespaceNetwork(len(ROLES), PORT)
    await network.open()
    try:
        head = str(network.address(HEAD))
        processes = {}
        for number, role in ROLES.items():
            words = ("--address", head, "-s", "3", "--machines", "2", *head_options)
            if number != HEAD:
                words = ("--head", head)
            with (logs / f"{number}-{role}.log").open("wb") as log:
                processes[number] = await asyncio.create_subprocess_exec(
                    *(*network.prefix(number), sys.executable, "-m", "zraft_bench", role, *words),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths())},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=None if number == HEAD else log,
                    stderr=asyncio.subprocess.STDOUT,
                )
        return {number: await process.wait() for number, process in processes.items()}
    finally:
        await network.close()


def _paths() -> tuple[str, ...]:
    return (str(REPOSITORY), str(REPOSITORY / "client"), str(REPOSITORY / "bench"))


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("head_options", nargs=-1, type=click.UNPROCESSED)
def main(head_options: tuple[str, ...]) -> None:
    """Run it; the exit code is 1 unless all five ended well."""
    logs = Path(tempfile.mkdtemp(prefix="zraft-namespaces-"))
    codes = asyncio.run(run(head_options, logs))
    print(f"exit codes: {codes}; what the others said is in {logs}")
    sys.exit(any(codes.values()))


if __name__ == "__main__":
    main()
