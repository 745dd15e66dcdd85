"""What documents name is there: tests, files, modules, rules, metrics, knobs, and commands with their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

import onyxlog.main
import zraft.cli.main
import zraft_bench.main
from tests.documents.blocks import DOCUMENTS, RUN, Way, blocks_of
from tests.packaging.modules import ROOTS, sources
from zraft.admin.metrics import OF_ZOOKEEPER, OURS
from zraft.config.knobs import KNOBS

ROOT: Final = Path(__file__).parents[2]
TEXTS: Final = {document.relative_to(ROOT).as_posix(): document.read_text() for document in DOCUMENTS}

NODE_ID = re.compile(r"`tests/([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
"""As pytest takes it."""


def named(form: str) -> Iterator[tuple[str, str]]:
    """(document, what the group of `form` matched) in all documents."""
    for document, text in TEXTS.items():
        for found in re.findall(form, text):
            yield document, found


def test_every_test_that_a_document_names_exists() -> None:
    found = [(document, *pair) for document, text in TEXTS.items() for pair in NODE_ID.findall(text)]
    assert len(found) > 90
    missing = [
        (document, file, test)
        for document, file, test in found
        if not re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_every_name_of_a_test_that_a_document_has_is_that_of_one() -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    for block in MADE:
        defined |= {Path(block.detail).stem, *re.findall(r"def (test_\w+)\(", block.text)}
    modules = {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
    found = set(named(r"(?<![\w/])(test_[a-z0-9_]+…?)(?![\w./])"))
    assert len(found) > 100
    missing = {
        (document, name)
        for document, name in found
        if name not in defined | modules | KAZOOS
        and not (name.endswith("…") and any(one.startswith(name[:-1]) for one in defined))
    }
    assert missing == set()


BEGINNINGS: Final = ("", "tests", "zraft", "zraft/server", "client", "bench", "onyxlog", "docs")
"""Where a path in a document may begin."""

KAZOOS: Final = {"test_add_remove_observer"}

MADE: Final = [
    block for document in DOCUMENTS for block in blocks_of(document) if block.way is Way.FILE and block.detail
]
"""Files that readers of documents write."""

ELSEWHERE: Final = {
    *("report.html", "zraft.toml", "wrong.toml", "kazoo/testing/common.py"),
    *(name for block in MADE for name in (block.detail, Path(block.detail).name)),
}
"""Files of other projects, and those that examples make."""


def test_every_source_file_that_a_document_names_exists() -> None:
    found = list(named(r"(?<![\w/.…-])((?:[a-z0-9_-]+/)*[a-z0-9_-]+\.(?:py|md|toml|yaml|html|c))\b(?!/)"))
    assert len(found) > 150
    assert missing_files(found) == []


def missing_files(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted({pair for pair in found if pair[1] not in ELSEWHERE and not _is_there(pair[1])})


def _is_there(path: str) -> bool:
    if any((ROOT / beginning / path).is_file() for beginning in BEGINNINGS):
        return True
    # a name alone, behind the folder that its section is about
    return "/" not in path and any(ROOT.glob(f"[!.]*/**/{path}"))


def test_every_module_that_a_document_names_exists() -> None:
    modules = sources()
    found = sorted(set(named(r"(?<![\w./-])((?:zraft|onyxlog|zraft_client|zraft_bench)(?:\.[a-z_0-9]+)+)\b")))
    assert len(found) > 40
    suffixes = {"py", "key", "toml", "snap", "log", "io", "md"}
    missing = []
    for document, name in found:
        module, _, last = name.rpartition(".")
        if name in modules or last in suffixes or name.partition(".")[2] in KNOBS:
            continue
        if module not in modules or not re.search(rf"\b{last}\b", modules[module].read_text()):
            missing.append((document, name))
    assert missing == []


@pytest.mark.parametrize("document", sorted(TEXTS))
def test_every_program_that_a_document_runs_by_python_exists(document: str) -> None:
    for name in re.findall(r"\bpython -m ([a-z_.]+)", TEXTS[document]):
        if name.partition(".")[0] in {*ROOTS, "tests"}:
            path = name.replace(".", "/")
            places = [ROOT / beginning / path for beginning in ("", "client", "bench")]
            assert any(
                place.with_suffix(".py").exists() or (place / "__main__.py").exists() for place in places
            ), name


def test_every_rule_that_anything_cites_is_in_the_rules() -> None:
    rules = set(re.findall(r"^## (D-\d+) ", TEXTS["docs/explanation/rules.md"], re.MULTILINE))
    files = [
        file
        for folder in ("bench", "client", "docs", "onyxlog", "tests", "zraft")
        for file in (ROOT / folder).rglob("*.*")
    ]
    cited = {
        rule
        for file in files
        if file.suffix in {".py", ".md"}
        for rule in re.findall(r"\bD-\d+\b", file.read_text(encoding="utf-8"))
    }
    assert len(rules) > 20
    assert cited - rules == set()


def test_modules_of_the_server_are_told_of_once_in_the_architecture() -> None:
    section = (
        TEXTS["docs/explanation/architecture.md"].partition("\n## The server\n")[2].partition("\n## ")[0]
    )
    told = {}
    for room in section.split("\n### ")[1:]:
        rows = re.findall(r"^\| (`.*?`) \|", room, re.MULTILINE)
        folder = room.partition("`")[2].partition("`")[0]
        told[folder] = sorted(name for row in rows for name in re.findall(r"`([a-z_]+)`", row))
    folders = {
        path.parent for top in ("server", "groups") for path in (ROOT / "zraft" / top).rglob("__init__.py")
    }
    modules = {
        folder.relative_to(ROOT).as_posix(): sorted(path.stem for path in folder.glob("[!_]*.py"))
        for folder in folders
    }
    assert told == {folder: names for folder, names in modules.items() if names}


def test_packages_are_told_of_in_the_architecture() -> None:
    rooms = TEXTS["docs/explanation/architecture.md"].partition("\n## Rooms\n")[2].partition("\n## ")[0]
    for root in ROOT / "zraft", ROOT / "onyxlog", ROOT / "client" / "zraft_core":
        folders = {path.parent.name for path in root.glob("*/__init__.py")}
        assert {folder for folder in folders if f"{folder}/" not in rooms} == set()


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for document, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = ((ROOT / document).parent / path).resolve() if path else ROOT / document
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append((document, target))
    assert broken == []


def test_every_function_that_a_link_names_is_in_its_file() -> None:
    found = [
        (document, name, (ROOT / document).parent / path)
        for document, text in TEXTS.items()
        for name, path in re.findall(r"\[`([\w.]+)`\]\(([\w./]+\.py)\)", text)
    ]
    assert len(found) > 10
    missing = [
        (document, name)
        for document, name, file in found
        if not set(name.split("."))
        <= set(re.findall(r"^ *(?:class|def|async def) (\w+)", file.read_text(), re.M))
    ]
    assert missing == []


def anchors(file: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


NO_KNOBS: Final = {"audit.enable", "audit.json", "client.pem", "snapshot.read", "snapshot.take"}
"""A key of zoo.cfg, files, and commands of operators."""


def test_every_knob_that_a_document_sets_exists() -> None:
    sections = {name.partition(".")[0] for name in KNOBS if "." in name}
    found = set(named(rf"`((?:{'|'.join(sections)})\.[a-z][a-z_]+)(?![\w(])"))
    assert len(found) > 50
    missing = {(document, name) for document, name in found if name not in KNOBS and name not in NO_KNOBS}
    assert missing == set()


def test_commands_are_called_from_an_activated_environment() -> None:
    """Only the README activates it, and only tests and CI, which have no terminal, go by the path."""
    texts = dict(TEXTS)
    for folder in "zraft", "onyxlog", "client", "bench", "examples":
        texts |= {str(file): file.read_text() for file in (ROOT / folder).rglob("*.py")}
    for name, text in texts.items():
        assert not re.search(r"\.venv/bin/(?!activate)", text), name


# -- commands


GROUPS: Final = {
    "zraft": zraft.cli.main.main,
    "onyxlog": onyxlog.main.main,
    "zraft-bench": zraft_bench.main.main,
}
COMMAND: Final = re.compile(r"^(?:zraft|onyxlog|zraft-bench) .+")


def commands() -> Iterator[tuple[str, str]]:
    """(place, command line) of every block of shell commands, and of what stands in the text as code."""
    for document in DOCUMENTS:
        for block in blocks_of(document):
            if block.language not in RUN | {"crontab"}:
                continue
            for line in block.text.replace("\\\n", "").splitlines():
                for part in re.split(r"\s(?:&&|\||;)\s|\$\(|=\$\(", line):
                    if (found := COMMAND.match(part.strip())) is not None:
                        yield str(block), found[0]
        text = re.sub(
            r"^ *```.*?^ *```$", "", TEXTS[document.relative_to(ROOT).as_posix()], flags=re.M | re.S
        )
        for code in re.findall(r"`((?:zraft|onyxlog|zraft-bench) [^`]+)`", text):
            yield document.name, code


def parse(line: str) -> str | None:
    """Which command or option of a command line is not there; None if all are. Arguments are not looked at."""
    words = shlex.split(line.rstrip(" &)"), comments=True)
    for number, word in enumerate(words):
        if word.startswith((">", "<", "&")):
            words = words[:number]
            break
    words = [word for word in words if word != "…"]
    program, *rest = words
    command: click.Command = GROUPS[program]
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and rest:
        if rest[0].startswith("-"):
            break
        found = command.get_command(context, rest[0])
        if found is None:
            return f"{command.name} has no command {rest[0]!r}"
        command, rest = found, rest[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    known = {
        option
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    if isinstance(command, click.Group) or command.ignore_unknown_options:
        return None
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{command.name} has no option {', '.join(unknown)}" if unknown else None


NO_COMMANDS: Final = {"zraft deliveries of group N"}
"""What a digest begins with."""


def test_every_command_in_a_document_exists_with_its_options() -> None:
    found = list(commands())
    assert len(found) > 150
    wrong = [
        (place, line, said)
        for place, line in found
        if line not in NO_COMMANDS and (said := parse(line)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line", ["zraft serv --id 1", "zraft serve --identity 1", "onyxlog peer --nothing", "zraft member lst"]
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    assert parse(line) is not None


def test_a_block_without_a_language_has_no_commands() -> None:
    """Or it would be neither run nor excused."""
    starts = re.compile(
        r"^(?:zraft|onyxlog|zraft-bench|python|pip|docker|openssl|export|\.ci/\w+) ", re.MULTILINE
    )
    found = [
        str(block)
        for document in DOCUMENTS
        for block in blocks_of(document)
        if block.way is Way.FORM and starts.search(block.text)
    ]
    assert found == []


METRIC: Final = re.compile(r"`(zraft_[a-z_]+)[`{]")


def test_every_metric_that_a_document_names_exists() -> None:
    exposed = set()
    for metric in (*OF_ZOOKEEPER, *OURS):
        exposed.add(metric.name)
        if metric.kind in {"histogram", "summary"}:
            exposed |= {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
    fixtures = set(re.findall(r"zraft_[a-z_]+", (ROOT / "zraft/testing/plugin.py").read_text()))
    found = {(document, name) for document, name in named(METRIC.pattern) if name not in {*ROOTS, *fixtures}}
    assert len(found) > 130
    assert {(document, name) for document, name in found if name not in exposed} == set()
