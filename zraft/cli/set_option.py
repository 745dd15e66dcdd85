"""The option `--set KNOB=VALUE` of the commands that take settings of servers."""

from __future__ import annotations

from zraft_core.errors import ConfigError


def read_settings(settings: tuple[str, ...]) -> dict[str, object]:
    """Return what KNOB=VALUE arguments set, by knob.

    Raises:
        ConfigError: one has another form, or its knob is a secret.
    """
    if not settings:
        return {}
    from zraft.config.server import secret_knobs

    flags: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"--set: found {setting!r}, expected KNOB=VALUE, such as raft.heartbeat_ticks=100"
            )
        if name.strip() in secret_knobs():
            # It is not even quoted: this very message may be logged.
            variable = "ZRAFT_" + name.strip().upper().replace(".", "__")
            raise ConfigError(
                f"--set: found {name.strip()}, which is a secret: arguments can be read by everybody on this machine "
                f"(`ps`); put it into the --config file, mode 0600, or into {variable}"
            )
        flags[name.strip()] = value
    return flags
