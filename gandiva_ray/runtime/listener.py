"""The agent's end of the sockets: templates and trials connect to it, and everything they say is heard in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from gandiva_ray.trial.protocol import Decoder, Message, encode

_PEER = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Talk:
    """What to do with what a process says, and once it will say no more."""

    hear: Callable[[Message], None]
    hang_up: Callable[[], None]


class Listener:
    """`greet` takes a process's hello, its pid as the kernel knows it, and the way to answer it.

    It may refuse by a ConnectionError; any other exception goes to the loop's exception handler.
    """

    def __init__(self, greet: Callable[[Message, int, asyncio.StreamWriter], Talk]) -> None:
        self._greet = greet
        self._server: asyncio.AbstractServer | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> str:
        """Returns the address: an abstract socket, which no file and no crash leaves behind."""
        address = f"gandiva-{secrets.token_hex(8)}"
        self._server = await asyncio.start_unix_server(self._accept, path="\0" + address)
        return address

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            pid, user = _peer(writer)
            if user == os.geteuid():  # an abstract socket has no permissions of its own
                await self._converse(reader, writer, pid)
        except ConnectionError:
            pass
        except Exception as error:
            fault = {"message": "a fault in what was heard", "exception": error}
            asyncio.get_running_loop().call_exception_handler(fault)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int) -> None:
        decoder = Decoder()
        talk: Talk | None = None
        try:
            while data := await reader.read(65536):
                for message in decoder.feed(data):
                    if talk is None:
                        talk = self._greet(message, pid, writer)
                    else:
                        talk.hear(message)
        finally:
            if talk is not None:
                talk.hang_up()


def send(writer: asyncio.StreamWriter | None, message: Message) -> None:
    """Never blocks: asyncio keeps what a suspended process does not read. A process that is gone hears nothing."""
    if writer is not None and not writer.is_closing():
        with contextlib.suppress(ConnectionError):
            writer.write(encode(message))


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Process id and user id of the other end, as the kernel knows them."""
    sock = writer.get_extra_info("socket")
    pid, user, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, user
