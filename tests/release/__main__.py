"""`.ci/release`, once its tools are installed: a commit becomes wheels, sdists, notes, licences, SBOM, sums and a tag."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from tests.packaging.modules import REPOSITORY
from tests.release.building import build, check_equal
from tests.release.changelog import dated, section
from tests.release.checkout import CHANGELOG, Checkout
from tests.release.contents import Archive, check_archives
from tests.release.errors import ReleaseError
from tests.release.installing import (
    Environment,
    check_commands,
    check_plugin,
    check_server,
    import_s,
    run,
    tool,
)
from tests.release.sbom import check_licences, licences, report, without_places
from tests.release.versions import (
    TAG,
    Version,
    check_newer,
    check_stated,
    parse_version,
    released,
    restated,
    stated,
)

DIST: Final = REPOSITORY / "dist"
NOTES: Final = "NOTES.md"
LICENCES: Final = "LICENCES.md"
SBOM: Final = "sbom.cdx.json"
CHECKSUMS: Final = "SHA256SUMS"
IMPORT_S_MAX: Final = 0.15
"""The goal for `import zraft_client` on a quiet machine, where all of it is time on a core. It decides nothing."""
EXTRAS: Final = "audits,audits-java,bench,zookeeper"
ELSEWHERE: Final = {"PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland", "LC_ALL": "C"}
"""The environment of the second build, which must make no difference."""
WHO: Final = ("-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@example.invalid")


class Steps:
    """Says what is done, and how long it took."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        click.echo(f"== {title}")
        began = time.monotonic()
        yield
        click.echo(f"   {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        click.echo(f"   {text}")

    def took_s(self) -> float:
        return time.monotonic() - self._began


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("version", required=False)
@click.option("--prepare", is_flag=True, help="Write VERSION into the tree and the changelog; build nothing.")
@click.option(
    "--tag", is_flag=True, help="If all is well, make the annotated tag vVERSION. It is not pushed."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the files go, which must not be there.  [default: dist/VERSION]",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Do all of it with the next version in a clone of this checkout, which is thrown away.",
)
def main(version: str | None, prepare: bool, tag: bool, out: Path | None, rehearse: bool) -> None:
    """Make a release from the commit that is checked out. Nothing is uploaded.

    \b
    1. .ci/release 0.2.0 --prepare    writes the version and the changelog's heading
       git diff; git commit           look at them, and commit
    2. .ci/release 0.2.0              builds, checks, installs and tries everything
    3. .ci/release 0.2.0 --tag        the same, and tags the commit v0.2.0

    VERSION is MAJOR.MINOR.PATCH and above all tags. The tree must have no changes that are not
    committed, state VERSION, and have a section of it in CHANGELOG.md.

    What users get is in dist/VERSION afterwards: wheels and sdists of zraft and zraft-client, NOTES.md,
    LICENCES.md, an SBOM (CycloneDX) and SHA256SUMS. docs/how-to/release.md says what to do with them.

    The exit code is 1 if something is not as it must be; what it is, and what to do, is said.
    """
    if rehearse == (version is not None):
        raise click.UsageError("give a version such as 0.2.0, or --rehearse")
    checkout, steps = Checkout(REPOSITORY), Steps()
    try:
        if version is None:
            rehearsed(checkout, steps, out)
        elif prepare:
            prepared(checkout, parse_version(version), steps)
            click.echo(
                f"look at `git diff`, commit it as `Release {version}`, and run `.ci/release {version}`"
            )
        else:
            parsed = parse_version(version)
            make(checkout, parsed, out or DIST / version, steps, tag=tag)
            if tag:
                click.echo(f"nothing is pushed yet: git push origin {TAG.format(version)}")
    except ReleaseError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def prepared(checkout: Checkout, version: Version, steps: Steps) -> None:
    """Write a version into the files that state it, and its heading into the changelog."""
    check_newer(version, checkout.tags())
    changelog = dated(checkout.read(CHANGELOG), version, datetime.now(UTC).date())
    for path, text in {**restated(version, checkout.stating()), CHANGELOG: changelog}.items():
        checkout.write(path, text)
        steps.say(f"wrote {version} into {path}")


def rehearsed(checkout: Checkout, steps: Steps, out: Path | None) -> None:
    """Release the next version in a clone, tag included."""
    with tempfile.TemporaryDirectory(prefix="zraft-rehearsal-") as scratch:
        clone = Checkout(Path(scratch) / "checkout")
        checkout.git("clone", "--quiet", "--no-hardlinks", str(checkout.root), str(clone.root))
        highest = max([*stated(clone.stating()).values(), *released(clone.tags())])
        version = highest.next_patch()
        click.echo(
            f"rehearsal of {version}, from commit {clone.commit()[:12]}; what is not committed is left out"
        )
        prepared(clone, version, steps)
        clone.git(*WHO, "commit", "--quiet", "--all", "--message", f"Release {version}")
        clone.git("config", "user.name", "Rehearsal")
        clone.git("config", "user.email", "rehearsal@example.invalid")
        make(clone, version, out or Path(scratch) / "dist", steps, tag=True)
        kind = clone.git("cat-file", "-t", TAG.format(version))
        if kind != "tag":
            raise ReleaseError(f"{TAG.format(version)}: expected an annotated tag, found a {kind}")


def make(checkout: Checkout, version: Version, out: Path, steps: Steps, *, tag: bool) -> None:
    """Build, check and try a release of the commit that is checked out; tag it if that is wanted.

    Raises:
        ReleaseError: something is not as it must be. What is in `out` by then is no release.
    """
    with steps.step(f"the commit is fit to become {version}"):
        checkout.check_clean()
        check_newer(version, checkout.tags())
        check_stated(version, checkout.stating())
        changes = section(checkout.read(CHANGELOG), version)
        if out.exists():
            raise ReleaseError(f"found {out}, expected nothing there; remove it, or choose another --out")
    with tempfile.TemporaryDirectory(prefix="zraft-release-") as name:
        scratch = Path(name)
        with steps.step("build, twice"):
            build(checkout.export(scratch / "first"), scratch / "dist", checkout.epoch_s())
            build(checkout.export(scratch / "second"), scratch / "again", checkout.epoch_s(), ELSEWHERE)
            check_equal(scratch / "dist", scratch / "again")
            steps.say("both builds have the same bytes")
        with steps.step("what is in them"):
            paths = sorted((scratch / "dist").iterdir())
            archives = check_archives(paths, checkout.export(scratch / "tree"))
            for path, archive in zip(paths, archives, strict=True):
                steps.say(f"{path.name}: {path.stat().st_size:,} bytes, {len(archive.files)} files")
            run([tool("python"), "-m", "twine", "check", "--strict", *map(str, paths)], scratch)
        tried(scratch, archives, version, steps)
        shutil.copytree(scratch / "dist", out)
        write_papers(out, scratch, checkout, version, changes, steps)
    if tag:
        checkout.tag(TAG.format(version), f"zraft {version}\n\n{changes}\n")
        steps.say(f"tagged {TAG.format(version)}")
    click.echo(f"all is well after {steps.took_s():.0f} s: {out}")


def tried(scratch: Path, archives: Sequence[Archive], version: Version, steps: Steps) -> None:
    """Install the archives into empty environments, and use what they bring."""
    places = {(one.distribution, one.is_wheel): scratch / "dist" / one.name for one in archives}
    client_wheel, wheel = places["zraft-client", True], places["zraft", True]
    with steps.step("the client alone, from its wheel"):
        alone = Environment(scratch / "client")
        alone.install(client_wheel)
        elapsed_s, cpu_s = import_s(alone)
        word = "within" if cpu_s <= IMPORT_S_MAX else "above"
        steps.say(
            f"import zraft_client: {elapsed_s:.3f} s, of which {cpu_s:.3f} s on a core; that is {word} the goal of "
            f"{IMPORT_S_MAX} s"
        )
    with steps.step("everything, from the wheels"):
        plain = Environment(scratch / "wheels")
        plain.install(client_wheel, wheel)
        check_commands(plain, str(version))
        check_server(plain)
    with steps.step("uvx, with the wheels"):
        check_server(
            plain, (tool("uvx"), "--quiet", "--from", str(wheel), "--with", str(client_wheel), "zraft", "dev")
        )
    with steps.step("everything, from the sdists"):
        built = Environment(scratch / "sdists")
        built.install(places["zraft-client", False], places["zraft", False])
        check_commands(built, str(version))
        check_server(built)
    with steps.step("what the installation has, by name"):
        write_sbom(plain, scratch / SBOM)
    with steps.step("the plugin, beside pytest"):
        check_plugin(built)
    with steps.step("all extras, and the licences of everything"):
        full = Environment(scratch / "extras")
        full.install(
            f"zraft-client[compression] @ file://{client_wheel}", f"zraft[{EXTRAS}] @ file://{wheel}"
        )
        write_sbom(full, scratch / "extras.json")
        found = licences(read_json(scratch / "extras.json"))
        check_licences(found)
        base = frozenset(one.package for one in licences(read_json(scratch / SBOM)))
        (scratch / LICENCES).write_text(report(found, base), encoding="utf-8")
        steps.say(f"{len(found)} packages with extras, {len(base)} without; all licences are allowed")


def write_sbom(installed: Environment, path: Path) -> None:
    """Write what is in an environment as CycloneDX; the tool checks it against the schema."""
    options = ("--output-reproducible", "--validate", "--output-format", "JSON", "--output-file", str(path))
    run([tool("cyclonedx-py"), "environment", *options, installed.program("python")], installed.scratch)
    sbom = without_places(read_json(path))
    path.write_text(json.dumps(sbom, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_papers(
    out: Path, scratch: Path, checkout: Checkout, version: Version, changes: str, steps: Steps
) -> None:
    """Write what goes with the archives: notes, licences, SBOM, checksums."""
    with steps.step("notes, licences, SBOM, checksums"):
        for name in (SBOM, LICENCES):
            shutil.copyfile(scratch / name, out / name)
        (out / NOTES).write_text(f"# zraft {version}\n\n{changes}\n", encoding="utf-8")
        lines = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(out.iterdir())
        ]
        (out / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
        steps.say(f"commit {checkout.commit()}, SOURCE_DATE_EPOCH {checkout.epoch_s()}")


if __name__ == "__main__":
    main()
