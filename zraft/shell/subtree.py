"""Walk through a part of the tree over the wire, many znodes per round trip, without holding all of it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from attrs import frozen

from zraft.shell.conversation import Step, ask, ask_each, checked
from zraft.shell.errors import RefusedError
from zraft.shell.paths import child_of
from zraft_core.errors import Code
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import Delete, GetChildren

BATCH: Final = 1000
"""The number of requests that are sent together unless told otherwise, as many as ZooKeeper's client sends."""

Names = tuple[str, ...]
"""Children of one znode, sorted."""


@frozen
class Visit:
    """One znode of a walk. `last` says whether it is the last of its siblings, at each level from the top."""

    path: str
    names: Names
    last: tuple[bool, ...]

    @property
    def depth(self) -> int:
        """The number of levels below the top of the walk."""
        return len(self.last)


class Walk:
    """A walk, depth first, siblings in order, from `path` down. Drive it with `step` until that returns None.

    It holds the siblings of the znodes on one way down and the answers of one round trip per level. A znode
    that others delete meanwhile is left out, and one whose children may not be listed is shown without them;
    `path` itself must exist and be readable.
    """

    def __init__(self, path: str, *, depth_max: int | None = None, batch: int = BATCH) -> None:
        self._root = path
        self._depth_max = depth_max
        self._batch = batch
        self._coming: list[tuple[str, tuple[bool, ...]]] = [(path, ())]
        self._known: dict[str, Names | None] = {}
        self._refusal: RefusedError | None = None

    def step(self) -> Generator[Step, Sequence[Reply], Visit | None]:
        """Return the next znode; raise RefusedError if `path` cannot be read."""
        while self._coming:
            path, last = self._coming[-1]
            if path not in self._known:
                yield from self._ask()
            self._coming.pop()
            names = self._known.pop(path)
            if names is None:
                continue
            if self._depth_max is None or len(last) < self._depth_max:
                for index, name in reversed(list(enumerate(names, 1))):
                    self._coming.append((child_of(path, name), (*last, index == len(names))))
            return Visit(path, names, last)
        return None

    def _ask(self) -> Generator[Step, Sequence[Reply], None]:
        paths = [path for path, _ in self._coming[-self._batch :] if path not in self._known]
        requests = [GetChildren(path) for path in paths]
        for request, reply in zip(requests, (yield from ask_each(requests)), strict=True):
            names: Names | None
            try:
                names = _sorted(checked(request, reply))
            except RefusedError as error:
                if request.path == self._root:
                    raise
                if error.code == Code.NO_NODE:
                    names = None
                elif error.code == Code.NO_AUTH:
                    names = ()
                    self._refusal = self._refusal or error
                else:
                    raise
            self._known[request.path] = names

    def raise_refusal(self) -> None:
        """Raise the first RefusedError of a znode that was shown without its children, if there was one.

        Raises:
            RefusedError: such a znode was shown.
        """
        if self._refusal is not None:
            raise self._refusal


def _sorted(names: Names) -> Names:
    return tuple(sorted(names))


def delete_subtree(path: str, batch: int = BATCH) -> Generator[Step, Sequence[Reply], int]:
    """Delete `path` and everything below it, deepest first; return how many znodes that were.

    Znodes that others delete meanwhile are no error. It holds the children of at most `batch` znodes per
    level.

    Raises:
        RefusedError: others created a znode meanwhile, or it is not allowed; what was deleted stays
            deleted.
    """
    yield from ask(GetChildren(path))
    deleted = 0
    # Per level: the znodes to delete, and whether they were emptied already. The deepest level comes first.
    levels: list[list[tuple[str, bool]]] = [[(path, False)]]
    while levels:
        level = levels[-1]
        if not level:
            levels.pop()
            continue
        window = level[-batch:]
        del level[-len(window) :]
        questions = [GetChildren(one) for one, emptied in window if not emptied]
        ready = [one for one, emptied in window if emptied]
        below: list[tuple[str, bool]] = []
        for question, reply in zip(questions, (yield from ask_each(questions)), strict=True):
            if reply.code == Code.NO_NODE:
                continue
            names = checked(question, reply)
            if names:
                level.append((question.path, True))
                below += [(child_of(question.path, name), False) for name in names]
            else:
                ready.append(question.path)
        deletions = [Delete(one) for one in ready]
        for deletion, reply in zip(deletions, (yield from ask_each(deletions)), strict=True):
            if reply.code != Code.NO_NODE:
                checked(deletion, reply)
                deleted += 1
        if below:
            levels.append(below)
    return deleted
