"""What goes wrong in a fleet of peers, and what to do about it."""

from __future__ import annotations

from zraft_core.errors import ConfigError, ZraftError


class OnyxlogError(ZraftError):
    """Root of the errors that onyxlog raises on purpose."""


class EntryError(OnyxlogError, ValueError):
    """The log, the origin or a job's znode holds what no peer of this version wrote; carries where."""


class OvertakenError(OnyxlogError):
    """Entries that were to be read are gone: garbage collection moved the origin beyond them. Begin at the origin."""

    retriable = True


class ParametersError(ConfigError):
    """This peer was started with other cluster parameters than the log was begun with."""


class WorkflowError(ConfigError):
    """A job that cannot run; the message says where: job, part, and what was expected there."""


class UnsupportedError(ConfigError):
    """The protocol that the log is reached by has no such thing; the message says what to use instead."""
