"""Fetches what the compatibility tests run, into `.compat/` of the checkout (or ZRAFT_COMPAT), once.

    python -m tests.compat.install          all of it; about 1 GB, most of it PySpark, for the Java clients' jars

Python packages come from PyPI, JavaScript ones from npm, and ZooKeeper itself and the C client from Debian. Nothing
of it is committed, and nothing is installed outside of the directory but the Debian packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = Path(os.environ.get("ZRAFT_COMPAT", ROOT / ".compat"))

KAZOO: Final = "kazoo==2.11.0"
KAZOO_NEEDS: Final = (
    *("pytest", "pytest-timeout", "gevent", "eventlet", "objgraph", "pure_sasl", "setuptools"),
    *("pyjks", "pyopenssl==24.2.1"),  # kazoo's harness signs certificates with what later ones removed
)
PYSPARK: Final = "pyspark==4.0.1"
NODE_CLIENT: Final = "node-zookeeper-client@1.1.3"
DEBIAN: Final = ("zookeeper", "libzookeeper-mt-dev", "default-jdk-headless", "gcc", "nodejs", "npm")


class MissingError(RuntimeError):
    """Something that the tests run is not here and cannot be fetched; says what and how to get it."""


def kazoo_suite() -> tuple[Path, Path, Path]:
    """(interpreter with what kazoo's tests need, sdist of kazoo, directory to work in)."""
    place = PLACE / "kazoo"
    python = place / "venv" / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _run(sys.executable, "-m", "venv", str(place / "venv"))
        _run(str(python), "-m", "pip", "install", "--quiet", *KAZOO_NEEDS)
        _run(
            *(str(python), "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"),
            *("--dest", str(place), KAZOO),
        )
        (place / "complete").touch()
    return python, next(place.glob("kazoo-*.tar.gz")), place


def java_jars() -> Path:
    """The directory of the jars inside PySpark: ZooKeeper's client, Curator, and Spark."""
    place = PLACE / "java"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place)),
            PYSPARK,
        )
        (found,) = place.glob("pyspark-*.tar.gz")
        (place / "jars").mkdir()
        with tarfile.open(found) as archive:
            for member in archive:
                jar = archive.extractfile(member) if "/deps/jars/" in member.name else None
                if jar is not None and member.name.endswith(".jar"):
                    with jar, (place / "jars" / Path(member.name).name).open("wb") as file:
                        shutil.copyfileobj(jar, file)
        found.unlink()
        (place / "complete").touch()
    return place / "jars"


def node_modules() -> Path:
    """The directory of the npm packages. Their install scripts do not run: the client needs none."""
    place = PLACE / "node"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text('{"private": true}\n')
        _run("npm", "install", "--silent", "--ignore-scripts", "--prefix", str(place), NODE_CLIENT)
        (place / "complete").touch()
    return place / "node_modules"


def program(name: str, package: str) -> str:
    """The path of a program that a Debian package installs.

    Raises:
        MissingError: it is not there.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingError(
            f"{name} is not installed: apt-get install {package}, or python -m tests.compat.install"
        )
    return found


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise MissingError(
            f"{command[0]} is not installed; python -m tests.compat.install does it"
        ) from error
    except subprocess.CalledProcessError as error:
        raise MissingError(f"`{' '.join(command)}` failed: {error.stderr[-2000:]}") from error


def main(argv: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat.install",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    if shutil.which("apt-get") is not None:
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        absent = [
            name
            for name in DEBIAN
            if subprocess.run(["dpkg", "-s", name], check=False, capture_output=True).returncode
        ]
        # Another JDK or npm, from elsewhere, will do as well.
        absent = [
            name for name in absent if shutil.which({"default-jdk-headless": "javac"}.get(name, name)) is None
        ]
        if absent:
            subprocess.run([*as_root, "apt-get", "update", "-qq"], check=True)
            subprocess.run(
                [*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent], check=True
            )
    print(f"kazoo's suite: {kazoo_suite()[1]}")
    print(f"jars: {java_jars()}")
    print(f"npm packages: {node_modules()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
