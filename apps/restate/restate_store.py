"""The other processes' side: a store whose journals Restate keeps, and whose runs its workers drive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, final
from urllib.parse import quote

import attrs
import httpx

from ...effects.errors import ConfigError, StoreError
from ...engine.journal.encoding import decode_entry
from ...engine.journal.entries import Forked, HandedOver, Posted, RunOpened, Stepped, TakenOver
from . import asks
from .asks import Append, AskAnswer, AskingStore, Delete, Given, Look, StoreAsk

if TYPE_CHECKING:
    from ...performers.stores.base import SessionInfo

# Of more connections those that rest are closed: for each one that rests, a call looks at all others.
_RESTING = 20

# What only the worker that drives a session writes.
_DRIVEN = RunOpened | TakenOver | HandedOver | Stepped


@final
@attrs.define(eq=False)
class RestateStore(AskingStore):
    """
    The sessions of the *service* of a `RestateWorker`, as a `Store` for processes that run none.

    *ingress* and *admin* are the addresses of Restate's server. All of a `Session` that takes inputs in, that
    copies or that reads works as with any store, and a worker goes on by itself. `run`, `stream` and `resume`
    are refused: call `send`, and wait with `settled`. An answer may take *timeout* seconds.
    """

    service: str
    ingress: str = "http://127.0.0.1:8080"
    admin: str = "http://127.0.0.1:9070"
    timeout: float = 30.0
    # Without a bound of connections: who waits for a turn to end must hold up no other call.
    _client: httpx.AsyncClient = attrs.field(
        init=False,
        factory=lambda: httpx.AsyncClient(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=_RESTING)
        ),
    )

    async def settled(self, session: str) -> None:
        """Return when all turns of *session* that came before this call are over."""
        await self._post(session, "settle", asks.encode(Look(session=session)), None)

    async def resume(self, session: str) -> None:
        """Have a worker go on with an unfinished run that no input moves; see `settled`."""
        await self._post(session, "turn/send", asks.encode(Given()), self.timeout)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        # The state of all objects, which no handler sees; the server looks at each of them.
        wanted = f"service_name = {_literal(self.service)} and starts_with(key, {_literal('info/' + prefix)})"
        query = json.dumps({"query": f"select key, value from state where {wanted}"})  # noqa: S608  # quoted
        answer = await self._sent_to(f"{self.admin}/query", query.encode(), self.timeout)
        rows = json.loads(answer)["rows"]
        found = [asks.decode_info(_bytes(row["value"])).of(row["key"].removeprefix("info/")) for row in rows]
        found.sort(key=lambda one: -one.stamp)
        return [*islice((one for one in found if after is None or one.stamp < after), limit)]

    async def close(self) -> None:
        """Close the connections, once what was asked is answered. Closing twice is fine."""
        await super().close()
        await self._client.aclose()

    async def _ask(self, ask: StoreAsk) -> AskAnswer:
        if isinstance(ask, Append):
            body, handler = asks.encode(await self._input(ask)), "append"
        else:
            body, handler = asks.encode(ask), "delete" if isinstance(ask, Delete) else "ask"
        answer: AskAnswer = asks.decode_answer(await self._post(ask.session, handler, body, self.timeout))
        return answer

    async def _input(self, ask: Append) -> Given:
        parent, dot, _ = ask.session.partition(".")
        if dot and not ask.expected and await self.info(parent) is None:
            msg = f"session {ask.session!r}: a name with a dot is a child's in Restate; leave the dot out"
            raise ConfigError(msg)
        entries = [decode_entry(entry) for entry in ask.entries]
        # A copy begins with the entries of another session, also with those of its worker.
        copied = any(isinstance(entry, Forked) for entry in entries)
        if not copied and any(isinstance(entry, _DRIVEN) for entry in entries):
            msg = (
                f"session {ask.session!r}: Restate's workers run it; use send instead of run or stream, "
                "RestateStore.resume instead of resume, and wait with RestateStore.settled"
            )
            raise ConfigError(msg)
        return Given(append=ask, runs=any(isinstance(entry, Posted) for entry in entries))

    async def _post(self, session: str, handler: str, body: bytes, within: float | None) -> bytes:
        # The journals of children are kept with their parent's, which begins their names.
        key = quote(session.partition(".")[0], safe="")
        return await self._sent_to(f"{self.ingress}/{self.service}/{key}/{handler}", body, within)

    async def _sent_to(self, url: str, body: bytes, within: float | None) -> bytes:
        kind = "application/json" if url.endswith("/query") else "application/octet-stream"
        headers = {"content-type": kind, "accept": kind}
        try:
            answer = await self._client.post(url, content=body, headers=headers, timeout=within)
        # Of a client that is closed, httpx raises the other one.
        except (httpx.HTTPError, RuntimeError) as error:
            msg = f"{url}: {str(error) or type(error).__name__}; check that Restate runs there"
            raise StoreError(msg) from error
        if answer.status_code not in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            msg = f"{url}: Restate answered {answer.status_code}: {answer.text[:500]}"
            raise StoreError(msg)
        return answer.content


def _bytes(value: str) -> bytes:
    """What a column of bytes holds."""
    return bytes.fromhex(value)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
