"""The manifests of Kubernetes: the schemas take them, they fit each other, and what they say starts three servers."""

from __future__ import annotations

import signal
import stat
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import FOLDER, documents, manifests, pods
from tests.images.dockerfile import exec_form, read_dockerfile
from tests.processes.clients import Sessions
from tests.processes.cluster import ROOT, Cluster, free_ports, wait_until
from zraft.config.knobs import load_config
from zraft_bench.local.containers import USER

OLDEST, NEWEST = "1.29", "1.33"
"""Releases of Kubernetes. The number of a pod is a label since 1.28."""


def stateful_set() -> dict[str, Any]:
    spec = manifests()["StatefulSet", "zraft"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container() -> dict[str, Any]:
    (one,) = stateful_set()["template"]["spec"]["containers"]
    assert isinstance(one, dict)
    return one


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_the_published_schemas_take_every_manifest(release: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="run .ci/setup")
    for manifest in manifests().values():
        validator.validate(manifest, release, strict=True)


def test_the_published_schemas_refuse_a_misspelt_field() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="run .ci/setup")
    manifest = manifests()["PodDisruptionBudget", "zraft"]
    manifest["spec"]["maxUnavailabel"] = 1
    with pytest.raises(validator.ValidationError, match="maxUnavailabel"):
        validator.validate(manifest, NEWEST, strict=True)


def test_every_file_is_applied_but_those_that_need_more_than_kubernetes() -> None:
    (kustomization,) = documents(FOLDER / "kustomization.yaml")
    optional = {"kustomization.yaml", "servicemonitor.yaml"}
    assert {path.name for path in FOLDER.iterdir()} == {*kustomization["resources"], *optional}
    (monitor,) = documents(FOLDER / "servicemonitor.yaml")
    (watched,) = [
        one
        for (kind, _), one in manifests().items()
        if kind == "Service"
        and monitor["spec"]["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
    ]
    assert {one["port"] for one in monitor["spec"]["endpoints"]} <= {
        one["name"] for one in watched["spec"]["ports"]
    }
    assert watched["metadata"]["labels"][monitor["spec"]["jobLabel"]].startswith("zraft")


def test_names_ports_and_labels_fit_each_other() -> None:
    found, spec = manifests(), stateful_set()
    labels = spec["template"]["metadata"]["labels"]
    headless = found["Service", spec["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"], "servers would not find each other before they are ready"
    ports = {(one["name"], one["containerPort"], one["protocol"]) for one in container()["ports"]}
    for (kind, _), one in found.items():
        if kind == "Service":
            assert one["spec"]["selector"] == labels
            assert {(port["name"], port["port"], port["protocol"]) for port in one["spec"]["ports"]} <= ports
        elif kind == "PodDisruptionBudget":
            assert one["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        elif kind == "NetworkPolicy":
            assert one["spec"]["podSelector"]["matchLabels"] == labels
            opened = {
                (port["port"], port["protocol"]) for rule in one["spec"]["ingress"] for port in rule["ports"]
            }
            assert opened == {(name, protocol) for name, _, protocol in ports}
    (anti,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert anti["labelSelector"]["matchLabels"] == labels
    assert spec["podManagementPolicy"] == "Parallel", "the first pod would wait for others to be ready"


def test_the_environment_is_the_configuration_of_three_servers_that_know_each_other_by_name() -> None:
    image = read_dockerfile()[-1].environment()
    configured = {
        pod.name: load_config(flags={}, environ=image | dict(pod.environment), on_note=lambda _: None)
        for pod in pods()
    }
    assert [config.id for config in configured.values()] == [1, 2, 3]
    names = {
        number: f"{name}.{stateful_set()['serviceName']}:2181" for number, name in enumerate(configured, 1)
    }
    mounts = {one["mountPath"] for one in container()["volumeMounts"]}
    for config in configured.values():
        assert {number: str(address) for number, address in config.cluster.items()} == names
        assert not config.insecure_peers
        for path in (config.data, *config.key_files):
            assert str(path.parent) in mounts


def test_the_container_is_confined_and_its_key_is_closed() -> None:
    pod = stateful_set()["template"]["spec"]
    user = pod["securityContext"]
    assert {user[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert user["runAsNonRoot"]
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    (key,) = [one["secret"] for one in pod["volumes"]]
    assert stat.filemode(key["defaultMode"]) == "?r--------"
    assert f"secret generic {key['secretName']} " in (ROOT / "docs" / "how-to" / "deployment.md").read_text()
    assert not [kind for kind, _ in manifests() if kind == "Secret"], "a key in a manifest is everybody's"


class Pods(Cluster):
    """The pods on this machine: their environment, with addresses and directories of a test in the place of theirs."""

    def _place(self, count: int) -> None:
        super()._place(count)
        self.admin = dict(zip(self.servers, free_ports(count), strict=True))

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        server = self.servers[number]
        (pod,) = [one for one in pods() if one.number == number]
        here = {
            "0.0.0.0:2181": str(server.address),
            "0.0.0.0:8080": f"{self.host}:{self.admin[number]}",
            "/data/zraft": str(data or server.data),
            "/keys/cluster.key": str(self.key),
        } | {f"zraft-{n}.zraft-servers:2181": str(one.address) for n, one in self.servers.items()}
        variables = []
        for name, value in pod.environment.items():
            for there, instead in here.items():
                value = value.replace(there, instead)
            variables.append(f"{name}={value}")
        assert exec_form(read_dockerfile()[-1].last("ENTRYPOINT")) == ["/opt/zraft/bin/zraft"]
        return ["env", *variables, sys.executable, "-m", "zraft", *container()["args"]]

    def probe(self, number: int, kind: str) -> bool:
        """Ask as the kubelet does."""
        asked = container()[kind]["httpGet"]
        assert asked["port"] == "admin"
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.admin[number]}{asked['path']}", timeout=5):
                return True
        except urllib.error.HTTPError:
            return False


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_what_the_manifests_say_starts_three_servers_that_serve_when_probed_and_stop_in_time(
    tmp_path: Path,
) -> None:
    with Pods(tmp_path) as cluster:
        cluster.start_all()
        for number in cluster.servers:
            for kind in ("startupProbe", "livenessProbe"):
                assert cluster.probe(number, kind)
            wait_until(lambda number=number: cluster.probe(number, "readinessProbe"), "a pod to be ready")  # type: ignore[misc]
        sessions = Sessions(cluster)
        sessions.open().create("/a", b"kept")
        sessions.close()
        grace_s = stateful_set()["template"]["spec"]["terminationGracePeriodSeconds"]
        for number in cluster.servers:
            began = time.monotonic()
            assert cluster.kill(number, signal.SIGTERM) == 0
            assert time.monotonic() - began < grace_s
            if number == 2:
                # The last one is alone: alive, so it is not restarted, and not ready.
                wait_until(lambda: not cluster.probe(3, "readinessProbe"), "the last pod not to be ready")
                assert cluster.probe(3, "livenessProbe")
