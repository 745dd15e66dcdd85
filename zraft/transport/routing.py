"""Choice of a message's way to a peer: by datagrams, or by the stream (D-22).

Pure.

A message in n datagrams is lost if any of them is, and Raft must send all of it again. So a large one goes by the stream
always, and one of a few datagrams does as soon as the path loses too many. What fits one datagram never waits behind
anything: heartbeats, votes and acknowledgements keep their own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

DATAGRAMS_MAX: Final = 8
"""The most datagrams of one message; at a loss of one in a hundred, one in thirteen of these would have to be
sent again.
"""


def datagrams_max(*, lossy: bool) -> int:
    """Return the most datagrams that one message may take to a peer; `lossy`: see `zraft.transport.loss`."""
    return 1 if lossy else DATAGRAMS_MAX


def divide(
    encoded: list[bytes], *, bytes_max: int, stream: Callable[[], bool]
) -> tuple[list[bytes], list[bytes]]:
    """Return encoded messages by the way they go: (datagrams, stream), each in order.

    Args:
        bytes_max: the largest message that goes by datagrams: what `datagrams_max` of them can carry.
        stream: whether there is, or may soon be, a stream to it; asked only if something would go that way. Where
            none can be made, a firewall that lets UDP alone pass say, all goes by datagrams, as well as these can.
    """
    streamed = [message for message in encoded if len(message) > bytes_max]
    if not streamed or not stream():
        return encoded, []
    return [message for message in encoded if len(message) <= bytes_max], streamed
