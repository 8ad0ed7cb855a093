"""
A run without asyncio: `drive` says what is to be done, and plain threads do it. A scripted model: no key.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import assert_never

from turnwheel import Approve, Config, Machine, ModelSpec, Policy, Retries, ToolSpec
from turnwheel.effects import (
    ApprovalGiven,
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
    TextDelta,
    TextPiece,
    TimerFired,
    ToolFinished,
    Usage,
    is_notice,
    is_request,
)
from turnwheel.engine import drive
from turnwheel.states import Done

Stop = threading.Event
"""Set when the work is to stop: a thread cannot be stopped from outside, so the work looks at it."""

Model = Callable[[tuple[Message, ...], Stop], Iterator[Piece]]
Tool = Callable[[Mapping[str, str], Stop], str]


class Stopped(Exception):
    """The work gave up, since its `Stop` was set. Work that was finished all the same returns its result."""


class ModelError(Exception):
    """The model failed with *failure*, which decides whether it is asked again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


@dataclass(kw_only=True)
class Threads:
    """
    Runs a machine: models and tools work in a pool of threads, and their answers come back through a queue.

    *ask* passes a question on and returns; the decision is posted whenever it comes. *show* gets the notices.
    """

    model: Model
    tools: Mapping[str, Tool]
    ask: Callable[[AskApproval], None]
    show: Callable[[Notice], None]
    _inbox: SimpleQueue[Event] = field(default_factory=SimpleQueue)
    _stops: dict[str, Callable[[], None]] = field(default_factory=dict)

    def post(self, event: Event) -> None:
        """Hand *event* to the run, from any thread."""
        self._inbox.put(event)

    def run(self, machine: Machine) -> Done:
        """Perform what *machine* asks for until it is done."""
        with ThreadPoolExecutor(max_workers=32) as pool:
            try:
                engine = drive(machine, at=time.time())
                self._perform(next(engine), machine, pool)
                while not isinstance(machine.state, Done):
                    # The only place that waits: whatever changes the machine comes through here.
                    effects = engine.send(self._inbox.get())
                    self._perform(effects, machine, pool)
            finally:
                # After a second interrupt, or an error of *show*, there is work that no answer is awaited of.
                for stop in self._stops.values():
                    stop()
        return machine.state

    def _perform(self, effects: tuple[Effect, ...], machine: Machine, pool: ThreadPoolExecutor) -> None:
        for effect in effects:
            if is_request(effect):
                self._begin(effect, machine, pool)
            elif isinstance(effect, Cancel):
                self._stops[effect.request]()
            elif is_notice(effect):
                self.show(effect)

    def _begin(self, request: Request, machine: Machine, pool: ThreadPoolExecutor) -> None:
        stop = Stop()
        self._stops[request.id] = stop.set
        match request:
            case CallModel():
                # Read here: the history grows while the model answers.
                messages = machine.memory.history.slice(0, request.view.length)
                pool.submit(self._call_model, request, messages, stop)
            case RunTool():
                pool.submit(self._run_tool, request, stop)
            case AskApproval():
                self.ask(request)
            case SetTimer():
                fired = TimerFired(at=request.due, request=request.id)
                timer = threading.Timer(max(0.0, request.due - time.time()), self.post, [fired])
                self._stops[request.id] = timer.cancel
                timer.start()
            case FireHook() | InspectCall() | ReadInstructions() | RunAgent() | DecodeOutput():
                # Only a configuration with hooks, paths, files, children or outputs asks for these.
                raise NotImplementedError(request)
            case _:
                assert_never(request)

    def _call_model(self, request: CallModel, messages: tuple[Message, ...], stop: Stop) -> None:
        reason = StopReason.END_TURN
        try:
            for before, piece in enumerate(self.model(messages, stop)):
                at = time.time()
                self.post(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
                if isinstance(piece, CallPiece):
                    reason = StopReason.TOOL_USE
        except Exception as error:  # noqa: BLE001  # whatever it is, the machine waits for an answer
            failure = Failure.CANCELLED if isinstance(error, Stopped) else Failure.INTERNAL
            failure = error.failure if isinstance(error, ModelError) else failure
            answer: Event = ModelFailed(
                at=time.time(), request=request.id, failure=failure, message=str(error)
            )
        else:
            usage = Usage(input=20, output=10)  # a real model says what it used
            answer = ModelFinished(at=time.time(), request=request.id, stop=reason, usage=usage)
        self.post(answer)

    def _run_tool(self, request: RunTool, stop: Stop) -> None:
        try:
            content = self.tools[request.tool](json.loads(request.arguments), stop)
            outcome = Outcome.OK
        except Stopped:
            content, outcome = "The tool was stopped.", Outcome.CANCELLED
        except Exception as error:  # noqa: BLE001  # as above
            content, outcome = str(error), Outcome.CRASHED
        self.post(ToolFinished(at=time.time(), request=request.id, content=content, outcome=outcome))


# What is run in this file

CONFIG = Config(
    model=ModelSpec("scripted"),
    tools=(
        ToolSpec("fetch", side_effect="read_only", timeout=None),
        ToolSpec("publish", side_effect="unsafe", timeout=None),
    ),
    retries=Retries(base=0.05),
    policy=Policy(concurrency="parallel_reads"),
)

meeting = threading.Barrier(3, timeout=10)


def fetch(arguments: Mapping[str, str], stop: Stop) -> str:
    """Return once three of these run at the same time."""
    meeting.wait()
    if stop.is_set():
        raise Stopped
    return f"{arguments['page']} has news"


def publish(arguments: Mapping[str, str], stop: Stop) -> str:
    """Publish a page."""
    if stop.is_set():
        raise Stopped
    return f"{arguments['page']} is public"


class Script:
    """A model that is busy at first, then calls tools, and then writes until it is stopped."""

    def __init__(self) -> None:
        self.busy = True

    def __call__(self, messages: tuple[Message, ...], stop: Stop) -> Iterator[Piece]:
        """Yield the pieces of an answer to *messages*."""
        if self.busy:
            self.busy = False
            raise ModelError(Failure.OVERLOADED)
        results = [result for message in messages for result in message.results]
        if not results:
            for number, page in enumerate(("A", "B", "C")):
                yield CallPiece(number, f"c{number}", "fetch", json.dumps({"page": page}))
        elif len(results) == 3:
            yield CallPiece(0, "c", "publish", '{"page": "D"}')
        else:
            yield TextPiece("Once upon a time")
            stop.wait(10)
            raise Stopped


def main() -> None:
    """Retry, run three tools at a time, ask a person, who answers and interrupts in another thread."""
    questions = SimpleQueue[AskApproval]()
    written = threading.Event()

    def show(notice: Notice) -> None:
        match notice:
            case RetryScheduled(failure=failure):
                print(f"the model is {failure}: asked again")
            case CallSettled(tool=tool, content=content):
                print(f"{tool}: {content}")
            case TextDelta(text=text):
                print(f"model: {text}")
                written.set()
            case _:
                pass

    def ask(question: AskApproval) -> None:
        print(f"may {question.tool} run with {question.arguments}?")
        questions.put(question)

    threads = Threads(model=Script(), tools={"fetch": fetch, "publish": publish}, ask=ask, show=show)

    def act() -> None:
        question = questions.get()
        threads.post(ApprovalGiven(at=time.time(), request=question.id, decision=Approve(), by="Ann"))
        written.wait()
        threads.post(Interrupted(at=time.time()))

    person = threading.Thread(target=act)
    person.start()
    machine = Machine.start(CONFIG, "What is new?", at=time.time())
    done = threads.run(machine)
    person.join()
    print(f"{done.reason}, and kept: {machine.memory.history[-1].text}")


if __name__ == "__main__":
    main()
