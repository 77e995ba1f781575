"""Certificates of a server, which are replaced while it runs."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import aiohttp
import pytest
import trustme

from kscale import InputError
from kscale.world.serve.app import (
    Server,
    endpoints,
)
from kscale.world.serve.tls import ReloadingContext

AUTHORITY = trustme.CA()


def certificate(directory: Path, name: str, authority: trustme.CA = AUTHORITY) -> tuple[bytes, bytes]:
    created = authority.issue_cert(name)
    return b"".join(blob.bytes() for blob in created.cert_chain_pems), created.private_key_pem.bytes()


def write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def pair(directory: Path, name: str) -> tuple[Path, Path]:
    chain, key = certificate(directory, name)
    write(directory / "tls.crt", chain)
    write(directory / "tls.key", key)
    return directory / "tls.crt", directory / "tls.key"


async def shown_names(port: int, *, name: str | None = "localhost") -> list[str]:
    """The names in the certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    context.check_hostname = False
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    peer = writer.get_extra_info("peercert")
    assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
    writer.close()
    return [value for _, value in peer["subjectAltName"]]


def test_certificates_that_are_replaced(tmp_path: Path) -> None:
    paths = pair(tmp_path, "one.example")
    tls = ReloadingContext(str(paths[0]), str(paths[1]))

    async def main() -> None:
        async with Server(endpoints(), "127.0.0.1:0", tls=tls) as server:
            assert await shown_names(server.port) == ["one.example"]
            assert await shown_names(server.port, name="127.0.0.1") == ["one.example"]  # without a server name
            assert not tls.refresh()
            chain, key = certificate(tmp_path, "two.example")
            write(paths[0], chain)  # the key is still the other's
            assert not tls.refresh()
            assert await shown_names(server.port) == ["one.example"]
            write(paths[1], key)
            assert tls.refresh()
            assert await shown_names(server.port) == ["two.example"]
            write(paths[0], b"")
            assert not tls.refresh()
            paths[1].unlink()
            assert not tls.refresh()
            assert await shown_names(server.port) == ["two.example"]
            pair(tmp_path, "three.example")
            assert tls.refresh()
            assert await shown_names(server.port) == ["three.example"]

    asyncio.run(main())


def test_a_connection_gets_the_newest_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are checked when a connection comes, at most once a second."""
    seconds = [0.0]
    monkeypatch.setattr("kscale.world.serve.tls.time.monotonic", lambda: seconds[0])
    tls, fixed = (ReloadingContext(*map(str, pair(tmp_path, "one.example")), reload=reload) for reload in (True, False))
    first, unchanged = tls.context_of_connection(), fixed.context_of_connection()
    pair(tmp_path, "two.example")
    seconds[0] = 0.9
    assert tls.context_of_connection() is first
    seconds[0] = 1.0
    second = tls.context_of_connection()
    assert second is not first
    seconds[0] = 2.0
    assert tls.context_of_connection() is second
    assert fixed.context_of_connection() is unchanged


def test_secrets_that_are_swapped_as_links(tmp_path: Path) -> None:
    """As the kubelet does: a link to a directory is replaced."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pair(tmp_path / name, f"{name}.example")
    os.symlink("one", tmp_path / "..data")
    for name in ("tls.crt", "tls.key"):
        os.symlink(f"..data/{name}", tmp_path / name)
    tls = ReloadingContext(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))

    async def main() -> None:
        async with Server(endpoints(), "127.0.0.1:0", tls=tls) as server:
            assert await shown_names(server.port) == ["one.example"]
            os.symlink("two", tmp_path / "..new")
            os.replace(tmp_path / "..new", tmp_path / "..data")
            assert tls.refresh()
            assert await shown_names(server.port) == ["two.example"]

    asyncio.run(main())


def test_old_versions_are_refused(tmp_path: Path) -> None:
    paths = pair(tmp_path, "one.example")
    tls = ReloadingContext(str(paths[0]), str(paths[1]))
    assert tls.context.minimum_version == tls._current.minimum_version == ssl.TLSVersion.TLSv1_2


def test_clients_get_no_session_tickets(tmp_path: Path) -> None:
    """Nobody who calls a webhook resumes sessions; a ticket takes a fifth of the server's time for a handshake."""
    paths = pair(tmp_path, "one.example")
    tls = ReloadingContext(str(paths[0]), str(paths[1]))

    async def main() -> None:
        async with Server(endpoints(), "127.0.0.1:0", tls=tls) as server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            AUTHORITY.configure_trust(context)
            context.check_hostname = False
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            session = writer.get_extra_info("ssl_object").session
            assert session is None or not session.has_ticket
            writer.close()

    asyncio.run(main())


def test_clients_that_have_to_show_a_certificate(tmp_path: Path) -> None:
    paths = pair(tmp_path, "one.example")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(AUTHORITY.cert_pem.bytes())
    tls = ReloadingContext(str(paths[0]), str(paths[1]), client_ca=str(ca))

    async def main() -> None:
        async with Server(endpoints(), "127.0.0.1:0", tls=tls) as server:
            for known in (True, False):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                AUTHORITY.configure_trust(context)
                context.check_hostname = False
                if known:
                    AUTHORITY.issue_cert("client.example").configure_cert(context)
                url = f"https://127.0.0.1:{server.port}/healthz"
                async with aiohttp.ClientSession() as session:
                    if known:
                        async with session.get(url, ssl=context) as answer:
                            assert answer.status == 200
                    else:
                        with pytest.raises(aiohttp.ClientError):
                            await session.get(url, ssl=context)

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\n"])
def test_authorities_of_clients_that_become_anything(tmp_path: Path, data: bytes) -> None:
    """Those before stay. A program that watches the files does not end."""
    certificate_file, key_file = pair(tmp_path, "localhost")
    authorities = tmp_path / "clients.pem"
    AUTHORITY.cert_pem.write_to_path(str(authorities))
    context = ReloadingContext(str(certificate_file), str(key_file), client_ca=str(authorities))
    authorities.write_bytes(data)
    assert not context.refresh()
    authorities.write_bytes(AUTHORITY.cert_pem.bytes() + AUTHORITY.cert_pem.bytes())
    assert context.refresh()
    authorities.write_bytes(data)
    with pytest.raises(InputError, match="there is no certificate in it"):
        ReloadingContext(str(certificate_file), str(key_file), client_ca=str(authorities))


def test_missing_certificate_at_start_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        ReloadingContext(str(tmp_path / "a"), str(tmp_path / "b"))
    paths = pair(tmp_path, "one.example")
    write(paths[1], certificate(tmp_path, "other")[1])
    with pytest.raises(InputError, match="KEY_VALUES_MISMATCH"):
        ReloadingContext(str(paths[0]), str(paths[1]))
    pair(tmp_path, "one.example")
    (tmp_path / "ca").write_text("no PEM")
    with pytest.raises(InputError, match="there is no certificate in it"):
        ReloadingContext(str(paths[0]), str(paths[1]), client_ca=str(tmp_path / "ca"))
