"""Contents of wheels and sdists: exactly the files that the tree ships, with their bytes, and what packaging adds.

python -m tests.release.contents DIRECTORY     compares the archives in a directory with this tree
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from attrs import frozen

from tests.packaging.distributions import DISTRIBUTIONS, data_files, package_dirs, packages_of, setup_cfg
from tests.packaging.modules import REPOSITORY
from tests.release.errors import ReleaseError

BESIDE: Final = ("LICENSE", "README.md", "pyproject.toml")
"""Files of the tree in an sdist beside the packages; its setup.cfg has a few lines more than the tree's."""
SHOWN: Final = 8

Files = Mapping[str, bytes]


@frozen
class Archive:
    """A wheel or an sdist. The names of its files are those below its root."""

    name: str
    distribution: str
    version: str
    is_wheel: bool
    files: Files


def read_archive(path: Path) -> Archive:
    """Read all of it.

    Raises:
        ReleaseError: it is neither a wheel nor an sdist of ours.
    """
    data = path.read_bytes()
    if path.name.endswith("-py3-none-any.whl"):
        name, version, *_ = path.name.split("-")
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            files = {one.filename: wheel.read(one) for one in wheel.infolist() if not one.is_dir()}
        return Archive(path.name, _known(name, path), version, True, files)
    if path.name.endswith(".tar.gz"):
        root = path.name.removesuffix(".tar.gz")
        name, version = root.rsplit("-", 1)
        with tarfile.open(fileobj=io.BytesIO(data)) as sdist:
            files = {
                PurePosixPath(one.name).relative_to(root).as_posix(): content.read()
                for one in sdist
                if (content := sdist.extractfile(one)) is not None
            }
        return Archive(path.name, _known(name, path), version, False, files)
    raise ReleaseError(f"{path}: found a file that is neither *-py3-none-any.whl nor *.tar.gz; remove it")


def _known(name: str, path: Path) -> str:
    distribution = name.replace("_", "-")
    if distribution not in DISTRIBUTIONS:
        raise ReleaseError(f"{path}: expected one of {', '.join(DISTRIBUTIONS)}, found {distribution}")
    return distribution


def shipped(distribution: str, tree: Path) -> dict[PurePosixPath, Path]:
    """All files of its packages: each by its path in a wheel, and where it stands below the distribution's folder."""
    mapped = package_dirs(distribution, tree)
    folder = tree / DISTRIBUTIONS[distribution]
    found = {}
    for package in packages_of(distribution, tree):
        top, *rest = package.split(".")
        place = Path(mapped.get(top, f"{mapped['']}/{top}"), *rest)
        modules = [path.name for path in (folder / place).glob("*.py")]
        for name in (*modules, *data_files(distribution, package, tree)):
            found[PurePosixPath(*package.split("."), name)] = place / name
    return found


def difference(archive: Archive, tree: Path) -> list[str]:
    """Return what is missing, too much or other than in the tree; nothing if all is as it must be."""
    folder = tree / DISTRIBUTIONS[archive.distribution]
    ours = shipped(archive.distribution, tree)
    if archive.is_wheel:
        expected = {place.as_posix(): folder / path for place, path in ours.items()}
        generated = _generated(archive, tree)
    else:
        expected = {path.as_posix(): folder / path for path in ours.values()}
        expected |= {name: folder / name for name in BESIDE}
        generated = _generated(archive, tree)
    found = set(archive.files)
    return [
        *(f"missing: {name}" for name in sorted({*expected, *generated} - found)),
        *(f"not expected: {name}" for name in sorted(found - {*expected, *generated})),
        *(
            f"other bytes than in the tree: {name}"
            for name in sorted(found & set(expected))
            if archive.files[name] != expected[name].read_bytes()
        ),
    ]


def _generated(archive: Archive, tree: Path) -> set[str]:
    """The names of what packaging makes."""
    name = archive.distribution.replace("-", "_")
    has_commands = "options.entry_points" in setup_cfg(archive.distribution, tree)
    if archive.is_wheel:
        made = ["METADATA", "RECORD", "WHEEL", "licenses/LICENSE", "top_level.txt"]
        info = f"{name}-{archive.version}.dist-info"
    else:
        made = ["PKG-INFO", "SOURCES.txt", "dependency_links.txt", "requires.txt", "top_level.txt"]
        info = f"{name}.egg-info"
    if has_commands:
        made.append("entry_points.txt")
    return {f"{info}/{one}" for one in made} | (set() if archive.is_wheel else {"PKG-INFO", "setup.cfg"})


def metadata_of(archive: Archive) -> dict[str, list[str]]:
    """The headers of its METADATA or PKG-INFO, such as Name, Version and Requires-Dist."""
    (text,) = (
        data.decode()
        for name, data in archive.files.items()
        if name == "PKG-INFO" or (archive.is_wheel and name.endswith(".dist-info/METADATA"))
    )
    headers: dict[str, list[str]] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(": ")
        headers.setdefault(key, []).append(value)
    return headers


def check_archives(paths: Iterable[Path], tree: Path) -> list[Archive]:
    """Refuse archives that are not a wheel and an sdist of each distribution, of one version, with what the tree ships.

    Raises:
        ReleaseError: the first few differences of an archive.
    """
    archives = [read_archive(path) for path in sorted(paths)]
    found = sorted((one.distribution, one.is_wheel) for one in archives)
    expected = sorted((name, is_wheel) for name in DISTRIBUTIONS for is_wheel in (False, True))
    if found != expected or len({one.version for one in archives}) != 1:
        raise ReleaseError(
            f"found {', '.join(one.name for one in archives) or 'no archives'}; expected a wheel and an sdist of "
            f"{' and '.join(DISTRIBUTIONS)}, all of one version"
        )
    for archive in archives:
        wrong = difference(archive, tree)
        if wrong:
            more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            lines = "".join(f"\n  {line}" for line in wrong[:SHOWN])
            raise ReleaseError(
                f"{archive.name} is not what the tree ships; see `packages` and `package_data` in "
                f"{DISTRIBUTIONS[archive.distribution]}/setup.cfg:{lines}{more}"
            )
        headers = metadata_of(archive)
        if headers["Version"] != [archive.version]:
            raise ReleaseError(f"{archive.name} states version {headers['Version']}")
    return archives


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.release.contents DIRECTORY")
    try:
        for archive in check_archives(Path(sys.argv[1]).iterdir(), REPOSITORY):
            print(f"{archive.name}: {len(archive.files)} files, those of the tree")
    except ReleaseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
