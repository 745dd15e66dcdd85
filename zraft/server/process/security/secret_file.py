"""Reading a file that holds a secret: a private key, passwords. Judges who else could have read it.

Others than owner and group must have no access. The group may read, since secrets are often handed to a service that
way (Debian's ssl-cert, Kubernetes' fsGroup), but is mentioned.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import structlog

from zraft_core.errors import ConfigError

SECRET_BYTES_MAX: Final = 1024 * 1024
"""Keys and user lists are smaller; a mistaken path (a log, a device) stays harmless."""

OTHERS: Final = 0o007
GROUP_CHANGES: Final = 0o030
GROUP_READS: Final = 0o040

log = structlog.get_logger()


def read_secret_file(path: Path, knob: str) -> bytes:
    """Return the whole file that `knob` names.

    Raises:
        ConfigError: it is missing, no regular file, too large, or open to others. Never quotes what is in it.
    """
    try:
        # O_NONBLOCK so that a named pipe in the file's place is refused below instead of waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{knob}: cannot open {path}: {error.strerror}") from error
    try:
        # Judged on the open file, so that it cannot be exchanged between the look and the read.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{knob}: {path} is no regular file")
        if status.st_size > SECRET_BYTES_MAX:
            raise ConfigError(
                f"{knob}: {path} has {status.st_size} bytes, expected at most {SECRET_BYTES_MAX}"
            )
        mode = stat.S_IMODE(status.st_mode)
        if mode & (OTHERS | GROUP_CHANGES):
            raise ConfigError(
                f"{knob}: {path} has mode {mode:04o}, expected that only its owner can use it (mode 0600; its group may "
                f"read, 0640); run `chmod 600 {path}`, and if others may have read it, replace the secret in it"
            )
        if mode & GROUP_READS:
            log.info("a file with a secret is readable by its group", knob=knob, file=str(path))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{knob}: cannot read {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
