"""The tree once more, written for clarity alone: plain dicts, whole-state copies, no sharing with zraft.tree.

Of rights it knows one: everybody may only read /zookeeper/config. The others have tests of their own.
"""

from __future__ import annotations

import copy
from typing import Any

OK, BAD_ARGUMENTS, NO_NODE, NO_AUTH, BAD_VERSION = 0, -8, -101, -102, -103
NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY = -108, -110, -111
INCONSISTENT = -2

CONFIG = "/zookeeper/config"


def wrap(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


class Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Model:
    def __init__(self) -> None:
        self.znodes: dict[str, dict[str, Any]] = {}
        for path in ("/", "/zookeeper", "/zookeeper/quota", CONFIG):
            self.put(path, b"", 0, 0, 0)
        self.znodes[CONFIG]["version"] = -1
        self.events: list[tuple[int, str]] = []
        self.zxid = self.now = self.session = 0

    def put(self, path: str, data: bytes | None, owner: int, zxid: int, now: int) -> None:
        self.znodes[path] = {
            "data": data, "owner": owner, "czxid": zxid, "mzxid": zxid, "pzxid": zxid,
            "ctime": now, "mtime": now, "version": 0, "creates": 0,
        }  # fmt: skip

    def children(self, path: str) -> list[str]:
        prefix = path if path == "/" else path + "/"
        return sorted(
            p for p in self.znodes if p != "/" and p.startswith(prefix) and "/" not in p[len(prefix) :]
        )

    def stat(self, path: str) -> tuple[int, ...]:
        z = self.znodes[path]
        count = len(self.children(path))
        return (
            z["czxid"], z["mzxid"], z["ctime"], z["mtime"], z["version"], wrap(2 * z["creates"] - count),
            -1 if path == CONFIG else 0, z["owner"], len(z["data"] or b""), count, z["pzxid"],
        )  # fmt: skip

    @staticmethod
    def valid(path: str) -> bool:
        if path == "/":
            return True
        if not path.startswith("/") or path.endswith("/"):
            return False
        return all(part not in ("", ".", "..") for part in path[1:].split("/")) and "\x01" not in path

    def create(self, path: str, data: bytes | None, flags: int) -> tuple[str, tuple[int, ...]]:
        if flags not in (0, 1, 2, 3, 4) or "/" not in path:
            raise Failed(BAD_ARGUMENTS)
        above = path.rsplit("/", 1)[0] or "/"
        if above not in self.znodes:
            raise Failed(NO_NODE)
        if above == CONFIG:
            raise Failed(NO_AUTH)
        if flags in (2, 3):
            path += str(self.znodes[above]["creates"]).zfill(10)
        if not self.valid(path):
            raise Failed(BAD_ARGUMENTS)
        if path in self.znodes:
            raise Failed(NODE_EXISTS)
        if self.znodes[above]["owner"]:
            raise Failed(NO_CHILDREN_FOR_EPHEMERALS)
        self.put(path, data, self.session if flags in (1, 3) else 0, self.zxid, self.now)
        self.znodes[above]["creates"] = wrap(self.znodes[above]["creates"] + 1)
        self.znodes[above]["pzxid"] = self.zxid
        self.events += [(1, path), (4, above)]
        return path, self.stat(path)

    def delete(self, path: str, version: int) -> int:
        if "/" not in path or path in ("/", "/zookeeper", "/zookeeper/quota", CONFIG):
            raise Failed(BAD_ARGUMENTS)
        above = path.rsplit("/", 1)[0] or "/"
        if above == CONFIG:
            raise Failed(NO_AUTH)
        if path not in self.znodes:
            raise Failed(NO_NODE)
        if version not in (-1, self.znodes[path]["version"]):
            raise Failed(BAD_VERSION)
        if self.children(path):
            raise Failed(NOT_EMPTY)
        self.drop(path)
        return OK

    def drop(self, path: str) -> None:
        above = path.rsplit("/", 1)[0] or "/"
        del self.znodes[path]
        self.znodes[above]["pzxid"] = self.zxid
        self.events += [(2, path), (4, above)]

    def look(self, path: str, version: int, *, to_write: bool = False) -> dict[str, Any]:
        if not self.valid(path):
            raise Failed(BAD_ARGUMENTS)
        if path not in self.znodes:
            raise Failed(NO_NODE)
        if path == CONFIG and to_write:
            raise Failed(NO_AUTH)
        if version not in (-1, self.znodes[path]["version"]):
            raise Failed(BAD_VERSION)
        return self.znodes[path]

    def set_data(self, path: str, data: bytes | None, version: int) -> tuple[int, ...]:
        z = self.look(path, version, to_write=True)
        z.update(data=data, mzxid=self.zxid, mtime=self.now, version=z["version"] + 1)
        self.events.append((3, path))
        return self.stat(path)

    def part(self, op: tuple[Any, ...]) -> Any:
        kind, *fields = op
        if kind == "create":
            return self.create(*fields)
        if kind == "delete":
            return self.delete(*fields)
        if kind == "set":
            return self.set_data(*fields)
        self.look(*fields)
        return OK

    def apply(self, op: tuple[Any, ...], session: int, zxid: int, now: int) -> Any:
        """One command: a code, a stat or (path, stat); for a multi a list of them, or ("failed", codes)."""
        self.session, self.zxid, self.now = session, zxid, now
        if op[0] == "end":
            for path in sorted(p for p, z in self.znodes.items() if z["owner"] == session):
                self.drop(path)
            return OK
        if op[0] != "multi":
            try:
                return self.part(op)
            except Failed as failed:
                return failed.code
        before, events = copy.deepcopy(self.znodes), list(self.events)
        results: list[Any] = []
        for part in op[1]:
            try:
                results.append(self.part(part))
            except Failed as failed:
                self.znodes, self.events = before, events
                after = len(op[1]) - len(results) - 1
                return ("failed", [OK] * len(results) + [failed.code] + [INCONSISTENT] * after)
        return results
