"""The environment of ZooKeeper's official container image, as the properties of a zoo.cfg.

Pure: variables in, properties out. `ZOO_TICK_TIME=2000` is `tickTime=2000`, and so on; `zraft.config.zoo_cfg` then knows
what each key means here.

Source: the official image's documentation and start script; a few names that another common image uses.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from zraft.config.zoo_cfg import ConfigNote, Level, nearest_key
from zraft_core.errors import ConfigError

PREFIX: Final = "ZOO_"
CONF_DIR: Final = "ZOO_CONF_DIR"
"""The directory in which the image looks for a zoo.cfg of its user's."""

SERVERS: Final = "ZOO_SERVERS"
EXTRA: Final = "ZOO_CFG_EXTRA"
IDS: Final = ("ZOO_MY_ID", "ZOO_SERVER_ID")
KEY_OF: Final[Mapping[str, str]] = {
    "ZOO_DATA_DIR": "dataDir",
    "ZOO_DATA_LOG_DIR": "dataLogDir",
    "ZOO_TICK_TIME": "tickTime",
    "ZOO_INIT_LIMIT": "initLimit",
    "ZOO_SYNC_LIMIT": "syncLimit",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "autopurge.purgeInterval",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "autopurge.snapRetainCount",
    "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOO_MAX_CNXNS": "maxCnxns",
    "ZOO_MAX_SESSION_TIMEOUT": "maxSessionTimeout",
    "ZOO_MIN_SESSION_TIMEOUT": "minSessionTimeout",
    "ZOO_STANDALONE_ENABLED": "standaloneEnabled",
    "ZOO_ADMINSERVER_ENABLED": "admin.enableServer",
    "ZOO_ADMIN_SERVER_PORT_NUMBER": "admin.serverPort",
    "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist",
    "ZOO_PORT": "clientPort",
    "ZOO_PORT_NUMBER": "clientPort",
}
WITHOUT_MEANING: Final = frozenset(
    {CONF_DIR, "ZOO_LOG_DIR", "ZOO_LOG4J_PROP", "ZOO_HEAP_SIZE", "ZOO_LOG_LEVEL", "ZOO_USER"}
)
JAVA_FLAGS: Final = ("JVMFLAGS", "SERVER_JVMFLAGS")
"""The variables whose ZooKeeper settings its start script takes as system properties."""

DEFAULT_PORT: Final = "2181"

# Kubernetes puts such variables into every container for a Service called `zoo` (or `zoo-…`).
_KUBERNETES_SERVICE: Final = re.compile(
    r"ZOO_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_KUBERNETES_PORT: Final = re.compile(r"(tcp|udp|sctp)://.*")
_JAVA_FLAG: Final = re.compile(
    r"-D(?:zookeeper\.([\w.]+)|(jute\.maxbuffer|java\.security\.auth\.login\.config))=(.*)", re.DOTALL
)


@frozen
class ZooEnvironment:
    """`properties` as in a zoo.cfg; `my_id` and the variable it was found in, if any."""

    properties: Mapping[str, str] = field(factory=dict)
    my_id: int | None = None
    my_id_variable: str = IDS[0]
    notes: tuple[ConfigNote, ...] = ()


def read_environment(environ: Mapping[str, str]) -> ZooEnvironment:
    """Return what the `ZOO_…` variables set.

    Of other variables only system properties in JVMFLAGS count, and only beside a `ZOO_…`.

    An empty variable counts as not set, as in the image.

    Raises:
        ConfigError: ZOO_MY_ID is no number, or ZOO_SERVERS or ZOO_CFG_EXTRA has an impossible part.
    """
    ours = {
        name: value.strip() for name, value in environ.items() if name.startswith(PREFIX) and value.strip()
    }
    properties: dict[str, str] = {}
    notes: list[ConfigNote] = []
    my_id: int | None = None
    my_id_variable = IDS[0]
    for name, value in ours.items():
        if _KUBERNETES_SERVICE.fullmatch(name) or _KUBERNETES_PORT.fullmatch(value):
            continue
        if name in IDS:
            if not re.fullmatch(r"[0-9]{1,3}", value):
                raise ConfigError(f"{name}: found {value!r}, expected this server's number, 1 to 254")
            my_id, my_id_variable = int(value), name
        elif name in KEY_OF:
            properties[KEY_OF[name]] = value
        elif name not in WITHOUT_MEANING and name not in (SERVERS, EXTRA):
            known = [*KEY_OF, *IDS, SERVERS, EXTRA]
            notes.append(
                ConfigNote(
                    Level.WARNING,
                    name,
                    f"no variable of ZooKeeper's image, it has no effect{nearest_key(name, known)}",
                )
            )
    properties |= _servers(ours.get(SERVERS, ""))
    if properties or my_id is not None:
        properties |= java_properties(environ)
    properties |= _extra(ours.get(EXTRA, ""))
    return ZooEnvironment(properties, my_id, my_id_variable, tuple(notes))


def java_properties(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ZooKeeper's own system properties among the flags for its JVM.

    They are `-Dzookeeper.…`, and two without that prefix.

    Raises:
        ConfigError: the flags have a quotation mark without its other one.
    """
    found: dict[str, str] = {}
    for variable in JAVA_FLAGS:
        try:
            flags = shlex.split(environ.get(variable, ""))
        except ValueError as error:
            raise ConfigError(f"{variable}: cannot be taken apart as a shell would: {error}") from error
        for flag in flags:
            match = _JAVA_FLAG.fullmatch(flag)
            if match is not None:
                found[match[1] or match[2]] = match[3]
    return found


def _servers(text: str) -> dict[str, str]:
    """Return `server.1=…` entries with blanks or commas between them; without `server.N=` they count from 1."""
    found: dict[str, str] = {}
    for place, part in enumerate(re.split(r"[\s,]+", text.strip()) if text.strip() else (), 1):
        if not part:
            continue
        name, equals, value = part.partition("=")
        if not equals:
            value, marker, number = part.partition("::")
            name = f"server.{number}" if marker else f"server.{place}"
        if not name.startswith("server."):
            raise ConfigError(
                f"{SERVERS}: found {part!r}, expected server.N=HOST:QUORUMPORT:ELECTIONPORT;CLIENTPORT for every "
                "server; unset the variable if it is not meant for this program"
            )
        if name in found:
            raise ConfigError(f"{SERVERS}: {name} is given twice")
        found[name] = value
    return found


def _extra(text: str) -> dict[str, str]:
    """Return `key=value` entries with blanks between them."""
    found: dict[str, str] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if not equals or not name:
            # Only the name is shown: a part of a password could stand in the rest.
            raise ConfigError(
                f"{EXTRA}: found {name!r} without a value, expected KEY=VALUE with blanks between them"
            )
        found[name] = value
    return found
