"""A JVM with ZooKeeper's and Curator's own classes, which PySpark brings, driven from Python through its py4j."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Final

import pytest

from onyxlog.audits.java import find_java
from zraft_core.address import Address

END_S: Final = 30.0
RETRY_MS: Final = 100
RETRIES: Final = 3
OPTIONS: Final = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@contextmanager
def java_classes(log: Path) -> Iterator[Any]:
    """The view of a JVM that py4j calls `jvm`: a class is found by its full name, and called like a Python one.

    What Java writes goes to `log`. The JVM ends when the context is left.
    """
    pyspark = pytest.importorskip("pyspark", reason="needs the extra `audits`")
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jars = Path(pyspark.__file__).with_name("jars")
    process: subprocess.Popen[bytes]
    with log.open("wb") as output:
        port, token, process = launch_gateway(
            classpath=f"{jars}/*",
            javaopts=list(OPTIONS),
            java_path=str(Path(find_java(os.environ).home, "bin", "java")),
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=output,
            redirect_stderr=output,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield gateway.jvm
        finally:
            gateway.shutdown()
            assert process.stdin is not None
            process.stdin.close()  # its sign to end
            process.wait(END_S)


@contextmanager
def curator_at(jvm: Any, server: Address) -> Iterator[Callable[[], set[str]]]:
    """A default client of Curator's that was told of one server; what it then knows, as `parse_address` writes it."""
    curator = jvm.org.apache.curator
    client = curator.framework.CuratorFrameworkFactory.newClient(
        str(server), curator.retry.ExponentialBackoffRetry(RETRY_MS, RETRIES)
    )

    def known() -> set[str]:
        found: set[str] = set()
        for shown in client.getZookeeperClient().getCurrentConnectionString().split(","):
            host, _, port = shown.rpartition(":")
            if ":" in host:  # Java writes IPv6 addresses whole, and without brackets
                host = str(IPv6Address(host.strip("[]")))
            found.add(str(Address(host, int(port))))
        return found

    client.start()
    try:
        yield known
        assert client.getZookeeperClient().getZooKeeper().getState().isConnected()
    finally:
        client.close()
