"""The console's files, read once: whoever imports this module does so in a thread, and the loop waits for no disk."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Final

from attrs import frozen

PAGE: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@frozen
class Asset:
    """A file as it is sent."""

    content_type: str
    body: bytes


def _read() -> dict[str, Asset]:
    found = {}
    for file in resources.files("zraft.admin.console.static").iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            found["/" if file.name == PAGE else f"/console/{file.name}"] = Asset(
                content_type, file.read_bytes()
            )
    return found


ASSETS: Final[Mapping[str, Asset]] = _read()
"""The files by the paths under which browsers ask for them."""
