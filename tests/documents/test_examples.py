"""The examples of the documents, as they stand, on real servers: top to bottom, twice, on one cluster."""

from __future__ import annotations

import itertools
import socketserver
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from tests.documents import rounds
from tests.documents.__main__ import run_document
from tests.documents.blocks import DOCUMENTS, ROOT, Block, DocumentError, Way, blocks_of
from tests.documents.machines import cannot
from tests.documents.rounds import FailedError, Reader, compare

QUICK = ("README.md", "docs/index.md", "docs/reference/client.md")
"""What `.ci/run` runs; `.ci/long` runs the others."""


def runs(block: Block) -> bool:
    return block.way not in (Way.FORM, Way.NOT_RUN, Way.FILE)


def with_examples() -> list[object]:
    named = {document.relative_to(ROOT).as_posix(): document for document in DOCUMENTS}
    return [
        pytest.param(document, id=name, marks=[] if name in QUICK else pytest.mark.long)
        for name, document in named.items()
        if any(map(runs, blocks_of(document)))
    ]


@pytest.mark.processes
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("document", with_examples())
def test_examples_do_what_the_document_says_and_do_it_again(
    document: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reason = cannot()
    if reason is not None:
        pytest.skip(reason)
    code = run_document(document, tmp_path)
    assert code == 0, "".join(capfd.readouterr())


def test_what_varies_is_the_same_and_what_does_not_is_compared() -> None:
    compare("Created /a\ncZxid = 0x1\n", "Created /a\ncZxid = 0xabc\n")
    compare("ctime = Sat Aug 01 12:00:00 UTC 2026", "ctime = Mon Nov 23 08:00:00 UTC 2026")
    compare("took … s", "took 1.5 s")
    for shown, found in (("Created /a", "Created /b"), ("a\nb", "a"), ("0x1", "1")):
        with pytest.raises(FailedError, match="the document shows"):
            compare(shown, found)


def test_what_a_command_prints_until_it_is_ready_is_compared(tmp_path: Path) -> None:
    running = Block(
        "A.md", 1, Way.SHELL, "echo begins\necho ready now\necho later\nsleep 60\n", "sh", stays_until="ready"
    )
    reader = Reader(tmp_path / "reader")
    try:
        reader.read([running, Block("A.md", 9, Way.OUTPUT, "begins\nready now\n")], 2)
        with pytest.raises(FailedError, match="the document shows"):
            reader.read([running, Block("A.md", 9, Way.OUTPUT, "ready now\n")], 1)
    finally:
        reader.end()


class Monitored(socketserver.BaseRequestHandler):
    """A server that answers `mntr`, each time with the next number of sessions."""

    numbers: ClassVar[Iterator[int]] = iter(())

    def handle(self) -> None:
        assert self.request.recv(4) == b"mntr"
        self.request.sendall(b"zk_version\t1\nzk_global_sessions\t%d\n" % next(self.numbers))


def test_a_program_that_leaves_a_session_open_fails_and_one_that_closes_late_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Monitored) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(rounds, "SERVER", server.server_address)
        monkeypatch.setattr(Monitored, "numbers", iter((3, 5, 4, 3)))
        before = rounds.sessions()
        rounds.compare_sessions(before)
        assert next(Monitored.numbers, None) is None
        monkeypatch.setattr(rounds, "SESSIONS_END_S", 0.2)
        monkeypatch.setattr(Monitored, "numbers", itertools.repeat(4))
        with pytest.raises(FailedError, match="4 are open, 3 were open"):
            rounds.compare_sessions(before)
        server.shutdown()
    assert rounds.sessions() is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- not run -->\n```sh\nls\n```\n", "and why"),
        ("<!-- not run: no reason -->\n\ntext\n", "right after"),
        ("<!-- nt run: misspelt -->\n", "no known comment"),
        ("<!-- run: sometimes -->\n```sh\nls\n```\n", "no known option"),
        ("```bash\nls\n```\n", "no known language"),
        ("<!-- run: fails -->\n```toml\na = 1\n```\n", "cannot be run"),
    ],
)
def test_a_comment_that_nobody_understands_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    monkeypatch.setattr("tests.documents.blocks.ROOT", tmp_path)
    document = tmp_path / "A.md"
    document.write_text(text)
    with pytest.raises(DocumentError, match=complaint):
        blocks_of(document)
