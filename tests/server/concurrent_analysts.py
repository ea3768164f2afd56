"""Many analysts at once, over plain sockets: a client light enough that the server is what is measured."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOST = (OSError, asyncio.IncompleteReadError, ValueError)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Let no garbage collection of this process pass for time that the server took.

    With 20,000 exchanges kept, one collection takes a quarter of a second, during which no answer is read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it.

    Attributes
    ----------
    analyst : int
        Who asked.
    body : dict
        What was sent.
    status : int
        Of the answer; 0 if the connection was lost first.
    answer : dict
        What came back, empty if nothing did.
    seconds : float
        From the first byte sent to the last one read.
    """

    analyst: int
    body: dict[str, Any]
    status: int
    answer: dict[str, Any]
    seconds: float


@dataclass(slots=True)
class ConcurrentAnalysts:
    """Analysts who each ask one question after the other.

    Attributes
    ----------
    port : int
        Of a server on the loopback address.
    path : str
        Where they post.
    tokens : list of str
        One for each analyst.
    questions : callable
        Makes the endless questions of one analyst from their number.
    exchanges : list of Exchange
        Requests so far, in the order of their answers.
    """

    port: int
    path: str
    tokens: list[str]
    questions: Callable[[int], Iterator[dict[str, Any]]]
    exchanges: list[Exchange] = field(default_factory=list)
    seconds: float = 0.0

    def ask_for(self, seconds: float, *, until: int | None = None) -> ConcurrentAnalysts:
        """Let everybody ask for some time, or until they meet a status; what is under way is waited for."""
        with _without_collection():
            asyncio.run(self._all(seconds, until))
        return self

    def once(self, analyst: int, body: dict[str, Any]) -> dict[str, Any]:
        """Let one of them ask one question, and return the answer."""

        async def asking() -> dict[str, Any]:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            status, answer = await self._post(reader, writer, analyst, body)
            await _closed((reader, writer))
            assert status == 200, answer
            return answer

        return asyncio.run(asking())

    async def _all(self, seconds: float, until: int | None) -> None:
        start = time.perf_counter()
        await asyncio.gather(*(self._one(i, start + seconds, until) for i in range(len(self.tokens))))
        self.seconds += time.perf_counter() - start

    async def _one(self, analyst: int, end: float, until: int | None) -> None:
        questions = self.questions(analyst)
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        status = -1
        while time.perf_counter() < end and status != until:
            body = next(questions)
            start = time.perf_counter()
            try:
                if connection is None:
                    connection = await asyncio.open_connection("127.0.0.1", self.port)
                status, answer = await self._post(*connection, analyst, body)
            except _LOST:
                await _closed(connection)
                status, answer, connection = 0, {}, None
                await asyncio.sleep(0.01)
            self.exchanges.append(Exchange(analyst, body, status, answer, time.perf_counter() - start))
        await _closed(connection)

    async def _post(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, analyst: int, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        content = json.dumps(body).encode()
        head = (
            f"POST {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.tokens[analyst]}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        )
        writer.write("\r\n".join((*head, "", "")).encode() + content)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        answer = json.loads(await reader.readexactly(length))
        return int(lines[0].split()[1]), answer

    def answered(self) -> list[Exchange]:
        """Return what was answered."""
        return [one for one in self.exchanges if one.status == 200]

    def per_second(self) -> float:
        """Return how many answers there were in a second."""
        return len(self.answered()) / self.seconds

    def milliseconds(self, share: float) -> float:
        """Return what a share of the answers took at most."""
        taken = sorted(one.seconds for one in self.answered())
        return 1000 * taken[min(len(taken) - 1, int(share * len(taken)))]


async def _closed(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
    if connection is not None:
        connection[1].close()
        with contextlib.suppress(OSError):
            await connection[1].wait_closed()
