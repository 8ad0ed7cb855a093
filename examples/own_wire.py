"""Your own wire, for a server that answers with lines of JSON. See docs/providers.md."""

import json
from typing import Any

from turnwheel.effects import (
    CallModel,
    CallPiece,
    Failure,
    Message,
    Piece,
    StopReason,
    Text,
    TextPiece,
    ToolCall,
    ToolResult,
    Transcript,
    Usage,
    clean,
    clear_results,
)
from turnwheel.performers import (
    AnswerEnd,
    Broken,
    Complete,
    Endpoint,
    HTTPModel,
    HTTPRequest,
    PerformContext,
    transcript,
)

STOPS = {"done": StopReason.END_TURN, "call": StopReason.TOOL_USE, "full": StopReason.MAX_TOKENS}
MAX_LINE = 1_000_000


class LinesWire:
    """``lines:NAME`` calls the model NAME: the conversation goes out, and its answer comes back in lines."""

    def encode(self, request: CallModel, scene: PerformContext) -> HTTPRequest:
        """The request: the conversation or the text to summarise, and the tools that the model may call."""
        view = request.view
        shown = scene.history.slice(0, view.length)
        if isinstance(view, Transcript):
            turns = [{"who": "user", "said": [transcript(shown, view.limit)]}]
        else:
            old, new = shown[: view.cleared], shown[view.cleared :]
            shown = (*map(clear_results, old), *new)
            turns = [{"who": message.role.value, "said": words(message)} for message in shown]
        tools = [tool for tool in scene.config.tools if tool.name in request.tools]
        body = {
            "model": request.model.removeprefix("lines:"),
            "rules": f"{request.system}\n\n{request.instructions}".strip(),
            "turns": turns,
            "tools": [[tool.name, tool.description, json.loads(tool.schema)] for tool in tools],
            "most": request.max_output or scene.config.spec(request.model).max_output,
        }
        return HTTPRequest(
            path="/say", headers={"content-type": "application/json"}, body=json.dumps(body).encode()
        )

    def parser(self, scene: PerformContext) -> "LinesParser":  # noqa: ARG002  # other parsers need it
        """A new parser for one answer."""
        return LinesParser()


def words(message: Message) -> list[Any]:
    """The parts of *message* that this server knows. Call ids of turnwheel are unique and never empty."""
    parts: list[Any] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                parts.append(text)
            case ToolCall(id=call, name=name, arguments=arguments):
                parts.append({"call": call, "name": name, "arguments": arguments})
            case ToolResult(call=call, content=content):
                parts.append({"answers": call, "content": content, "failed": part.is_error})
            case _:
                pass
    return parts


class LinesParser:
    """Reads one answer: lines such as ``{"say": "Hi"}``, the last of which has an ``end`` or a ``fault``."""

    def __init__(self) -> None:
        self.done = False
        self.usage: Usage | None = None
        self._line = b""
        self._calls = 0
        self._ending: AnswerEnd | None = None

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces of the lines that *data* ends; the line that it leaves open is kept."""
        *lines, self._line = (self._line + data).split(b"\n")
        pieces = [piece for line in lines if not self.done for piece in self._read(line)]
        if len(self._line) > MAX_LINE:
            self._finish(Broken(failure=Failure.CUT, message=f"a line is longer than {MAX_LINE} bytes"))
        return pieces

    def end(self, cut: Broken | None = None) -> AnswerEnd:
        """The ending that the server sent, even if the connection broke later; else an early end."""
        return self._ending or cut or Broken(failure=Failure.CUT, message="the answer has no end")

    def _finish(self, ending: AnswerEnd) -> None:
        self.done, self._ending, self._line = True, ending, b""

    def _read(self, line: bytes) -> list[Piece]:
        try:
            line_data: object = json.loads(line)
        except (ValueError, RecursionError):
            return []  # not a line of this dialect: a parser must survive any input
        match line_data:
            case {"say": str(text)} if text:
                return [TextPiece(clean(text))]
            case {"call": str(wire_id), "name": str(name), "arguments": dict() as arguments}:
                self._calls += 1
                return [CallPiece(self._calls - 1, clean(wire_id), clean(name), json.dumps(arguments))]
            case {"end": str(why), "read": int(read), "wrote": int(wrote)} if min(read, wrote) >= 0:
                self.usage = Usage(input=read, output=wrote)
                self._finish(Complete(stop=STOPS.get(why, StopReason.UNKNOWN), usage=self.usage))
            case {"fault": str(what)}:
                self._finish(Broken(failure=Failure.SERVER, message=what))
            case _:
                pass
        return []


def lines(base_url: str) -> HTTPModel:
    """The performer for a server at *base_url*."""
    endpoint = Endpoint(base_url=base_url, headers={}, login="this server knows no keys")
    return HTTPModel(LinesWire(), endpoint)


if __name__ == "__main__":
    # There is no such server, so an answer is read as one would send it.
    parser = LinesParser()
    print(*parser.feed(b'{"say": "Hi"}\n{"end": "done", "read": 3, "wrote": 1}\n'), parser.end(), sep="\n")
