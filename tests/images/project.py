"""Runs the services of compose.yaml as an engine would: names, networks, volumes, conditions, health, signals."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import define, frozen

from tests.chaos.namespaces import NamespaceNetwork
from tests.images.buildah import Buildah, ImageConfig, innermost
from tests.images.compose import Service

HEALTHY_S: Final = 120.0
COMMAND_S: Final = 180.0
STOP_S: Final = 30.0
POLL_S: Final = 0.5
LOG_TAIL_BYTES: Final = 6_000
PORT: Final = 2181


@frozen
class Place:
    """One container of a service: its name, which is its host's as well, and the number of its network namespace."""

    service: Service
    name: str
    number: int


@define
class Container:
    """A running one. Its log has what it writes to either stream."""

    place: Place
    process: asyncio.subprocess.Process
    log: Path

    def pid(self) -> int:
        """Of the service itself, below the processes that hold the container."""
        return innermost(self.process.pid)

    def user(self) -> int:
        """Whom the service runs as."""
        return os.stat(f"/proc/{self.pid()}").st_uid

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_BYTES:]

    async def stop(self, how: str) -> int:
        """Send the signal by name to the service, as an engine does; its exit code."""
        os.kill(self.pid(), signal.Signals[how])
        return await asyncio.wait_for(self.process.wait(), STOP_S)

    async def kill(self) -> None:
        """End it and what holds it, whatever state it is in."""
        if self.process.returncode is None:
            for pid in (self.pid(), self.process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        await self.process.wait()


def places(services: Iterable[Service]) -> list[Place]:
    """A place for each replica of each service."""
    named = [
        (service, f"{service.name}-{replica}")
        for service in services
        for replica in range(1, service.replicas + 1)
    ]
    return [Place(service, name, number) for number, (service, name) in enumerate(named, 1)]


class Project:
    """Containers of `services`, which share names, volumes and one copy of the image.

    Use it as a context manager. As with an engine, a service is found by its name, and a new volume
    takes the owner of the directory that it is put over. The copy of the image is shared because
    nothing is written to it: what a container writes is in volumes.
    """

    def __init__(
        self, buildah: Buildah, image: str, services: Mapping[str, Service], directory: Path
    ) -> None:
        self._buildah = buildah
        self._image = image
        self._services = services
        self._directory = directory
        self.places = places(services.values())
        self._network = NamespaceNetwork(len(self.places), PORT)
        self._copy = ""
        self._files = Path()
        self.config: ImageConfig = buildah.config(image)
        self.running: dict[str, Container] = {}

    async def __aenter__(self) -> Project:
        self._copy, self._files = self._buildah.container(self._image)
        try:
            await self._network.open()
        except BaseException:
            self._buildah.remove(self._copy)
            raise
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.host(place)} {place.name} {place.service.name}" for place in self.places]
        (self._directory / "hosts").write_text("\n".join(lines) + "\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        for container in self.running.values():
            await container.kill()
        await self._network.close()
        self._buildah.remove(self._copy)

    def host(self, place: Place) -> str:
        """Its address, which this machine reaches as well."""
        return self._network.address(place.number).host

    def hosts_of(self, service: str) -> list[str]:
        return [self.host(place) for place in self.places if place.service.name == service]

    def volume(self, name: str, target: str) -> Path:
        """Where a volume is on this machine's disk; it is made as the image has the directory `target`."""
        path = self._directory / "volumes" / name
        if not path.exists():
            path.mkdir(parents=True)
            like = (self._files / target.lstrip("/")).stat()
            os.chown(path, like.st_uid, like.st_gid)
            path.chmod(like.st_mode & 0o7777)
        return path

    def words(self, place: Place, command: Sequence[str]) -> tuple[str, ...]:
        """What runs a command as in a container of this service, without its entrypoint."""
        service = place.service
        mounts = {volume.target: volume for volume in service.volumes}
        volumes = [f"{self._directory / 'hosts'}:/etc/hosts:ro"]
        for target, volume in mounts.items():
            volumes.append(
                f"{self.volume(volume.name, target)}:{target}:{'ro' if volume.read_only else 'rw'}"
            )
        for target in set(self.config.volumes) - set(mounts):
            volumes.append(f"{self.volume(place.name, target)}:{target}:rw")
        options = ["--isolation", "chroot", "--network", "host", "--no-hosts", "--hostname", place.name]
        options += [word for volume in volumes for word in ("--volume", volume)]
        options += [word for item in service.environment.items() for word in ("--env", "=".join(item))]
        if service.working_dir is not None:
            options += ["--workingdir", service.working_dir]
        held = self._buildah.words("run", *options, self._copy, "--", *command)
        return (*self._network.prefix(place.number), *held)

    def place(self, name: str) -> Place:
        """By the name of the container."""
        (found,) = [place for place in self.places if place.name == name]
        return found

    async def run(self, place: Place, *command: str, timeout_s: float = COMMAND_S) -> tuple[int, str]:
        """The exit code of a command in a container of this service, and what it wrote."""
        process = await asyncio.create_subprocess_exec(
            *self.words(place, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            written, _ = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            os.kill(innermost(process.pid), signal.SIGKILL)
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, written.decode(errors="replace")

    def command(self, service: Service) -> tuple[str, ...]:
        """What a service starts. An entrypoint of its own takes the image's command away, too."""
        entrypoint = self.config.entrypoint if service.entrypoint is None else service.entrypoint
        default = self.config.command if service.entrypoint is None else ()
        return (*entrypoint, *(default if service.command is None else service.command))

    async def start(self, place: Place) -> Container:
        log = self._directory / f"{place.name}.log"
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *self.words(place, self.command(place.service)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=asyncio.subprocess.STDOUT,
            )
        container = self.running[place.name] = Container(place, process, log)
        return container

    async def healthy(self, place: Place) -> bool:
        """What its health check says, once."""
        check = self.config.health if place.service.health is None else place.service.health
        code, _ = await self.run(place, *check)
        return code == 0

    async def wait_healthy(self, *names: str) -> None:
        """Until these containers are healthy; a container that ends is a failure."""
        until = time.monotonic() + HEALTHY_S
        for name in names:
            container = self.running[name]
            while not await self.healthy(container.place):
                assert container.process.returncode is None, f"{name} ended:\n{container.tail()}"
                assert time.monotonic() < until, f"{name} is not healthy:\n{container.tail()}"
                await asyncio.sleep(POLL_S)

    async def up(self, *profiles: str) -> None:
        """Start what `docker compose up` starts with these profiles, in the order of the conditions, and wait for all."""
        wanted = [
            one for one in self._services.values() if not one.profiles or set(one.profiles) & set(profiles)
        ]
        met: set[tuple[str, str]] = set()
        while wanted:
            ready = [one for one in wanted if set(one.waits_for.items()) <= met]
            assert ready, (
                f"nothing can start: {[one.name for one in wanted]} wait for what has not happened: {met}"
            )
            wanted = [one for one in wanted if one not in ready]
            chosen = [place for place in self.places if place.service in ready]
            staying = [place for place in chosen if place.service.health != ()]
            for place in chosen:
                if place not in staying:
                    code, written = await self.run(place, *self.command(place.service))
                    assert code == 0, f"{place.name} ended with code {code}:\n{written}"
                    met.add((place.service.name, "service_completed_successfully"))
            for place in staying:
                await self.start(place)
            await self.wait_healthy(*(place.name for place in staying))
            met |= {(place.service.name, "service_healthy") for place in staying}


def empty(directory: Path) -> None:
    """Nothing of an earlier run is left there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
