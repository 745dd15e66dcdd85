"""Hooks by which the site changes documents."""

from __future__ import annotations

from tests.documents.site import for_the_site


def test_links_between_documents_and_to_elsewhere_stay() -> None:
    text = "[a](../reference/client.md#topics) ![b](gossip/b.png) [c](https://example.org) [d](#e)"
    assert for_the_site(text, "how-to/a.md") == text


def test_a_link_to_a_file_that_is_no_document_becomes_its_name() -> None:
    assert (
        for_the_site("See [the unit](../../deploy/systemd).", "how-to/a.md")
        == "See the unit (`deploy/systemd`)."
    )
    assert for_the_site("[`deploy/systemd`](../../deploy/systemd)", "how-to/a.md") == "`deploy/systemd`"


def test_the_readme_is_the_first_page() -> None:
    assert for_the_site("[README](../../README.md#x)", "how-to/a.md") == "[README](../index.md)"


def test_comments_for_tests_are_left_out_and_code_stays_as_it_is() -> None:
    code = "```sh\necho '<!-- run: x -->' '[a](../../b)'\n```"
    assert for_the_site(f"<!-- run: stays\nuntil x -->\n{code}\n", "how-to/a.md") == f"{code}\n"
