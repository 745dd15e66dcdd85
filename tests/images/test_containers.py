"""The image is built from the real Dockerfile, and the services of compose.yaml run from it.

It is `docker compose up` without an engine. What an engine adds is not looked at here: ports that
are published on this machine, and restarts.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.images.buildah import PLACE, Buildah, cannot
from tests.images.compose import Service, read_compose
from tests.images.dockerfile import REPOSITORY, read_dockerfile
from tests.images.project import Project, empty
from zraft_bench.local.containers import USER

SERVERS = ("zraft1", "zraft2", "zraft3")
IMAGE = "zraft"
WORDS = "to be or not to be that is the question\nto be is to do\n"

pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(bool(cannot()), reason=cannot()),
]


@pytest.fixture(scope="module")
def buildah() -> Iterator[Buildah]:
    """A store with the image in it, built now."""
    store = Buildah()
    PLACE.mkdir(parents=True, exist_ok=True)
    took_s = store.build(IMAGE, sorted({stage.image for stage in read_dockerfile() if stage.image}))
    print(f"built in {took_s:.0f} s")
    yield store
    store("rmi", IMAGE)


@pytest.fixture
def directory() -> Path:
    """Below the store, because the image's user must be able to get there, which a test's own directory does not allow."""
    path = PLACE / "project"
    empty(path)
    return path


def client_of(hosts: list[str]) -> KazooClient:
    client = KazooClient(hosts=",".join(f"{host}:2181" for host in hosts))
    client.start(30)
    return client


def write_the_job_of_the_document(jobs: Path) -> None:
    """The job of docs/explanation/onyxlog.md, and another text to count."""
    for name in ("job.toml", "words.py"):
        shutil.copy(REPOSITORY / "examples" / "words" / name, jobs)
    (jobs / "words.txt").write_text(WORDS)


def counts(jobs: Path) -> Counter[str]:
    """What the job wrote last of each word."""
    found: Counter[str] = Counter()
    for path in sorted((jobs / "counts").iterdir()):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["group"]] = max(found[row["group"]], row["result"])
    return found


async def test_servers_and_peers_of_compose_serve_keep_what_was_written_and_run_a_job(
    buildah: Buildah, directory: Path
) -> None:
    async with Project(buildah, IMAGE, read_compose(), directory) as project:
        servers = [project.place(f"{name}-1") for name in SERVERS]
        assert not await project.healthy(servers[0]), "healthy before it runs"
        await project.up("peers")
        code, shown = await project.run(servers[0], "sh", "-c", "echo spoilt >>/keys/cluster.key")
        assert code != 0, "a server can write the key that it only uses"
        await asyncio.to_thread(clients_write_and_read, project)
        await peers_run_a_job(project)
        for container in project.running.values():
            assert container.user() == USER
        for place in servers:
            container = project.running[place.name]
            assert await container.stop(project.config.stop_signal) == 0, container.tail()
        for place in servers:
            await project.start(place)
        await project.wait_healthy(*(place.name for place in servers))
        await asyncio.to_thread(what_was_written_is_there, project)
        # The peers were there all the while, and go on.
        code, shown = await project.run(project.place("onyxlog-1"), "onyxlog", "status", "--json")
        assert code == 0, shown
        assert len(json.loads(shown)["groups"]) == read_compose()["peer"].replicas


def clients_write_and_read(project: Project) -> None:
    """Each server is asked at its own address; the admin page is where compose publishes it from."""
    hosts = [host for name in SERVERS for host in project.hosts_of(name)]
    first, last = client_of(hosts[:1]), client_of(hosts[-1:])
    try:
        first.create("/written", b"once")
        last.sync("/written")
        assert last.get("/written")[0] == b"once"
    finally:
        for client in (first, last):
            client.stop()
            client.close()
    for host in hosts:
        with urllib.request.urlopen(f"http://{host}:8080/", timeout=20) as page:
            assert page.status == 200


def what_was_written_is_there(project: Project) -> None:
    client = client_of([host for name in SERVERS for host in project.hosts_of(name)])
    try:
        assert client.get("/written")[0] == b"once"
    finally:
        client.stop()
        client.close()


async def peers_run_a_job(project: Project) -> None:
    """Every container of the fleet has part of the work, so that segments go from one to another."""
    place = project.place("onyxlog-1")
    jobs = project.volume("jobs", "/jobs")
    write_the_job_of_the_document(jobs)
    code, shown = await project.run(place, "onyxlog", "submit-job", "job.toml", "--wait", "--timeout", "120")
    logs = "".join(container.tail() for name, container in project.running.items() if name.startswith("peer"))
    assert code == 0, shown + logs
    assert "completed" in shown
    assert counts(jobs) == Counter(WORDS.split())
    took_part = [
        name
        for name, container in project.running.items()
        if name.startswith("peer") and "task starts" in container.log.read_text(errors="replace")
    ]
    assert len(took_part) == read_compose()["peer"].replicas, logs


async def test_the_image_alone_is_a_server_and_has_all_commands(buildah: Buildah, directory: Path) -> None:
    """`docker run zraft`, with nothing configured."""
    alone = Service(name="alone", image=IMAGE, build=".")

    async with Project(buildah, IMAGE, {"alone": alone}, directory) as project:
        await project.up()
        (place,) = project.places
        for command in ("zraft", "zraft-bench", "onyxlog"):
            code, shown = await project.run(place, command, "--version")
            assert code == 0, shown
        container = project.running[place.name]
        assert await container.stop(project.config.stop_signal) == 0, container.tail()
