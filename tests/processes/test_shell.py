"""`zraft shell` as people and scripts use it, against a real server: one command, a pipe, and a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority, subject_of
from tests.processes.cluster import ROOT, Cluster, wait_until
from tests.processes.conftest import StartCluster
from tests.processes.terminal import Terminal

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for this module: each test works below its own znode."""
    with Cluster(tmp_path_factory.mktemp("shell"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


def command(cluster: Cluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "zraft", "shell", "--connect", str(cluster.servers[1].address), *words]


def shell(
    cluster: Cluster, *words: str, lines: str | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(cluster, *words),
        input=(lines or "").encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "TZ": "UTC", **(env or {})},
    )


def test_one_command_prints_its_result_and_nothing_else(running: Cluster) -> None:
    made = shell(running, "create", "/one", "a b")
    assert (made.returncode, made.stdout, made.stderr) == (0, b"Created /one\n", b"")
    assert shell(running, "get", "/one").stdout == b"a b\n"
    assert shell(running, "get /one").stdout == b"a b\n"
    server = str(running.servers[1].address)
    zkcli = [sys.executable, "-m", "zraft", "shell", "-server", server, "get", "/one"]
    assert subprocess.run(zkcli, capture_output=True, check=True).stdout == b"a b\n"
    found = shell(running, "get", "-s", "/one").stdout.decode().splitlines()
    assert found[0] == "a b"
    assert [line.split(" = ")[0] for line in found[1:]] == [
        *("cZxid", "ctime", "mZxid", "mtime", "pZxid", "cversion", "dataVersion", "aclVersion"),
        *("ephemeralOwner", "dataLength", "numChildren"),
    ]
    assert found[2].endswith(" UTC " + found[2][-4:])


def test_a_pipe_gets_exactly_the_bytes_of_a_znode(running: Cluster) -> None:
    data = b"\xff\x00\x1b[31m \xc3\xa4"
    name = b"/bytes"
    subprocess.run([*command(running), "create", name, b"x"], check=True, capture_output=True)
    lines = b"set /bytes '" + data.replace(b"\x00", b"") + b"'\nget /bytes\n"
    answer = subprocess.run(command(running), input=lines, capture_output=True, check=True)
    assert answer.stdout == data.replace(b"\x00", b"") + b"\n"


def test_exit_codes_tell_a_refusal_from_a_misuse(running: Cluster) -> None:
    refused = shell(running, "ls", "/no/such")
    assert (refused.returncode, refused.stdout, refused.stderr) == (
        1,
        b"",
        b"Node does not exist: /no/such\n",
    )
    for words in (["ls"], ["nonsense"], ["ls", "a"], ["get", '"open']):
        assert shell(running, *words).returncode == 2, words
    assert b"usage: ls [-s] [-w] [-R] path" in shell(running, "ls").stderr
    nobody = shell(running, "--connect", "127.0.0.1:1", "ls", "/")
    assert nobody.returncode == 1
    assert nobody.stderr.startswith(b"Not connected: 127.0.0.1:1: Connection refused; ")
    patience = ("--timeout", "0.2", "-waitforconnection")
    nobody = shell(running, "--connect", "127.0.0.1:1", *patience, "ls", "/")
    assert nobody.returncode == 1
    assert nobody.stderr.startswith(b"Not connected: waited 0.2 s for 127.0.0.1:1 (127.0.0.1:1: ")
    assert shell(running, "--connect", "a:x", "ls", "/").returncode == 2
    assert shell(running, "--connect", "127.0.0.1:1", "help", "ls").returncode == 0


def test_a_pipe_of_commands_goes_on_after_an_error_and_tells_of_the_first(running: Cluster) -> None:
    lines = (
        "# a comment\n\ncreate /pipe\nls /pipe/none\nnonsense\ncreate -e /pipe/e\ngetEphemerals\nhistory\n"
    )
    answer = shell(running, lines=lines)
    assert answer.returncode == 1
    assert answer.stdout.decode().splitlines()[:3] == ["Created /pipe", "Created /pipe/e", "[/pipe/e]"]
    assert answer.stdout.decode().splitlines()[3:] == [
        *("0 - create /pipe", "1 - ls /pipe/none", "2 - nonsense"),
        *("3 - create -e /pipe/e", "4 - getEphemerals", "5 - history"),
    ]
    # the session was ended, not abandoned: its ephemeral is gone at once
    assert shell(running, "ls", "/pipe").stdout == b"[]\n"
    stopped = shell(running, "--stop-on-error", lines="nonsense\ncreate /pipe/later\n")
    assert (stopped.returncode, stopped.stdout) == (2, b"")
    assert shell(running, lines="quit\nnonsense\n").returncode == 0


def test_a_pipe_sees_watch_events_in_order(running: Cluster) -> None:
    lines = (
        "create /seen\nget -w /seen\naddWatch /seen\nset /seen x\ncreate /seen/below\nremovewatches /seen\n"
    )
    answer = shell(running, lines=lines)
    assert answer.stdout.decode().split("\n") == [
        *("Created /seen", "null"),
        *("", "WATCHER::", "", "WatchedEvent state:SyncConnected type:NodeDataChanged path:/seen"),
        *("", "WATCHER::", "", "WatchedEvent state:SyncConnected type:NodeCreated path:/seen/below"),
        "Created /seen/below",
        *("", "WATCHER::", "", "WatchedEvent state:SyncConnected type:PersistentWatchRemoved path:/seen"),
        "",
    ]
    quiet = shell(running, lines="printwatches off\nget -w /seen\nset /seen y\nprintwatches\n")
    assert quiet.stdout == b"x\nprintwatches is off\n"


def test_json_is_one_value_per_line(running: Cluster) -> None:
    lines = "create /json hello\nget -s /json\nls /\nstat -w /json\nset /json x\nls -R /json\n"
    answer = shell(running, "--json", lines=lines)
    created, got, names, found, watch, path = map(json.loads, answer.stdout.splitlines())
    assert created == {"created": "/json"}
    assert (got["path"], got["data"], got["stat"]["dataLength"]) == ("/json", "hello", 5)
    assert "json" in names
    assert found == got["stat"]
    assert (watch["watch"]["type"], watch["watch"]["path"]) == ("NodeDataChanged", "/json")
    assert watch["watch"]["zxid"] > found["mzxid"]
    assert path == "/json"


def test_every_command_works_at_our_own_server(running: Cluster) -> None:
    lines = """\
create /all
create -s /all/s- x
create -c /all/c
addauth digest bob:secret
whoami
create /all/mine x auth::cdrwa
getAcl /all/mine
setAcl -R /all world:anyone:cdrwa
getAcl /all/mine
getAllChildrenNumber /all
setquota -n 2 -B 1000 /all
listquota /all
delquota -B /all
delquota /all
sync /
config
four-letter ruok
tree /all
version
deleteall /all
ls /all
"""
    answer = shell(running, lines=lines)
    shown = answer.stdout.decode().splitlines()
    assert answer.stderr == b"Node does not exist: /all\n"
    assert shown[:4] == ["Created /all", "Created /all/s-0000000000", "Created /all/c", "Auth scheme: User"]
    assert sorted(shown[4:6]) == ["digest: bob", "ip: 127.0.0.1"]
    assert shown[6:13] == [
        "Created /all/mine",
        "'digest,'bob:fyVmFCwVbTJYrznoSu1koqYEYF0=",
        ": cdrwa",
        "'world,'anyone",
        ": cdrwa",
        "3",
        "[Warning]: the count quota you create is less than the existing count:4",
    ]
    assert shown[13:16] == [
        "absolute path is /zookeeper/quota/all/zookeeper_limits",
        "Output quota for /all count=2,bytes=-1=;byteHardLimit=1000;countHardLimit=-1",
        "Output stat for /all count=4,bytes=2",
    ]
    assert shown[16] == "Sync is OK"
    # The configuration is empty until the leader has written down who founded the cluster.
    rest = [line for line in shown[17:] if line and not line.startswith(("server.", "version="))]
    assert rest[:5] == ["imok", "/all", "├── c", "├── mine", "└── s-0000000000"]
    assert rest[5].startswith("ZooKeeper CLI version: zraft ")


def test_a_root_in_the_connection_string_is_the_root_of_all_paths(running: Cluster) -> None:
    shell(running, lines="create /root\ncreate /root/a x\n")
    target = f"{running.servers[1].address}/root"
    answer = shell(running, "--connect", target, lines="ls /\nget -w /a\nset /a y\ncreate /b\nls -R /\n")
    assert answer.stdout.decode().split("\n") == [
        *("[a]", "x"),
        *("", "WATCHER::", "", "WatchedEvent state:SyncConnected type:NodeDataChanged path:/a"),
        *("Created /b", "/", "/a", "/b", ""),
    ]


def test_a_reader_that_stops_reading_ends_the_shell_quietly(running: Cluster) -> None:
    shell(running, lines="".join(f"create /head-{n}\n" for n in range(20)))
    script = '"$@" | head -n 1'
    answer = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *command(running, "ls", "-R", "/")], capture_output=True, check=True
    )
    assert answer.stdout == b"/\n"
    assert b"Traceback" not in answer.stderr


def test_the_session_in_the_documentation_is_what_happens(start_cluster: StartCluster) -> None:
    text = (ROOT / "docs" / "how-to" / "shell.md").read_text(encoding="utf-8")
    [session] = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    typed = re.findall(r"^\[zk: [^]]*\] (.*)\n", session, re.MULTILINE)
    shown = re.sub(r"^\[zk: [^]]*\] .*\n", "", session, flags=re.MULTILINE)
    assert len(typed) > 10
    answer = subprocess.run(
        command(start_cluster(servers=1)),
        input="\n".join(typed).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )

    def masked(output: str) -> str:
        return re.sub(r"(Zxid|time) = .*", r"\1 = …", output)

    assert masked(answer.stdout.decode()) == masked(shown)


# -- at a terminal


def terminal(cluster: Cluster, state: Path) -> Terminal:
    return Terminal(command(cluster), {"XDG_STATE_HOME": str(state), "NO_COLOR": "1"})


def prompt(cluster: Cluster, number: int) -> str:
    return f"[zk: {cluster.servers[1].address}(CONNECTED) {number}]"


def test_at_a_terminal_there_are_a_prompt_completion_events_and_history(
    running: Cluster, tmp_path: Path
) -> None:
    shell(running, lines="create /terminal\ncreate /terminal/first-child hello\n")
    with terminal(running, tmp_path) as one:
        one.expect(prompt(running, 0))
        one.type("getAl\t")
        one.expect("getAllChildrenNumber")
        one.type(" /termi\t")
        one.expect("nal")
        one.type("\r")
        assert "\n1\n" in one.expect(prompt(running, 1))
        one.type("get -w /terminal/fi\t")
        one.expect("rst-child")
        one.type("\r")
        assert "hello\n" in one.expect(prompt(running, 2))
        # While the prompt waits, somebody else writes.
        shell(running, "set", "/terminal/first-child", "\x1b[31mred")
        one.expect("WatchedEvent state:SyncConnected type:NodeDataChanged path:/terminal/first-child")
        one.expect(prompt(running, 2))
        one.type("get /terminal/first-child\r")
        one.expect("\\x1b[31mred")  # shown, not done
        one.expect(prompt(running, 3))
        one.type("addauth digest bob:secret\r")
        one.expect(prompt(running, 4))
        one.type("create -e /terminal/e\r")
        one.expect("Created /terminal/e")
        one.expect(prompt(running, 5))
        one.type("history\r")
        one.expect("3 - addauth digest …")
        one.expect(prompt(running, 6))
        one.type("\x04")
        assert one.process.wait(60) == 0
    assert shell(running, "ls", "/terminal").stdout == b"[first-child]\n"
    file = tmp_path / "zraft" / "shell_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = file.read_text().splitlines()
    assert lines[-2:] == ["create -e /terminal/e", "history"]
    assert not [line for line in lines if "secret" in line]
    with terminal(running, tmp_path) as two:
        two.expect(prompt(running, 0))
        two.type("\x1b[A\x1b[A")
        two.expect("create -e /terminal/e")
        two.type("2\r")
        two.expect("Created /terminal/e2")
        two.expect(prompt(running, 1))
        two.type("quit\r")
        assert two.process.wait(60) == 0


def unread_bytes(port: int) -> int:
    """What clients have sent to this port of 127.0.0.1 and its server has not read yet."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1] == f"0100007F:{port:04X}")


def test_ctrl_c_ends_the_line_or_the_command_and_not_the_shell(running: Cluster, tmp_path: Path) -> None:
    server = running.servers[1].process
    assert server is not None
    with terminal(running, tmp_path) as one:
        one.expect(prompt(running, 0))
        one.type("create /never\x03")
        one.expect(prompt(running, 0))
        server.send_signal(signal.SIGSTOP)
        try:
            before = unread_bytes(running.servers[1].address.port)
            one.type("ls /\r")
            one.wait_no_prompt()
            wait_until(
                lambda: unread_bytes(running.servers[1].address.port) > before, "the request to be sent"
            )
            one.type("\x03")
            one.expect("interrupted (what was sent already may be done or not)")
            one.expect(prompt(running, 1))
        finally:
            server.send_signal(signal.SIGCONT)
        one.type("stat /never\r")
        one.expect("Node does not exist: /never")
        one.expect(prompt(running, 2))
        one.type("close\r")
        one.expect("(CLOSED) 3]")
        one.type("ls /\r")
        one.expect("Not connected (`connect` begins a session)")
        one.expect("(CLOSED) 4]")
        one.type("connect\r")
        one.expect(prompt(running, 5))
        one.type("redo 1\r")
        one.expect("Node does not exist: /never")
        one.expect(prompt(running, 6))
        one.type("\x04")
        assert one.process.wait(60) == 0


def test_over_tls_a_certificate_is_an_identity(start_cluster: StartCluster, tmp_path: Path) -> None:
    authority = Authority()
    ca = authority.write(tmp_path)
    certificate, key = authority.issue().write(tmp_path, "server")
    own, own_key = authority.issue(subject_of(C="DE", CN="alice")).write(tmp_path, "alice")
    cluster = start_cluster(
        servers=1,
        ZRAFT_TLS__CERTIFICATE=str(certificate),
        ZRAFT_TLS__KEY=str(key),
        ZRAFT_TLS__CLIENT_CA=str(ca),
        ZRAFT_TLS__CLIENT_AUTH="want",
    )
    mine = ["--tls-ca", str(ca), "--tls-certificate", str(own), "--tls-key", str(own_key)]
    answer = shell(cluster, *mine, lines="whoami\nfour-letter ruok\n")
    assert answer.returncode == 0, answer.stderr
    assert "x509: CN=alice,C=DE" in answer.stdout.decode().splitlines()
    assert answer.stdout.endswith(b"imok\n")
    stranger = shell(cluster, "--timeout", "1", "--tls", "ls", "/")
    assert stranger.returncode == 1
    assert b"certificate verify failed" in stranger.stderr
    assert b"x509" not in shell(cluster, "whoami").stdout
