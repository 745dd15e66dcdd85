"""Which licences of dependencies are taken, that any other is named, and that an SBOM does not tell where it was made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.release.errors import ReleaseError
from tests.release.sbom import Licensed, allows, check_licences, licences, report, without_places


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND (GPL-3.0-only OR BSD-3-Clause)", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("Proprietary, ask our lawyers", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_if_licences_of_the_list_suffice(expression: str, is_allowed: bool) -> None:
    assert allows(expression) == is_allowed


def component(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "licenses": list(entries)}


def test_what_a_package_states_twice_counts_once_and_ours_do_not_count() -> None:
    sbom = {
        "components": [
            component("zraft", {"license": {"id": "GPL-3.0-only"}}),
            component("b", {"license": {"name": "License :: OSI Approved :: BSD License"}}),
            component("A", {"expression": "MIT OR Apache-2.0"}, {"license": {"name": "some text"}}),
            component("c", {"license": {"id": "MIT"}}, {"license": {"id": "PSF-2.0"}}),
            component("d", {"license": {"name": "Ask us\nand we may answer"}}),
            {"name": "e", "version": "1.0"},
        ]
    }
    assert [(one.package, one.licence) for one in licences(sbom)] == [
        ("A", "MIT OR Apache-2.0"),
        ("b", "BSD-3-Clause"),
        ("c", "MIT AND PSF-2.0"),
        ("d", "Ask us"),
        ("e", ""),
    ]


def test_a_licence_that_is_not_allowed_is_refused_with_its_package() -> None:
    found = [
        Licensed("good", "1.0", "MIT"),
        Licensed("bad", "2.0", "AGPL-3.0-only"),
        Licensed("mute", "3.0", ""),
    ]
    with pytest.raises(ReleaseError, match=r"  bad 2\.0: AGPL-3\.0-only\n  mute 3\.0: none stated$"):
        check_licences(found)
    check_licences(found[:1])


def test_the_report_says_what_comes_with_an_extra() -> None:
    text = report([Licensed("attrs", "1", "MIT"), Licensed("kazoo", "2", "Apache-2.0")], frozenset({"attrs"}))
    assert text.splitlines()[-2:] == ["| attrs | 1 | MIT | zraft |", "| kazoo | 2 | Apache-2.0 | an extra |"]


def test_a_package_that_is_accepted_by_name_is_no_excuse_for_others() -> None:
    crc32c = Licensed("crc32c", "2.9", "LGPL-2.1-or-later")
    check_licences([crc32c])
    assert "- crc32c (LGPL-2.1-or-later): a library of its own" in report([crc32c], frozenset())
    with pytest.raises(ReleaseError, match="other 1"):
        check_licences([Licensed("other", "1", "LGPL-2.1-or-later")])
    with pytest.raises(ReleaseError, match="AGPL"):
        check_licences([Licensed("crc32c", "3.0", "AGPL-3.0-only")])


def test_an_sbom_does_not_tell_where_it_was_made() -> None:
    web, here = {"url": "https://example.org"}, {"url": "file:///tmp/scratch/zraft.whl"}
    sbom = {
        "version": 1,
        "components": [
            {"name": "a", "externalReferences": [web]},
            {"name": "b", "externalReferences": [here]},
        ],
    }
    assert without_places(sbom) == {
        "version": 1,
        "components": [{"name": "a", "externalReferences": [web]}, {"name": "b"}],
    }
