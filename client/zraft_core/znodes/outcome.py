"""An outcome says what a command came to. Clients are told it and sessions remember it.

It is made of plain values, which MessagePack can carry.
"""

from __future__ import annotations

from typing import Any

Outcome = tuple[int, int, int, Any]
"""(zxid, position, code, body). The code is 0, or below 0 for a failure, whose body is nil.

Bodies by command: creates [path, stat]; SET_DATA, SET_ACL, PUT stat; ADD [value, stat]; MULTI a list of [code, body],
one per part, also when it failed; TOPICS [id|nil], of a refusal [its name]; all others nil. A stat is
ZooKeeper's eleven numbers, in the order of `zraft_core.znodes.stat.Stat`.
"""
