"""What the Dockerfile promises, by its text. `test_containers` builds it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tests.images.dockerfile import (
    REPOSITORY,
    Instruction,
    Stage,
    copied,
    copy_sources,
    exec_form,
    ignored,
    read_dockerfile,
)
from tests.packaging.modules import ROOTS
from zraft.config.knobs import load_config
from zraft_bench.local.containers import USER


def stages() -> tuple[Stage, Stage]:
    build, final = read_dockerfile()
    return build, final


def test_the_service_is_the_command_and_nobody_is_root() -> None:
    _, final = stages()
    assert exec_form(final.last("ENTRYPOINT")) == ["/opt/zraft/bin/zraft"]
    assert exec_form(final.last("CMD")) == ["serve"]
    assert final.last("USER") == f"{USER}:{USER}"
    assert final.last("STOPSIGNAL") == "SIGTERM"
    assert "2181/tcp 2181/udp" in final.last("EXPOSE")


def test_the_final_image_has_only_what_was_installed() -> None:
    """Small: no source, no compiler, no cache of pip."""
    build, final = stages()
    assert [step.text for step in final.steps if step.name == "COPY"] == [
        "--from=build /opt/zraft /opt/zraft"
    ]
    assert build.image == final.image == "python:3.11-slim"
    installs = [step.text for step in build.steps if "pip install" in step.text]
    assert installs
    assert all("--no-cache-dir" in text for text in installs)


def test_every_file_of_every_package_is_copied_to_where_the_build_looks_for_it(tmp_path: Path) -> None:
    """A package that is left out ends the build; a file of one that is left out is missing in who runs the image."""
    copy_sources(tmp_path / "source")
    wanted = {
        path.relative_to(REPOSITORY)
        for root in ROOTS.values()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(wanted) > 500
    assert not [path for path in sorted(wanted) if not (tmp_path / "source" / path).is_file()]


def test_nothing_else_reaches_the_engine() -> None:
    for unwanted in (
        "tests",
        ".git",
        ".venv",
        "zraft-data",
        "zraft/__pycache__/x.pyc",
        "client/build/lib/zraft_core/layout.py",
        "cluster.key",
        "docs",
    ):
        assert ignored(unwanted), unwanted
    assert not ignored("zraft/server/process/node.py")
    assert {place.parts[0] for place in copied(stages()[0])} == {
        *("LICENSE", "README.md", "bench", "client", "onyxlog", "pyproject.toml", "setup.cfg", "zraft")
    }


@pytest.mark.parametrize("text", ["no-such-folder x", "docs docs"])
def test_a_source_that_the_engine_would_not_find_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError, match="COPY"):
        copied(Stage("", "", (Instruction("COPY", text),)))


def test_files_are_copied_by_name_into_a_directory_and_folders_by_what_is_in_them() -> None:
    steps = (Instruction("COPY", "setup.cfg LICENSE ./"), Instruction("COPY", "client of-clients"))
    places = copied(Stage("", "", steps))
    assert places[PurePosixPath("setup.cfg")] == REPOSITORY / "setup.cfg"
    assert places[PurePosixPath("of-clients/zraft_client/py.typed")].is_file()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1, "0.0.0.0:2181", "/data/zraft", 1)),
        (
            {
                "ZRAFT_ID": "2",
                "ZRAFT_ADDRESS": "0.0.0.0:2181",
                "ZRAFT_CLUSTER": "1=zraft1:2181,2=zraft2:2181,3=zraft3:2181",
                "ZRAFT_KEY": "/keys/cluster.key",
            },
            (2, "0.0.0.0:2181", "/data/zraft", 3),
        ),
        (
            {
                "ZOO_MY_ID": "3",
                "ZOO_SERVERS": "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181 server.3=c:2888:3888;2181",
                "ZRAFT_KEY": "/keys/cluster.key",
            },
            (3, "0.0.0.0:2181", "/data/zraft", 3),
        ),
        ({"ZOO_DATA_DIR": "/elsewhere"}, (1, "0.0.0.0:2181", "/elsewhere/zraft", 1)),
    ],
)
def test_both_kinds_of_environment_configure_it(
    given: dict[str, str], expected: tuple[int, str, str, int]
) -> None:
    config = load_config(flags={}, environ=stages()[1].environment() | given)
    assert (config.id, str(config.address), str(config.data), len(config.cluster)) == expected
