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


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print *spans* as a tree: each with its links, and its tokens if it has any."""
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) != parent:
            continue
        about = span.attributes or {}
        used = (
            f" ({about['gen_ai.usage.input_tokens']} tokens in)"
            if "gen_ai.usage.input_tokens" in about
            else ""
        )
        rests = " [rests]" if about.get("turnwheel.resting") else ""
        linked = {link.context.span_id for link in span.links}
        after = "".join(f" <- {each.name}" for each in spans if each.context.span_id in linked)
        print("  " * depth + span.name + used + rests + after)
        show(spans, span.context.span_id, depth + 1)


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
    show([*exporter.get_finished_spans()])


if __name__ == "__main__":
    asyncio.run(main())
