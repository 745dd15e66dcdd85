"""Reads the manifests of Kubernetes as far as ours go, so that tests start what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from attrs import frozen

from tests.processes.cluster import ROOT

FOLDER: Final = ROOT / "deploy" / "kubernetes"
INDEX: Final = "metadata.labels['apps.kubernetes.io/pod-index']"
"""The field with a pod's number."""


def documents(path: Path) -> list[dict[str, Any]]:
    """The manifests in a file."""
    found = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    assert all(isinstance(one, dict) for one in found), path
    return found


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects that `kubectl apply -k` applies, by kind and name."""
    (kustomization,) = documents(FOLDER / "kustomization.yaml")
    return {
        (one["kind"], one["metadata"]["name"]): one
        for name in kustomization["resources"]
        for one in documents(FOLDER / name)
    }


@frozen
class Pod:
    """One pod of the stateful set: its name, which is its host's, and the environment that its container gets."""

    number: int
    name: str
    environment: Mapping[str, str]


def pods() -> list[Pod]:
    """The pods that the stateful set makes. A source of variables that this does not know is an error."""
    found = manifests()
    ((name, spec),) = [(name, one["spec"]) for (kind, name), one in found.items() if kind == "StatefulSet"]
    (container,) = spec["template"]["spec"]["containers"]
    common: dict[str, str] = {}
    for source in container["envFrom"]:
        common |= found["ConfigMap", source["configMapRef"]["name"]]["data"]
    (variable,) = container["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": INDEX}}
    first = spec["ordinals"]["start"]
    return [
        Pod(number, f"{name}-{number}", common | {variable["name"]: str(number)})
        for number in range(first, first + spec["replicas"])
    ]
