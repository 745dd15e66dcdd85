"""A network of its own with the machines of the documents' examples, 10.0.0.1 and on, on this machine.

`inside` puts a program into new namespaces: nothing outside can be reached, taken or left behind there. Ports are free,
`/var` and `/run` are empty, the names of the examples lead to their machines, and all processes end with the first. Each
machine has an address, ports, `/var` and `/run` of its own; all other files are shared.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MACHINES: Final = range(1, 10)
SUBNET: Final = "10.0.0"
BRIDGE: Final = "machines"
NAMES: Final = ("zk{}", "zoo{}", "zk{}.example.org")

_NAMESPACES: Final = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_EMPTY: Final = ("/var", "/run")
_NEEDED: Final = ("unshare", "nsenter", "ip", "mount", "bash")


def cannot() -> str | None:
    """Why there can be no such network here, None if there can."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} here: apt-get install util-linux iproute2 mount"
    hidden = [path for path in _EMPTY if ROOT.is_relative_to(path)]
    if hidden:
        return f"the examples need an empty {hidden[0]}, and this checkout is in it: {ROOT}"
    tried = subprocess.run(_entering("true"), capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"the examples need namespaces, run the tests as root: {tried.stderr.strip()}"
    return None


def _entering(*command: str) -> list[str]:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_NAMESPACES, *command]


def inside(*command: str) -> list[str]:
    """The command that runs a command in a new network."""
    return _entering(sys.executable, "-m", "tests.documents.machines", *command)


def _prepare() -> None:
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", BRIDGE, "type", "bridge")
    _do("ip", "address", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
    _do("ip", "link", "set", BRIDGE, "up")
    _empty_var()
    hosts = Path("/var/hosts")
    rows = (f"{SUBNET}.{number} " + " ".join(name.format(number) for name in NAMES) for number in MACHINES)
    hosts.write_text(
        f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n" + "\n".join(rows) + "\n",
        encoding="utf-8",
    )
    _do("mount", "--bind", str(hosts), "/etc/hosts")


def _empty_var() -> None:
    for path in _EMPTY:
        _do("mount", "-t", "tmpfs", "tmpfs", path)
    for path in ("/var/lib", "/var/backups", "/var/tmp", "/run/secrets"):
        Path(path).mkdir(mode=0o755)


def _do(*words: str) -> None:
    subprocess.run(words, check=True)


class Machines:
    """Machines beside the first, which is where the examples run; each is there from its first use on."""

    def __init__(self) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}

    def on(self, number: int, command: Sequence[str]) -> list[str]:
        """The command that runs a command on a machine."""
        if number == 1:
            return list(command)
        holder = self._holders.get(number)
        if holder is None:
            holder = self._holders[number] = subprocess.Popen(
                ["unshare", "--net", "--mount", sys.executable, "-m", "tests.documents.machines", "--hold"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            cable = f"machine{number}"
            _do("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            _do("ip", "link", "set", cable, "master", BRIDGE, "up")
            _do(*_enter(holder), "ip", "address", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            for link in "lo", "eth0":
                _do(*_enter(holder), "ip", "link", "set", link, "up")
        return [*_enter(holder), *command]


def _enter(holder: subprocess.Popen[bytes]) -> tuple[str, ...]:
    namespaces = (
        f"--{kind}=/proc/{holder.pid}/ns/{name}" for kind, name in (("net", "net"), ("mount", "mnt"))
    )
    return ("nsenter", *namespaces, f"--wd={os.getcwd()}")


def main(words: Sequence[str]) -> None:
    """Enter `--hold`: a machine's files, until the network ends; or prepare the network and become a command."""
    if list(words) == ["--hold"]:
        _empty_var()
        print("ready", flush=True)
        os.execvp("sleep", ["sleep", "infinity"])
    _prepare()
    os.execvp(words[0], list(words))


if __name__ == "__main__":
    main(sys.argv[1:])
