"""Carries out the faults of a plan on running servers, and undoes each. What struck whom is logged as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from tests.chaos.client import now_us
from tests.chaos.schedule import NETWORK, Fault, FaultKind, Target
from tests.chaos.servers import FAILED, Servers
from tests.simulation.fault_proxy import CLEAR, LinkQuality
from zraft.checkers.history import Violation

FSYNC_ERROR_END_S: Final = 20.0
"""A server whose fsync fails ends at its next write, which clients cause all the time."""

DAY_S: Final = 86_400.0
ADMINISTRATION_S: Final = 60.0
REJOIN_S: Final = 60.0
LOOK_AGAIN_S: Final = 1.0


class Network(Protocol):
    """What carries traffic between servers: the proxy, or interfaces of network namespaces."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]: ...

    def can(self, quality: LinkQuality) -> bool: ...
    def set_quality(self, pairs: Sequence[tuple[int, int]], quality: LinkQuality) -> None: ...


class Strikes:
    """Runs a plan. Once."""

    def __init__(self, servers: Servers, network: Network, log: Callable[[str], None]) -> None:
        self._servers = servers
        self._network = network
        self._log = log
        self.struck: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Faults that this machine cannot do, or that had no target when they were due."""
        self.violations: list[Violation] = []
        self._lost_disks: set[str] = set()
        self.active: dict[int, str] = {}
        self.pauses: list[tuple[int, int]] = []
        """(from, to) in microseconds of the clients' clock: surely no server ran."""
        self.periods: list[tuple[float, float, str]] = []
        """(from, to) in seconds of the loop's clock, and what struck."""

    async def run(self, plan: Sequence[Fault]) -> None:
        """All of it, from now on, the two tracks beside each other.

        What takes longer than planned, such as a replaced disk that has to be filled, holds up the rest of its track: a
        further server must not go meanwhile. What would then begin after the plan's end is left out.
        """
        began = asyncio.get_running_loop().time()
        ends = began + max((fault.ends_s for fault in plan), default=0.0)
        async with asyncio.TaskGroup() as group:
            for on_network in (False, True):
                track = [fault for fault in plan if (fault.kind in NETWORK) == on_network]
                group.create_task(self._track(track, began, ends))

    async def _track(self, track: Sequence[Fault], began: float, ends: float) -> None:
        loop = asyncio.get_running_loop()
        for fault in track:
            await asyncio.sleep(max(0.0, began + fault.at_s - loop.time()))
            if loop.time() + fault.duration_s <= ends + 1.0:
                await self._strike(fault)

    async def heal(self) -> None:
        """Everything runs, and is well."""
        self._network.set_quality(self._network.pairs, CLEAR)
        for number, server in self._servers.all.items():
            if server.control is not None:
                server.control.heal()
            self._servers.free_disk(number)
            self._servers.signal(number, signal.SIGCONT)
            self._servers.start(number)

    async def _strike(self, fault: Fault) -> None:
        loop = asyncio.get_running_loop()
        targets = await self._targets(fault)
        shown = f"{fault.kind} of {_shown_targets(fault, targets)} for {fault.duration_s:.1f} s"
        if not targets:
            self.missed[fault.kind] += 1
            self._log(f"{fault.at_s:7.1f} s  {shown}: no such server now")
            return
        self._log(f"{fault.at_s:7.1f} s  {shown}")
        began = loop.time()
        self.active[fault.number] = shown
        try:
            if await self._carry_out(fault, targets):
                self.struck[fault.kind] += 1
            else:
                self.missed[fault.kind] += 1
                self._log(f"{fault.at_s:7.1f} s  {fault.kind} was not possible")
        finally:
            del self.active[fault.number]
            self.periods.append((began, loop.time(), shown))

    async def _targets(self, fault: Fault) -> list[int]:
        """Servers that it strikes; the first of them alone for faults of one server."""
        everybody = sorted(self._servers.all)
        if fault.kind in (FaultKind.KILL_ALL, FaultKind.STOP_ALL):
            return everybody
        running = [number for number in everybody if self._servers.all[number].running]
        leader = await self._servers.leader() if fault.target is not Target.ANY else None
        if fault.target is Target.LEADER and leader is not None:
            first = leader
        else:
            # Links can be cut of servers that do not run, and of none that do.
            able = everybody if fault.kind in NETWORK else running
            candidates = [n for n in able if n != leader] or able
            if not candidates:
                return []
            first = candidates[fault.choice % len(candidates)]
        others = [n for n in everybody if n != first]
        random.Random(fault.choice).shuffle(others)
        return [first, *others]

    async def _carry_out(self, fault: Fault, targets: Sequence[int]) -> bool:
        servers, one = self._servers, targets[0]
        server = servers.all[one]
        match fault.kind:
            case FaultKind.KILL:
                await servers.end(one)
                await asyncio.sleep(fault.duration_s)
                servers.start(one)
            case FaultKind.RESTART:
                code = await servers.end(one, signal.SIGTERM)
                # Nothing can answer a signal before the interpreter has come to the server's first lines.
                if code not in (0, -signal.SIGKILL) and not (code == -signal.SIGTERM and server.silent):
                    self.violations.append(
                        Violation("server", f"server {one} ended with {code} after SIGTERM")
                    )
                servers.start(one)
            case FaultKind.STOP_SHORT | FaultKind.STOP_LONG:
                servers.signal(one, signal.SIGSTOP)
                try:
                    await asyncio.sleep(fault.duration_s)
                finally:
                    servers.signal(one, signal.SIGCONT)
            case FaultKind.KILL_ALL:
                for number in targets:
                    servers.all[number].may_end = True
                for number in targets:
                    servers.signal(number, signal.SIGKILL)
                for number in targets:
                    await servers.end(number)
                await asyncio.sleep(fault.duration_s)
                for number in targets:
                    servers.start(number)
            case FaultKind.STOP_ALL:
                for number in targets:
                    servers.signal(number, signal.SIGSTOP)
                began_us = now_us()
                try:
                    await asyncio.sleep(fault.duration_s)
                finally:
                    self.pauses.append((began_us, now_us()))
                    for number in targets:
                        servers.signal(number, signal.SIGCONT)
            case FaultKind.SLOW_FSYNC:
                if server.control is None:
                    return False
                server.control.delay_sync(0.01 + 0.4 * fault.strength**2)
                await asyncio.sleep(fault.duration_s)
                server.control.delay_sync(0)
            case FaultKind.FSYNC_ERROR:
                return await self._fail_fsync(fault, one)
            case FaultKind.FULL_DISK:
                if not servers.fill_disk(one):
                    return False
                try:
                    await asyncio.sleep(fault.duration_s)
                finally:
                    servers.free_disk(one)
            case FaultKind.CLOCK:
                if server.control is None:
                    return False
                # To anywhere within a day, seconds as often as hours; it stays there until the next jump.
                size = DAY_S ** (2 * abs(fault.strength - 0.5))
                server.control.shift_wall_clock(size if fault.strength > 0.5 else -size)
                await asyncio.sleep(fault.duration_s)
            case FaultKind.WIPE:
                return await self._wipe(fault, one)
            case FaultKind.TRANSFER:
                return (await self._administer("member", "transfer", str(targets[1])))[0] == 0
            case FaultKind.MEMBER:
                return await self._replace_member(fault, one)
            case _:
                return await self._disturb(fault, targets)
        return True

    async def _fail_fsync(self, fault: Fault, one: int) -> bool:
        server = self._servers.all[one]
        if server.control is None:
            return False
        server.may_log |= {FAILED}
        server.may_end = True
        process = server.process
        server.control.fail_sync(True)
        try:
            deadline = asyncio.get_running_loop().time() + FSYNC_ERROR_END_S
            while server.running and server.process is process:
                if asyncio.get_running_loop().time() > deadline:
                    # Without a write there is no fsync: a server apart from the others may have none to do.
                    break
                await asyncio.sleep(0.02)
            else:
                if process is not None and process.returncode not in (1, -signal.SIGKILL):
                    self.violations.append(
                        Violation(
                            "server",
                            f"server {one} ended with {process.returncode} after EIO, expected 1 (D-10)",
                        )
                    )
        finally:
            server.control.fail_sync(False)
        await asyncio.sleep(fault.duration_s)
        self._servers.start(one)
        server.may_end = False
        return True

    async def _disturb(self, fault: Fault, targets: Sequence[int]) -> bool:
        """A fault of the network, and its end."""
        one, strength = targets[0], fault.strength
        everywhere = self._network.pairs
        at_one = [pair for pair in everywhere if one in pair]
        wide = everywhere if fault.choice % 2 else at_one
        match fault.kind:
            case FaultKind.LOSS:
                pairs, quality = wide, LinkQuality(loss=0.01 + 0.39 * strength**2)
            case FaultKind.DELAY:
                pairs, quality = wide, LinkQuality(delay_s=0.2 * strength**2, jitter_s=0.1 * strength)
            case FaultKind.REORDER:
                pairs, quality = (
                    wide,
                    LinkQuality(reorder=0.05 + 0.5 * strength, reorder_s=0.002 + 0.05 * strength),
                )
            case FaultKind.DUPLICATE:
                pairs, quality = wide, LinkQuality(duplicate=0.05 + 0.6 * strength, jitter_s=0.02 * strength)
            case FaultKind.SLOW_LINK:
                pairs, quality = wide, LinkQuality(bytes_per_second=50_000 + 1_000_000 * strength)
            case FaultKind.ONE_WAY:
                ways = ((one, targets[1]), (targets[1], one))
                pairs, quality = [ways[fault.choice % 2]], LinkQuality(cut=True)
            case FaultKind.CUT:
                pairs, quality = [(one, targets[1]), (targets[1], one)], LinkQuality(cut=True)
            case FaultKind.PARTITION:
                minority = set(targets[: (len(targets) - 1) // 2])
                pairs = [(a, b) for a, b in everywhere if (a in minority) != (b in minority)]
                quality = LinkQuality(cut=True)
            case _:
                pairs, quality = at_one, LinkQuality(cut=True)
        if not self._network.can(quality):
            return False
        self._network.set_quality(pairs, quality)
        try:
            await asyncio.sleep(fault.duration_s)
        finally:
            self._network.set_quality(pairs, CLEAR)
        return True

    # -- membership: `zraft member …`, as an operator would

    async def _administer(self, *words: str) -> tuple[int | None, str]:
        """`zraft` with these words: the exit code and what was printed; no code if there was no answer in time."""
        connect = ",".join(str(server.address) for server in self._servers.all.values())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "zraft", *words),
            *("--connect", connect, "--key", str(self._servers.key)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._servers.environment,
        )
        try:
            async with asyncio.timeout(ADMINISTRATION_S):
                answer, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return None, "no answer in time"
        text = answer.decode(errors="replace").strip()
        if "--json" not in words:
            self._log(f"           zraft {' '.join(words)}: {process.returncode} {text}")
        return process.returncode, text

    async def _lose_disk(self, one: int) -> None:
        """Remember which disk it had: that one never comes back."""
        _, text = await self._administer("member", "list", "--json")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._lost_disks |= {row["disk"] for row in json.loads(text)["members"] if row["server"] == one}

    async def _roles(self) -> Mapping[int, str]:
        """The role of each member, as the leader has it; empty if nobody says."""
        code, text = await self._administer("member", "list", "--json")
        try:
            rows = json.loads(text)["members"] if code == 0 else []
            # An old disk's vote is not the new one's: the leader may not have met the new one yet.
            return {
                int(row["server"]): str(row["role"])
                for row in rows
                if row["disk"] and row["disk"] not in self._lost_disks
            }
        except (ValueError, KeyError, TypeError):
            return {}

    async def _all_vote(self) -> bool:
        """Whether no disk is being replaced, in any group: with a second one gone, a majority might be."""
        roles = await self._roles()
        return all(roles.get(number) == "voter" for number in self._servers.all) and await self._all_placed()

    async def _all_placed(self) -> bool:
        """Whether every partition is where it is to be; looked at twice, as what a change moves shows a moment later."""
        for _ in range(2):
            code, text = await self._administer("topic", "list", "--json")
            try:
                moving = sum(int(json.loads(line)["moving"]) for line in text.splitlines())
            except (ValueError, KeyError, TypeError):
                return False
            if code != 0 or moving:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    async def _wait(self, fault: Fault, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Until what was emptied is whole again; what takes too long is shown, and `progress` judges it at the end."""
        deadline = asyncio.get_running_loop().time() + REJOIN_S
        while not await condition():
            if asyncio.get_running_loop().time() > deadline:
                self._log(f"{fault.at_s:7.1f} s  {fault.kind}: {what} after {REJOIN_S:g} s")
                return
            await asyncio.sleep(0.5)

    async def _wait_all_vote(self, fault: Fault) -> None:
        await self._wait(fault, self._all_vote, "not all servers vote, or partitions move")

    async def _wipe(self, fault: Fault, one: int) -> bool:
        if not await self._all_vote():
            return False
        await self._lose_disk(one)
        await self._servers.end(one)
        await asyncio.sleep(fault.duration_s)
        self._servers.wipe(one)
        self._servers.start(one)
        await self._wait_all_vote(fault)
        return True

    async def _take_out(self, one: int) -> bool:
        """Whether it is a member no longer. A command may not know what came of it, and a removal may be under way."""
        deadline = asyncio.get_running_loop().time() + REJOIN_S
        while (await self._administer("member", "remove", str(one)))[0] != 0:
            roles = await self._roles()
            if roles and one not in roles:
                return True
            if asyncio.get_running_loop().time() >= deadline:
                # Who is on its way out stays if it is wanted again.
                await self._take_in(one)
                return False
            await asyncio.sleep(1.0)
        return True

    async def _take_in(self, one: int) -> bool:
        address = str(self._servers.all[one].address)
        return (await self._administer("member", "add", str(one), address))[0] == 0

    async def _replace_member(self, fault: Fault, one: int) -> bool:
        """Take a server out, empty it, and take it in again."""
        if not await self._all_vote():
            return False
        if not await self._take_out(one):
            return False
        # A server that did not answer has left at once: its partitions are a copy short until others stand in.
        await self._wait(fault, self._all_placed, "partitions move")
        await self._servers.end(one)
        await asyncio.sleep(fault.duration_s)
        self._servers.wipe(one)
        self._servers.start(one)
        deadline = asyncio.get_running_loop().time() + REJOIN_S
        while not await self._take_in(one):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(1.0)
        await self._wait_all_vote(fault)
        return True


def _shown_targets(fault: Fault, targets: Sequence[int]) -> str:
    if not targets:
        return "nobody"
    match fault.kind:
        case FaultKind.KILL_ALL | FaultKind.STOP_ALL:
            return "all"
        case FaultKind.CUT:
            return "-".join(map(str, targets[:2]))
        case FaultKind.ONE_WAY:
            a, b = targets[:2] if fault.choice % 2 == 0 else targets[1::-1]
            return f"{a} to {b}"
        case FaultKind.PARTITION:
            return ",".join(map(str, targets[: (len(targets) - 1) // 2]))
        case FaultKind.LOSS | FaultKind.DELAY | FaultKind.REORDER | FaultKind.DUPLICATE | FaultKind.SLOW_LINK:
            return "every link" if fault.choice % 2 else f"links of {targets[0]}"
        case FaultKind.TRANSFER:
            return f"the leader to {targets[1]}"
    return str(targets[0])
