"""What telemetry gives to requests, journals, logs and metrics, and that a run never depends on it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracer, Span, get_current_span
from support.patience import PATIENCE
from support.traced import World

from turnwheel import Agent, ChildSpec, MemoryStore, tool
from turnwheel.effects import (
    CallModel,
    ModelFinished,
    ModelSpec,
    Purpose,
    StopReason,
    TextPiece,
    Usage,
)
from turnwheel.effects.errors import ArgumentError, ConfigError
from turnwheel.performers import OpenTelemetry, PerformContext
from turnwheel.performers.telemetry.instruments import Instruments
from turnwheel.performers.telemetry.outbox import Outbox
from turnwheel.testing import calls, says


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    """The one span of that *name*."""
    (found,) = [span for span in spans if span.name == name]
    return found


def inside(span: ReadableSpan, outer: ReadableSpan) -> bool:
    """Whether *span* is a part of *outer*."""
    parent, context = span.parent, outer.context
    return parent is not None and context is not None and parent.span_id == context.span_id


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


# The current span


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_tool_finds_its_span(kind: str) -> None:
    """Also one that is no coroutine, which runs in a thread."""
    world, seen = World(), list[Span]()

    @tool(side_effect="read_only")
    async def find() -> str:
        seen.append(get_current_span())
        return "found"

    @tool(name="find", side_effect="read_only")
    def find_in_thread() -> str:
        seen.append(get_current_span())
        return "found"

    used = find if kind == "async" else find_in_thread
    await world.agent(calls(("find", {})), says("Here."), tools=[used]).run("Find it.")
    span = named(await world.spans(), "execute_tool find")
    assert [each.get_span_context() for each in seen] == [span.context]


async def test_a_run_without_a_known_price_has_no_cost() -> None:
    world = World()
    await world.agent(says("Hi."), model=ModelSpec("openai:m1")).run("Hello.")
    spans = await world.spans()
    assert len(spans) == 2
    assert [name for span in spans for name in span.attributes or {} if "cost" in name] == []


async def test_a_model_request_finds_its_span() -> None:
    world, seen = World(), list[Span]()

    async def ask(request: CallModel, scene: PerformContext) -> ModelFinished:
        seen.append(get_current_span())
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.END_TURN,
            usage=Usage(input=7, output=3, cached=4, cache_write=2, reasoning=1),
            pieces=(TextPiece("Hi."),),
            model="m1-2026",
            response="resp-1",
            first_piece=0.25,
        )

    await world.agent(performers={CallModel: ask}).run("Hello.")
    span = named(await world.spans(), "chat m1")
    assert [each.get_span_context() for each in seen] == [span.context]
    about = dict(span.attributes or {})
    # Random ones, and what the agent is configured with.
    for name in ("conversation.id", "request.max_tokens"):
        del about[f"gen_ai.{name}"]
    for name in ("run.id", "cost.usd"):
        del about[f"turnwheel.{name}"]
    assert about == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m1",
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "text",
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.model": "m1-2026",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_write.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
    }


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai-responses:gpt-5", "openai", "gpt-5"),
        ("mistral:mistral-small", "mistral_ai", "mistral-small"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("qwen3:8b", None, "qwen3:8b"),
    ],
)
async def test_a_provider_has_its_name_of_the_conventions(
    name: str, provider: str | None, model: str
) -> None:
    """A name that begins with none has none: a colon may stand in the name of a model."""
    world = World()
    await world.agent(says("Hello."), model=name).run("Hi.")
    span = named(await world.spans(), f"chat {model}")
    about = span.attributes or {}
    assert (about.get("gen_ai.provider.name"), about["gen_ai.request.model"]) == (provider, model)


async def test_a_run_is_part_of_the_span_in_which_its_prompt_was_sent() -> None:
    """Also where another process answers it, whose own span is another one."""
    world = World()
    host = world.provider.get_tracer("host")
    with host.start_as_current_span("POST /prompts"):
        session = world.agent().session("s")
        await session.send("Hi.")
        await session.close()
    with host.start_as_current_span("worker"):
        await world.agent(says("Hello.")).session("s").resume()
    spans = await world.spans()
    assert inside(named(spans, "invoke_agent"), named(spans, "POST /prompts"))


# Rests


async def resting_spans(world: World, count: int) -> list[ReadableSpan]:
    """The spans that ended since the run rests, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            spans = await world.spans()
            resting = [span for span in spans if "turnwheel.resting" in (span.attributes or {})]
            if len(resting) >= count:
                return resting


async def test_a_run_that_waits_in_its_process_has_no_open_span() -> None:
    """Nor has its child: a question may be open for days, and this process may be gone by then."""
    world = World()
    agent = world.agent(
        calls(("run_agent", {"agent": "clerk", "prompt": "pay"})),
        calls(("pay", {"cents": 5})),
        says("Paid."),
        says("All is paid."),
        tools=[pay],
        children=[ChildSpec("clerk", description="pays", tools=["pay"])],
    )
    session = agent.session("s")
    handle = session.start("Pay.")
    resting = await resting_spans(world, 3)
    names = ["execute_tool run_agent", "invoke_agent", "invoke_agent clerk"]
    assert sorted(span.name for span in resting) == names
    await session.approve(session.waiting[0].id)
    assert (await handle.wait()).text == "All is paid."
    spans = await world.spans()
    linked = [(span.name, [link.context for link in span.links]) for span in spans if span.links]
    assert sorted(linked) == sorted((span.name, [span.context]) for span in resting)


# The journal and the log


def traceparent(span: ReadableSpan) -> str:
    assert span.context is not None
    flags = f"{span.context.trace_flags:02x}"
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{flags}"


async def traces(store: MemoryStore) -> list[str]:
    """The names of spans in the journal of the session `s`, in their order."""
    journal = [json.loads(entry) for entry in await store.load("s")]
    found = [entry.get("trace") or entry.get("event", {}).get("trace") for entry in journal]
    return [trace for trace in found if trace]


async def test_journals_have_the_names_of_spans() -> None:
    world = World()
    host = world.provider.get_tracer("host")
    with host.start_as_current_span("outer"):
        resting = await world.agent(calls(("pay", {"cents": 5})), tools=[pay]).session("s").run("Pay.")
    session = await world.agent(says("Paid."), tools=[pay]).session("s").load()
    await session.approve(resting.waiting[0].id)
    await session.resume()
    names = {traceparent(span): span.name for span in await world.spans()}
    written = [names[trace] for trace in await traces(world.store)]
    assert written == ["outer", "invoke_agent", "invoke_agent"]


async def test_without_telemetry_a_takeover_keeps_the_chain_of_links() -> None:
    world, twice = World(), calls(("pay", {"cents": 5}), ("pay", {"cents": 6}))
    resting = await world.agent(twice, tools=[pay]).session("s").run("Pay.")
    silent = await world.agent(tools=[pay], telemetry=None).session("s").load()
    await silent.approve(resting.waiting[0].id)
    resting = await silent.resume()
    session = await world.agent(says("Paid."), tools=[pay]).session("s").load()
    await session.approve(resting.waiting[0].id)
    await session.resume()
    first, last = [span for span in await world.spans() if span.name == "invoke_agent"]
    assert first.context is not None
    assert [link.context.span_id for link in last.links] == [first.context.span_id]


async def test_log_lines_of_a_run_have_the_ids_of_its_span(caplog: pytest.LogCaptureFixture) -> None:
    """Those of its steps, and those of failures of the host's code."""
    world = World()

    @tool(side_effect="read_only")
    async def find() -> str:
        msg = "no luck"
        raise ValueError(msg)

    with caplog.at_level(logging.INFO, "turnwheel"):
        await world.agent(calls(("find", {})), says("Hello."), tools=[find]).run("Hi.")
    context = named(await world.spans(), "invoke_agent").context
    assert context is not None
    lines = [(line.message.split(":")[0], getattr(line, "trace_id", "")) for line in caplog.records]
    assert {trace for _, trace in lines} == {f"{context.trace_id:032x}"}
    assert "a tool raised" in {what for what, _ in lines}
    assert {getattr(line, "span_id", "") for line in caplog.records} == {f"{context.span_id:016x}"}


# Content


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_in_spans_only_where_it_is_asked_for(content: bool) -> None:  # noqa: FBT001  # a parameter
    world = World(content=content)

    @tool(side_effect="read_only", secrets=["pin"])
    async def unlock(pin: str) -> str:
        return f"opened with {len(pin)} digits"

    agent = world.agent(
        calls(("unlock", {"pin": "hunter2"})), says("It is open."), tools=[unlock], system="Be brief."
    )
    await agent.run("Open the door.")
    spans = await world.spans()
    told = json.dumps([dict(span.attributes or {}) for span in spans])
    parts = ("Open the door.", "Be brief.", "It is open.", "opened with 7 digits", "unlock")
    assert [part in told for part in parts] == [content, content, content, content, True]
    assert "hunter2" not in told
    if content:
        last = [span for span in spans if span.name == "chat m1"][-1].attributes or {}
        messages = json.loads(str(last["gen_ai.input.messages"]))
        assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
        assert messages[0]["parts"] == [{"type": "text", "content": "Open the door."}]
        assert json.loads(str(last["gen_ai.output.messages"])) == [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": "It is open."}],
                "finish_reason": "end_turn",
            }
        ]


# Metrics


async def test_metrics_count_and_measure() -> None:
    world = World()

    @tool(side_effect="read_only")
    async def wait() -> str:
        world.clock.move(2.0)
        return "waited"

    await world.agent(calls(("wait", {})), says("Done."), tools=[wait]).run("Wait.")
    assert await world.telemetry.flush()
    points = dict[str, tuple[float, Mapping[str, Any]]]()
    data = world.metrics.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    for metric in scope.metrics:
        (point,) = metric.data.data_points
        amount = point.sum if isinstance(point, HistogramDataPoint) else getattr(point, "value", 0)
        points[metric.name] = (amount, dict(point.attributes or {}))
    assert {name: amount for name, (amount, _) in points.items()} == {
        "gen_ai.client.inference.duration": 2.0,
        "gen_ai.client.inference.operation.input_tokens": 20,
        "gen_ai.client.inference.operation.output_tokens": 10,
        "gen_ai.client.inference.usage.input_tokens": 20,
        "gen_ai.client.inference.usage.output_tokens": 10,
        "gen_ai.execute_tool.duration": 2.0,
        "gen_ai.invoke_agent.duration": 4.0,
        "gen_ai.invoke_agent.inference_calls": 2,
        "gen_ai.invoke_agent.tool_calls": 1,
    }
    assert points["gen_ai.execute_tool.duration"][1] == {
        "gen_ai.tool.name": "wait",
        "gen_ai.tool.type": "function",
    }
    assert points["gen_ai.client.inference.duration"][1] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m1",
    }


async def test_tokens_are_counted_by_model() -> None:
    world = World()
    for model in ("openai:m1", "openai:m2", "openai:m1"):
        await world.agent(says("Hi."), model=model).run("Hello.")
    assert await world.telemetry.flush()
    data = world.metrics.get_metrics_data()
    assert data is not None
    counted = {
        (point.attributes or {})["gen_ai.request.model"]: getattr(point, "value", 0)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "gen_ai.client.inference.usage.input_tokens"
        for point in metric.data.data_points
    }
    assert counted == {"m1": 20, "m2": 10}


# Nothing of it reaches a run


class Exporter(SpanExporter):
    """Fails, or hangs until *gate* opens."""

    def __init__(self, gate: threading.Event | None) -> None:
        self.gate = gate

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert spans
        if self.gate is None:
            msg = "the collector is gone"
            raise OSError(msg)
        self.gate.wait()
        return SpanExportResult.SUCCESS


async def test_an_exporter_that_hangs_holds_up_no_run(gate: threading.Event) -> None:
    world = World()
    world.provider.add_span_processor(SimpleSpanProcessor(Exporter(gate)))
    result = await world.agent(says("Hello.")).run("Hi.")
    assert (result.text, await world.telemetry.flush(0.01)) == ("Hello.", False)
    gate.set()
    assert await world.telemetry.flush()


async def test_an_exporter_that_fails_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.provider.add_span_processor(SimpleSpanProcessor(Exporter(None)))
    assert (await world.agent(says("Hello.")).run("Hi.")).text == "Hello."
    assert len(await world.spans()) == 2
    # The SDK says so; turnwheel need not.
    assert [record.name for record in caplog.records if record.name.startswith("turnwheel")] == []


class BrokenTracer(NoOpTracer):
    """Raises from the span number *begin* on, counted from 0."""

    def __init__(self, begin: int) -> None:
        self.left = begin

    def start_span(self, *arguments: Any, **more: Any) -> Span:
        self.left -= 1
        if self.left < 0:
            msg = "the tracer is broken"
            raise ValueError(msg)
        return super().start_span(*arguments, **more)


class BrokenProvider(TracerProvider):
    def __init__(self, begin: int) -> None:
        super().__init__()
        self.begin = begin

    def get_tracer(self, *_: Any, **__: Any) -> Any:
        return BrokenTracer(self.begin)


@pytest.mark.parametrize("begin", range(4))
async def test_a_tracer_that_fails_fails_no_run(begin: int, caplog: pytest.LogCaptureFixture) -> None:
    """Of the four spans of this run, each may be the first that fails. That is logged once."""
    world = World()
    telemetry = OpenTelemetry(BrokenProvider(begin))

    @tool(side_effect="read_only")
    async def find() -> str:
        return "found"

    agent = world.agent(calls(("find", {})), says("Here."), tools=[find], telemetry=telemetry)
    assert (await agent.run("Find it.")).text == "Here."
    assert [record.message.split(":")[0] for record in caplog.records] == ["telemetry failed"]


def test_an_outbox_drops_what_has_no_room(gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    outbox, began, done = Outbox(most=2), threading.Event(), list[int]()

    def hang() -> None:
        began.set()
        gate.wait()

    outbox.put(hang)
    assert began.wait(10)
    for number in range(4):
        outbox.put(partial(done.append, number))
    assert (outbox.dropped, outbox.flush(0.01)) == (2, False)
    gate.set()
    assert (outbox.flush(10), done) == (True, [0, 1])
    assert [record.message.split(":")[0] for record in caplog.records] == ["telemetry is lost"]


class Reentrant(logging.Handler):
    """A log handler that puts into *outbox* and flushes it, itself or in another thread that it waits for."""

    def __init__(self, outbox: Outbox, *, in_thread: bool) -> None:
        super().__init__()
        self.outbox, self.in_thread, self.done = outbox, in_thread, False

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002  # as `Handler` has it
        if self.in_thread:
            thread = threading.Thread(target=self.use, daemon=True)
            thread.start()
            thread.join()
        else:
            self.use()

    def use(self) -> None:
        self.outbox.put(int)
        self.outbox.flush(0.01)
        self.done = True


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_log_handler_may_use_the_outbox_that_warns(gate: threading.Event, *, in_thread: bool) -> None:
    outbox, began = Outbox(most=1), threading.Event()

    def hang() -> None:
        began.set()
        gate.wait()

    outbox.put(hang)
    assert began.wait(PATIENCE)
    handler, logger = Reentrant(outbox, in_thread=in_thread), logging.getLogger("turnwheel")
    logger.addHandler(handler)
    try:
        thread = threading.Thread(target=outbox.put, args=(int, int), daemon=True)
        thread.start()
        thread.join(PATIENCE)
    finally:
        logger.removeHandler(handler)
    assert (handler.done, thread.is_alive()) == (True, False)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGALRM")
def test_a_signal_handler_may_use_the_outbox_while_it_is_used() -> None:
    code = (
        "import signal\n"
        "from turnwheel.performers.telemetry.outbox import Outbox\n"
        "outbox, handled = Outbox(), 0\n"
        "def handle(*_):\n"
        "    global handled\n"
        "    outbox.put(int)\n"
        "    outbox.flush(0)\n"
        "    handled += 1\n"
        "signal.signal(signal.SIGALRM, handle)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)\n"
        "while handled < 500:\n"
        "    outbox.put(int)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print(outbox.flush(30))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "True\n"


class Filling(dict[str, Any]):
    """Attributes that fill *outbox* when they are read, as another thread may do at that moment."""

    outbox: Outbox

    def items(self) -> Any:
        while self.outbox.offer(int):
            pass
        return super().items()


def test_tokens_that_are_counted_at_once_are_not_told_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    reader = InMemoryMetricReader()
    kit, attributes = Instruments(None, MeterProvider([reader]), content=False), Filling(model="m")
    attributes.outbox = kit.outbox
    kit.count(Usage(input=7, output=3), attributes)
    assert kit.outbox.flush(PATIENCE)
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    points = [point for metric in scope.metrics for point in metric.data.data_points]
    assert [getattr(point, "value", None) for point in points] == [7, 3]
    assert (kit.outbox.dropped, caplog.records) == (0, [])


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_outbox_goes_on_after_a_call_that_raised(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    outbox, done = Outbox(), list[str]()
    outbox.put(fail)
    outbox.put(fail)
    outbox.put(lambda: done.append("after"))
    assert (outbox.flush(10), done) == (True, ["after"])
    assert [record.message.split(":")[0] for record in caplog.records] == ["telemetry failed"]


# Off


def test_without_telemetry_nothing_of_it_is_imported() -> None:
    code = (
        "import sys\n"
        "from turnwheel import Agent\n"
        "from turnwheel.effects import CallModel\n"
        "from turnwheel.testing import ScriptedModel, says\n"
        "Agent(performers={CallModel: ScriptedModel(says('Hello.'))}).run_sync('Hi.')\n"
        "ours = ('opentelemetry', 'turnwheel.performers.telemetry')\n"
        "print([name for name in sys.modules if name.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "[]\n"


def test_the_exit_of_a_process_exports_what_has_ended() -> None:
    code = (
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, BatchSpanProcessor\n"
        "from turnwheel import Agent\n"
        "from turnwheel.effects import CallModel\n"
        "from turnwheel.performers import OpenTelemetry\n"
        "from turnwheel.testing import ScriptedModel, says\n"
        "provider = TracerProvider()\n"
        "exporter = ConsoleSpanExporter(formatter=lambda span: span.name + ';')\n"
        "provider.add_span_processor(BatchSpanProcessor(exporter))\n"
        "model = ScriptedModel(says('Hello.'))\n"
        "Agent(performers={CallModel: model}, telemetry=OpenTelemetry(provider)).run_sync('Hi.')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "chat gpt-5;invoke_agent;"


def test_the_command_line_emits_to_the_providers_of_its_process(tmp_path: Path) -> None:
    """As `opentelemetry-instrument` sets them, before the program begins."""
    code = (
        "import sys\n"
        "from opentelemetry.trace import set_tracer_provider\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, BatchSpanProcessor\n"
        "from turnwheel.apps.cli import main\n"
        "provider = TracerProvider()\n"
        "line = lambda span: f'{span.name}\\n'\n"
        "exporter = ConsoleSpanExporter(out=sys.stderr, formatter=line)\n"
        "provider.add_span_processor(BatchSpanProcessor(exporter))\n"
        "set_tracer_provider(provider)\n"
        "main(['run', '--stand-in', '--tools', '', '--quiet', '--telemetry', '--store', 's.db', 'Hello.'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE,
    )
    spans = [line.split()[0] for line in done.stderr.splitlines()]
    assert {*spans} == {"chat", "invoke_agent"}


def test_telemetry_has_to_be_one_of_ours() -> None:
    wrong: Any = TracerProvider()
    with pytest.raises(ArgumentError, match=r"telemetry must be an OpenTelemetry; .*OpenTelemetry\(\)"):
        Agent(telemetry=wrong)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwheel.performers.telemetry.otel.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'turnwheel\[otel\]'"):
        OpenTelemetry()


async def test_a_run_that_is_not_sampled_exports_nothing_and_is_named_all_the_same() -> None:
    world = World()
    telemetry = OpenTelemetry(TracerProvider(sampler=ALWAYS_OFF))
    await world.agent(says("Hello."), telemetry=telemetry).session("s").run("Hi.")
    (trace,) = await traces(world.store)
    assert (int(trace[-2:], 16) & 1, await world.spans()) == (0, [])


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    code = (
        "import os, threading\n"
        "from turnwheel.performers.telemetry.outbox import Outbox\n"
        "outbox, gate = Outbox(), threading.Event()\n"
        "outbox.put(gate.wait)\n"
        "outbox.put(lambda: print('parent', flush=True))\n"
        "if not (child := os.fork()):\n"
        "    outbox.put(lambda: print('child', flush=True))\n"
        "    os._exit(not outbox.flush(30))\n"
        "failed = os.waitpid(child, 0)[1]\n"
        "gate.set()\n"
        "print(outbox.flush(30), failed)\n"
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE)
    assert done.stdout == "child\nparent\nTrue 0\n"


def test_a_forked_child_counts_its_own_tokens_alone() -> None:
    """Also where the parent was in the middle of adding tokens up."""
    code = (
        "import os, threading\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
        "from turnwheel.effects import Usage\n"
        "from turnwheel.performers.telemetry.instruments import Instruments\n"
        "reader, entered, gate = InMemoryMetricReader(), threading.Event(), threading.Event()\n"
        "kit = Instruments(None, MeterProvider([reader]), content=False)\n"
        "def counted(who):\n"
        "    kit.outbox.flush(30)\n"
        "    (resource,) = reader.get_metrics_data().resource_metrics\n"
        "    (scope,) = resource.scope_metrics\n"
        "    points = [point for each in scope.metrics for point in each.data.data_points]\n"
        "    print(who, *[point.value for point in points], flush=True)\n"
        "kit.count(Usage(input=7, output=3), {'model': 'm'})\n"
        "kit.outbox.put(entered.set, gate.wait)\n"
        "entered.wait()\n"
        "if not (child := os.fork()):\n"
        "    kit.count(Usage(input=5, output=2), {'model': 'm'})\n"
        "    counted('child')\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "gate.set()\n"
        "counted('parent')\n"
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE)
    assert done.stdout == "child 5 2\nparent 7 3\n"


@pytest.mark.parametrize(
    ("raises", "error", "rests"), [(True, "internal", None), (False, None, True)], ids=["raises", "hangs"]
)
async def test_a_title_performer_that_gives_no_answer_leaves_no_open_span(
    *, raises: bool, error: str | None, rests: bool | None
) -> None:
    world, asked = World(content=True), asyncio.Event()

    async def ask(request: CallModel, scene: PerformContext) -> ModelFinished:
        if request.purpose is not Purpose.TURN:
            asked.set()
            if raises:
                msg = "no titles here"
                raise ValueError(msg)
            await asyncio.Event().wait()
        return ModelFinished(
            at=scene.clock.now(), request=request.id, stop=StopReason.END_TURN, usage=Usage()
        )

    agent = world.agent(performers={CallModel: ask}, titles="model", store=None)
    async with agent.session("s") as session:
        await session.run("Hi.")
        await asyncio.wait_for(asked.wait(), PATIENCE)
    spans = await world.spans()
    (span,) = [span for span in spans if (span.attributes or {}).get("turnwheel.purpose") == "title"]
    about = span.attributes or {}
    assert (about.get("error.type"), about.get("turnwheel.resting")) == (error, rests)
    assert (span.status.is_ok, span.status.description) == (error is None, None)
