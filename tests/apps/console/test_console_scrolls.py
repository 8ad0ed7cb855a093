"""Where the panes of the console scroll to while an answer streams, and where they stay; in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.console_page import begin, sees
from support.http_server import scripted
from support.told_model import Told

from turnwheel import Agent
from turnwheel.effects import CallModel
from turnwheel.effects.history import TextPiece
from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

LONG = "\n\n".join(f"Paragraph {n} of a long answer." for n in range(80))
# Without its policy of content: a condition that is waited for is evaluated in the page.
PAGE: dict[str, Any] = {"viewport": {"width": 1280, "height": 700}, "bypass_csp": True}
AT_END = "box => box.scrollTop + box.clientHeight >= box.scrollHeight - 40"


async def at_end(page: Any, selector: str) -> None:
    """Wait until the box *selector* shows its end."""
    await page.wait_for_function(f"({AT_END})(document.querySelector('{selector}'))")


async def test_a_streaming_answer_stays_where_the_reader_scrolled(console: Opens) -> None:
    model = Told()
    async with console(Agent(model="openai:test", performers={CallModel: model})) as opened:
        page = await opened.page(**PAGE)
        await begin(page, "Tell me")
        model.say(TextPiece(LONG))
        await sees(page, "Paragraph 79")
        await at_end(page, ".conversation")
        newest = page.get_by_role("button", name="Newest")
        assert await newest.count() == 0
        talk = page.locator(".conversation")
        paragraph = await talk.get_by_text("Paragraph 20 of").element_handle()
        await talk.evaluate("box => { box.scrollTop = 400; }")
        await newest.wait_for()
        for n in range(5):
            model.say(TextPiece(f"\n\nMore {n}."))
            await sees(page, f"More {n}.")
            assert await talk.evaluate("box => box.scrollTop") == 400
        # What was there stays the same element, with the selection of the reader.
        assert await paragraph.evaluate("each => each.isConnected")
        await talk.hover()
        await page.mouse.wheel(0, 300)
        await page.wait_for_function("document.querySelector('.conversation').scrollTop === 700")
        model.say(TextPiece("\n\nStill more."))
        await sees(page, "Still more.")
        assert await talk.evaluate("box => box.scrollTop") == 700
        # The end of the run puts another element in its place, and moves nothing either.
        model.end()
        await page.locator(".item.end").wait_for()
        assert await talk.evaluate("box => box.scrollTop") == 700
        await newest.click()
        await at_end(page, ".conversation")
        await newest.wait_for(state="hidden")


async def test_a_message_that_is_sent_is_in_sight(console: Opens) -> None:
    async with console(scripted(says(LONG), says("Short."))) as opened:
        page = await opened.page(**PAGE)
        await begin(page, "Tell me")
        await sees(page, "Paragraph 79")
        await page.locator(".item.end").wait_for()
        await page.locator(".conversation").evaluate("box => { box.scrollTop = 0; }")
        await page.get_by_role("button", name="Newest").wait_for()
        await page.get_by_label("Message").fill("And in short?")
        await page.keyboard.press("Enter")
        await sees(page, "Short.")
        await page.locator(".item.end").nth(1).wait_for()
        await at_end(page, ".conversation")


async def test_the_timeline_stays_where_the_reader_scrolled(console: Opens) -> None:
    wishes = [calls(("pay", {"amount": amount})) for amount in range(1, 7)]
    async with console(scripted(*wishes, says("Paid."), says("Again."))) as opened:
        page = await opened.page(**PAGE)
        await begin(page, "Pay")
        await page.get_by_label("Mode", exact=True).select_option("bypass")
        for label in ("Approve", "Yes, run pay"):
            await page.get_by_role("button", name=label, exact=True).click()
        await sees(page, "Paid.")
        await at_end(page, ".timeline")
        timeline, newest = (
            page.locator(".timeline"),
            page.locator(".panel").get_by_role("button", name="Newest"),
        )
        await timeline.evaluate("box => { box.scrollTop = 60; }")
        await newest.wait_for()
        await page.get_by_label("Message").fill("Again?")
        await page.keyboard.press("Enter")
        await sees(page, "Again.")
        await page.locator(".item.end").nth(1).wait_for()
        assert await timeline.evaluate("box => box.scrollTop") == 60
        await newest.click()
        await at_end(page, ".timeline")
