"""MULTI: several commands that all happen, at one zxid, or leave no trace at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from zraft.tree.commands.attempt import Attempt
from zraft.tree.node import Znode
from zraft.tree.znodes import Tree
from zraft_core.errors import Code
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import (
    CHECK,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    SET_DATA,
    Command,
)

PartResult = Stat | tuple[str | int, Stat] | Code
"""SET_DATA, PUT: the stat; creates: path and stat; ADD: value and stat; DELETE, CHECK: OK. Stats as of that part."""


@frozen
class MultiFailed:
    """Part `index` failed with `code`; `results` has a code per part: 0 before it, -2 after it."""

    index: int
    code: Code
    results: tuple[Code, ...]


def part_handlers(tree: Tree) -> dict[int, Callable[[Command, int], Any]]:
    """Return the handlers of the commands that a multi may have."""
    return {
        CREATE: tree.create,
        CREATE2: tree.create,
        CREATE_CONTAINER: tree.create,
        CREATE_TTL: tree.create,
        DELETE: tree.delete,
        SET_DATA: tree.set_data,
        CHECK: tree.check,
    }


_UNSTARTED: Final = Code.RUNTIME_INCONSISTENCY


def execute_multi(
    tree: Tree,
    handlers: Mapping[int, Callable[[Command, int], Any]],
    command: Command,
    zxid: int,
    *,
    answered: bool = True,
) -> tuple[PartResult, ...] | MultiFailed | Code:
    """Execute [MULTI, [command, ...]]; parts see what earlier parts did.

    Args:
        answered: somebody waits for the results; else what parts came to is left as they left it, at no cost.

    Returns:
        MARSHALLING_ERROR, without a trace, if any part cannot be understood: then the request was no multi.
    """
    if len(command) != 2 or command[1].__class__ is not tuple:
        return Code.MARSHALLING_ERROR
    parts: tuple[Any, ...] = command[1]
    for part in parts:
        if part.__class__ is not tuple or not part or part[0].__class__ is not int or part[0] not in handlers:
            return Code.MARSHALLING_ERROR

    attempt = Attempt(tree)
    results: list[PartResult] = []
    failure = Code.OK
    for part in parts:
        result = handlers[part[0]](part, zxid)
        # Later parts may change the same znode; the reply shows it as this part left it.
        if result.__class__ is Znode:
            if answered:
                result = result.stat()
        elif result.__class__ is tuple:
            if answered:
                result = result[0], result[1].stat()
        elif result is not Code.OK:
            failure = result
            break
        results.append(result)

    if failure is Code.OK:
        attempt.keep()
        return tuple(results) if answered else ()
    attempt.undo()
    if failure is Code.MARSHALLING_ERROR:
        return failure
    index = len(results)
    codes = (Code.OK,) * index + (failure,) + (_UNSTARTED,) * (len(parts) - index - 1)
    return MultiFailed(index, failure, codes)
