"""Reading of a ZooKeeper operator's zoo.cfg, the file of its dynamic part, myid, and `ZOO_…` environment.

Together they give one set of properties; what these mean is `zraft.config.zoo_cfg`'s.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zraft.config.properties import parse_properties
from zraft.config.zoo_cfg import Translation, translate
from zraft.config.zoo_env import CONF_DIR, DEFAULT_PORT, PREFIX, java_properties, read_environment
from zraft_core.errors import ConfigError

MYID: Final = "myid"
MYID_BYTES_MAX: Final = 64
ZOOKEEPER_DATA: Final = "version-2"
"""The directory in which ZooKeeper keeps its log and snapshots, in dataDir and dataLogDir."""


def default_file(environ: Mapping[str, str]) -> Path | None:
    """Return the zoo.cfg that the official image would start with, if ZOO_CONF_DIR names a directory with one."""
    directory = environ.get(CONF_DIR)
    if not directory:
        return None
    file = Path(directory) / "zoo.cfg"
    return file if file.is_file() else None


def read_zoo(
    *,
    file: Path | None,
    text: str,
    environ: Mapping[str, str],
    id_elsewhere: int | None,
) -> Translation:
    """Return values and notes of a zoo.cfg (`file` with its `text`, or None), overridden by `ZOO_…` variables.

    `id_elsewhere` is the id that a stronger source names; myid is then not asked.

    Raises:
        ConfigError: a file cannot be read, or what they say together cannot be.
    """
    environment = read_environment(environ)
    label = f"from {PREFIX}…" if file is None else f"in {file}"
    properties: dict[str, str] = {}
    if file is not None:
        properties = parse_properties(text, str(file))
        properties = _dynamic(properties, file) | java_properties(environ)
    if any(name.startswith("server.") for name in environment.properties):
        properties = {name: value for name, value in properties.items() if not name.startswith("server.")}
    properties |= environment.properties
    if not properties and environment.my_id is None:
        return Translation({}, environment.notes)
    base = Path() if file is None else file.parent
    beside_zookeeper = False
    my_id = environment.my_id if id_elsewhere is None else id_elsewhere
    if "dataDir" in properties:
        data_dir = base / Path(properties["dataDir"]).expanduser()
        if id_elsewhere is None:
            on_disk = _myid(data_dir / MYID)
            if on_disk is not None and my_id is not None and on_disk != my_id:
                raise ConfigError(
                    f"{environment.my_id_variable}: found {my_id}, and {data_dir / MYID} says {on_disk}: this directory "
                    "belongs to another server, or one of the two is wrong"
                )
            my_id = on_disk if my_id is None else my_id
        beside_zookeeper = holds_zookeeper(data_dir)
    servers = any(name.startswith("server.") for name in properties)
    if file is None and not servers and "clientPort" not in properties and "dataDir" in properties:
        properties["clientPort"] = DEFAULT_PORT  # the image does so, too, when it is told nothing
    translation = translate(properties, my_id=my_id, label=label)
    return Translation(translation.values, (*environment.notes, *translation.notes), beside_zookeeper)


def holds_zookeeper(directory: Path) -> bool:
    """Return whether a ZooKeeper keeps its data in the directory, or has kept them there."""
    return os.path.isdir(directory / ZOOKEEPER_DATA)


def _dynamic(properties: dict[str, str], file: Path) -> dict[str, str]:
    """Return the properties with those of the file that `dynamicConfigFile` names, which holds the server lines."""
    name = properties.get("dynamicConfigFile")
    if name is None:
        return properties
    dynamic = file.parent / Path(name).expanduser()
    try:
        more = parse_properties(dynamic.read_text(encoding="utf-8"), str(dynamic))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"dynamicConfigFile (in {file}): cannot read {dynamic}: {error}") from error
    return properties | more


def _myid(file: Path) -> int | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(MYID_BYTES_MAX).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"myid: cannot read {file}: {error}") from error
    if not re.fullmatch(r"[0-9]{1,3}", content):
        raise ConfigError(f"myid: {file} holds {content!r}, expected this server's number, 1 to 254")
    return int(content)
