"""Reads compose.yaml as far as ours goes, so that tests start what the file says and cannot drift from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from attrs import field, frozen

from tests.images.dockerfile import REPOSITORY

COMPOSE: Final = REPOSITORY / "compose.yaml"
KNOWN: Final = frozenset(
    (
        *("build", "command", "depends_on", "deploy", "entrypoint", "environment", "healthcheck", "image"),
        *("ports", "profiles", "restart", "stop_grace_period", "volumes", "working_dir"),
    )
)
"""Keys of a service. Another one is an error: it would go unlooked at."""


@frozen
class Volume:
    """A named volume, and where it is in the container."""

    name: str
    target: str
    read_only: bool


@frozen
class Service:
    """What one service says. None means that the image's own value is in force."""

    name: str
    image: str
    build: str
    profiles: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(factory=dict)
    ports: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    working_dir: str | None = None
    replicas: int = 1
    health: tuple[str, ...] | None = None
    """The words of its health check; empty if the service has none."""
    waits_for: Mapping[str, str] = field(factory=dict)
    """Services that come first, and on which condition."""


def read_compose(path: Path = COMPOSE) -> dict[str, Service]:
    """The services by name. A key or a substitution that this does not know is an error."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    services = {name: _service(name, found) for name, found in document["services"].items()}
    named = {volume.name for service in services.values() for volume in service.volumes}
    assert named == set(document["volumes"]), "a volume is used and not declared, or declared and not used"
    return services


def _service(name: str, found: dict[str, Any]) -> Service:
    assert not set(found) - KNOWN, f"{name}: the test does not know what {set(found) - KNOWN} does"
    assert set(found.get("deploy", {})) <= {"replicas"}, f"{name}: deploy: {found['deploy']}"
    return Service(
        name=name,
        image=found["image"],
        build=found["build"],
        profiles=tuple(found.get("profiles", ())),
        entrypoint=_words(found.get("entrypoint")),
        command=_words(found.get("command")),
        environment={key: _plain(value) for key, value in found.get("environment", {}).items()},
        ports=tuple(found.get("ports", ())),
        volumes=tuple(_volume(text) for text in found.get("volumes", ())),
        working_dir=found.get("working_dir"),
        replicas=found.get("deploy", {}).get("replicas", 1),
        health=_health(found.get("healthcheck")),
        waits_for={other: how["condition"] for other, how in found.get("depends_on", {}).items()},
    )


def _words(found: list[str] | None) -> tuple[str, ...] | None:
    if found is None:
        return None
    assert isinstance(found, list), f"{found!r}: signals do not arrive at what a shell runs; give a list"
    return tuple(_plain(word) for word in found)


def _plain(text: str) -> str:
    """Without compose's own substitutions, of which `$$` for a dollar sign is the only one that we use."""
    assert isinstance(text, str), (
        f"{text!r}: put it in quotes, so that YAML does not read it as something else"
    )
    assert "$" not in text.replace("$$", ""), f"{text!r}: the test knows no variables"
    return text.replace("$$", "$")


def _volume(text: str) -> Volume:
    name, target, *options = text.split(":")
    assert options in ([], ["ro"]), text
    return Volume(name, target, options == ["ro"])


def _health(found: dict[str, Any] | None) -> tuple[str, ...] | None:
    if found is None:
        return None
    if found.get("disable"):
        return ()
    kind, *words = found["test"]
    assert kind == "CMD", f"{json.dumps(found['test'])}: expected CMD and a list of words"
    return tuple(_plain(word) for word in words)
