"""How a knob is declared: its default, bounds and help text, from which files, flags and docs are made."""

from __future__ import annotations

from typing import Any

from attrs import field


def count(default: int, lowest: int, highest: int, help: str) -> Any:
    """A whole-number knob with inclusive bounds; the bounds and the help text are kept for `KNOBS`."""
    return field(default=default, metadata=bounds(lowest, highest, help))


def bounds(lowest: int, highest: int, help: str, *, default: str | None = None) -> dict[str, Any]:
    """Metadata of a whole-number knob. `default`: how it is written, if the field's own default does not say it."""
    return {"kind": "count", "lowest": lowest, "highest": highest, "help": help, "default": default}


def knob(
    kind: str,
    help: str,
    choices: tuple[str, ...] = (),
    *,
    name: str | None = None,
    default: str | None = None,
) -> dict[str, Any]:
    """Metadata of a knob of another kind: path(s), address, cluster, hosts, text, switch, choice(s) or words.

    `zraft.config.knobs` knows how each is written. `name`: the knob's, if it is not the field's. `default`: how it is
    written, if the field's own default does not say it.
    """
    return {"kind": kind, "choices": choices, "help": help, "name": name, "default": default}
