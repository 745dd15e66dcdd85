"""The files of TLS: what is wrong with them is said by name, and nothing half good is used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from zraft.config.sections import TlsConfig
from zraft.server.process.security.certificates import EXPIRY_WARNING, load_certificates, refuse_expired
from zraft_core.errors import ConfigError


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    return authority.issue().write(tmp_path, "server")


def refusal(certificate: Path, key: Path | None, **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        load_certificates(TlsConfig(certificate=certificate, key=key, **more))
    return str(refused.value)


def test_certificate_and_key_may_share_a_file(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue()
    path = tmp_path / "both.pem"
    path.touch(mode=0o600)
    path.write_bytes(issued.pem + issued.key_pem())
    assert load_certificates(TlsConfig(certificate=path)).serial == issued.certificate.serial_number
    path.chmod(0o644)
    assert "tls.certificate" in refusal(path, None)


def test_a_missing_file_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    for message in (
        refusal(absent, files[1]),
        refusal(files[0], absent),
        refusal(*files, client_ca=absent, client_auth="want"),
    ):
        assert str(absent) in message
        assert "No such file" in message


def test_a_key_that_others_can_read_is_refused(files: tuple[Path, Path]) -> None:
    files[1].chmod(0o644)
    assert "tls.key" in refusal(*files)
    assert f"chmod 600 {files[1]}" in refusal(*files)
    files[1].chmod(0o640)
    load_certificates(TlsConfig(certificate=files[0], key=files[1]))


def test_files_that_hold_something_else_are_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = files
    rubbish = tmp_path / "rubbish"
    rubbish.touch(mode=0o600)
    rubbish.write_bytes(b"\xff\x00rubbish")
    assert f"{rubbish} holds no certificate" in refusal(rubbish, key)
    assert f"{rubbish} holds no private key" in refusal(certificate, rubbish)
    assert f"{rubbish} holds no certificate" in refusal(
        certificate, key, client_ca=rubbish, client_auth="want"
    )
    half = tmp_path / "half"
    half.write_bytes(certificate.read_bytes()[:300])
    assert f"{half} holds no certificate" in refusal(half, key)


def test_a_key_of_another_certificate_is_told(
    authority: Authority, files: tuple[Path, Path], tmp_path: Path
) -> None:
    other = authority.issue().write(tmp_path, "other")
    assert f"{other[1]} does not belong to the certificate in {files[0]}" in refusal(files[0], other[1])


def test_an_encrypted_key_is_refused_and_not_asked_for_on_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue()
    certificate, key = issued.write(tmp_path, "server")
    key.write_bytes(issued.key_pem(b"passphrase"))
    assert "is encrypted" in refusal(certificate, key)


def test_a_cipher_that_openssl_does_not_know_is_told(files: tuple[Path, Path]) -> None:
    assert "tls.ciphers" in refusal(*files, ciphers="NO-SUCH")
    found = load_certificates(
        TlsConfig(certificate=files[0], key=files[1], ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    )
    offered = {c["name"] for c in found.context.get_ciphers() if c["protocol"] == "TLSv1.2"}
    assert offered == {"ECDHE-ECDSA-AES256-GCM-SHA384"}


def test_the_end_of_a_certificate_is_told_two_weeks_ahead(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue(days=30).write(tmp_path, "server")
    found = load_certificates(TlsConfig(certificate=certificate, key=key))
    end = found.not_after
    assert found.complaint(end - EXPIRY_WARNING - timedelta(seconds=1)) is None
    assert "expires at" in (found.complaint(end - EXPIRY_WARNING) or "")
    assert "expired at" in (found.complaint(end) or "")
    assert "not valid before" in (found.complaint(found.not_before - timedelta(seconds=1)) or "")


def test_one_that_is_over_does_not_replace_one_that_works(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue(days=-1).write(tmp_path, "server")
    found = load_certificates(TlsConfig(certificate=certificate, key=key))
    with pytest.raises(ConfigError, match="expired at"):
        refuse_expired(found, datetime.now(UTC), certificate)
