"""Files that an archive lacks, should not have, or has with other bytes are found; two builds of one tree are equal."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from attrs import evolve

from tests.packaging.distributions import DISTRIBUTIONS
from tests.packaging.modules import REPOSITORY
from tests.release.building import check_equal, normalised
from tests.release.contents import Archive, check_archives, difference, read_archive, shipped
from tests.release.errors import ReleaseError

INFO = "zraft_client-0.1.0.dist-info"


@pytest.fixture(scope="module")
def wheel() -> Archive:
    """Return it as setuptools would build it of this tree."""
    ours = shipped("zraft-client", REPOSITORY)
    files = {place.as_posix(): (REPOSITORY / "client" / path).read_bytes() for place, path in ours.items()}
    files |= {
        f"{INFO}/{one}": b"" for one in ("METADATA", "RECORD", "WHEEL", "top_level.txt", "licenses/LICENSE")
    }
    return Archive("zraft_client-0.1.0-py3-none-any.whl", "zraft-client", "0.1.0", True, files)


def test_a_wheel_with_all_files_of_the_tree_differs_in_nothing(wheel: Archive) -> None:
    assert difference(wheel, REPOSITORY) == []


@pytest.mark.parametrize(
    "name", ["tests/test_it.py", "zraft_client/__pycache__/api.cpython-311.pyc", "zraft_client/notes.txt"]
)
def test_what_the_tree_does_not_ship_is_not_in_a_wheel(wheel: Archive, name: str) -> None:
    assert difference(evolve(wheel, files={**wheel.files, name: b""}), REPOSITORY) == [
        f"not expected: {name}"
    ]


def test_a_file_that_is_missing_or_has_other_bytes_is_named(wheel: Archive) -> None:
    files = dict(wheel.files)
    del files["zraft_core/py.typed"]
    files["zraft_client/api.py"] += b"# changed\n"
    assert difference(evolve(wheel, files=files), REPOSITORY) == [
        "missing: zraft_core/py.typed",
        "other bytes than in the tree: zraft_client/api.py",
    ]


def test_files_that_are_no_modules_are_shipped_with_their_package() -> None:
    names = {place.as_posix() for place in shipped("zraft", REPOSITORY)}
    assert {"zraft/py.typed", "zraft/admin/console/static/index.html", "zraft_bench/py.typed"} <= names


def sdist(path: Path, mtime: int, owner: str, names: list[str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(f"zraft_client-0.1.0/{name}")
            member.size, member.mtime, member.uname = 2, mtime, owner
            archive.addfile(member, io.BytesIO(b"hi"))
    return gzip.compress(packed.getvalue(), mtime=mtime)


def test_an_sdist_does_not_tell_who_built_it_when_and_in_which_order(tmp_path: Path) -> None:
    one = sdist(tmp_path, 1_000, "anna", ["a", "b"])
    other = sdist(tmp_path, 2_000, "ben", ["b", "a"])
    assert one != other
    assert normalised(one, 5_000) == normalised(other, 5_000)
    (tmp_path / "zraft_client-0.1.0.tar.gz").write_bytes(normalised(one, 5_000))
    read = read_archive(tmp_path / "zraft_client-0.1.0.tar.gz")
    assert (read.distribution, read.is_wheel, read.files) == ("zraft-client", False, {"a": b"hi", "b": b"hi"})
    assert normalised(one, 5_000) != normalised(one, 6_000)


def test_two_builds_that_differ_are_refused_and_the_file_is_named(tmp_path: Path) -> None:
    for name, content in (("first", "a"), ("second", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.whl").write_text("equal")
        (tmp_path / name / "zraft.whl").write_text(content)
    with pytest.raises(ReleaseError, match=r"differ in zraft\.whl; "):
        check_equal(tmp_path / "first", tmp_path / "second")


def test_other_files_than_a_wheel_and_an_sdist_of_each_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="found no archives; expected a wheel and an sdist of"):
        check_archives([], REPOSITORY)
    (tmp_path / "zraft-0.1.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"")
    with pytest.raises(ReleaseError, match="neither"):
        check_archives(tmp_path.iterdir(), REPOSITORY)
    assert set(DISTRIBUTIONS) == {"zraft", "zraft-client"}
