"""Builds our image and runs its containers without an engine, by Debian's `buildah` and `debootstrap`.

It needs root. `buildah` carries out the real Dockerfile. The image that its `FROM` names is not
fetched: a Debian that `debootstrap` makes, with the same version of Python, is given that name. A
container is a process in a copy of the image, in a network namespace of its own.

Everything is kept below one directory: `.images/` of the checkout, or what ZRAFT_IMAGES names. A
second build finds the base there.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from tests.images.dockerfile import REPOSITORY

PLACE: Final = Path(os.environ.get("ZRAFT_IMAGES", REPOSITORY / ".images"))
DEBIAN: Final = {"python:3.11-slim": "bookworm", "python:3.13-slim": "trixie"}
"""The release of Debian that has the Python of an image."""
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
ERROR_CHARACTERS_MAX: Final = 8_000


class EngineError(AssertionError):
    """A command of the engine failed; says which, and the end of what it wrote."""


def cannot() -> str:
    """Why images cannot be built here; empty if they can."""
    if os.geteuid() != 0:
        return "images are built as root only: run this as root, or build with an engine of your own"
    absent = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    return f"not installed: apt-get install {' '.join(absent)}" if absent else ""


def run(*words: str, timeout_s: float) -> str:
    """What a command writes to its standard output.

    Raises:
        EngineError: it fails.
    """
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode:
        raise EngineError(
            f"`{' '.join(words)}` failed: {(done.stdout + done.stderr)[-ERROR_CHARACTERS_MAX:]}"
        )
    return done.stdout


@frozen
class ImageConfig:
    """What an image says of its containers, as far as one that is not an engine has to see to it."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    health: tuple[str, ...]
    user: str
    stop_signal: str
    volumes: tuple[str, ...]


@frozen
class PipSettings:
    """How pip is configured on this machine, for builds in which it must reach the same package index."""

    text: str
    """As a configuration file."""
    paths: tuple[Path, ...]
    """What it refers to on this machine's disk."""


def pip_settings(listed: str, environ: Mapping[str, str]) -> PipSettings:
    """From what `pip config list` shows; a variable of the environment wins over a file, as it does for pip.

    Args:
        environ: where other programs are told of a certificate authority, which pip takes as well.
    """
    found: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            # Those of the environment come first in the list and win.
            found.setdefault(key, ast.literal_eval(value))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if environ.get(name):
            found.setdefault("cert", environ[name])
    words = [word for value in found.values() for word in value.split()]
    named = {Path(word) for word in words if word.startswith("/")}
    # The pages of an index name files, which are beside them as a rule.
    named |= {Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")}
    paths = tuple(sorted(path for path in named if path.exists()))
    lines = [f"{key} = {' '.join(value.split())}\n" for key, value in sorted(found.items())]
    return PipSettings("[global]\n" + "".join(lines), paths)


@frozen
class Buildah:
    """A store of images and containers below `place`."""

    place: Path = field(default=PLACE)

    def words(self, *words: str) -> tuple[str, ...]:
        """A command of buildah on this store. `vfs` copies whole directories, which every file system can do."""
        store = ("--root", str(self.place / "store"), "--runroot", str(self.place / "run"))
        return ("buildah", *store, "--storage-driver", "vfs", *words)

    def __call__(self, *words: str, timeout_s: float = 120) -> str:
        return run(*self.words(*words), timeout_s=timeout_s).strip()

    def base(self, image: str) -> None:
        """Make what stands for an official image of Python, if it is not in the store yet."""
        name = f"docker.io/library/{image}"
        if self("images", "--quiet", "--filter", f"reference={name}"):
            return
        root = self.place / "base"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        made = ("--variant=minbase", f"--include={','.join(PACKAGES)}", DEBIAN[image], str(root))
        run("debootstrap", *made, timeout_s=900)
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for kept in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / kept)
        container = self("from", "scratch")
        self("add", "--quiet", container, str(root), "/")
        self("commit", "--quiet", "--rm", container, name)
        shutil.rmtree(root)

    def build(self, tag: str, images: Sequence[str]) -> float:
        """Build the Dockerfile of the checkout on what stands for `images`; how long it took, in seconds.

        pip reaches the index that it reaches outside: its configuration is lent to the build and is no part of the image.
        """
        for image in images:
            self.base(image)
        listed = run(sys.executable, "-m", "pip", "config", "list", timeout_s=60)
        pip = pip_settings(listed, os.environ)
        configuration = self.place / "pip.conf"
        configuration.write_text(pip.text)
        lent = {str(path): path for path in pip.paths} | {"/etc/pip.conf": configuration}
        volumes = (word for inside, path in lent.items() for word in ("--volume", f"{path}:{inside}:ro"))
        began = time.monotonic()
        options = ("--isolation", "chroot", "--network", "host", "--pull-never", "--format", "docker")
        self("bud", *options, *volumes, "--tag", tag, str(REPOSITORY), timeout_s=900)
        return time.monotonic() - began

    def config(self, image: str) -> ImageConfig:
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]
        kind, *health = found["Healthcheck"]["Test"]
        assert kind == "CMD"
        return ImageConfig(
            entrypoint=tuple(found["Entrypoint"]),
            command=tuple(found["Cmd"]),
            health=tuple(health),
            user=found["User"],
            stop_signal=found["StopSignal"],
            volumes=tuple(found["Volumes"]),
        )

    def container(self, image: str) -> tuple[str, Path]:
        """A writable copy of an image: its name, and where its files are."""
        name = self("from", "--pull-never", image)
        return name, Path(self("mount", name))

    def remove(self, container: str) -> None:
        self("rm", container)


def innermost(pid: int) -> int:
    """The last descendant of a process that has one child at a time: the service below the processes of buildah."""
    while children := _children(pid):
        pid = children[0]
    return pid


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = re.sub(r"^.*\)", "", stat.read_text()).split()[1]
        except OSError:  # it has ended since it was listed
            continue
        if int(parent) == pid:
            found.append(int(stat.parent.name))
    return sorted(found)
