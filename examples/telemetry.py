"""The spans of a run that rests, and goes on after a restart. A scripted model: no key, no server."""

import asyncio

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwheel import Agent, MemoryStore, tool
from turnwheel.effects import CallModel
from turnwheel.performers import OpenTelemetry
from turnwheel.testing import ScriptedModel, calls, says

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
telemetry = OpenTelemetry(provider)
tracer = provider.get_tracer("shop")
store = MemoryStore()


@tool(side_effect="read_only")
async def find_order(number: int) -> str:
    """Find an order."""
    # The current span is the one of this call: what a tool begins is a part of it.
    with tracer.start_as_current_span("database"):
        return f"order {number}: 20 euros"


@tool
def refund(number: int) -> str:
    """Pay back an order."""
    return f"paid back order {number}"


def restarted(model: ScriptedModel) -> Agent:
    """An agent as in a new process: nothing but the store is the same."""
    return Agent(tools=[find_order, refund], store=store, telemetry=telemetry, performers={CallModel: model})


def show(spans: dict[int, ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print *spans* as a tree: each with its tokens, if it has any, and what it goes on from."""
    for name, span in sorted(spans.items(), key=lambda each: each[1].start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent:
            about = span.attributes or {}
            tokens = about.get("gen_ai.usage.input_tokens")
            used = "" if tokens is None else f" ({tokens!r} tokens in)"
            rests = " [rests]" if about.get("turnwheel.resting") else ""
            after = "".join(f" <- {spans[link.context.span_id].name}" for link in span.links)
            print("  " * depth + span.name + used + rests + after)
            show(spans, name, depth + 1)


async def main() -> None:
    """Ask for a refund, restart, approve it, and print the spans of both processes."""
    asks = ScriptedModel(calls(("find_order", {"number": 7})), calls(("refund", {"number": 7})))
    with tracer.start_as_current_span("POST /orders"):
        resting = await restarted(asks).session("order-7").run("Give me my money back for order 7.")

    session = restarted(ScriptedModel(says("It is paid back."))).session("order-7")
    await session.load()
    with tracer.start_as_current_span("POST /approvals"):
        await session.approve(resting.waiting[0].id)
        print((await session.resume()).text)

    await telemetry.flush()
    show({span.context.span_id: span for span in exporter.get_finished_spans() if span.context})


if __name__ == "__main__":
    asyncio.run(main())
