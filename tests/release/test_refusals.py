"""A release is refused before anything is built: for its version, a tree that states another one, or the changelog."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.packaging.modules import REPOSITORY
from tests.release.__main__ import Steps, main, make, prepared
from tests.release.changelog import dated, section
from tests.release.checkout import CHANGELOG, Checkout
from tests.release.errors import ReleaseError
from tests.release.versions import (
    STATED,
    Version,
    check_newer,
    check_stated,
    parse_version,
    released,
    restated,
    stated,
)

TEXTS = {path: f"before\n{form.format('0.1.0')}\nafter\n" for path, form in STATED.items()}
CHANGES = "# Changelog\n\n## [Unreleased]\n\n- New: locks.\n\n## [0.1.0] - 2026-01-02\n\n- Begun.\n"


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3rc1", "01.2.3", "1.2.3.4", ""])
def test_a_version_is_three_numbers(text: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(f"found the version {text!r}, expected three numbers")):
        parse_version(text)


def test_versions_are_ordered_by_their_numbers() -> None:
    assert released(["v0.10.0", "v0.9.1", "golden", "v1", "0.11.0"]) == [Version(0, 9, 1), Version(0, 10, 0)]


@pytest.mark.parametrize("text", ["0.9.9", "0.10.0"])
def test_a_version_that_is_not_newer_than_all_tags_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"not newer than 0\.10\.0, .* choose 0\.10\.1 or above"):
        check_newer(parse_version(text), ["v0.9.1", "v0.10.0"])
    check_newer(Version(0, 10, 1), ["v0.9.1", "v0.10.0"])
    check_newer(Version(0, 0, 1), ["golden"])


def test_every_file_that_states_the_version_is_known_and_rewritten() -> None:
    found = {path: (REPOSITORY / path).read_text() for path in STATED}
    assert len(set(stated(found).values())) == 1
    new = restated(Version(7, 8, 9), found)
    assert set(stated(new).values()) == {Version(7, 8, 9)}
    for path, text in new.items():
        differing = [line for line in text.splitlines() if line not in found[path].splitlines()]
        assert len(differing) == 1


def test_a_tree_that_states_another_version_is_refused() -> None:
    texts = TEXTS | {"setup.cfg": "    zraft-client==0.2.0\n"}
    with pytest.raises(
        ReleaseError, match=r"found version 0\.2\.0 in setup\.cfg; expected 0\.1\.0; .*--prepare"
    ):
        check_stated(Version(0, 1, 0), texts)
    with pytest.raises(ReleaseError, match="found 0 lines"):
        stated(TEXTS | {"setup.cfg": "    zraft-client>=0.1.0\n"})


def test_the_section_of_a_release_ends_where_the_next_one_begins() -> None:
    assert section(CHANGES, Version(0, 1, 0)) == "- Begun."
    text = dated(CHANGES, Version(0, 2, 0), date(2026, 3, 4))
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-03-04\n\n- New: locks.\n" in text
    assert section(text, Version(0, 2, 0)) == "- New: locks."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHANGES, r"found the sections Unreleased, 0\.1\.0, expected `## \[0\.2\.0\] - DATE`"),
        ("## [0.2.0]\n\n- New.\n", "expected a date"),
        ("## [0.2.0] - 2026-01-02\n\n## [0.1.0] - 2026-01-01\n\n- Begun.\n", "is empty"),
    ],
)
def test_a_changelog_without_the_section_is_refused(text: str, said: str) -> None:
    with pytest.raises(ReleaseError, match=said):
        section(text, Version(0, 2, 0))


def test_a_release_without_news_is_not_prepared() -> None:
    with pytest.raises(ReleaseError, match="is empty"):
        dated("## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- Begun.\n", Version(0, 2, 0), date(2026, 3, 4))
    with pytest.raises(ReleaseError, match="already"):
        dated(CHANGES, Version(0, 1, 0), date(2026, 3, 4))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A repository with nothing but the files that state a version, and a changelog."""
    made = Checkout(tmp_path / "checkout")
    for path, text in {**TEXTS, CHANGELOG: CHANGES}.items():
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        made.write(path, text)
    made.git("init", "--quiet")
    made.git("config", "user.name", "Test")
    made.git("config", "user.email", "test@example.invalid")
    made.git("add", ".")
    made.git("commit", "--quiet", "--message", "Begin")
    return made


def test_a_tree_with_changes_is_refused_and_they_are_named(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / "notes.txt").write_text("not added")
    with pytest.raises(ReleaseError, match=r"found 1 changes .* expected none[^\n]*\n  \?\? notes\.txt"):
        make(checkout, Version(0, 1, 0), tmp_path / "out", Steps(), tag=True)
    assert checkout.tags() == []


def test_a_prepared_tree_states_the_version_and_is_refused_until_it_is_committed(
    checkout: Checkout, tmp_path: Path
) -> None:
    version = Version(0, 2, 0)
    prepared(checkout, version, Steps())
    assert set(stated(checkout.stating()).values()) == {version}
    assert section(checkout.read(CHANGELOG), version) == "- New: locks."
    with pytest.raises(ReleaseError, match="changes that are not committed"):
        make(checkout, version, tmp_path / "out", Steps(), tag=False)


def test_what_is_in_the_way_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ReleaseError, match="expected nothing there"):
        make(checkout, Version(0, 1, 0), tmp_path / "out", Steps(), tag=False)


def test_a_tag_is_annotated_and_has_the_notes_with_their_headings(checkout: Checkout) -> None:
    checkout.tag("v0.1.0", "zraft 0.1.0\n\n### Added\n\n- Begun.\n")
    assert checkout.git("cat-file", "-t", "v0.1.0") == "tag"
    assert "### Added" in checkout.git("cat-file", "tag", "v0.1.0")
    assert released(checkout.tags()) == [Version(0, 1, 0)]


def test_an_export_has_what_is_committed_with_the_time_of_the_commit(
    checkout: Checkout, tmp_path: Path
) -> None:
    (checkout.root / "notes.txt").write_text("not added")
    tree = checkout.export(tmp_path / "tree")
    assert not (tree / "notes.txt").exists()
    assert (tree / CHANGELOG).stat().st_mtime == checkout.epoch_s()


def test_the_command_says_what_is_wrong_and_ends_with_1() -> None:
    answer = CliRunner().invoke(main, ["1.2"])
    assert answer.exit_code == 1
    assert answer.stderr.startswith("error: found the version '1.2', expected three numbers such as 0.2.0")
    assert CliRunner().invoke(main, []).exit_code == 2
    assert CliRunner().invoke(main, ["0.2.0", "--rehearse"]).exit_code == 2


def test_git_that_fails_is_quoted(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    with pytest.raises(ReleaseError, match="`git rev-parse HEAD` failed in"):
        Checkout(tmp_path).commit()
