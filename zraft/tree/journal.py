"""The inverses of effects, in order, so that a change of several steps can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Undo = tuple[Callable[..., None], tuple[Any, ...]]
"""A function and the arguments with which it takes back one effect."""
