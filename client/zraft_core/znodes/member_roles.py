"""These numbers say what a MEMBERS command wants of a server, on the wire and in the log."""

from __future__ import annotations

from typing import Final

REMOVE: Final = 0
PARTICIPANT: Final = 1
OBSERVER: Final = 2
