"""The users of SASL DIGEST-MD5 and their passwords, from a file in our own form or in ZooKeeper's.

Ours is a line `user:password` for each, with `#` before comments. ZooKeeper's is a JAAS configuration::

    Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_bob="secret";
    };

The passwords stand in the file as they are, because the mechanism needs them; so it must be readable by its owner only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from zraft.server.process.security.secret_file import read_secret_file
from zraft_core.errors import ConfigError

KNOB: Final = "auth.sasl_users_file"

_TOKEN: Final = re.compile(
    r'\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{};=])|(?P<word>[^\s{};="]+)', re.DOTALL
)
_JAAS: Final = re.compile(r"^\s*(//[^\n]*\n\s*|/\*.*?\*/\s*)*\w+\s*\{", re.DOTALL)
_MODULE: Final = "DigestLoginModule"
_USER: Final = "user_"


def read_users(path: Path) -> Mapping[str, str]:
    """Return the passwords by user, from the file at `path`.

    Raises:
        ConfigError: the file cannot be read, is open to others, or has another form. Never quotes a password.
    """
    try:
        text = read_secret_file(path, KNOB).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{KNOB}: {path} is not UTF-8") from None
    users = parse_users(text, str(path))
    if not users:
        raise ConfigError(
            f"{KNOB}: {path} names no user; expected lines user:password, or a JAAS section Server "
            'with user_NAME="password"'
        )
    return users


def parse_users(text: str, where: str) -> Mapping[str, str]:
    """Return the passwords by user.

    `where` names the source in errors.

    Raises:
        ConfigError: `text` has neither form.
    """
    return _from_jaas(text, where) if is_jaas(text) else _from_lines(text, where)


def is_jaas(text: str) -> bool:
    """Return whether a file of this text has ZooKeeper's form."""
    return _JAAS.match(text) is not None


def _from_lines(text: str, where: str) -> dict[str, str]:
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not colon or not user or not password:
            raise ConfigError(f"{KNOB}: {where}, line {number}: expected user:password")
        _add(users, user, password, f"{where}, line {number}")
    return users


def _add(users: dict[str, str], user: str, password: str, where: str) -> None:
    if user in users:
        raise ConfigError(f"{KNOB}: {where}: user {user} is given twice")
    users[user] = password


def _from_jaas(text: str, where: str) -> dict[str, str]:
    """Return the users of the digest modules in section Server; other sections (Client, QuorumServer) are not ours."""
    users: dict[str, str] = {}
    tokens = _tokens(text, where)
    for section in tokens:
        _expect(next(tokens, ""), "{", where)
        for module in tokens:
            if module == "}":
                break
            next(tokens, "")  # required, sufficient, …
            options = dict(_options(tokens, where))
            if section != "Server" or not module.endswith(_MODULE):
                continue
            for name, value in options.items():
                if name.startswith(_USER) and name != _USER:
                    _add(users, name.removeprefix(_USER), value, where)
        _expect(next(tokens, ""), ";", where)
    return users


def _options(tokens: Iterator[str], where: str) -> Iterator[tuple[str, str]]:
    """Yield `name=value` up to the semicolon that ends a module."""
    for name in tokens:
        if name == ";":
            return
        _expect(next(tokens, ""), "=", where)
        value = next(tokens, "")
        if value in ("", ";", "{", "}", "="):
            raise ConfigError(f"{KNOB}: {where}: {name} has no value")
        # Java's tokens: \" and \\ stand for themselves.
        yield name, re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
    raise ConfigError(
        f"{KNOB}: {where}: expected a semicolon after the last option of a module, found the end"
    )


def _expect(found: str, expected: str, where: str) -> None:
    if found != expected:
        # The text that was found may be part of a password.
        raise ConfigError(
            f"{KNOB}: {where}: this is not a JAAS file, there is no {expected!r} where it belongs"
        )


def _tokens(text: str, where: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ConfigError(f"{KNOB}: {where}, line {line}: a quoted text does not end")
        at = match.end()
        if match.lastgroup is not None:
            yield match.group()
