"""Findings, and how they follow from sights. Pure; the rules are in the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from attrs import frozen

from zraft.cli.doctor.sights import Sights

DAY_S = 86_400


class Severity(IntEnum):
    """The weight of a finding."""

    NOTE = 1
    """Worth knowing; nothing has to be done."""
    WARNING = 2
    """Nothing is broken yet, or somebody could break it."""
    ERROR = 3
    """Something does not work, or data or control are about to be lost."""


@frozen
class Finding:
    """One finding.

    Attributes:
        severity: how much it matters.
        check: the name of the rule, which stays the same from release to release.
        where: a server, a file, or the cluster.
        found: what was found.
        why: why it matters.
        do: what to do about it; it names the knob or the command.
    """

    severity: Severity
    check: str
    where: str
    found: str
    why: str
    do: str


Rule = Callable[[Sights], Iterator[Finding]]
"""A rule yields what it finds; it concludes nothing from what could not be seen."""
CLUSTER = "cluster"


def judged(sights: Sights, rules: tuple[Rule, ...]) -> tuple[Finding, ...]:
    """Return what all rules find, the most severe first, otherwise in the order of the rules."""
    found = [finding for rule in rules for finding in rule(sights)]
    return tuple(sorted(found, key=lambda one: -one.severity))


def milder(severity: Severity, *, when: bool) -> Severity:
    """Return the severity, or only a note where nobody but this machine's users is concerned."""
    return Severity.NOTE if when else severity
