"""`zraft shell` and ZooKeeper's own client say the same of a real ZooKeeper, line by line (marker `compat`).

Needs Debian's packages zookeeper and default-jre-headless; without them the test says so and is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.processes.cluster import HOST, free_ports, wait_until
from zraft.cli.status import UnreachableError, ask
from zraft_core.address import Address

pytestmark = [pytest.mark.processes, pytest.mark.compat, pytest.mark.timeout(300)]

JAR: Final = Path("/usr/share/java/zookeeper.jar")
CLIENT: Final = Path("/usr/share/zookeeper/bin/zkCli.sh")

LINES: Final = """\
create /a hello
create /a hello
create /a/b
create -s /a/s- x
create -e /a/e y
create -c /a/c
create -t 100000 /a/t zz
create -s -t 5000 /a/st zz
create -e -c /a/zz
create /no/way d
get /a
get -s /a
get /nope
get /a/b
ls /
ls -s /a
ls -R /
ls -w /a
ls /nope
stat /a
stat /nope
set /a newdata
set -s /a newdata
set -s -v 2 /a q
set -v 77 /a q
set /nope x
delete /a
delete -v 9 /a/b
delete /nope
getAcl /a
getAcl -s /a
setAcl /a world:anyone:cdrwa
setAcl -s /a world:anyone:cdrwa
setAcl -v 0 /a world:anyone:cdrwa
setAcl -R /a world:anyone:crwad
setAcl /a foo:bar:crw
setAcl /a auth::cdrwa
create /acl d digest:bob:xx=:cdrwa
getAcl /acl
get /acl
set /acl d
delete /acl
addauth digest bob:secret
create /auth d auth::cdrwa
getAcl /auth
getAllChildrenNumber /a
getAllChildrenNumber /nope
getEphemerals
getEphemerals /zzz
create /eph/no d
create -e /eph d
create /eph/c d
listquota /a
setquota -n 5 /a
listquota /a
setquota -b 500 /a
setquota -N 9 /a
setquota -B 900 /a
listquota /a
get /zookeeper/quota/a/zookeeper_limits
get /zookeeper/quota/a/zookeeper_stats
ls -R /zookeeper/quota
setquota -n 5 /a/b
setquota -n 5 /nope
setquota -n 5 /zookeeper/quota
delquota -n /a
listquota /a
delquota /a
listquota /a
delquota /a
ls -R /zookeeper/quota
sync /
config
config -c
config -s
reconfig -remove 3
create /w "some data"
addWatch /w
set /w watched
create /w/new d
removewatches /w
removewatches /w
addWatch -m PERSISTENT /w
removewatches /w -d
removewatches /w -a
get -w /w
removewatches /w -d
ls -w /w
deleteall -b 2 /w
deleteall /nope
create /empty ""
get /empty
history
close
ls /
"""


@contextmanager
def zookeeper(directory: Path) -> Iterator[Address]:
    """One fresh server of Debian's."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    [port] = free_ports(1)
    address = Address(HOST, port)
    settings = {
        "dataDir": directory / "data",
        "clientPort": port,
        "clientPortAddress": HOST,
        "tickTime": 2000,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "extendedTypesEnabled": "true",
    }
    config = directory / "zoo.cfg"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    flags = ["-Xmx128m", "-Dzookeeper.extendedTypesEnabled=true"]
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            ["java", *flags, "-cp", str(JAR), main, str(config)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: _serves(address), "ZooKeeper to serve")
        yield address
    finally:
        server.kill()
        server.wait()


def _serves(address: Address) -> bool:
    try:
        return "Mode: " in ask(address, "srvr", 5.0)
    except UnreachableError:
        return False


def said(command: list[str]) -> tuple[list[str], list[str]]:
    """(lines, watch events) of a client that is fed `LINES`; zkCli prints events in a thread of its own."""
    answer = subprocess.run(
        command, input=LINES.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = answer.stdout.decode()
    event = r"\nWATCHER::\n\nWatchedEvent (.*)\n"
    lines = re.sub(event, "", text).splitlines()
    noise = ("SLF4J", "JLine", "Connecting to", "Welcome")
    return [_masked(line) for line in lines if not line.startswith(noise)], re.findall(event, text)


def _masked(line: str) -> str:
    """Times, and what our errors say behind zkCli's."""
    line = re.sub(r"^([cm]time) = .*", r"\1 = …", line)
    return re.sub(r"^(.+: ?/\S*|Not connected) \(.*\)$", r"\1", line)


def test_our_shell_and_zookeepers_say_the_same_of_a_real_zookeeper(tmp_path: Path) -> None:
    if not JAR.exists() or not CLIENT.exists() or shutil.which("java") is None:
        pytest.skip("no ZooKeeper here: apt-get install zookeeper default-jre-headless")
    with zookeeper(tmp_path / "theirs") as address:
        their_lines, their_events = said([str(CLIENT), "-server", str(address)])
    with zookeeper(tmp_path / "ours") as address:
        our_lines, our_events = said([sys.executable, "-m", "zraft", "shell", "--connect", str(address)])
    # What a script has no use for: zkCli's notices about its own connection.
    assert our_events == [event for event in their_events if "type:None" not in event]
    assert len(our_events) >= 7
    assert our_lines == their_lines
    assert len(our_lines) > 150
