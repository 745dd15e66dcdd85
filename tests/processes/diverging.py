"""`zraft serve` with a state machine that errs once: run by tests, as `python diverging.py FILE serve …`.

If FILE exists when a znode `/diverge…` is created, the file goes and the znode's neighbour `/wrong` gets other data than
on all other servers, as a bit that flipped in memory would have it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from zraft.main import main
from zraft.tree import machine as machine_module
from zraft.tree.machine import Machine

flag = Path(sys.argv.pop(1))
original = Machine.apply


def erring(self: Machine, *args: Any, **keywords: Any) -> Any:
    result = original(self, *args, **keywords)
    if self.nodes.get("/diverge") is not None and flag.exists():
        flag.unlink()
        node = self.nodes.get("/wrong")
        assert node is not None
        self.marks.dirty(node) if hasattr(self.marks, "dirty") else None
        node.data = b"flipped"
    return result


Machine.apply = erring  # type: ignore[method-assign]
assert machine_module.Machine is Machine
main()
