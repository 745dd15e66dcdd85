"""Servers in network namespaces of their own, joined by a bridge: what happens to packets there is the kernel's doing.

Needs root. A link is cut, one direction at a time and without a sign to the sender, by a wrong permanent neighbour:
frames leave for a hardware address that nobody has. Loss, delay, reordering, repetition and bandwidth are `tc netem` on
what a server sends, to clients too; where the kernel has no netem, those faults are counted as not available.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterable
from typing import Final

from tests.simulation.fault_proxy import CLEAR, LinkQuality
from zraft_core.address import Address
from zraft_core.errors import ConfigError

SUBNET: Final = "10.217.33"
BRIDGE: Final = "zraftchaos"
NOBODY: Final = "02:00:00:00:00:fe"


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"network namespaces: `{' '.join(words)}` failed: {done.stderr.strip()}")


class NamespaceNetwork:
    """A namespace per server. `open`, then start servers behind `prefix`; `close` takes all of it away."""

    def __init__(self, servers: int, port: int) -> None:
        self._port = port
        self._numbers = range(1, servers + 1)
        self._holders: dict[int, asyncio.subprocess.Process] = {}
        self._netem = False
        self._cut: set[tuple[int, int]] = set()

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((a, b) for a in self._numbers for b in self._numbers if a != b)

    def address(self, server: int) -> Address:
        return Address(f"{SUBNET}.{server}", self._port)

    def prefix(self, server: int) -> tuple[str, ...]:
        """What goes in front of a command that is to run in the server's namespace."""
        return ("nsenter", f"--net=/proc/{self._holders[server].pid}/ns/net")

    async def open(self) -> None:
        """Raises ConfigError: not allowed, or something of it is not there; says which command failed."""
        try:
            _run("ip", "link", "add", BRIDGE, "type", "bridge")
            _run("ip", "address", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
            for number in self._numbers:
                await self._add(number)
            self._netem = self._try_netem()
        except BaseException:
            await self.close()
            raise

    async def _add(self, number: int) -> None:
        holder = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "sleep", "infinity"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        self._holders[number] = holder
        outside, inside = f"zraftc{number}", f"zraftp{number}"
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        await asyncio.sleep(0.2)  # `unshare` has no sign for having done it
        _run("ip", "link", "set", inside, "netns", str(holder.pid))
        _run("ip", "link", "set", outside, "master", BRIDGE, "up")
        self._inside(number, "ip", "link", "set", "lo", "up")
        self._inside(number, "ip", "link", "set", inside, "name", "eth0")
        self._inside(number, "ip", "address", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
        self._inside(number, "ip", "link", "set", "eth0", "up")

    def _inside(self, number: int, *words: str) -> None:
        _run(*self.prefix(number), *words)

    def _try_netem(self) -> bool:
        try:
            self._inside(1, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", "0ms")
            self._inside(1, "tc", "qdisc", "del", "dev", "eth0", "root")
        except (ConfigError, OSError):
            return False
        return True

    def can(self, quality: LinkQuality) -> bool:
        """Whether this kernel does that to packets."""
        return self._netem or quality.cut or quality == CLEAR

    def set_quality(self, pairs: Iterable[tuple[int, int]], quality: LinkQuality) -> None:
        pairs = list(pairs)
        for a, b in pairs:
            if quality.cut and (a, b) not in self._cut:
                self._cut.add((a, b))
                where = (f"{SUBNET}.{b}", "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
                self._inside(a, "ip", "neigh", "replace", *where)
            elif not quality.cut and (a, b) in self._cut:
                self._cut.discard((a, b))
                self._inside(a, "ip", "neigh", "del", f"{SUBNET}.{b}", "dev", "eth0")
        if not self._netem or quality.cut:
            return
        for sender in {a for a, _ in pairs}:
            words = _netem(quality)
            if words:
                self._inside(sender, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *words)
            else:
                self._inside(sender, "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo_fast")

    async def close(self) -> None:
        """The namespaces go with their holders, the links with the namespaces."""
        for holder in self._holders.values():
            holder.kill()
            await holder.wait()
        for link in (BRIDGE, *(f"zraftc{number}" for number in self._numbers)):
            with contextlib.suppress(ConfigError):  # gone with its namespace
                _run("ip", "link", "del", link)


def _netem(quality: LinkQuality) -> list[str]:
    """netem's words for a quality."""
    words: list[str] = []
    delay_ms, jitter_ms = quality.delay_s * 1000, quality.jitter_s * 1000
    if quality.reorder:
        delay_ms = max(delay_ms, quality.reorder_s * 1000)
    if delay_ms or jitter_ms:
        words += ["delay", f"{delay_ms + jitter_ms / 2:.1f}ms", f"{jitter_ms / 2:.1f}ms"]
    if quality.reorder:
        # netem sends this share at once and holds the others: the same overtaking, seen from the other side.
        words += ["reorder", f"{quality.reorder * 100:.1f}%"]
    if quality.loss:
        words += ["loss", f"{quality.loss * 100:.2f}%"]
    if quality.duplicate:
        words += ["duplicate", f"{quality.duplicate * 100:.1f}%"]
    if quality.bytes_per_second:
        words += ["rate", f"{int(quality.bytes_per_second * 8)}bit"]
    return words
