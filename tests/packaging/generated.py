"""Files that are made, whole or in part, from what is declared elsewhere. Nobody edits them by hand.

`python -m tests.packaging.generated` (or `make generated`) writes them; a test compares them with what it would write.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.packaging.native_tables import tables
from tests.packaging.public import public_names
from zraft.admin.exposed import Exposed
from zraft.admin.metrics import OF_ZOOKEEPER, OURS
from zraft.config.knobs import KNOBS

ROOT: Final = Path(__file__).parents[2]


def blocking_calls(_: str) -> str:
    """The calls of the blocking client: those of the asyncio client, without await."""
    source = (ROOT / "client" / "zraft_client" / "api.py").read_text(encoding="utf-8")
    docstring_end = ast.parse(source).body[0].end_lineno
    lines = source.splitlines(keepends=True)[docstring_end:]
    text = (
        '"""The calls of the blocking client. `make generated` makes them from `zraft_client.api`: change that."""\n'
        + "".join(lines)
    )
    for asyncio_word, blocking_word in (
        ("async def ", "def "),
        ("await ", ""),
        ("AsyncCalls", "BlockingCalls"),
    ):
        text = text.replace(asyncio_word, blocking_word)
    return formatted(text)


def knobs(document: str) -> str:
    """The table of all knobs."""
    rows = [(f"`{knob.name}`", f"`{knob.variable}`", knob.default, knob.help) for knob in KNOBS.values()]
    return with_table(document, ("Knob", "Environment", "Default", "Meaning"), rows)


def metrics(document: str) -> str:
    """The tables of a server's metrics: those under ZooKeeper's names, and our own."""
    for title, declared in (("ZooKeeper's name", OF_ZOOKEEPER), ("Metric", OURS)):
        rows = [(_metric(one), one.kind, _as_code(f"{one.text} {one.note}".strip())) for one in declared]
        document = with_table(document, (title, "Kind", "Meaning"), rows)
    return document


def _metric(declared: Exposed[Any]) -> str:
    labels = f"{{{','.join(declared.labels)}}}" if declared.labels else ""
    return f"`{declared.name}{labels}`"


_KNOB: Final = re.compile(rf"(?<![`\w.])({'|'.join(name for name in KNOBS if '.' in name)})(?![\w`])")


def _as_code(text: str) -> str:
    """`text` with the names of knobs as code."""
    return _KNOB.sub(r"`\1`", text)


def native(document: str) -> str:
    """The tables of the native protocol's requests and answers."""
    for titles, rows in tables():
        document = with_table(document, titles, rows)
    return document


def names(_: str) -> str:
    """Return the names that users may rely on, a line for each."""
    return "".join(f"{line}\n" for line in public_names())


def with_table(document: str, titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """`document` with these rows in place of those of its only table with these titles."""
    head = "\n" + _row(titles) + "|---" * len(titles) + "|\n"
    before, found, after = document.partition(head)
    assert found, f"no table with the titles {titles}"
    assert head not in after, f"two tables with the titles {titles}"
    rest = after[after.index("\n\n") + 1 :]
    return before + head + "".join(map(_row, rows)) + rest


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |\n"


def formatted(text: str) -> str:
    """Python text as ruff lays it out under the settings of this repository."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    ruff = shutil.which("ruff", path=path)
    assert ruff is not None, "ruff is not installed; .ci/setup does that"
    return subprocess.run(
        [ruff, "format", "-"], input=text, capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout


GENERATED: Final[Mapping[str, Callable[[str], str]]] = {
    "client/zraft_client/blocking_api.py": blocking_calls,
    "docs/reference/configuration.md": knobs,
    "docs/reference/metrics.md": metrics,
    "docs/reference/protocol-native.md": native,
    "tests/packaging/public_names.txt": names,
}
"""By path: what makes the new text of the file from the old one."""


def main() -> None:
    for path, made in GENERATED.items():
        file = ROOT / path
        old = file.read_text(encoding="utf-8")
        new = made(old)
        if new != old:
            file.write_text(new, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
