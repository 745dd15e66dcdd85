"""Versions of releases: which is newer, and the lines of the tree that state the present one. Nothing here opens a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from tests.release.errors import ReleaseError

TAG: Final = "v{}"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")

STATED: Final[Mapping[str, str]] = {
    "client/zraft_core/__init__.py": '__version__ = "{}"',
    "setup.cfg": "zraft-client=={}",
    "zraft/__init__.py": '__version__ = "{}"',
}
"""The files that state the version, and how."""


@frozen(order=True)
class Version:
    """MAJOR.MINOR.PATCH, as Semantic Versioning orders them. There are no pre-releases."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def next_patch(self) -> Version:
        return Version(self.major, self.minor, self.patch + 1)


def parse_version(text: str) -> Version:
    """Read a version.

    Raises:
        ReleaseError: it is none.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ReleaseError(f"found the version {text!r}, expected three numbers such as 0.2.0")
    return Version(*map(int, found.groups()))


def released(tags: Iterable[str]) -> list[Version]:
    """The versions that tags of releases name, oldest first. Other tags do not count."""
    found = (_VERSION.fullmatch(tag.removeprefix("v")) for tag in tags if tag.startswith("v"))
    return sorted(Version(*map(int, one.groups())) for one in found if one is not None)


def check_newer(version: Version, tags: Iterable[str]) -> None:
    """Refuse a version that is not above all that were released.

    Raises:
        ReleaseError: it is not.
    """
    versions = released(tags)
    if versions and version <= versions[-1]:
        raise ReleaseError(
            f"version {version} is not newer than {versions[-1]}, which the tag {TAG.format(versions[-1])} has; "
            f"choose {versions[-1].next_patch()} or above"
        )


def stated(texts: Mapping[str, str]) -> dict[str, Version]:
    """The version that each of the files of `STATED` states.

    Args:
        texts: the content of these files.

    Raises:
        ReleaseError: a file states none, or several.
    """
    versions = {}
    for path, form in STATED.items():
        found = _line(form).findall(texts[path])
        if len(found) != 1:
            raise ReleaseError(
                f"{path}: found {len(found)} lines like `{form.format('0.2.0')}`, expected one"
            )
        versions[path] = Version(*map(int, found[0]))
    return versions


def check_stated(version: Version, texts: Mapping[str, str]) -> None:
    """Refuse a tree that states another version.

    Raises:
        ReleaseError: it does, and where.
    """
    others = {path: found for path, found in stated(texts).items() if found != version}
    if others:
        found = ", ".join(f"{one} in {path}" for path, one in sorted(others.items()))
        raise ReleaseError(
            f"found version {found}; expected {version}; `.ci/release {version} --prepare` writes it"
        )


def restated(version: Version, texts: Mapping[str, str]) -> dict[str, str]:
    """The files of `STATED` with this version in the place of theirs.

    Raises:
        ReleaseError: a file states none, or several.
    """
    stated(texts)
    return {path: _line(form).sub(form.format(version), texts[path]) for path, form in STATED.items()}


def _line(form: str) -> re.Pattern[str]:
    before, after = map(re.escape, form.split("{}"))
    return re.compile(rf"(?<![\w-]){before}{_VERSION.pattern}{after}(?![\w.])")
