"""A cluster in containers on this machine's Docker engine, by the Docker SDK (the extra `bench`).

Everything that is made is named and labelled with the run, and removed at the end.
"""

from __future__ import annotations

import io
import secrets
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from zraft.cli.status import sole_leader
from zraft_bench.cluster import ASK_TIMEOUT_S, new_key, wait_until
from zraft_bench.processes import HOST, ServerError
from zraft_core.address import Address
from zraft_core.errors import ConfigError

CLIENT_PORT: Final = "2181/tcp"
USER: Final = 10_001
"""The image's user (see Dockerfile), who must own the key's file."""

LABEL: Final = "org.zraft.bench"
LOG_TAIL_LINES: Final = 20
STOP_S: Final = 15


def engine() -> Any:
    """Return a client of the Docker engine that the environment names.

    Raises:
        ConfigError: the SDK is not installed, or no engine answers.
    """
    try:
        import docker
    except ImportError as error:
        raise ConfigError("--docker: the Docker SDK is not installed; pip install 'zraft[bench]'") from error
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise ConfigError(
            f"--docker: no engine answers: {error}; is it running, and may you use it?"
        ) from error
    return client


def checkout() -> Path | None:
    """Return where the Dockerfile is, if this module is part of a checkout."""
    root = Path(__file__).parents[3]
    return root if (root / "Dockerfile").exists() else None


class ContainerCluster:
    """Servers 1 to n in containers of one network; clients reach them through ports of 127.0.0.1."""

    def __init__(self, docker: Any, image: str, servers: int, settings: Sequence[str] = ()) -> None:
        self._docker = docker
        self._image = image
        self._count = servers
        self._settings = list(settings)
        self._run = secrets.token_hex(4)
        self._network: Any = None
        self._containers: dict[int, Any] = {}
        self._addresses: dict[int, Address] = {}

    @property
    def hosts(self) -> str:
        """The servers' addresses, separated by commas."""
        return ",".join(str(address) for address in self._addresses.values())

    @property
    def count(self) -> int:
        """The number of servers."""
        return self._count

    def _name(self, number: int) -> str:
        return f"zraft-bench-{self._run}-{number}"

    def start(self) -> None:
        """Start the containers and wait until the servers serve."""
        self._require_image()
        labels = {LABEL: self._run}
        self._network = self._docker.networks.create(
            f"zraft-bench-{self._run}", driver="bridge", labels=labels
        )
        key = _key_archive()
        cluster = ",".join(f"{n}={self._name(n)}:2181" for n in range(1, self._count + 1))
        for number in range(1, self._count + 1):
            command = ["serve", *(word for setting in self._settings for word in ("--set", setting))]
            container = self._docker.containers.create(
                self._image,
                command,
                name=self._name(number),
                network=self._network.name,
                environment={
                    "ZRAFT_ID": str(number),
                    "ZRAFT_ADDRESS": "0.0.0.0:2181",
                    "ZRAFT_CLUSTER": cluster,
                    "ZRAFT_KEY": "/keys/cluster.key",
                },
                ports={CLIENT_PORT: (HOST, None)},
                labels=labels,
                detach=True,
            )
            self._containers[number] = container
            # The key goes into the container and not into its environment, which everybody can inspect.
            container.put_archive("/keys", key)
        for container in self._containers.values():
            container.start()
        self._learn_ports()
        wait_until(self._leader, "the containers to serve with one leader")

    def _learn_ports(self) -> None:
        for number, container in self._containers.items():
            container.reload()
            bound = container.attrs["NetworkSettings"]["Ports"][CLIENT_PORT]
            self._addresses[number] = Address(HOST, int(bound[0]["HostPort"]))

    def _require_image(self) -> None:
        if self._docker.images.list(name=self._image):
            return
        root = checkout()
        if root is None:
            raise ServerError(
                f"--image: the engine has no image {self._image}, and there is no Dockerfile here to build it from; "
                "build it in a checkout: docker build -t zraft ."
            )
        self._docker.images.build(path=str(root), tag=self._image, rm=True)

    def _leader(self) -> int | None:
        for container in self._containers.values():
            container.reload()
            if container.status in ("exited", "dead"):
                tail = container.logs(tail=LOG_TAIL_LINES).decode(errors="replace")
                raise ServerError(f"container {container.name} has ended:\n{tail}")
        return sole_leader(self._addresses, ASK_TIMEOUT_S)

    def cpu_s(self) -> float | None:
        """Return CPU time as the engine counts it, user and system."""
        used = 0
        for container in self._containers.values():
            used += container.stats(stream=False)["cpu_stats"]["cpu_usage"]["total_usage"]
        return used / 1e9

    def restart(self) -> None:
        """Restart all at once, on their data; their ports may change."""
        for container in self._containers.values():
            container.restart(timeout=STOP_S)
        self._learn_ports()
        wait_until(self._leader, "the containers to serve with one leader")

    def stop(self) -> None:
        """Remove containers with their volumes, then the network."""
        for container in self._containers.values():
            container.remove(force=True, v=True)
        self._containers.clear()
        if self._network is not None:
            self._network.remove()
            self._network = None


def _key_archive() -> bytes:
    """Return a tar archive with a fresh cluster key, readable for the image's user alone."""
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as directory:
        path = Path(directory) / "cluster.key"
        new_key(path)
        text = path.read_bytes()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("cluster.key")
        entry.size, entry.mode, entry.uid, entry.gid = len(text), 0o400, USER, USER
        tar.addfile(entry, io.BytesIO(text))
    return archive.getvalue()
