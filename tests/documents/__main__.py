"""Run the code blocks of documents as a reader would: from top to bottom in one directory, twice, on the same cluster.

    python -m tests.documents README.md docs/reference/client.md
    python -m tests.documents --list

Each document has a network of its own, `tests.documents.machines`, in which its addresses and ports are free.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from tests.documents.blocks import DOCUMENTS, ROOT, blocks_of
from tests.documents.machines import cannot, inside
from tests.documents.rounds import ROUNDS, FailedError, Reader

IN_NETWORK: Final = "--in-network"


def environment(home: Path) -> dict[str, str]:
    """That of somebody who has activated the environment with which this program runs."""
    binaries = Path(sys.executable).parent
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "TERM", "TZ") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(binaries.parent),
        # This checkout's packages, also where another one's are installed.
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "client", ROOT / "bench"))),
    }


def run_document(document: Path, directory: Path) -> int:
    """The exit code: 0 if all blocks did what the document says. Prints which did not, and what they printed."""
    command = [sys.executable, "-m", "tests.documents", IN_NETWORK, str(directory), str(document)]
    words = inside(*command)
    variables = environment(directory / "home")
    return subprocess.run(words, cwd=ROOT, env=variables, check=False).returncode


@click.command()
@click.argument("documents", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--list", "listing", is_flag=True, help="Show what is done with each block, and run nothing.")
@click.option(IN_NETWORK, "directory", type=click.Path(path_type=Path), hidden=True)
def main(documents: tuple[Path, ...], listing: bool, directory: Path | None) -> None:
    """Run the examples of DOCUMENTS; of all, if none is named."""
    chosen = tuple(document.absolute() for document in documents) or DOCUMENTS
    if listing:
        for document in chosen:
            for block in blocks_of(document):
                print(f"{block}: {block.way.value}{': ' * bool(block.detail)}{block.detail}")
        return
    if directory is not None:
        reader = Reader(directory)
        try:
            reader.read(blocks_of(chosen[0]), ROUNDS)
        except FailedError as error:
            raise click.ClickException(str(error)) from error
        finally:
            reader.end()
        return
    reason = cannot()
    if reason is not None:
        raise click.ClickException(reason)
    failed = []
    for document in chosen:
        with tempfile.TemporaryDirectory(prefix="zraft-documents-") as name:
            if run_document(document, Path(name)):
                failed.append(document.name)
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
