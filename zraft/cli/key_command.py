"""The command `zraft key`: makes the cluster key, and changes it in the files of running servers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from zraft_core.errors import ConfigError

_FILE: Final = click.Path(path_type=Path)


@click.group()
def key() -> None:
    """Make and change the cluster key, the secret by which servers know each other.

    \b
    To change it without downtime, do each step on every server before you begin the next:
        zraft key new next.key                  # once; copy it to every server, mode 0600
        zraft key add cluster.key next.key      # 1. all servers accept the new key as well
        zraft key swap cluster.key              # 2. all servers use it
        zraft key drop cluster.key              # 3. the old one is no longer accepted

    A running server reads its key file again a few seconds after it changed, or at once on SIGHUP, and logs `cluster
    keys taken`; `mntr` shows zk_cluster_key_sealing and zk_cluster_keys_valid. See docs/how-to/security.md.
    """


@key.command()
@click.argument("file", type=_FILE)
def new(file: Path) -> None:
    """Write a new cluster key to FILE, readable by its owner only. FILE must not exist yet.

    \b
        zraft key new cluster.key
    """
    from zraft.transport.keys import create_key_file

    create_key_file(file)
    click.echo(f"wrote {file}: copy it to every server of the cluster, and to nobody else")


@key.command()
@click.argument("file", type=_FILE)
def show(file: Path) -> None:
    """Print which keys are in FILE: their ids, which are no secret, the sealing one first."""
    _tell(file, "")


@key.command()
@click.argument("file", type=_FILE)
@click.argument("new_file", metavar="NEW", type=_FILE)
def add(file: Path, new_file: Path) -> None:
    """Step 1: add the key of the file NEW to FILE as the second key, which opens but does not seal yet.

    \b
        zraft key add cluster.key next.key

    The server need not be restarted. NEW may be removed afterwards.
    """
    from zraft.transport.keys import read_key_file, replace_keys

    keys, added = read_key_file(file), read_key_file(new_file)
    if len(added) != 1:
        raise ConfigError(f"{new_file}: expected one key, found {len(added)}")
    if added[0] not in keys:  # adding it again does nothing, as scripts repeat
        if len(keys) != 1:
            raise ConfigError(
                f"{file}: expected one key to add another to, found {len(keys)}; finish the change that is under way "
                f"(`zraft key swap`, `zraft key drop`)"
            )
        replace_keys(file, (*keys, *added))
    _tell(file, "; when all servers have both: zraft key swap")


@key.command()
@click.argument("file", type=_FILE)
def swap(file: Path) -> None:
    """Step 2: seal with the second key of FILE; the first still opens. Run it again to go back."""
    from zraft.transport.keys import read_key_file, replace_keys

    keys = read_key_file(file)
    if len(keys) != 2:
        raise ConfigError(f"{file}: expected two keys, found {len(keys)}; `zraft key add` comes first")
    replace_keys(file, keys[::-1])
    _tell(file, "; when all servers seal with it: zraft key drop")


@key.command()
@click.argument("file", type=_FILE)
def drop(file: Path) -> None:
    """Step 3: remove the second key of FILE. It is no longer accepted."""
    from zraft.transport.keys import read_key_file, replace_keys

    keys = read_key_file(file)
    if len(keys) != 2:
        raise ConfigError(f"{file}: expected two keys, found {len(keys)}: nothing to drop")
    replace_keys(file, keys[:1])
    _tell(file, "")


def _tell(file: Path, next_step: str) -> None:
    from zraft.transport.keys import read_key_file

    seals, *opens = (one.key_id.hex() for one in read_key_file(file))
    also = f", opens {opens[0]} as well" if opens else ""
    click.echo(f"{file}: seals with {seals}{also}{next_step}")
