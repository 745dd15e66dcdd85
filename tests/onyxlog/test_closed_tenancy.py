"""A fleet that others cannot use: peers, commands and plugins show a proof, over TLS, and a stranger is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from onyxlog.access import CREATOR_ONLY
from tests.certificates import Authority
from tests.onyxlog.peer_processes import PeerProcess, Processes
from tests.onyxlog.test_commands import Console
from tests.processes.cluster import DEADLINE_S, wait_until
from tests.processes.conftest import StartCluster, start_cluster
from zraft.shell.secure import client_context
from zraft_client import Client

__all__ = ["start_cluster"]  # a fixture

JOB = """
id = "copy"
workflow = [["in", "out"]]
[[catalog]]
name = "in"
kind = "input"
max_peers = 1
plugin = { name = "znodes", options = { path = "/closed", format = "json", until_end = true } }
[[catalog]]
name = "out"
kind = "output"
max_peers = 1
plugin = { name = "lines", options = { path = "out" } }
"""


@pytest.mark.processes
def test_peers_commands_and_plugins_show_their_proof_over_tls_and_a_stranger_is_refused(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    authority = Authority()
    ca = authority.write(tmp_path)
    certificate, key = authority.issue().write(tmp_path, "server")
    cluster = start_cluster(servers=1, ZRAFT_TLS__CERTIFICATE=str(certificate), ZRAFT_TLS__KEY=str(key))
    proof = tmp_path / "peers.auth"
    proof.touch(mode=0o600)
    proof.write_text("digest:peers:s3cret\n")
    (tmp_path / "job.toml").write_text(JOB)

    async def write_what_only_they_may_read() -> None:
        async with Client(
            cluster.hosts(), auth=[("digest", b"peers:s3cret")], tls=client_context(ca=ca)
        ) as client:
            await client.create("/closed", b"", acl=CREATOR_ONLY)
            for number in range(3):
                data = json.dumps({"n": number}).encode()
                await client.create("/closed/entry-", data, sequential=True, acl=CREATOR_ONLY)

    asyncio.run(write_what_only_they_may_read())
    onyxlog = Console(tmp_path, cluster.hosts())
    ours = ("--auth-file", str(proof), "--tls-ca", str(ca))
    with Processes(tmp_path, cluster.hosts(), [*ours, "--peers", "2"]) as processes:
        peer = processes.start("peer")
        wait_until(lambda: onyxlog.succeeds("status", *ours) or None, "the peer to begin the log")
        assert "copy: completed" in onyxlog("submit-job", "job.toml", *ours, "--wait", "--timeout", "100")
        written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
        assert [json.loads(line)["n"] for line in written.splitlines()] == [0, 1, 2]
        for command in (["status"], ["submit-job", "job.toml"], ["gc"], ["kill-job", "copy"]):
            assert "this tenancy is closed: expected --auth-file" in onyxlog(*command, code=1)
        stranger = PeerProcess("stranger", tmp_path, cluster.hosts(), [])
        assert stranger.process.wait(DEADLINE_S) == 1
        assert "this tenancy is closed: expected --auth-file" in stranger.log_text()
        assert peer.stop() == 0
        processes.peers.pop("peer")
    assert "s3cret" not in peer.log_text()


@pytest.mark.processes
def test_a_file_of_proofs_that_others_may_read_is_refused(tmp_path: Path) -> None:
    proof = tmp_path / "peers.auth"
    proof.write_text("digest:peers:s3cret\n")
    proof.chmod(0o644)
    refused = Console(tmp_path, "127.0.0.1:1")("status", "--auth-file", str(proof), code=2)
    assert "expected" in refused
    assert "chmod 600" in refused
    assert "s3cret" not in refused
