"""Names of large dictionaries in order, while somebody pages through them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from zraft.tree.children import names_of
from zraft.tree.machine import Machine
from zraft.tree.node import Znode

LISTINGS_MAX: Final = 4
"""Sorted names of large dictionaries that are kept between two pages of them."""


class Listings:
    """Names of dictionaries in order, kept while somebody pages through them: sorting a million takes long.

    A listing that is not of this moment serves pages after the first: keys that were there all the time are in it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._kept: OrderedDict[str, tuple[tuple[int, int], list[str]]] = OrderedDict()

    def names(self, directory: str, node: Znode, *, begins: bool) -> list[str]:
        """Return the names sorted; as of now if a paging `begins`."""
        mark = (node.czxid, node.cversion)
        kept = self._kept.get(directory)
        if kept is None or (begins and kept[0] != mark):
            kept = mark, sorted(names_of(directory, node.children))
            self._kept[directory] = kept
            if len(self._kept) > LISTINGS_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(directory)
        return kept[1]

    def finished(self, directory: str) -> None:
        """Forget a directory's names, since somebody has the last page; others who page have them made again."""
        self._kept.pop(directory, None)
