"""Values of the console as JSON. Pure.

A value of a declared class is an object of its fields; bytes are base64. Numbers are those that JavaScript has exactly, so
ids and zxids of 64 bits are declared as text where they are put into values (`shown`).
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from attrs import fields_dict


def json_of(value: object) -> str:
    """Return a declared value as JSON on one line."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return {name: getattr(value, name) for name in fields_dict(type(value))}


def shown(number: int) -> str:
    """Return a number of 64 bits as text, in hexadecimal as tools of ZooKeeper show it."""
    return hex(number & (1 << 64) - 1)
