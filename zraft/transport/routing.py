"""Which way a message goes to a peer: by datagrams, or by the stream (D-22). Pure.

A message in n datagrams is lost if any of them is, and Raft must send all of it again. So a large one goes by the stream
always, and one of a few datagrams does as soon as the path loses too many. What fits one datagram never waits behind
anything: heartbeats, votes and acknowledgements keep their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

DATAGRAMS_MAX: Final = 8
"""Of one message; at a loss of one in a hundred, one in thirteen of these would have to be sent again."""


def datagrams_max(*, lossy: bool) -> int:
    """The most datagrams that one message may take to a peer."""
    return 1 if lossy else DATAGRAMS_MAX


def divide(
    encoded: Sequence[bytes], *, datagrams_of: Callable[[int], int], lossy: bool, stream: Callable[[], bool]
) -> tuple[list[bytes], list[bytes]]:
    """Encoded messages by the way they go: (datagrams, stream), each in order.

    Args:
        datagrams_of: how many datagrams a message of that many bytes takes.
        lossy: too many datagrams to this peer are lost (`zraft.transport.loss`).
        stream: whether there is, or may soon be, a stream to it; asked only if something would go that way. Where
            none can be made, a firewall that lets UDP alone pass say, all goes by datagrams, as well as these can.
    """
    limit = datagrams_max(lossy=lossy)
    large = [datagrams_of(len(message)) > limit for message in encoded]
    if not any(large) or not stream():
        return list(encoded), []
    datagrams = [message for message, is_large in zip(encoded, large, strict=True) if not is_large]
    streamed = [message for message, is_large in zip(encoded, large, strict=True) if is_large]
    return datagrams, streamed
