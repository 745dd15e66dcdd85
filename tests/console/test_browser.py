"""The console as a person sees it: three servers, a browser, and one server that is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from onyxlog.api import publish_audit
from onyxlog.peer.log.native import native_ports
from tests.console.browser import (
    DOWN,
    END,
    ENTER,
    ESCAPE,
    HOME,
    LEFT,
    NARROW,
    RIGHT,
    WIDE,
    Browser,
    chromium,
    why_no_browser,
)
from tests.console.servers import TOKEN, ConsoleCluster
from tests.onyxlog.peer_processes import ROOT, Processes
from zraft_core.fleets import AuditReport, RuleVerdict

pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser()),
]

PAGES: Final = {
    "overview": "Members",
    "tree?path=/app/config": "Version of data",
    "tree?path=/app/binary": "no UTF-8 text",
    "tree?path=/secret": "has not the right",
    "sessions": "Sessions and what they hold",
    "watches": "/app/config",
    "topics": "orders",
    "topics?topic=orders&partition=0&offset=0": "Records of orders/0",
    "peers": "no fleets",
}
"""Pages, and what each says once it is whole."""
MANY: Final = 450


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleCluster]:
    """Servers with something to see, and a client that holds something."""
    with ExitStack() as stack:
        servers = stack.enter_context(ConsoleCluster(tmp_path_factory.mktemp("console")))
        servers.start_all()
        client = KazooClient(hosts=str(servers.servers[1].address))  # whose watches the pages are to show
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        client.ensure_path("/many")
        client.create("/app", b"")
        client.create("/app/config", b'{"name":"web","tags":["a","b"]}')
        client.create("/app/binary", bytes(range(256)))
        client.create("/app/lock-", ephemeral=True, sequence=True)
        client.create("/secret", b"hidden", acl=[make_digest_acl("bob", "pw", all=True)])
        for made in [client.create_async(f"/many/item-{n:04}") for n in range(MANY)]:
            made.get(30)
        client.get("/app/config", watch=lambda event: None)
        zraft(servers, "topic", "create", "orders", "--partitions", "2", "--key", str(servers.key))
        lines = "".join(f"k{n}:value {n}\n" for n in range(40))
        zraft(servers, "topic", "produce", "orders", "--keys", ":", said=lines)
        yield servers


def zraft(servers: ConsoleCluster, *words: str, said: str = "") -> None:
    subprocess.run(
        [sys.executable, "-m", "zraft", *words, "--connect", servers.hosts()],
        input=said,
        text=True,
        check=True,
        timeout=120,
        env=servers.environment(0),
    )


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as window:
        yield window


def picture(browser: Browser, tmp_path: Path, name: str) -> None:
    """Keep what is seen, for people: in $CONSOLE_PICTURES, or where the test's other files are."""
    place = Path(os.environ.get("CONSOLE_PICTURES", tmp_path))
    place.mkdir(parents=True, exist_ok=True)
    browser.picture(place / f"{name}.png")


def show(browser: Browser, page: str, says: str) -> None:
    browser.run("location.hash = arguments[0]", f"#/{page}")
    browser.wait_text(says)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_page_shows_and_is_labelled_and_legible(
    cluster: ConsoleCluster, browser: Browser, tmp_path: Path, is_dark: bool
) -> None:
    browser.dark(is_dark=is_dark)
    browser.open(cluster.page(1, f"#token={TOKEN}"))
    browser.wait_text("Sign out", "Members")
    assert TOKEN not in browser.driver.current_url
    planted = (
        "const e = document.createElement('button'); e.id = 'planted'; document.body.append(e); return e"
    )
    browser.run(planted.replace("return", "e.style.color = '#999'; e.style.background = '#888'; return"))
    assert len(browser.unlabelled()) == 1, "a planted fault is found"
    browser.run("document.getElementById('planted').textContent = 'faint'")
    assert len(browser.faint()) == 1, "a planted fault is found"
    browser.run("document.getElementById('planted').remove()")
    for size in (WIDE, NARROW):
        browser.size(*size)
        for page, says in PAGES.items():
            show(browser, page, says)
            seen = f"{page} at {size}, {'dark' if is_dark else 'light'}"
            picture(browser, tmp_path, f"{'dark' if is_dark else 'light'}-{size[0]}-{page.partition('?')[0]}")
            assert browser.unlabelled() == [], seen
            assert browser.faint() == [], seen
            assert not browser.overflows(), seen
            assert browser.errors() == [], seen


def test_a_znode_is_created_set_and_deleted_by_hand_once_signed_in(
    cluster: ConsoleCluster, browser: Browser
) -> None:
    browser.open(cluster.page(2, "#/tree?path=/app"))
    browser.wait_text("Sign in to change znodes", "binary")
    assert browser.run("return document.getElementById('create').disabled")
    browser.click("#sign-in")
    browser.fill("#field-token", TOKEN)
    browser.click("#dialog-yes")
    browser.wait_text("Sign out")
    browser.click("#create")
    browser.fill("#field-name", "new")
    browser.fill("#field-data", "first")
    browser.click("#dialog-yes")
    browser.wait_text("Create this znode?")
    browser.click("#dialog-yes")
    browser.wait_text("/app/new is created")
    show(browser, "tree?path=/app/new", "first")
    browser.click("#set")
    browser.fill("#field-data", "second")
    browser.click("#dialog-yes")
    browser.wait_text("if its version is still 0")
    browser.click("#dialog-yes")
    browser.wait_text("/app/new is set", "second")
    browser.click("#delete")
    browser.wait_text("cannot be undone")
    browser.keys(ESCAPE)
    browser.wait(lambda: not browser.run("return document.querySelector('dialog')"), "the dialog to go")
    browser.click("#delete")
    browser.wait_text("cannot be undone")
    browser.click("#dialog-yes")
    browser.wait_text("/app/new is deleted")
    assert browser.errors() == []
    client = KazooClient(hosts=cluster.hosts())
    client.start()
    assert client.exists("/app/new") is None
    client.stop()
    client.close()


def test_the_tree_is_walked_by_keys_and_children_come_in_pages(
    cluster: ConsoleCluster, browser: Browser
) -> None:
    browser.open(cluster.page(1, "#/tree"))
    browser.wait_text("many")
    browser.run("document.getElementById('node-/').focus()")
    browser.keys(END)
    assert browser.focused() == "node-/zookeeper"
    browser.keys(HOME, DOWN)
    assert browser.focused() == "node-/app"
    browser.keys(RIGHT)  # right: unfolds
    browser.wait_text("binary")
    browser.keys(RIGHT)
    assert browser.focused() == "node-/app/binary"
    browser.keys(LEFT, LEFT)  # left: to the parent, and folds it
    browser.wait(lambda: "binary" not in browser.text(), "/app to be folded")
    browser.keys(DOWN, RIGHT)
    browser.wait_text("item-0000", "250 more")
    browser.run("document.getElementById('more-/many').focus()")
    browser.keys(ENTER)
    browser.wait_text("item-0399", "50 more")
    assert browser.focused() == "node-/many/item-0200"
    assert browser.errors() == []


def test_a_follower_links_its_leader_and_a_killed_server_is_told_of(
    cluster: ConsoleCluster, browser: Browser, tmp_path: Path
) -> None:
    leader = cluster.wait_ready()
    follower, other = (number for number in cluster.servers if number != leader)
    browser.open(cluster.page(follower))
    browser.wait_text("This server follows")
    browser.click("#leader-link")
    browser.wait_text(f"Server {leader}\n", "No alarms")
    assert browser.driver.current_url.startswith(cluster.page(leader))
    cluster.kill(other)
    browser.wait_text(f"server {other} has said nothing for")
    picture(browser, tmp_path, "silent")
    assert browser.errors() == []
    browser.open(cluster.page(follower))
    browser.wait_text("This server follows")
    cluster.start(other)
    cluster.wait_ready()
    cluster.kill(follower)
    browser.wait_text(f"Server {follower} has not answered since", "no answer", f"Open server {leader}")
    assert browser.faint() == []
    picture(browser, tmp_path, "gone")
    cluster.start(follower)
    cluster.wait_ready()
    browser.wait(lambda: "has not answered" not in browser.text(), "the page to see that the server is back")


JOB: Final = """
id = "numbers"
workflow = [["in", "out"]]
[[catalog]]
name = "in"
kind = "input"
max_peers = 1
plugin = { name = "generated", options = { function = "numbers_of_tests:number", count = 1000000 } }
[[catalog]]
name = "out"
kind = "output"
max_peers = 1
plugin = { name = "null" }
"""
NUMBERS: Final = """
import time

def number(n):
    time.sleep(0.001)
    return {"n": n}
"""
AUDITED: Final = AuditReport(
    1_700_000_000_000,
    "three servers",
    "1.0",
    65,
    (
        RuleVerdict("S1", "votes", "holds"),
        RuleVerdict("S2", "logs", "broken", 3),
        RuleVerdict("S3", "leaders", "no data"),
    ),
)


def test_a_fleet_is_shown_while_it_works_with_its_jobs_their_progress_and_the_last_audit(
    cluster: ConsoleCluster, browser: Browser, tmp_path: Path
) -> None:
    """The last test of this file: what it leaves behind, the others would see."""
    (tmp_path / "numbers_of_tests.py").write_text(NUMBERS)
    (tmp_path / "job.toml").write_text(JOB)
    leader = cluster.wait_ready()
    with Processes(
        tmp_path, cluster.hosts(), ["--peers", "1", "--report-every", "0.5", "--gossip", "pool"]
    ) as peers:
        for name in ("first", "second"):
            peers.start(name)
        browser.open(cluster.page(leader, "#/peers"))
        browser.wait_text("first-", "second-", "No audit is published", "There are no jobs")
        onyxlog(cluster, tmp_path, "submit-job", "job.toml")
        asyncio.run(publish_audit(native_ports(cluster.hosts(), "default"), AUDITED))
        # without a click: the page follows
        browser.wait_text("numbers", "running", "Entries from peers", "three servers", "2023-11-14", "1 of 1")
        browser.wait(lambda: browser.run("return document.querySelector('progress')?.value > 0"), "progress")
        for is_dark in (False, True):
            browser.dark(is_dark=is_dark)
            for size in (WIDE, NARROW):
                browser.size(*size)
                seen = f"{'dark' if is_dark else 'light'}-{size[0]}-fleet"
                picture(browser, tmp_path, seen)
                assert browser.unlabelled() == [], seen
                assert browser.faint() == [], seen
                assert not browser.overflows(), seen
        peers.kill(["second"])
        browser.wait_text("waiting")
        browser.wait(lambda: "second-" not in browser.text(), "the group that was killed to go")
        onyxlog(cluster, tmp_path, "kill-job", "numbers")
        browser.wait_text("killed")
        assert browser.errors() == []


def onyxlog(servers: ConsoleCluster, directory: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "onyxlog", *words, "--connect", servers.hosts()],
        check=True,
        timeout=120,
        env=servers.environment(0) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        cwd=directory,
    )
