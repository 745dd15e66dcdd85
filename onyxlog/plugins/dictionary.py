"""An output into a dictionary of a zraft cluster. It is idempotent by key: what is written again is there once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onyxlog.plugins.plugin import PluginContext, unwritable
from onyxlog.plugins.service import Service
from zraft_client import AsyncDictionary

WRITES_AT_A_TIME: Final = 512


class DictionaryOutput:
    """Output into a dictionary.

    `dictionary`: its name. `key`, `value`: where a segment has them; without `value`, the whole segment is
    the value.

    The last write of a key wins. For that to be the latest, segments of one key have to come from one worker,
    as they do if the task before, or this one, is grouped by it.
    """

    def __init__(
        self,
        context: PluginContext,
        dictionary: str,
        key: str,
        value: str | None = None,
        hosts: str | None = None,
    ) -> None:
        self._context = context
        self._name = dictionary
        self._key = key
        self._value = value
        self._service = Service(context, hosts)

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Connect to the service."""
        await self._service.open()

    async def write(self, segments: Sequence[Any]) -> None:
        """Put each segment under its key; of several with one key, the last."""
        dictionary = AsyncDictionary(self._service.client, self._name)
        # If a key comes several times, only its last value is written: so all writes may be under way at once.
        items = {self._key_of(segment): segment for segment in segments}
        puts = [
            (key, segment if self._value is None else segment.get(self._value))
            for key, segment in items.items()
        ]
        for begin in range(0, len(puts), WRITES_AT_A_TIME):
            await asyncio.gather(*(dictionary.put(*put) for put in puts[begin : begin + WRITES_AT_A_TIME]))

    async def flush(self) -> None:
        """Do nothing: `write` has returned once a majority has the entries."""

    async def close(self) -> None:
        """End the connection."""
        await self._service.close()

    def _key_of(self, segment: Any) -> Any:
        try:
            return segment[self._key]
        except KeyError as error:
            raise unwritable(self._context, f"a key at {self._key!r}", segment) from error
