"""The command `zraft topic acl`: who may use topics and names of consumers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import lists
from zraft.cli.operator_options import asks_cluster, do
from zraft.shell.acls import parse_acl, permissions
from zraft.shell.errors import UsageError
from zraft_core.errors import ConfigError
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import OPEN_ACL, Acl

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import AclListing, AclShown

CLOSED: Final[Acl] = ((0, "world", "anyone"),)
"""The ACL that grants nothing to anybody; an empty one is not allowed."""

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def acl() -> None:
    """Show and change who may use topics and names of consumers.

    \b
        zraft topic acl close --key cluster.key
        zraft topic acl add orders sasl:alice:rw --key cluster.key
        zraft topic acl add --consumer billing sasl:alice:r --key cluster.key
        zraft topic acl get orders --key cluster.key
        zraft topic acl remove orders sasl:alice --key cluster.key
        zraft topic acl open --key cluster.key

    An ACL is a list of scheme:id:permissions, as ZooKeeper has them: sasl:alice:rw, world:anyone:r, ip:10.0.0.0/8:r. The
    permissions of a topic are c (create it), w (produce), r (consume), a (see it) and d (change or delete it); those of a
    consumer's name are r (claim, commit and reset), a (see it) and d (forget it). Whoever has r, w or d may also see it.

    Without an ACL of its own, a name has the default, and as long as nobody sets that, everything is open. Whoever has the
    cluster key may change ACLs.
    """


def _of_consumers(command: F) -> F:
    return click.option(
        "--consumer",
        "kind",
        is_flag=True,
        help="The name is that of a consumer, not of a topic.",
        callback=_kind,
    )(command)


def _kind(_context: click.Context, _option: click.Parameter, is_consumer: bool) -> Guarded:
    return Guarded.CONSUMERS if is_consumer else Guarded.TOPICS


_default = click.option("--default", "is_default", is_flag=True, help="The default, instead of a NAME.")


@acl.command("list")
@_of_consumers
@asks_cluster
@lists
def list_(client: OperatorClient, kind: Guarded) -> Listing:
    """Show the default, and all names that have an ACL of their own. In JSON, the name of the default is null."""
    found = list(_all(client, kind))
    values = tuple({"name": name, "acl": None if acl is None else list(_entries(acl))} for name, acl in found)
    rows = tuple(
        (
            "(default)" if name is None else name,
            "open, for nobody has set it" if acl is None else ",".join(_entries(acl)),
        )
        for name, acl in found
    )
    return Listing(values, (Grid((Column("name"), Column("acl", folds=True)), rows),))


@acl.command()
@click.argument("name", metavar="[NAME]", required=False)
@_of_consumers
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON, for scripts.")
@asks_cluster
def get(client: OperatorClient, name: str | None, kind: Guarded, as_json: bool) -> None:
    """Show the ACL of NAME; without one, the default.

    It is printed one entry per line, in the form that the other commands take.
    """
    shown = _shown(client, kind, name)
    found = shown.acl or shown.default
    if as_json:
        entries = None if found is None else list(_entries(found))
        click.echo(json.dumps({"name": name, "own": shown.acl is not None, "acl": entries}))
        return
    for entry in _entries(found or OPEN_ACL):
        click.echo(entry)
    if found is None:
        click.echo("nobody has set the default, so everything is open", err=True)
    elif name is not None and shown.acl is None:
        click.echo("this is the default, for it has no ACL of its own", err=True)


@acl.command("set")
@click.argument("words", metavar="NAME ACL...", nargs=-1, required=True)
@_of_consumers
@_default
@asks_cluster
def set_(client: OperatorClient, words: Sequence[str], kind: Guarded, is_default: bool) -> None:
    """Replace the ACL of NAME."""
    name, rest = _split(words, is_default)
    wanted = _merged((), _parsed(rest))
    _write(client, kind, name, lambda _: wanted)


@acl.command()
@click.argument("words", metavar="NAME ACL...", nargs=-1, required=True)
@_of_consumers
@_default
@asks_cluster
def add(client: OperatorClient, words: Sequence[str], kind: Guarded, is_default: bool) -> None:
    """Grant more to somebody.

    If NAME has no ACL of its own yet, it gets what the default grants as well, and later changes of the default no longer
    count for it.
    """
    name, rest = _split(words, is_default)
    more = _parsed(rest)
    _write(client, kind, name, lambda shown: _merged(shown.acl or shown.default or OPEN_ACL, more))


@acl.command()
@click.argument("words", metavar="NAME [SCHEME:ID...]", nargs=-1, required=True)
@_of_consumers
@_default
@asks_cluster
def remove(client: OperatorClient, words: Sequence[str], kind: Guarded, is_default: bool) -> None:
    """Take everything from somebody; or, with NAME alone, remove its ACL, so that the default counts."""
    from zraft.operator.requests import AclRemove

    name, rest = _split(words, is_default, least=0)
    if not rest:
        do(client, AclRemove(kind, (name or "").encode()))
        return
    gone = set(map(_identity, rest))

    def without(shown: AclShown) -> Acl:
        own = shown.acl or ()
        if not gone <= {(scheme, who) for _, scheme, who in own}:
            found = ", ".join(_entries(own)) or "no ACL of its own"
            raise ConfigError(f"found {found}, expected entries of {', '.join(rest)} in it")
        return tuple(one for one in own if one[1:] not in gone) or CLOSED

    _write(client, kind, name, without)


@acl.command()
@asks_cluster
def close(client: OperatorClient) -> None:
    """Let nobody use any topic or consumer to whom nothing is granted: set both defaults to an ACL that grants nothing.

    ACLs that names have of their own go on counting. Grant first what your programs need.
    """
    _write_defaults(client, CLOSED)


@acl.command("open")
@asks_cluster
def open_(client: OperatorClient) -> None:
    """Let everybody do everything with all topics and consumers that have no ACL of their own: set both defaults to that."""
    _write_defaults(client, OPEN_ACL)


def _split(words: Sequence[str], is_default: bool, *, least: int = 1) -> tuple[str | None, Sequence[str]]:
    """Return the name, None for the default, and what follows it."""
    name, rest = (None, words) if is_default else (words[0], words[1:])
    if len(rest) < least:
        raise click.UsageError("found no ACL, expected one such as sasl:alice:rw")
    return name, rest


def _parsed(texts: Sequence[str]) -> Acl:
    """Return the entries of all texts. The subject of a certificate holds commas, so x509 stands alone in its text."""
    found: list[tuple[int, str, str]] = []
    for text in texts:
        try:
            if text.startswith("x509:"):
                ((bits, scheme, _),) = parse_acl(f"x509:_:{text.rpartition(':')[2]}")
                found.append((bits, scheme, text[len("x509:") :].rpartition(":")[0]))
            else:
                found += parse_acl(text)
        except UsageError as error:
            raise click.UsageError(str(error)) from error
    return tuple(found)


def _identity(text: str) -> tuple[str, str]:
    scheme, colon, who = text.partition(":")
    if not colon or not who:
        raise click.UsageError(f"found {text!r}, expected SCHEME:ID such as sasl:alice")
    return scheme, who


def _merged(before: Acl, more: Acl) -> Acl:
    """Return an ACL that grants both; who is granted nothing is left out if somebody else is granted something."""
    bits: dict[tuple[str, str], int] = {}
    for granted, scheme, who in (*before, *more):
        bits[scheme, who] = bits.get((scheme, who), 0) | granted
    granting = tuple((granted, *one) for one, granted in bits.items() if granted)
    return granting or CLOSED


def _entries(found: Acl) -> Iterator[str]:
    for bits, scheme, who in found:
        yield f"{scheme}:{who}:{permissions(bits)}"


def _shown(client: OperatorClient, kind: Guarded, name: str | None) -> AclShown:
    from zraft.operator.requests import AclShow, AclShown

    return client.call(AclShow(kind, (name or "").encode()), AclShown)


def _write(
    client: OperatorClient, kind: Guarded, name: str | None, change: Callable[[AclShown], Acl]
) -> None:
    """Change an ACL as it is now."""
    from zraft.operator.requests import AclSet

    shown = _shown(client, kind, name)
    do(client, AclSet(kind, (name or "").encode(), change(shown), shown.version))


def _write_defaults(client: OperatorClient, wanted: Acl) -> None:
    """Set the defaults of topics and of consumers in one step, so that at no moment only one of them is changed."""
    from zraft.operator.requests import AclDefaults

    do(client, AclDefaults(wanted))


def _all(client: OperatorClient, kind: Guarded) -> Iterator[tuple[str | None, Acl | None]]:
    from zraft.operator.requests import AclList, AclListing

    after, more, first = "", True, True
    while more:
        page: AclListing = client.call(AclList(kind, after), AclListing)
        if first:
            yield None, page.default
            first = False
        for line in page.lines:
            yield line.name.decode(errors="backslashreplace"), line.acl
            after = line.written
        more = page.more and bool(page.lines)
