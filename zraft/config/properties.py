"""The text format of Java's properties files, in which `zoo.cfg` is written. Pure: text in, keys and values out.

Source: the documentation of `java.util.Properties.load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zraft_core.errors import ConfigError

_BLANKS: Final = " \t\f"
_SEPARATORS: Final = "=:"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_DIGITS: Final = 4


def parse_properties(text: str, label: str) -> dict[str, str]:
    r"""Return keys and values in the order of the file; of a key that comes twice the last value counts.

    Values lose the blanks around them, as ZooKeeper takes them. `label` names the text in errors.

    Raises:
        ConfigError: an escape `\u` without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        where = f"{label}, line {number}"
        found.pop(_unescaped(key, where), None)
        found[_unescaped(key, where)] = _unescaped(value, where).strip()
    return found


def key_lines(text: str, label: str) -> dict[str, int]:
    """Return for each key the number of the line in which its value begins; of a key that comes twice the last one counts.

    Raises:
        ConfigError: as `parse_properties`.
    """
    return {
        _unescaped(_split(line)[0], f"{label}, line {number}"): number
        for number, line in _logical_lines(text)
    }


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line, text) without comments, with continued lines joined."""
    pending = ""
    began = 0
    # str.splitlines would also end lines at characters that Java leaves alone.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            began = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield began, pending + line
        pending = ""
    if pending:
        yield began, pending


def _split(line: str) -> tuple[str, str]:
    """Return key and value. The key ends at the first unescaped `=`, `:` or blank."""
    at = 0
    while at < len(line) and line[at] not in _SEPARATORS + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANKS)
    if rest[:1] and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_BLANKS)
    return line[:at], rest


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        at += 2
        if escaped == "u":
            digits = text[at : at + _UNICODE_DIGITS]
            if len(digits) < _UNICODE_DIGITS or not set(digits) <= set("0123456789abcdefABCDEF"):
                raise ConfigError(
                    f"{where}: found \\u{digits}, expected four hexadecimal digits after \\u; a backslash that is "
                    "meant is written twice"
                )
            parts.append(chr(int(digits, 16)))
            at += _UNICODE_DIGITS
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)
