"""Entries that a group gives to a peer that misses them: as many as a few datagrams hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onyxlog.gossip.messages import Event, Found
from onyxlog.gossip.settings import GossipSettings
from onyxlog.ids import Position

EVENT_BYTES: Final = 64
"""The approximate bytes of an event beside its payload and chain."""


def fits_datagram(event: Event, settings: GossipSettings) -> bool:
    """Return whether an entry fits a datagram.

    One that does not is read from the log by everybody.
    """
    return len(event.payload) <= settings.payload_bytes_max


def answers(events: Iterable[Event], end: Position, settings: GossipSettings) -> list[Found]:
    """Return the datagrams that answer a request for events up to `end`; one that says so if there is nothing to give."""
    found: list[Found] = []
    batch: list[Event] = []
    size = 0
    for event in events:
        if not fits_datagram(event, settings):
            continue
        cost = len(event.payload) + len(event.previous) + EVENT_BYTES
        if batch and size + cost > settings.datagram_bytes:
            found.append(Found(tuple(batch), event.position))
            batch, size = [], 0
            if len(found) == settings.found_datagrams:
                return found
        batch.append(event)
        size += cost
    return [*found, Found(tuple(batch), end)] if batch or not found else found
