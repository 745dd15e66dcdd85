"""The runner of kazoo's suite compares outcomes with its lists in both directions."""

from __future__ import annotations

from tests.compat.kazoo_suite.excused import EXCUSED, FAILS_ON_ZOOKEEPER
from tests.compat.kazoo_suite.runner import compare, read_report

REPORT = """<testsuites><testsuite>
<testcase classname="kazoo.tests.test_lock.KazooLockTests" name="test_lock"/>
<testcase classname="kazoo.tests.test_lock.KazooLockTests" name="test_contested"><failure message="no"/></testcase>
<testcase classname="kazoo.tests.test_sasl.Gssapi" name="test_connect"><skipped message="no Kerberos"/></testcase>
<testcase classname="kazoo.tests.test_paths" name="test_join"/>
<testcase classname="kazoo.tests.test_paths" name="test_join"><error message="in tearDown"/></testcase>
</testsuite></testsuites>"""


def test_the_report_gives_an_outcome_per_test() -> None:
    assert read_report(REPORT) == {
        "test_lock.py::KazooLockTests::test_lock": "passed",
        "test_lock.py::KazooLockTests::test_contested": "failed",
        "test_sasl.py::Gssapi::test_connect": "skipped",
        "test_paths.py::test_join": "failed",
    }


def test_a_failure_or_a_skip_that_is_not_excused_is_a_complaint() -> None:
    assert compare({"a": "failed", "b": "skipped", "c": "passed"}, {}, all_ran=True) == [
        "a: failed, and not excused",
        "b: skipped, and not excused",
    ]


def test_an_excused_test_that_passes_or_is_gone_is_a_complaint() -> None:
    found = compare(
        {"a": "passed", "b": "failed"}, {"a": "because", "b": "because", "c": "because"}, all_ran=True
    )
    assert found == [
        "a: passed, but is excused (because); take it off the list",
        "c: excused, but there is no such test",
    ]
    assert compare({"b": "failed"}, {"b": "because", "c": "because"}, all_ran=False) == []


def test_every_excuse_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in (EXCUSED | FAILS_ON_ZOOKEEPER).values())
