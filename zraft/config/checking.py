"""Check of a settings file without starting anything: what each line does, and what is wrong, with its line.

The values are judged by `zraft.config.knobs`, as for a server. Here is only where in the file each setting stands, and
that a mistake does not hide the next one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from zraft.config.knobs import KNOBS, REQUIRED, load_config, load_values, parsed, toml_settings
from zraft.config.properties import key_lines, parse_properties
from zraft.config.server import SECTIONS, secret_knobs
from zraft.config.zoo_cfg import KNOB_PREFIX, ConfigNote, Effect, Level, is_zoo_cfg, known_key
from zraft_core.errors import ConfigError


class Verdict(Enum):
    """The verdict on one setting."""

    OK = "ok"
    IGNORED = "ignored"
    WARNING = "warning"
    ERROR = "error"


@frozen
class CheckedSetting:
    """One setting of a file, or one thing that is wrong with the file.

    Attributes:
        line: where it stands; None if it stands nowhere.
        name: the setting, as the file calls it; empty if the whole file is meant.
        value: as the file has it; a secret is not shown.
        verdict: whether it is taken.
        text: what it does, or what is wrong.
    """

    line: int | None
    name: str
    value: str
    verdict: Verdict
    text: str


@frozen
class CheckedFile:
    """All settings of a file in its order, then what is wrong between them. `missing` are knobs that a server needs, too."""

    settings: tuple[CheckedSetting, ...]
    missing: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Return whether a server would start with it, once it is told what is missing."""
        return all(setting.verdict is not Verdict.ERROR for setting in self.settings)


HIDDEN: Final = "(not shown)"
_VALUE_MAX: Final = 200


def check_file(file: Path, flags: Mapping[str, object]) -> CheckedFile:
    """Read a settings file and judge it; `flags` are settings that a server is given besides.

    Raises:
        ConfigError: the file cannot be read, or a flag is wrong.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"FILE: cannot read {file}: {error}") from error
    load_values(flags=flags, environ={})
    if is_zoo_cfg(file.name, text):
        return _checked_zoo(file, text, flags)
    return _checked_toml(file, text, flags)


# -- TOML


def _checked_toml(file: Path, text: str, flags: Mapping[str, object]) -> CheckedFile:
    import tomllib

    try:
        content = tomllib.loads(text)
        found = list(toml_settings(content, f"in {file}"))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else None
        return CheckedFile((CheckedSetting(line, "", "", Verdict.ERROR, f"this is not TOML: {error}"),))
    except ConfigError as error:
        return CheckedFile((_wrong(error, toml_lines(text)),))
    lines = toml_lines(text)
    settings = [_checked_knob(name, value, lines.get(name), file) for name, value in found]
    return _with_rules(file, settings, lines, flags)


def _checked_knob(name: str, found: object, line: int | None, file: Path) -> CheckedSetting:
    value = HIDDEN if name in secret_knobs() else _shown(found)
    try:
        parsed(name, found, f"in {file}")
    except ConfigError as error:
        return CheckedSetting(line, name, value, Verdict.ERROR, _without_place(str(error)))
    return CheckedSetting(line, name, value, Verdict.OK, KNOBS[name].help)


def _shown(found: object) -> str:
    text = str(found).lower() if isinstance(found, bool) else str(found)
    if isinstance(found, Mapping):
        text = ",".join(f"{name}={value}" for name, value in found.items())
    elif isinstance(found, list):
        text = ",".join(map(str, found))
    text = "".join(one if one.isprintable() else "?" for one in text)
    return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"


_TABLE: Final = re.compile(r"^\s*\[\s*([A-Za-z0-9_-]+)\s*\]")
_KEY: Final = re.compile(r"""^\s*["']?([A-Za-z0-9_.-]+?)["']?\s*=""")


def toml_lines(text: str) -> dict[str, int]:
    """Return where each setting of a TOML file stands, as far as lines show it; a section stands for what is inside it."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = header[1]
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = f"{table}.{key[1]}" if table and table != "cluster" else table or key[1]
            if name == "admin.address":
                found["admin"] = number
            found.setdefault(name, number)
    for name in KNOBS:
        section = name.partition(".")[0]
        if name not in found and section in SECTIONS and section in found:
            found[name] = found[section]
    return found


# -- zoo.cfg


def _checked_zoo(file: Path, text: str, flags: Mapping[str, object]) -> CheckedFile:
    try:
        properties = parse_properties(text, str(file))
        lines = key_lines(text, str(file))
    except ConfigError as error:
        return CheckedFile((CheckedSetting(None, "", "", Verdict.ERROR, str(error)),))
    settings = [_checked_key(name, value, lines.get(name)) for name, value in properties.items()]
    return _with_rules(file, settings, lines, flags)


_EFFECTS: Final = {
    Effect.SILENT: Verdict.IGNORED,
    Effect.INFO: Verdict.IGNORED,
    Effect.WARNING: Verdict.WARNING,
}


def _checked_key(name: str, value: str, line: int | None) -> CheckedSetting:
    """Return what is said of a key of a zoo.cfg by itself; what its value means is judged with all others."""
    if name.startswith(KNOB_PREFIX):
        knob = name.removeprefix(KNOB_PREFIX)
        verdict, text = (
            (Verdict.OK, KNOBS[knob].help) if knob in KNOBS else (Verdict.ERROR, "there is no such knob")
        )
        return CheckedSetting(line, name, HIDDEN if knob in secret_knobs() else _shown(value), verdict, text)
    known = known_key(name)
    if known is None:
        return CheckedSetting(
            line, name, HIDDEN, Verdict.WARNING, "ZooKeeper has no such key; it has no effect"
        )
    if known.effect is Effect.MAPPED:
        mapped = KNOBS.get(known.knob)
        text = f"is read: {known.knob}" if mapped is None else f"{known.knob}: {mapped.help}"
        hidden = known.knob in secret_knobs() or "assword" in name
        return CheckedSetting(line, name, HIDDEN if hidden else _shown(value), Verdict.OK, text)
    hidden = "assword" in name or "assw" in name.lower()
    return CheckedSetting(line, name, HIDDEN if hidden else _shown(value), _EFFECTS[known.effect], known.why)


# -- both


def _with_rules(
    file: Path, settings: list[CheckedSetting], lines: Mapping[str, int], flags: Mapping[str, object]
) -> CheckedFile:
    """Add what a server would say of all settings together, unless one of them is wrong by itself."""
    if any(setting.verdict is Verdict.ERROR for setting in settings):
        return CheckedFile(tuple(settings))
    notes: list[ConfigNote] = []
    missing: tuple[str, ...] = ()
    try:
        values = load_values(flags=flags, environ={}, file=file, on_note=notes.append)
        missing = tuple(name for name in REQUIRED if name not in values)
        load_config(flags={**flags, **_stand_ins(values)}, environ={}, file=file)
    except ConfigError as error:
        wrong = _wrong(error, lines)
        settings = [
            CheckedSetting(one.line, one.name, one.value, wrong.verdict, wrong.text)
            if wrong.line is not None and one.line == wrong.line and one.name == wrong.name
            else one
            for one in settings
        ]
        if wrong not in settings and not any(one.text == wrong.text for one in settings):
            settings.append(wrong)
    told = {(one.name, one.text) for one in settings}
    for note in notes:
        verdict = Verdict.WARNING if note.level is Level.WARNING else Verdict.IGNORED
        if (note.key, note.text) not in told:
            settings = _noted(settings, note, verdict)
    return CheckedFile(tuple(settings), missing)


def _noted(settings: Sequence[CheckedSetting], note: ConfigNote, verdict: Verdict) -> list[CheckedSetting]:
    """Return the settings with what the log would say of a key in place of what is said of every such key."""
    found = []
    for one in settings:
        if one.name == note.key and one.verdict is not Verdict.ERROR:
            mapped = one.verdict is Verdict.OK
            text = f"{one.text} Note: {note.text}" if mapped else note.text
            one = CheckedSetting(one.line, one.name, one.value, verdict, text)
        found.append(one)
    return found


def _stand_ins(values: Mapping[str, Any]) -> dict[str, object]:
    """Return values for required knobs that are missing, so that the rules between the others can be checked."""
    cluster = values.get("cluster")
    server = values.get("id", min(cluster) if cluster else 1)
    address = values.get("address") or (cluster or {}).get(server, "127.0.0.1:2181")
    all_of_them = {
        "id": str(server),
        "data": "data",
        "address": address,
        "cluster": f"{server}={address}",
    }
    return {name: value for name, value in all_of_them.items() if name not in values}


_PLACE: Final = re.compile(r" \((?:in [^)]*|[^)]* in [^)]*)\)")


def _without_place(text: str) -> str:
    """Return an error without the name of the file, which is said anyway."""
    return _PLACE.sub("", text, count=1)


def _wrong(error: ConfigError, lines: Mapping[str, int]) -> CheckedSetting:
    """Return an error, and the line of the setting that its message begins with."""
    text = str(error)
    named = re.match(r"([\w.]+)(?: \((\S+) in )?", text)
    names = [one for one in (named.groups() if named else ()) if one is not None]
    name = next((one for one in reversed(names) if one in lines), "")
    return CheckedSetting(lines.get(name), name, "", Verdict.ERROR, _without_place(text))
