"""The sections of CHANGELOG.md: that of a release is its notes. Nothing here opens a file."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from tests.release.errors import ReleaseError
from tests.release.versions import Version

UNRELEASED: Final = "## [Unreleased]"
_HEADING: Final = re.compile(r"^## \[(.+?)\](.*)$", re.MULTILINE)
_DATE: Final = re.compile(r" - (\d{4}-\d{2}-\d{2})")


def section(changelog: str, version: Version) -> str:
    """Return what the changelog says of a release, without the heading.

    Raises:
        ReleaseError: there is no such section, or it has no date or no text.
    """
    headings = list(_HEADING.finditer(changelog))
    for number, heading in enumerate(headings):
        if heading[1] != str(version):
            continue
        if _DATE.fullmatch(heading[2]) is None:
            raise ReleaseError(
                f"CHANGELOG.md: found `{heading[0]}`, expected a date such as `## [{version}] - 2026-11-28`"
            )
        end = headings[number + 1].start() if number + 1 < len(headings) else len(changelog)
        text = changelog[heading.end() : end].strip()
        if not text:
            raise ReleaseError(
                f"CHANGELOG.md: the section of {version} is empty; write what users have to know, or do not release"
            )
        return text
    found = ", ".join(heading[1] for heading in headings) or "none"
    raise ReleaseError(
        f"CHANGELOG.md: found the sections {found}, expected `## [{version}] - DATE`; "
        f"`.ci/release {version} --prepare` makes it of [Unreleased]"
    )


def dated(changelog: str, version: Version, day: date) -> str:
    """The changelog with what was unreleased as the section of a release, under an empty [Unreleased].

    Raises:
        ReleaseError: nothing is unreleased, or the release has a section.
    """
    if f"## [{version}]" in changelog:
        raise ReleaseError(f"CHANGELOG.md has a section of {version} already; edit it by hand")
    if UNRELEASED not in changelog:
        raise ReleaseError(f"CHANGELOG.md: expected a section `{UNRELEASED}`, found none; write it")
    new = changelog.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day.isoformat()}", 1)
    section(new, version)
    return new
