"""TLS of the connections to an API server: contexts, and a transport of asyncio.

:class:`EventLoop` opens the TLS connections of :class:`~kscale.world.kubernetes.aiohttp_transport.AiohttpTransport` as
:class:`TLSTransport`. asyncio's own transport copies each message between four buffers and needs 256 KiB for each
connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kscale.errors import InputError, Problem
from kscale.world.kubernetes.kubeconfig import Access, Pem
from kscale.world.rpc import load_authorities, load_pair

__all__ = ["ClientTLS", "EventLoop", "TLSTransport"]


class _DirectContext(ssl.SSLContext):
    """TLS context whose connections :class:`EventLoop` opens as :class:`TLSTransport`."""


_RECORD: Final = 16 << 10  # bytes of the largest TLS record: OpenSSL returns one at a time and holds nothing back
_READ_BYTES: Final = 256 << 10
_LAST_RECORD: Final = 1024  # a smaller record ends what the server had to send: servers begin with 1.4 KB


class TLSTransport(asyncio.Transport):
    """TLS connection of a client that reads and writes its socket without asyncio's buffers.

    Create it with :meth:`open`. It never calls ``pause_writing`` of its protocol.
    """

    __slots__ = (
        "_has_ended",
        "_is_closing",
        "_is_reading",
        "_loop",
        "_poll",
        "_protocol",
        "_read_needs_write",
        "_sock",
        "_unsent",
        "_write_needs_read",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, protocol: asyncio.Protocol) -> None:
        super().__init__(
            {"socket": sock, "ssl_object": sock, "sslcontext": sock.context, "peername": sock.getpeername()}
        )
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._unsent = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._is_closing = self._has_ended = self._is_reading = False
        # TLS may have to send before it can receive, and the reverse: for a new key, or a new handshake of TLS 1.2.
        self._read_needs_write = self._write_needs_read = False
        protocol.connection_made(self)
        self.resume_reading()

    @classmethod
    async def open(
        cls,
        loop: asyncio.AbstractEventLoop,
        create_protocol: Callable[[], asyncio.Protocol],
        connected: socket.socket,
        context: ssl.SSLContext,
        server_hostname: str | None,
    ) -> tuple[TLSTransport, asyncio.Protocol]:
        """Perform the TLS handshake on a connected socket, and return (transport, protocol).

        Raises OSError, also as ssl.SSLError, if the handshake fails. The socket is closed then.
        """
        connected.setblocking(False)
        sock = context.wrap_socket(connected, server_hostname=server_hostname, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    sock.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await _wait_until(loop.add_reader, loop.remove_reader, sock)
                except ssl.SSLWantWriteError:
                    await _wait_until(loop.add_writer, loop.remove_writer, sock)
                except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None
            protocol = create_protocol()
            return cls(loop, sock, protocol), protocol
        except BaseException:
            sock.close()
            raise

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets the data."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that gets the data from now on."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether the connection has been closed, possibly with unsent data left."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether data that arrives is passed to the protocol."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Stop passing data to the protocol; it stays in the socket."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock)

    def resume_reading(self) -> None:
        """Pass data to the protocol again. No effect if the connection is closing."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            if not self._read_needs_write:
                self._loop.add_reader(self._sock, self._receive)

    def receive_arrived(self) -> None:
        """Pass data to the protocol that has arrived after the last record that was read.

        No effect if reading is paused.
        """
        if self._is_reading and not self._read_needs_write and self._poll.poll(0):
            self._receive()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that have not been sent yet."""
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data, as much as possible at once. Data after the end of the connection is dropped."""
        if self._is_closing:
            return
        if self._unsent:
            self._unsent += data
        elif (sent := self._send(data)) < len(data):
            self._unsent += memoryview(data)[sent:]
            if not self._write_needs_read:
                self._loop.add_writer(self._sock, self._send_rest)

    def close(self) -> None:
        """Close the connection after the data that has been written.

        If TLS has to receive before it can send, the connection is closed at once, and unsent data is dropped.
        """
        self._close(None, at_once=False)

    def abort(self) -> None:
        """Close the connection at once."""
        self._close(None)

    def _receive(self) -> None:
        """Pass the data that has arrived, up to the limit of one read, to the protocol.

        Closes the connection if the data has ended or the connection failed. Resumes writing if that waited for data.
        """
        parts: list[bytes] = []
        ended, error = False, None
        try:
            for _ in range(_READ_BYTES // _RECORD):
                parts.append(self._sock.read(_RECORD))
                if len(parts[-1]) < _LAST_RECORD:
                    ended = not parts[-1]
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._read_needs_write = True
            self._loop.remove_reader(self._sock)
            self._loop.add_writer(self._sock, self._send_rest)
        except OSError as failure:
            error = failure
        if data := parts[0] if len(parts) == 1 else b"".join(parts):
            try:
                self._protocol.data_received(data)
            except BaseException:
                self._close(None)  # the protocol may have lost the data
                raise
        if self._write_needs_read and not self._is_closing:
            self._write_needs_read = False
            self._loop.add_writer(self._sock, self._send_rest)
        if error is not None:
            self._close(error)
        elif ended and not self._is_closing:
            self._protocol.eof_received()
            self._close(None, at_once=False)

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many bytes of the data could be sent: all if the connection has failed, and is closed now."""
        sent = 0
        try:
            while sent < len(data):
                sent += self._sock.send(memoryview(data)[sent:] if sent else data)
        except ssl.SSLWantReadError:
            self._write_needs_read = True
            self._loop.remove_writer(self._sock)
        except ssl.SSLWantWriteError:
            pass
        except OSError as error:
            self._close(error)
            return len(data)
        return sent

    def _send_rest(self) -> None:
        """Send as much unsent data as the socket takes now. Called when the socket can be written.

        Starts to receive again if TLS had to send first. A connection that is being closed ends with the last byte.
        """
        if self._read_needs_write:
            self._read_needs_write = False
            if self._is_reading:
                self._loop.add_reader(self._sock, self._receive)
        sent = self._send(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._sock)
            if self._is_closing:
                self._close(None)

    def _close(self, error: OSError | None, *, at_once: bool = True) -> None:
        """Read no more, and end the connection: at once, or after the unsent data if not ``at_once``.

        If TLS has to receive before it can send, the unsent data is dropped. ``error``: what the protocol's
        ``connection_lost`` gets.
        """
        self.pause_reading()
        self._is_closing = True
        if self._has_ended or (self._unsent and not at_once and not self._write_needs_read):
            return
        self._has_ended = True
        self._unsent = bytearray()  # not cleared: the frames of an error may hold it
        self._loop.remove_writer(self._sock)
        self._loop.call_soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        """Tell the server and the protocol that the connection ends, and close the socket."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()  # the server's response is not waited for
        self._sock.close()
        self._protocol.connection_lost(error)


async def _wait_until(
    add: Callable[[Any, Callable[[], object]], object], remove: Callable[[Any], object], sock: ssl.SSLSocket
) -> None:
    """Wait until the socket is ready, with a callback that ``add`` registers for it and ``remove`` unregisters."""
    ready = asyncio.Event()
    add(sock, ready.set)
    try:
        await ready.wait()
    finally:
        remove(sock)


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop, with :class:`TLSTransport` for the connections of :class:`AiohttpTransport`."""

    async def create_connection(self, protocol_factory: Any, *arguments: Any, **options: Any) -> Any:
        """Open a connection as asyncio does, which describes the parameters."""
        context, connected = options.get("ssl"), options.get("sock")
        if connected is None or not isinstance(context, _DirectContext):
            return await super().create_connection(protocol_factory, *arguments, **options)
        name = options.get("server_hostname")
        return await TLSTransport.open(self, protocol_factory, connected, context, name)


_EVERY: Final = 10**9  # nanoseconds between two checks of the files
_Seen = tuple[tuple[int, int, int], ...]


class ClientTLS:
    """TLS context of an :class:`Access`, renewed when its certificate files or the exec plug-in's certificate change.

    ``direct``: the connections can be :class:`TLSTransport`. Raises :class:`~kscale.InputError` if a certificate cannot
    be read.
    """

    __slots__ = ("_access", "_class", "_context", "_given", "_looked", "_seen")

    def __init__(self, access: Access, *, direct: bool = False) -> None:
        self._access = access
        self._class = _DirectContext if direct else ssl.SSLContext
        self._context: ssl.SSLContext | None = None
        self._seen: _Seen = ()
        self._given: tuple[bytes, bytes] | None = None
        self._looked = 0

    def context(self, now: int, exec_certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """Return the TLS context for requests that are sent now.

        The files are checked at most once a second. If changed files cannot be read, the previous context is returned.

        Parameters
        ----------
        now : int
            Monotonic time in nanoseconds.
        exec_certificate : tuple of bytes, optional
            Certificate and key (PEM) that an exec plug-in returned. They replace those of the :class:`Access`.

        Returns
        -------
        ssl.SSLContext
            The context, cached until a file or the plug-in's certificate changes.

        Raises
        ------
        InputError
            If a certificate cannot be read and there is no earlier context for the same plug-in certificate.
        """
        if self._context is not None and exec_certificate == self._given and now - self._looked < _EVERY:
            return self._context
        signatures = self._read_signatures()
        self._looked = now
        if self._context is None or signatures != self._seen or exec_certificate != self._given:
            try:
                self._context = self._build_context(exec_certificate)
            except InputError:
                if self._context is None or exec_certificate != self._given:
                    raise
                return self._context  # a file may be half written: use the old context until the next check
            self._seen, self._given = signatures, exec_certificate
        return self._context

    def _read_signatures(self) -> _Seen:
        """Return (inode, modification time, size) of each file of authorities, certificate and key.

        Zeros if the file is missing; inline data has no entry.
        """
        certificate = self._access.certificate
        pems = [self._access.ca, *([] if certificate is None else [certificate.certificate, certificate.key])]
        signatures = []
        for pem in pems:
            if not pem.path:
                continue
            try:
                status = os.stat(pem.path)
            except OSError:
                signatures.append((0, 0, 0))
            else:
                signatures.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(signatures)

    def _build_context(self, exec_certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        """Build the TLS context. Raises InputError if authorities, certificate or key cannot be used."""
        access = self._access
        context = self._class(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif access.ca:
            _trust(context, access.ca)
        else:
            context.load_default_certs()
        # As in Go: any trusted certificate may end a chain, and X.509 strictness checks are off.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if exec_certificate is not None:
            _load_certificate(context, *exec_certificate, "the certificate of the exec plug-in")
        elif access.certificate is not None:
            certificate, key = access.certificate.certificate, access.certificate.key
            name = certificate.path or "client-certificate-data"
            _load_certificate(context, _read(certificate), _read(key), name)
        return context


def _read(pem: Pem) -> bytes:
    """Return the PEM text. Raises InputError if the file cannot be read."""
    try:
        return pem.read()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), pem.path)) from None


def _trust(context: ssl.SSLContext, ca: Pem) -> None:
    """Make a context trust the authorities. Raises InputError if they cannot be read."""
    load_authorities(context, _read(ca), ca.path or "certificate-authority-data")


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, name: str) -> None:
    """Load a client certificate and its key (PEM). Raises InputError, which names ``name``, if they cannot be used."""
    try:
        load_pair(context, certificate, key)
    except ssl.SSLError as error:
        text = f"certificate and key cannot be used together: {error.reason or 'no PEM'}"
        raise InputError(Problem(text, name)) from None
