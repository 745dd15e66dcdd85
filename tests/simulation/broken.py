"""The one error with which checkers report: a promise of the product did not hold."""

from __future__ import annotations


class BrokenPromiseError(Exception):
    """What was promised, and what was seen instead; `checker` names the promise."""

    def __init__(self, checker: str, found: str) -> None:
        self.checker = checker
        self.found = found
        super().__init__(f"{checker}: {found}")
