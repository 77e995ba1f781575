"""TLS towards an API server: whom it trusts, what it comes with, and files that change."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from kscale import InputError
from kscale.world.kubernetes.client_tls import ClientTLS
from kscale.world.kubernetes.kubeconfig import Access, ClientCertificate, Pem
from kscale.world.rpc import read_certificates

SECOND = 10**9
AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("kubernetes.default", "127.0.0.1")
CLIENT = AUTHORITY.issue_cert("admin@example.com")


def pem(blobs: list[trustme.Blob]) -> bytes:
    return b"".join(blob.bytes() for blob in blobs)


def server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVER.configure_cert(context)
    AUTHORITY.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def shake(client: ssl.SSLContext, name: str) -> str:
    """A handshake in memory: the common identity that the server has seen, or raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server().wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = ends[1].getpeercert() or {}
    return str(certificate.get("subjectAltName", ""))


CA = Pem(AUTHORITY.cert_pem.bytes())


def test_server_name_is_verified_against_the_certificate() -> None:
    context = ClientTLS(Access(server="https://x", ca=CA)).context(0)
    assert shake(context, "kubernetes.default") == ""
    assert shake(context, "127.0.0.1") == ""
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context, "other")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_unknown_authorities_are_not_trusted() -> None:
    other = ClientTLS(Access(server="https://x", ca=Pem(trustme.CA().cert_pem.bytes()))).context(0)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(other, "kubernetes.default")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ClientTLS(Access(server="https://x")).context(0), "kubernetes.default")
    assert shake(ClientTLS(Access(server="https://x", insecure=True)).context(0), "other") == ""


def test_client_certificate_is_presented() -> None:
    pair = ClientCertificate(Pem(pem(CLIENT.cert_chain_pems)), Pem(CLIENT.private_key_pem.bytes()))
    context = ClientTLS(Access(server="https://x", ca=CA, certificate=pair)).context(0)
    assert "admin@example.com" in shake(context, "127.0.0.1")
    key_pair = (pem(CLIENT.cert_chain_pems), CLIENT.private_key_pem.bytes())
    tls = ClientTLS(Access(server="https://x", ca=CA))
    without = tls.context(0)
    with_ = tls.context(1, key_pair)
    assert "admin@example.com" in shake(with_, "127.0.0.1")
    assert tls.context(2, key_pair) is with_
    assert without is not with_


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (Access(server="https://x", ca=Pem(b"no PEM")), "certificate-authority-data: there is no certificate in it"),
        (Access(server="https://x", ca=Pem(path="/nowhere/ca")), "/nowhere/ca: No such file"),
        (
            Access(server="https://x", certificate=ClientCertificate(Pem(b"a"), Pem(b"s3cr3t"))),
            "client-certificate-data: certificate and key cannot be used together",
        ),
        (
            Access(
                server="https://x",
                certificate=ClientCertificate(Pem(pem(CLIENT.cert_chain_pems)), Pem(SERVER.private_key_pem.bytes())),
            ),
            "KEY_VALUES_MISMATCH",
        ),
    ],
)
def test_unusable_tls_settings_are_an_input_error(access: Access, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        ClientTLS(access).context(0)
    assert "s3cr3t" not in str(error.value)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pem(CLIENT.cert_chain_pems))
    key.write_bytes(CLIENT.private_key_pem.bytes())
    return certificate, key


def write(path: Path, data: bytes) -> None:
    """As the kubelet does: another file takes its place."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def test_files_that_are_replaced(files: tuple[Path, Path]) -> None:
    pair = ClientCertificate(Pem(path=str(files[0])), Pem(path=str(files[1])))
    tls = ClientTLS(Access(server="https://x", ca=CA, certificate=pair))
    first = tls.context(0)
    assert tls.context(5 * SECOND) is first
    other = AUTHORITY.issue_cert("other@example.com")
    write(files[0], pem(other.cert_chain_pems))
    assert tls.context(5 * SECOND + 1) is first  # it looks once a second
    assert tls.context(7 * SECOND) is first  # the key of another certificate: half written
    write(files[1], other.private_key_pem.bytes())
    second = tls.context(9 * SECOND)
    assert second is not first
    assert "other@example.com" in shake(second, "127.0.0.1")
    files[0].unlink()
    assert tls.context(20 * SECOND) is second


NO_AUTHORITY = {
    "empty": b"", "white space": b"\n \n", "zeros": bytes(100), "any bytes": bytes(range(256)),
    "a certificate of nothing": b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
    "a certificate of question marks": b"-----BEGIN CERTIFICATE-----\n\xff\xff\xff\xff\n-----END CERTIFICATE-----\n",
    "half of one": pem([AUTHORITY.cert_pem])[:300], "UTF-16": pem([AUTHORITY.cert_pem]).decode().encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("data", NO_AUTHORITY.values(), ids=NO_AUTHORITY)
def test_replaced_ca_file_with_any_content_is_handled(tmp_path: Path, data: bytes) -> None:
    """It is named at the start; later the authorities before it stay."""
    file = tmp_path / "ca.pem"
    file.write_bytes(data)
    tls = ClientTLS(Access(server="https://h", ca=Pem(path=str(file))))
    with pytest.raises(InputError, match=r"ca\.pem: there is no certificate in it"):
        tls.context(0)
    with pytest.raises(InputError, match=r"ca\.pem: there is no certificate in it"):
        read_certificates(file)
    file.write_bytes(pem([AUTHORITY.cert_pem]))
    context = tls.context(2 * 10**9)
    file.write_bytes(data)
    assert tls.context(4 * 10**9) is context


def test_comments_of_authorities_may_have_any_characters(tmp_path: Path) -> None:
    """As in Go."""
    file = tmp_path / "ca.pem"
    file.write_bytes("# Autorité de Zürich\n".encode("latin-1") + pem([AUTHORITY.cert_pem]) + "# 日本\n".encode())
    context = ClientTLS(Access(server="https://h", ca=Pem(path=str(file)))).context(0)
    assert context.cert_store_stats()["x509_ca"] == 1
    assert read_certificates(file) == file.read_bytes()
