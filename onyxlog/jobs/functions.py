"""Functions by import path, "package.module:function", by which every peer finds the same one."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

from onyxlog.errors import WorkflowError


def nearest(name: str, known: list[str]) -> str:
    """Return ' (did you mean X?)', or nothing if no known name is near."""
    found = get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def resolve(path: str, where: str = "function") -> Any:
    """Return the object behind an import path. Importing its module is the only effect.

    Raises:
        WorkflowError: the path has another form, or there is no such module or attribute; `where` begins
            the message.
    """
    module_name, colon, attributes = path.partition(":")
    if not colon or not module_name or not attributes:
        raise WorkflowError(f"{where}: expected 'package.module:function', found {path!r}")
    try:
        found: Any = import_module(module_name)
    except ImportError as error:
        raise WorkflowError(
            f"{where}: {path!r}: module {module_name!r} cannot be imported here ({error}); it has to be "
            f"installed, or in PYTHONPATH, wherever peers run"
        ) from error
    except Exception as error:  # a user's module may do anything when it is imported
        raise WorkflowError(
            f"{where}: {path!r}: module {module_name!r} raises {type(error).__name__} when it is imported: {error}"
        ) from error
    so_far = module_name
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            guess = nearest(attribute, [name for name in dir(found) if not name.startswith("_")])
            raise WorkflowError(f"{where}: {path!r}: {so_far} has no {attribute!r}{guess}") from None
        so_far = f"{so_far}.{attribute}"
    return found


def resolve_callable(path: str, where: str = "function") -> Callable[..., Any]:
    """Return the callable behind an import path.

    Raises:
        WorkflowError: as `resolve`, or the object cannot be called.
    """
    found = resolve(path, where)
    if not callable(found):
        raise WorkflowError(f"{where}: {path!r} is a {type(found).__name__}, where a function is expected")
    function: Callable[..., Any] = found
    return function


def bound(path: str, params: dict[str, Any], where: str = "function") -> Callable[..., Any]:
    """Return the function with its parameters bound as keyword arguments."""
    function = resolve_callable(path, where)
    return partial(function, **params) if params else function
