"""Knobs, and the way from what an operator wrote to a `ServerConfig`.

The table of knobs is here, and the three sources of their values.

A value comes from a file (TOML, or ZooKeeper's zoo.cfg), is overridden by the `ZOO_…` environment of ZooKeeper's image,
that by a `ZRAFT_…` variable, and that by a flag.
The result is handed down from `main`; nothing in zraft reads the environment or a settings file on its own.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from attrs import NOTHING, evolve, frozen

from zraft.config.fields import Declaration, Kind
from zraft.config.sections import ClientConfig, PeerConfig
from zraft.config.server import (
    DECLARED,
    OBSERVER_MARK,
    SECTIONS,
    ClusterList,
    DeclaredKnob,
    ServerConfig,
    with_room,
)
from zraft.config.zoo_cfg import ConfigNote, is_zoo_cfg
from zraft.config.zoo_source import default_file, holds_zookeeper, read_zoo
from zraft.program.nearest import nearest
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId

LOOPBACK_DATAGRAM_BYTES: Final = 60_000 if sys.platform.startswith("linux") else 9_000
"""Default datagram size when every server is on loopback, where nothing fragments it: 40 times fewer system calls.

macOS and the BSDs refuse datagrams of more than 9,216 bytes unless the administrator allows them (net.inet.udp.maxdgram).
"""

Parser = Callable[[object, str], Any]
"""(what was found, the knob's name with its source) -> value. Raises ConfigError."""


@frozen
class Knob:
    """One setting an operator can name. `parse` takes text (environment, flags) and TOML values alike."""

    name: str
    parse: Parser
    help: str
    default: str

    @property
    def variable(self) -> str:
        """The knob's environment variable: `wal.segment_bytes_max` is ZRAFT_WAL__SEGMENT_BYTES_MAX."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace(".", "__")


_FIELDS: Final = {one.name: one.attribute.name for one in DECLARED if not one.section}
"""The fields of `ServerConfig` itself, by knob."""

ENVIRONMENT_PREFIX: Final = "ZRAFT_"
COMMAND_LINE: Final = "on the command line"
CONFIG_FILE_VARIABLE: Final = "ZRAFT_CONFIG"
"""Names the TOML file."""
NO_KNOBS: Final = frozenset({CONFIG_FILE_VARIABLE, "ZRAFT_CONNECT", "ZRAFT_AUTH"})
"""The variables of ours that are no knobs: commands for clients read the others, and may run beside a server."""

# Kubernetes puts such variables into every container for a Service called `zraft` (or `zraft-…`); they are
# no misspelt knob of ours, and refusing them would make that name unusable.
_KUBERNETES_SERVICE: Final = re.compile(
    r"ZRAFT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def _refuse(label: str, found: object, expected: str) -> NoReturn:
    raise ConfigError(f"{label}: found {found!r}, expected {expected}")


def _parse_text(found: object, label: str) -> str:
    if not isinstance(found, str) or not found.strip():
        _refuse(label, found, "text")
    return found.strip()


def _parse_bool(found: object, label: str) -> bool:
    if isinstance(found, bool):
        return found
    if isinstance(found, str) and found.lower() in ("true", "false"):
        return found.lower() == "true"
    _refuse(label, found, "true or false")


def _parse_count(lowest: int, highest: int) -> Parser:
    def parse(found: object, label: str) -> int:
        value = found
        if isinstance(found, str) and re.fullmatch(r"[0-9]{1,20}", found.strip()):
            value = int(found)
        # bool is an int to Python, and `true` is no number to an operator
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            _refuse(label, found, f"a whole number from {lowest} to {highest}")
        return value

    return parse


def _parse_choice(choices: tuple[str, ...]) -> Parser:
    def parse(found: object, label: str) -> str:
        # In TOML, 1.2 is a number; nobody should have to think of that.
        text = str(found) if isinstance(found, float) else found
        if not isinstance(text, str) or text not in choices:
            _refuse(label, found, "one of " + ", ".join(choices))
        return text

    return parse


def _parse_path(found: object, label: str) -> Path:
    if isinstance(found, Path):
        return found
    return Path(_parse_text(found, label)).expanduser()


def _parse_paths(found: object, label: str) -> tuple[Path, ...]:
    """Return several paths: a TOML array, or text with commas between them."""
    parts = found.split(",") if isinstance(found, str) else found
    if not isinstance(parts, list | tuple):
        _refuse(label, found, "a file, or two separated by a comma")
    return tuple(_parse_path(part, label) for part in parts)


def _parse_address(found: object, label: str) -> Address:
    if isinstance(found, Address):
        return found
    return parse_address(_parse_text(found, label), label)


def parse_cluster(found: object, label: str) -> Mapping[ServerId, Address]:
    """Return the servers in `1=HOST:PORT,2=HOST:PORT,3=HOST:PORT:observer`, or in a table of TOML.

    Raises:
        ConfigError: a part does not have that form, or an id is given twice.
    """
    expected = "ID=HOST:PORT for every server, such as 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181"
    pairs: list[tuple[str, object]] = []
    if isinstance(found, Mapping):
        pairs = [(str(server), address) for server, address in found.items()]
    else:
        for part in _parse_text(found, label).split(","):
            server_text, equals, address_text = part.strip().partition("=")
            if not equals:
                _refuse(label, part, expected)
            pairs.append((server_text, address_text))
    if not pairs:
        _refuse(label, found, expected)
    cluster: dict[ServerId, Address] = {}
    observers = set(found.observers) if isinstance(found, ClusterList) else set()
    for server_text, address in pairs:
        server = ServerId(_parse_count(SERVER_ID_MIN, SERVER_ID_MAX)(server_text, f"{label}: server id"))
        if server in cluster:
            raise ConfigError(f"{label}: server {server} is given twice")
        if isinstance(address, str) and address.endswith(OBSERVER_MARK):
            observers.add(server)
            address = address.removesuffix(OBSERVER_MARK)
        cluster[server] = _parse_address(address, f"{label}: server {server}")
    return ClusterList(cluster, observers)


def _parse_choices(choices: tuple[str, ...]) -> Parser:
    """Return a parser of several choices: a TOML array, or text with commas between them."""

    def parse(found: object, label: str) -> tuple[str, ...]:
        parts = found.split(",") if isinstance(found, str) else found
        if not isinstance(parts, list | tuple) or not parts:
            _refuse(label, found, "some of " + ", ".join(choices))
        one = _parse_choice(choices)
        return tuple(
            dict.fromkeys(one(part.strip() if isinstance(part, str) else part, label) for part in parts)
        )

    return parse


def _parse_words(found: object, label: str) -> tuple[str, ...]:
    """Return four-letter words or `*`: a TOML array, or text with commas between them.

    Empty text is none of them.
    """
    expected = 'four-letter words such as "ruok, srvr, mntr", or "*"'
    parts = found.split(",") if isinstance(found, str) else found
    if not isinstance(parts, list | tuple):
        _refuse(label, found, expected)
    words = []
    for part in parts:
        word = part.strip() if isinstance(part, str) else None
        if word == "" and isinstance(found, str):
            continue
        if word is None or not re.fullmatch(r"[a-z]{4}|\*", word):
            _refuse(label, found, expected)
        words.append(word)
    return tuple(dict.fromkeys(words))


def _parse_hosts(found: object, label: str) -> tuple[str, ...]:
    """Return host names without ports: a TOML array, or text with commas between them."""
    expected = "host names without ports, such as zk1.example.org, separated by commas"
    parts = found.split(",") if isinstance(found, str) else found
    if not isinstance(parts, list | tuple):
        _refuse(label, found, expected)
    hosts = []
    for part in parts:
        host = part.strip().lower().removesuffix(".") if isinstance(part, str) else ""
        if not _HOST_NAME.fullmatch(host):
            _refuse(label, found, expected)
        hosts.append(host)
    return tuple(dict.fromkeys(hosts))


_HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


def _parser_of(declaration: Declaration) -> Parser:
    """Return the parser of a knob's values."""
    match declaration.kind:
        case "count":
            return _parse_count(declaration.lowest, declaration.highest)
        case "choice":
            return _parse_choice(declaration.choices)
        case "choices":
            return _parse_choices(declaration.choices)
        case kind:
            return _PARSERS[kind]


_PARSERS: Final[Mapping[Kind, Parser]] = {
    "address": _parse_address,
    "cluster": parse_cluster,
    "hosts": _parse_hosts,
    "path": _parse_path,
    "paths": _parse_paths,
    "switch": _parse_bool,
    "text": _parse_text,
    "words": _parse_words,
}


def _default_of(knob: DeclaredKnob) -> str:
    """Return the default as it is written."""
    if knob.declaration.default is not None:
        return knob.declaration.default
    match knob.attribute.default:
        case found if found is NOTHING:
            return "required"
        case None | ():
            return "none"
        case bool(switch):
            return str(switch).lower()
        case tuple(parts):
            return ",".join(parts)
        case value:
            return str(value)


KNOBS: Final[Mapping[str, Knob]] = {
    knob.name: Knob(knob.name, _parser_of(knob.declaration), knob.declaration.help, _default_of(knob))
    for knob in DECLARED
}


def load_config(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    on_note: Callable[[ConfigNote], None] = lambda _: None,
    flags_source: str = COMMAND_LINE,
) -> ServerConfig:
    """Return the configuration of one server: `load_values`, checked.

    Raises:
        ConfigError: a knob is unknown, missing, has an impossible value, or does not go with another.
    """
    values = load_values(flags=flags, environ=environ, file=file, on_note=on_note, flags_source=flags_source)
    return _assemble(values)


def load_values(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    on_note: Callable[[ConfigNote], None] = lambda _: None,
    flags_source: str = COMMAND_LINE,
) -> Mapping[str, Any]:
    """Return the values by knob: `file`, overridden by `ZOO_…`, by `ZRAFT_…` and by `flags`, in this order.

    `flags` maps knob names to values; a flag that was not given must not be in it. The file may also be
    named by ZRAFT_CONFIG, or be the zoo.cfg in ZOO_CONF_DIR. `environ` is the process's own unless given.
    `on_note` is told what to log about keys of a zoo.cfg, once per key. Errors say that flags come from `flags_source`.

    Raises:
        ConfigError: a knob is unknown, or has an impossible value.
    """
    environ = os.environ if environ is None else environ
    if file is None and environ.get(CONFIG_FILE_VARIABLE):
        file = Path(environ[CONFIG_FILE_VARIABLE])
    if file is None:
        file = default_file(environ)
    ours = _from_environment(environ) | _from_flags(flags, flags_source)
    text = "" if file is None else _read(file)
    zoo_cfg = file if file is not None and is_zoo_cfg(file.name, text) else None
    values: dict[str, Any] = {}
    if file is not None and zoo_cfg is None:
        values.update(_from_toml(file, text))
    zoo = read_zoo(file=zoo_cfg, text=text, environ=environ, id_elsewhere=ours.get("id"))
    for note in zoo.notes:
        on_note(note)
    theirs: dict[str, Any] = {}
    for name, setting in zoo.values.items():
        theirs.update(parsed(name, setting.found, f"{setting.key} in {zoo_cfg or 'the environment'}"))
    values.update(theirs if zoo_cfg is None else _beside(zoo_cfg, theirs))
    values |= ours
    # Clients of that ZooKeeper would find an empty tree, and make their roots anew in it.
    beside_zookeeper = zoo.beside_zookeeper or ("data" in values and holds_zookeeper(values["data"].parent))
    return {"founds": not beside_zookeeper} | values


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: cannot read {file}: {error}") from error


def _from_toml(file: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config: {file} is not TOML: {error}") from error
    values: dict[str, Any] = {}
    for name, found in toml_settings(content, f"in {file}"):
        values.update(parsed(name, found, f"in {file}"))
    return _beside(file, values)


def toml_settings(content: Mapping[str, object], source: str) -> Iterator[tuple[str, object]]:
    """Yield (knob, what was found) for each setting of a parsed TOML file; there may be no such knob.

    Raises:
        ConfigError: the name of a section is something else than a table.
    """
    for name, found in content.items():
        if name == "admin" and isinstance(found, dict):
            # A table where there is more to say than the address.
            for inner, inner_found in found.items():
                yield name if inner == "address" else f"{name}.{inner}", inner_found
        elif name in SECTIONS:
            if not isinstance(found, dict):
                _refuse(f"{name} ({source})", found, f"a table, [{name}]")
            for inner, inner_found in found.items():
                yield f"{name}.{inner}", inner_found
        else:
            yield name, found


def _beside(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with paths relative to the file, as in most tools.

    So the file means the same from anywhere.
    """
    for name, value in values.items():
        if isinstance(value, Path):
            values[name] = file.parent / value
        elif name == "key":
            values[name] = tuple(file.parent / path for path in value)
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, found in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NO_KNOBS:
            continue
        if _KUBERNETES_SERVICE.fullmatch(variable):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if name not in KNOBS:
            known = [knob.variable for knob in KNOBS.values()]
            raise ConfigError(f"environment: {variable} sets no knob{_nearest(variable, known)}")
        values.update(parsed(name, found, f"from {variable}"))
    return values


def _from_flags(flags: Mapping[str, object], source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, found in flags.items():
        values.update(parsed(name, found, source))
    return values


def parsed(name: str, found: object, source: str) -> dict[str, Any]:
    """Return the value of one knob, by its name; `source` says where it was found, such as "in zraft.toml".

    Raises:
        ConfigError: there is no such knob, or it cannot have this value.
    """
    if name not in KNOBS:
        raise ConfigError(f"{name} ({source}): there is no such knob{_nearest(name, KNOBS)}")
    return {name: KNOBS[name].parse(found, f"{name} ({source})")}


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?`.

    The last part alone also counts, for a key put into the wrong section or none.
    """
    known = list(known)
    by_last_part = {candidate.rpartition(".")[2]: candidate for candidate in known}
    near = nearest(name, known, cutoff=0.5)
    if near is None and (part := nearest(name.rpartition(".")[2], by_last_part, cutoff=0.7)) is not None:
        near = by_last_part[part]
    return f"; did you mean {near}?" if near is not None else f"; known are {', '.join(sorted(known))}"


REQUIRED: Final = ("id", "data", "address", "cluster")
"""Knobs without which no server starts."""


def _assemble(values: Mapping[str, Any]) -> ServerConfig:
    for name in REQUIRED:
        if name not in values:
            knob = KNOBS[name]
            raise ConfigError(
                f"{name}: not set; pass --{name}, set {knob.variable} or put it into --config FILE"
            )
    top = {_FIELDS[name]: value for name, value in values.items() if name in _FIELDS}
    sections: dict[str, Any] = {}
    for section, section_class in SECTIONS.items():
        prefix = section + "."
        sections[section] = section_class(
            **{name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        )
    if "peer.datagram_bytes" not in values and all(
        address.is_loopback for address in values["cluster"].values()
    ):
        sections["peer"] = evolve(cast(PeerConfig, sections["peer"]), datagram_bytes=LOOPBACK_DATAGRAM_BYTES)
    sections["client"] = with_room(cast(ClientConfig, sections["client"]), values)
    return ServerConfig(**top, **sections, named=frozenset(values))
