"""
A run under trio: `drive` says what is to be done, each request is a task, and `Cancel` its cancel scope.

A scripted model: no key. Trio's `MockClock` makes waits cost nothing.
"""

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import assert_never

import trio
import trio.testing

from turnwheel import Config, Machine, ModelSpec, Policy, ToolSpec
from turnwheel.effects import (
    AskApproval,
    CallModel,
    CallPiece,
    CallSettled,
    Cancel,
    DecodeOutput,
    Effect,
    Event,
    Failure,
    FireHook,
    InspectCall,
    Interrupted,
    Message,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    Notice,
    Outcome,
    Piece,
    ReadInstructions,
    Request,
    RetryScheduled,
    RunAgent,
    RunTool,
    SetTimer,
    StopReason,
    TextPiece,
    TimerFired,
    ToolFinished,
    Usage,
    is_notice,
    is_request,
)
from turnwheel.engine import drive
from turnwheel.states import Done


class ModelError(Exception):
    """The model failed with *failure*, which decides whether it is asked again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


Model = Callable[[tuple[Message, ...]], AsyncGenerator[Piece]]
Tool = Callable[[Mapping[str, str]], Awaitable[str]]


class TrioDriver:
    """
    Runs a machine. *show* gets the notices, `ApprovalRequested` among them.

    The clock is trio's. One that is the same after a restart, `time.time`, is needed where runs are stored.
    """

    def __init__(self, model: Model, tools: Mapping[str, Tool], show: Callable[[Notice], None]) -> None:
        self._model = model
        self._tools = tools
        self._show = show
        self._scopes: dict[str, trio.CancelScope] = {}
        # Without a bound: `post` never blocks, and the machine is faster than what feeds it.
        self._sender, self._inbox = trio.open_memory_channel[Event](math.inf)

    def post(self, event: Event) -> None:
        """Hand *event* to the run, from any task."""
        self._sender.send_nowait(event)

    async def run(self, machine: Machine) -> Done:
        """Perform what *machine* asks for until it is done; a cancel leaves it where it is."""
        async with trio.open_nursery() as nursery:
            engine = drive(machine, at=trio.current_time())
            self._perform(next(engine), machine, nursery)
            while not isinstance(machine.state, Done):
                effects = engine.send(await self._inbox.receive())
                self._perform(effects, machine, nursery)
            # After a second interrupt there is work that no answer is awaited of.
            nursery.cancel_scope.cancel()
        return machine.state

    def _perform(self, effects: tuple[Effect, ...], machine: Machine, nursery: trio.Nursery) -> None:
        for effect in effects:
            if is_request(effect):
                self._begin(effect, machine, nursery)
            elif isinstance(effect, Cancel):
                self._scopes[effect.request].cancel()
            elif is_notice(effect):
                self._show(effect)

    def _begin(self, request: Request, machine: Machine, nursery: trio.Nursery) -> None:
        # Made before its task begins, so that a cancel finds it.
        scope = self._scopes[request.id] = trio.CancelScope()
        match request:
            case CallModel():
                # Read here: the history grows while the model answers.
                messages = machine.memory.history.slice(0, request.view.length)
                nursery.start_soon(self._call_model, request, messages, scope)
            case RunTool():
                nursery.start_soon(self._run_tool, request, scope)
            case SetTimer():
                nursery.start_soon(self._wait, request, scope)
            case AskApproval():
                # A person reads the notice, and posts `ApprovalGiven` whenever that is.
                pass
            case FireHook() | InspectCall() | ReadInstructions() | RunAgent() | DecodeOutput():
                # Only a configuration with hooks, paths, files, children or outputs asks for these.
                raise NotImplementedError(request)
            case _:
                assert_never(request)

    async def _call_model(
        self, request: CallModel, messages: tuple[Message, ...], scope: trio.CancelScope
    ) -> None:
        # Models and tools answer after a cancel, too, each in its own way.
        failure, text = Failure.CANCELLED, ""
        stop: StopReason | None = None
        with scope:
            try:
                stop = await self._stream(request, messages)
            except Exception as error:  # noqa: BLE001  # whatever it is, the machine waits for an answer
                failure = error.failure if isinstance(error, ModelError) else Failure.INTERNAL
                text = str(error)
        at = trio.current_time()
        if stop is None:
            self.post(ModelFailed(at=at, request=request.id, failure=failure, message=text))
        else:
            usage = Usage(input=20, output=10)  # a real model says what it used
            self.post(ModelFinished(at=at, request=request.id, stop=stop, usage=usage))

    async def _stream(self, request: CallModel, messages: tuple[Message, ...]) -> StopReason:
        stop = StopReason.END_TURN
        async with aclosing(self._model(messages)) as pieces:
            before = 0
            async for piece in pieces:
                at = trio.current_time()
                self.post(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
                before += 1
                if isinstance(piece, CallPiece):
                    stop = StopReason.TOOL_USE
        return stop

    async def _run_tool(self, request: RunTool, scope: trio.CancelScope) -> None:
        content, outcome = "The tool was stopped.", Outcome.CANCELLED
        with scope:
            # Where it is None there is no limit.
            with trio.move_on_after(request.timeout or math.inf) as limit:
                try:
                    content = await self._tools[request.tool](json.loads(request.arguments))
                    outcome = Outcome.OK
                except Exception as error:  # noqa: BLE001  # as above
                    content, outcome = str(error), Outcome.CRASHED
            if limit.cancelled_caught:
                content, outcome = f"It took more than {request.timeout} s.", Outcome.TIMED_OUT
        at = trio.current_time()
        self.post(ToolFinished(at=at, request=request.id, content=content, outcome=outcome))

    async def _wait(self, timer: SetTimer, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep_until(timer.due)
            self.post(TimerFired(at=trio.current_time(), request=timer.id))


# What is run in this file

CONFIG = Config(
    model=ModelSpec("scripted"),
    tools=(
        ToolSpec("fetch", side_effect="read_only", timeout=60.0),
        ToolSpec("watch", side_effect="read_only", timeout=None),
    ),
    policy=Policy(concurrency="parallel_reads"),
)


async def fetch(arguments: Mapping[str, str]) -> str:
    """Fetch a page; page B takes an hour."""
    await trio.sleep(3_600 if arguments["page"] == "B" else 1)
    return f"{arguments['page']} has news"


async def watch(arguments: Mapping[str, str]) -> str:
    """Wait for news for ever."""
    await trio.sleep(math.inf)
    return f"{arguments['page']} has changed"


class Script:
    """A model that is busy at first, then fetches two pages, and then watches one."""

    def __init__(self) -> None:
        self.busy = True

    async def __call__(self, messages: tuple[Message, ...]) -> AsyncGenerator[Piece]:
        """Yield the pieces of an answer to *messages*."""
        await trio.sleep(0.5)
        if self.busy:
            self.busy = False
            raise ModelError(Failure.OVERLOADED)
        if messages[-1].results:
            yield TextPiece("Then I wait. ")
            yield CallPiece(0, "c", "watch", '{"page": "B"}')
        else:
            for number, page in enumerate(("A", "B")):
                yield CallPiece(number, f"c{number}", "fetch", json.dumps({"page": page}))


def show(notice: Notice) -> None:
    """Print what happens, with trio's time in whole seconds."""
    match notice:
        case RetryScheduled(failure=failure):
            line = f"the model is {failure}: asked again"
        case CallSettled(tool=tool, outcome=outcome, content=content):
            line = f"{tool}: {outcome}: {content}"
        case _:
            return
    print(f"{trio.current_time():3.0f} s  {line}")


async def play() -> None:
    """Retry, run two tools at a time, of which one takes too long, and interrupt a third one."""
    driver = TrioDriver(Script(), {"fetch": fetch, "watch": watch}, show)
    machine = Machine.start(CONFIG, "What is new?", at=trio.current_time())

    async def interrupt() -> None:
        await trio.sleep(300)
        driver.post(Interrupted(at=trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        done = await driver.run(machine)
    print(f"{trio.current_time():3.0f} s  {done.reason}, after {machine.memory.spent.turns} turns")


def main() -> None:
    """Play it with a clock that jumps over all waits."""
    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


if __name__ == "__main__":
    main()
