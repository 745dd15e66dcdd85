"""What mypy must not remember."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def so_far(value: Value) -> Value:
    """Return the value as it is.

    mypy takes what a test asserts of an attribute to hold until it sees an assignment to that attribute. If a method
    changes it in between, mypy takes the next assertion to fail and what follows it to be unreachable. It remembers
    nothing of what a function returns.
    """
    return value
