"""Check whether anybody listens at an address, and the text for when nobody does.

Each reason is told once, with all its addresses.

For programs whose clients go on trying for as long as they may: a refused connection is no reason to wait, unless the
user asked to.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

from zraft_core.address import Address

LOOK_S: Final = 1.0
"""An address that does not even refuse for so long is left to the client, which has its own deadline."""


def told_once(reasons: Iterable[tuple[Address, str]], separator: str = "\n") -> str:
    """Return `a:1, b:1: connection refused`, and so on for each other reason, in the order in which they came."""
    by_reason: dict[str, list[Address]] = {}
    for address, reason in reasons:
        by_reason.setdefault(reason, []).append(address)
    return separator.join(
        f"{', '.join(map(str, addresses))}: {reason}" for reason, addresses in by_reason.items()
    )


def nobody_listens(addresses: Iterable[Address]) -> str | None:
    """Return why nobody can be reached at these addresses; None if somebody listens at one of them, or may.

    Each is dialed once, up to the first that takes the connection, which is closed without a word. Blocks.
    """
    reasons = []
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), LOOK_S).close()
        except TimeoutError:
            return None
        except OSError as error:
            reasons.append((address, error.strerror or str(error)))
        else:
            return None
    return told_once(reasons, "; ")
