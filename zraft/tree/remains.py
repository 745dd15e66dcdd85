"""A state that was replaced, taken apart in small steps: freeing a million znodes at once stalls for 0.3 s."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zraft.tree.children import ManyChildren
from zraft.tree.node import Znode
from zraft.tree.sessions.session import Session


class Remains:
    """Remains that nobody else has any more; `step` until it is False, or drop it and pay at once."""

    def __init__(
        self, shards: Iterable[dict[str, Znode | bytes]], sessions: Iterable[Session], rest: Iterable[Any]
    ) -> None:
        self._shards = [shard for shard in shards if shard]
        self._paths: list[set[str] | dict[str, None]] = []
        self._paths += [session.ephemerals for session in sessions if session.ephemerals]
        self._paths += [part for part in rest if part]

    def step(self, items: int) -> bool:
        """Free up to `items` znodes or paths, 0.3 us each; False when nothing is left."""
        left = items
        while left > 0 and (self._paths or self._shards):
            if self._paths:
                paths = self._paths[-1]
                count = min(left, len(paths))
                free: Callable[[], object] = paths.popitem if isinstance(paths, dict) else paths.pop
                for _ in range(count):
                    free()
                if not paths:
                    self._paths.pop()
                left -= max(1, count)
                continue
            shard = self._shards[-1]
            while shard and left > 0:
                _, node = shard.popitem()
                left -= 1
                if isinstance(node, bytes):
                    continue
                children, node.children = node.children, None
                if isinstance(children, ManyChildren):
                    self._paths += children.parts()
                elif children is not None and len(children) > items:
                    self._paths.append(children)
                elif children is not None:
                    left -= len(children)
            if not shard:
                self._shards.pop()
        return bool(self._paths or self._shards)
