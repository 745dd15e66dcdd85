"""The load generator of one machine: starts its processes, lets them begin together, and gathers what they saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from zraft_bench.load.process import LINE_BYTES_MAX, Order
from zraft_bench.records import from_plain, to_plain
from zraft_bench.results import Part
from zraft_core.errors import ZraftError

READY_TIMEOUT_S: Final = 300.0
"""Seconds to connect, make up to millions of keys and warm up."""

OVERTIME_S: Final = 60.0
"""Seconds beyond the time that a test is to take; then it is given up."""

GRACE_S: Final = 5.0


class LoadError(ZraftError):
    """A process of the load generator could not do its part."""


class LoadProcesses:
    """Processes of `module`, one per order, which get their orders as lines.

    Leaving the `async with` statement ends them.
    """

    def __init__(self, module: str, orders: Sequence[Any]) -> None:
        self._module = module
        self._orders = list(orders)
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                async with asyncio.timeout(0 if error is not None else GRACE_S):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def prepare(self) -> None:
        """Start all, and wait until each is connected and warmed up.

        Raises:
            LoadError: one could not.
        """
        for order in self._orders:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                env=dict(os.environ),
                # Ctrl-C in the terminal is for us to handle.
                process_group=0,
            )
            self._processes.append(process)
            self._say(process, to_plain(order))
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.expect_of_all("ready")
        except TimeoutError:
            raise LoadError(
                f"the load processes were not connected and ready within {READY_TIMEOUT_S:.0f} s"
            ) from None

    def _say(self, process: asyncio.subprocess.Process, message: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _expect(self, process: asyncio.subprocess.Process, name: str) -> Any:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise LoadError(f"a load process ended with code {await process.wait()} before it was {name}")
        message = json.loads(line)
        if name not in message:
            raise LoadError(f"a load process says: {message.get('error', message)}")
        return message[name]

    def say_to_all(self, **message: Any) -> None:
        """Send the same message to all processes."""
        for process in self._processes:
            self._say(process, message)

    async def expect_of_all(self, name: str) -> list[Any]:
        """Return what each says next, which has to be `name`.

        Raises:
            LoadError: one says something else, or ended.
        """
        return list(await asyncio.gather(*(self._expect(one, name) for one in self._processes)))


class Generator(LoadProcesses):
    """The processes that carry out `orders`, one each. Use it in an `async with` statement: leaving it ends them."""

    def __init__(self, orders: Sequence[Order]) -> None:
        super().__init__("zraft_bench.load.process", orders)
        self._longest_s = max(
            # A round that has begun continues for one deadline beyond the time, and its last request takes
            # another one.
            (one.workload.seconds_min + 2 * one.workload.deadline_s for one in orders),
            default=0.0,
        )

    async def run(
        self, start_s: float, *, on_began: Callable[[float], None] = lambda _: None
    ) -> tuple[Part, ...]:
        """Begin in `start_s` seconds; return what each process saw.

        `on_began` gets the monotonic time at which the first of them began.

        Raises:
            LoadError: a process failed, or took far longer than the test.
        """
        self.say_to_all(start=start_s)
        limit = start_s + self._longest_s + OVERTIME_S
        try:
            async with asyncio.timeout(limit):
                on_began(min(await self.expect_of_all("began")))
                parts = await self.expect_of_all("part")
        except TimeoutError:
            raise LoadError(f"not finished after {limit:.0f} s, given up") from None
        return tuple(from_plain(Part, part, "part") for part in parts)

    async def finish(self) -> None:
        """Let the processes remove what the tests after this one should not find.

        Raises:
            LoadError: one could not.
        """
        self.say_to_all(finish=True)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.expect_of_all("finished")
        except TimeoutError:
            raise LoadError(f"what it made was not removed within {READY_TIMEOUT_S:.0f} s") from None
