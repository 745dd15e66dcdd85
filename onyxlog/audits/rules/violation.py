"""A broken promise with its witness: where to look, what was expected and what was found. Pure."""

from __future__ import annotations

from typing import Any, Final

import attrs
from attrs import field, frozen

TEXT_MAX: Final = 2_000
"""The most characters of `expected`, `found` and `subject`: a witness names its evidence and does not copy all of it.
"""


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."


@frozen(kw_only=True, order=True)
class Violation:
    """One row of what an audit found.

    Attributes:
        rule: "S1" to "S22".
        promise: which of the rule's checks, as docs/explanation/audits.md lists them.
        subject: what it is about, in words: a term, a session's number, a message, a claim.
        server: that wrote the evidence; None if it is nobody's alone. Of a peer's or client's record it is None.
        group: Raft group, 0 for the coordination group.
        index: Raft index, or the position or offset that `subject` counts by; None if there is none.
        file: that has the evidence, as the reader named it; "" if it is in no file of its own.
        offset: in bytes, of the record in `file`; None if unknown.
        expected, found: what must have been there, and what was.
    """

    rule: str
    promise: str
    subject: str = field(converter=_shortened)
    server: int | None = None
    group: int | None = None
    index: int | None = None
    file: str = ""
    offset: int | None = None
    expected: str = field(converter=_shortened)
    found: str = field(converter=_shortened)

    def line(self) -> str:
        """Return the violation as a line for a terminal."""
        where = [
            *(
                f"{name} {value}"
                for name in ("server", "group", "index")
                if (value := getattr(self, name)) is not None
            ),
            *([f"{self.file}:{self.offset}" if self.offset is not None else self.file] if self.file else []),
        ]
        return (
            f"{self.rule} {self.promise}: {self.subject}: expected {self.expected}, found {self.found}"
            f" ({', '.join(where) or 'no place'})"
        )


def violation_at(row: Any, *, index: int | None = None, **fields: Any) -> Violation:
    """Return a violation whose evidence is `row`: it takes from it whatever it has of server, group, index and place.

    Args:
        row: the evidence.
        index: of the violation, where it is not the row's own.
        fields: of `Violation`.
    """
    server = getattr(row, "server", None)
    place: dict[str, Any] = {
        "server": server or None,
        "group": getattr(row, "group", None),
        "index": getattr(row, "index", None) if index is None else index,
        "file": row.file,
        "offset": row.file_offset if row.file else None,
    }
    return Violation(**{**place, **fields})


COLUMNS: Final = tuple(each.name for each in attrs.fields(Violation))


def as_row(violation: Violation) -> tuple[Any, ...]:
    """Return values in the order of COLUMNS."""
    return tuple(getattr(violation, name) for name in COLUMNS)


def order_of(violation: Violation) -> tuple[Any, ...]:
    """Return a key that sorts violations the same wherever they were found; None comes first."""
    return tuple((value is not None, value if value is not None else 0) for value in as_row(violation))
