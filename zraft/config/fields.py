"""Declaration of a knob: its default, bounds and help text, from which files, flags and docs are made."""

from __future__ import annotations

from typing import Any, Final, Literal

from attrs import Attribute, field, frozen

Kind = Literal[
    "address", "choice", "choices", "cluster", "count", "hosts", "path", "paths", "switch", "text", "words"
]
"""The form of a knob's value; `zraft.config.knobs` knows how each is written."""

_KNOB: Final = "knob"


@frozen(kw_only=True)
class Declaration:
    """Declaration of a knob beside what its field says.

    Attributes:
        lowest, highest: inclusive bounds of a count.
        choices: values of a choice or of choices.
        name: the knob's, if it is not the field's.
        default: how it is written, if the field's own default does not say it.
    """

    kind: Kind
    help: str
    lowest: int = 0
    highest: int = 0
    choices: tuple[str, ...] = ()
    name: str | None = None
    default: str | None = None


def count(default: int, lowest: int, highest: int, help: str) -> Any:
    """Declare a whole-number knob with inclusive bounds."""
    return field(default=default, metadata=bounds(lowest, highest, help))


def bounds(
    lowest: int, highest: int, help: str, *, name: str | None = None, default: str | None = None
) -> dict[str, Declaration]:
    """Return the metadata of a whole-number knob."""
    return {
        _KNOB: Declaration(
            kind="count", lowest=lowest, highest=highest, help=help, name=name, default=default
        )
    }


def knob(
    kind: Kind,
    help: str,
    choices: tuple[str, ...] = (),
    *,
    name: str | None = None,
    default: str | None = None,
) -> dict[str, Declaration]:
    """Return the metadata of a knob of another kind."""
    return {_KNOB: Declaration(kind=kind, help=help, choices=choices, name=name, default=default)}


def declaration_of(attribute: Attribute[Any]) -> Declaration | None:
    """Return the declaration of the knob behind a field; None if the field is no knob."""
    found: Declaration | None = attribute.metadata.get(_KNOB)
    return found
