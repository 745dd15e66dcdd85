"""Who may read and write a tenancy: everybody, or only those with the same ids; and what a file of proofs may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onyxlog.access import Access, TlsFiles, read_auth
from onyxlog.peer.log.layout import LogLayout
from onyxlog.peer.log.opening import Service, opener
from tests.onyxlog.peer.test_log_contract import PARAMETERS, origin_at, record, take
from tests.processes.cluster import Cluster
from zraft_client import Client, NoAuthError
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError

OURS = Access(auth=(("digest", b"peers:s3cret"),))
OTHERS = Access(auth=(("digest", b"others:s3cret"),))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("access"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


@pytest.mark.processes
@pytest.mark.parametrize("service", list(Service))
async def test_a_tenancy_is_for_those_who_show_the_same_proof(servers: Cluster, service: Service) -> None:
    """Not even its log can be read or written by others, and others' tenancies stand beside it."""
    hosts = tuple(parse_address(one, "hosts") for one in servers.hosts().split(","))
    tenancy = f"closed-{service.value}"
    port = await opener(service, hosts, tenancy, access=OURS)()
    second = await opener(service, hosts, tenancy, access=OURS)()
    stranger = await opener(service, hosts, tenancy)()
    await port.begin(PARAMETERS)
    assert await port.append(record(0)) == 0
    assert await second.append(record(1)) == 1
    assert [entry.position for entry in await take(second, 0, 2)] == [0, 1]
    assert await port.store_origin(origin_at(0, peers=5_000))
    await second.put_state("a/b", b"x")
    with pytest.raises(NoAuthError):
        await stranger.append(record(2))
    with pytest.raises(NoAuthError):
        await stranger.begin(PARAMETERS)
    async with Client(servers.hosts()) as client:
        layout = LogLayout(tenancy)
        for path in (layout.log, layout.entry(1), layout.origin, layout.root):
            with pytest.raises(NoAuthError):
                await client.children(path)
    beside = await opener(service, hosts, f"{tenancy}-beside", access=OTHERS)()
    await beside.begin(PARAMETERS)
    assert await beside.append(record(0)) == 0
    for one in (port, second, stranger, beside):
        await one.close()


def test_without_proof_znodes_have_the_services_default() -> None:
    assert Access().acl is None
    assert OURS.acl == ((31, "auth", ""),)
    assert "s3cret" not in repr(OURS)


def proofs(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_a_file_holds_a_proof_per_line(tmp_path: Path) -> None:
    path = proofs(tmp_path / "auth", b"# peers\ndigest:peers:a:b\n\nsasl:x\n")
    assert read_auth(path) == (("digest", b"peers:a:b"), ("sasl", b"x"))


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        (b"digest:peers:s3cret\n", 0o640, r"mode 0600\), found mode 0640; run `chmod 600"),
        (b"digest peers s3cret\n", 0o600, "line 1: expected SCHEME:CREDENTIALS"),
        (b"digest:\n", 0o600, "line 1: expected SCHEME:CREDENTIALS"),
        (b"# nothing\n", 0o600, "at least one line"),
        (b"digest:" + b"x" * 70_000, 0o600, "at least one line"),
    ],
)
def test_what_is_no_file_of_proofs_is_told_without_what_it_holds(
    tmp_path: Path, text: bytes, mode: int, complaint: str
) -> None:
    path = proofs(tmp_path / "auth", text, mode)
    with pytest.raises(ConfigError, match=complaint) as told:
        read_auth(path)
    assert "s3cret" not in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--auth-file: .* cannot be opened: No such file"):
        read_auth(tmp_path / "none")


def test_tls_over_kazoo_needs_an_authority() -> None:
    with pytest.raises(ConfigError, match="--tls-ca"):
        Access(tls=TlsFiles()).kazoo_options()
    options = Access(tls=TlsFiles(ca=Path("ca.pem"), certificate=Path("me.pem"))).kazoo_options()
    assert options == {"use_ssl": True, "ca": "ca.pem", "certfile": "me.pem", "keyfile": "me.pem"}


def test_a_certificate_that_cannot_be_used_is_told_before_there_is_a_connection(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--tls-ca: .* cannot be used"):
        opener(
            Service.ZRAFT,
            (parse_address("127.0.0.1:1", "hosts"),),
            "t",
            access=Access(tls=TlsFiles(ca=tmp_path / "none")),
        )
