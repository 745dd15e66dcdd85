"""How a knob is declared: its default, bounds and help text, from which files, flags and docs are made."""

from __future__ import annotations

from typing import Any

from attrs import field


def count(default: int, lowest: int, highest: int, help: str) -> Any:
    """A whole-number knob with inclusive bounds; the bounds and the help text are kept for `KNOBS`."""
    return field(default=default, metadata={"lowest": lowest, "highest": highest, "help": help})


def knob(kind: str, help: str, choices: tuple[str, ...] = ()) -> dict[str, Any]:
    """A knob of another kind: path, address, text, switch, choice(s) or words.

    `zraft.config.knobs` knows how each is written.
    """
    return {"kind": kind, "choices": choices, "help": help}
