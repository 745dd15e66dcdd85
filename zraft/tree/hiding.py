"""Hidden znodes: those below the `first` of a truncated directory, and all below them (D-20).

They are in memory until `zraft.tree.commands.truncation` comes to them, and nothing that is asked for may find them.
"""

from __future__ import annotations

from collections.abc import Mapping

from zraft.tree.children import ManyChildren

Hidden = dict[str, ManyChildren]
"""Paths of truncated directories with hidden children, and their children.

A directory may be deleted before all of its hidden children are out of memory. It stays in here, and whoever creates it
anew meanwhile goes on where it ended: its numbers begin at `first`.
"""


def is_hidden(hidden: Mapping[str, ManyChildren], path: str) -> bool:
    """Return whether one of the znodes on the way to `path` is gone.

    Ask only while `hidden` holds anything.
    """
    end = len(path)
    while (slash := path.rfind("/", 0, end)) >= 0:
        children = hidden.get(path[:slash] or "/")
        if children is not None and children.is_gone(path[slash + 1 : end]):
            return True
        end = slash
    return False
