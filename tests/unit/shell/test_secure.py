"""A certificate file that cannot be used is named with its option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import Authority
from zraft.shell.secure import client_context
from zraft_core.errors import ConfigError


def test_files_that_are_in_order_are_taken(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue().write(tmp_path, "client")
    context = client_context(ca=authority.write(tmp_path), certificate=certificate, key=key)
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_files_that_are_not_are_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"--tls-ca: .*nonsense\.pem cannot be used"):
        client_context(ca=nonsense)
    with pytest.raises(ConfigError, match=r"--tls-ca: .*missing cannot be used"):
        client_context(ca=tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"--tls-certificate: .* the key in the same file"):
        client_context(certificate=nonsense)
    with pytest.raises(ConfigError, match="--tls-key: given without --tls-certificate"):
        client_context(key=nonsense)
