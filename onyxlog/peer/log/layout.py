"""The znodes of a tenancy: paths and names, and the parameters' bytes. Pure; docs/explanation/onyxlog.md, "The log"."""

from __future__ import annotations

import json
from typing import Final

from attrs import fields_dict, frozen

from onyxlog.errors import EntryError, ParametersError
from onyxlog.ids import GroupId, JobId, Position
from onyxlog.replica.replica import JoinMode, Parameters
from onyxlog.scheduling.requirements import JobScheduler
from zraft_core.errors import ConfigError
from zraft_core.fleets import ENTRY_PREFIX, JOBS, LOG, NAME_CHARACTERS_MAX, ORIGIN, PULSES, STATE, TOP
from zraft_core.messagepack import shown

DIGITS: Final = 10


def checked_name(name: str, what: str) -> str:
    """Return a name that can be a znode's.

    Raises:
        ConfigError: it cannot.
    """
    if (
        not name
        or "/" in name
        or name in (".", "..")
        or len(name) > NAME_CHARACTERS_MAX
        or not name.isprintable()
    ):
        raise ConfigError(
            f"{what}: found {name!r}, expected 1 to {NAME_CHARACTERS_MAX} printable characters without '/'"
        )
    return name


@frozen
class LogLayout:
    """Paths of a tenancy: one log, and everything that belongs to it."""

    tenancy: str

    def __attrs_post_init__(self) -> None:
        checked_name(self.tenancy, "tenancy")

    @property
    def root(self) -> str:
        """The directory of the tenancy."""
        return f"{TOP}/{self.tenancy}"

    @property
    def log(self) -> str:
        """The directory of entries; nothing else is in it."""
        return f"{self.root}/{LOG}"

    @property
    def entry_stem(self) -> str:
        """The path of the znode that is created sequentially."""
        return f"{self.log}/{ENTRY_PREFIX}"

    @property
    def origin(self) -> str:
        """The znode of the origin."""
        return f"{self.root}/{ORIGIN}"

    @property
    def parameters(self) -> str:
        """The znode of the parameters."""
        return f"{self.root}/parameters"

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories in the order in which they can be made."""
        below = (LOG, "origin", PULSES, JOBS, STATE, "writers")
        return (TOP, self.root, *(f"{self.root}/{name}" for name in below))

    def entry(self, position: Position) -> str:
        """Return the znode of the entry at this position."""
        return f"{self.entry_stem}{position:0{DIGITS}d}"

    def position(self, path: str) -> Position:
        """Return an entry's position, from its path or name."""
        return int(path[-DIGITS:])

    @property
    def pulses(self) -> str:
        """The directory of pulses."""
        return f"{self.root}/{PULSES}"

    def pulse(self, group: GroupId) -> str:
        """Return the znode of a group's pulse.

        Raises:
            ConfigError: the id is no valid name.
        """
        return f"{self.pulses}/{checked_name(group, 'group')}"

    def job(self, job: JobId) -> str:
        """Return the znode of a job's description.

        Raises:
            ConfigError: the id is no valid name.
        """
        return f"{self.root}/{JOBS}/{checked_name(job, 'job')}"

    def writer(self, session: int) -> str:
        """Return the znode that counts the appends of a session over ZooKeeper's protocol."""
        return f"{self.root}/writers/{session:016x}"

    def state(self, path: str) -> str:
        """Return a path below `state/`; `path` "" is the directory itself."""
        if not path:
            return f"{self.root}/{STATE}"
        for name in path.split("/"):
            checked_name(name, f"state {path!r}")
        return f"{self.root}/{STATE}/{path}"


def parents(path: str) -> list[str]:
    """Return the znodes above, outermost first, without the root."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]


def encode_parameters(parameters: Parameters) -> bytes:
    """Return the parameters as JSON, for people who look at the znode."""
    found = {name: getattr(parameters, name) for name in fields_dict(Parameters)}
    return json.dumps(found, sort_keys=True).encode()


def decode_parameters(data: bytes, where: str) -> Parameters:
    """Decode a log's parameters.

    Raises:
        EntryError: the bytes are no parameters.
        ParametersError: the log was begun by another version.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:  # nested too deeply
        raise EntryError(f"{where}: found {data[:100]!r}, expected the log's parameters as JSON") from error
    known = fields_dict(Parameters)
    if type(found) is not dict or found.keys() != known.keys():
        raise ParametersError(
            f"{where}: found {shown(found)}, expected a map of {', '.join(sorted(known))}; "
            "the log was begun by another version"
        )
    try:
        return Parameters(
            **found | {"job_scheduler": JobScheduler(found["job_scheduler"]), "join": JoinMode(found["join"])}
        )
    except ValueError as error:
        raise ParametersError(f"{where}: {error}; the log was begun by another version") from error
