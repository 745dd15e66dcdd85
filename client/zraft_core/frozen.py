"""Values of which thousands are made per second: frozen where the type checker looks, plain where they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as statically_frozen
else:
    from attrs import define

    statically_frozen = define(unsafe_hash=True)
    """As `attrs.frozen`, equality and hash included, but nothing stops an assignment at run time; mypy does.

    Making a frozen value takes a call per field, which is three times the rest of it: a message to five partitions is
    a hundred of them on each server.
    """

__all__ = ["statically_frozen"]
