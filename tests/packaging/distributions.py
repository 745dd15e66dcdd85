"""The two distributions of this repository, as their setup.cfg describes them, in this tree or in a copy of it."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Final

from tests.packaging.modules import REPOSITORY

DISTRIBUTIONS: Final = {"zraft": ".", "zraft-client": "client"}
"""By name: the folder that each is built from, which has its setup.cfg."""


def setup_cfg(distribution: str, tree: Path = REPOSITORY) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(tree / DISTRIBUTIONS[distribution] / "setup.cfg", encoding="utf-8")
    return parser


def packages_of(distribution: str, tree: Path = REPOSITORY) -> list[str]:
    return setup_cfg(distribution, tree)["options"]["packages"].split()


def package_dirs(distribution: str, tree: Path = REPOSITORY) -> dict[str, str]:
    """Return what `package_dir` maps: import package to folder, and the empty name to the folder of all others."""
    lines = setup_cfg(distribution, tree)["options"].get("package_dir", "= .").split("\n")
    pairs = [line.partition("=") for line in lines if line]
    return {name.strip(): path.strip() for name, _, path in pairs}


def data_files(distribution: str, package: str, tree: Path = REPOSITORY) -> list[str]:
    """The files of a package that are shipped and are no modules: a line each, as setuptools reads them."""
    declared = setup_cfg(distribution, tree)["options.package_data"].get(package, "")
    return [line.strip() for line in declared.splitlines() if line.strip()]
