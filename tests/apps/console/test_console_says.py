"""What the console says about a session and its parts, and how all of it can be seen; in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.console_page import approve, begin, sees
from support.http_server import scripted
from support.told_model import Told

from turnwheel import Agent, tool
from turnwheel.effects import CallModel
from turnwheel.effects.history import ReasoningPiece, TextPiece
from turnwheel.testing.scripted import ScriptedModel, calls, says

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]


async def test_a_model_that_thinks_does_not_answer_yet(console: Opens) -> None:
    model = Told()
    async with console(Agent(model="openai:test", performers={CallModel: model})) as opened:
        page = await opened.page()
        await begin(page, "Think")
        model.say(ReasoningPiece("Hm."))
        await sees(page, "Hm.")
        pill = page.locator(".session-head .pill")
        assert await pill.inner_text() == await page.locator(".pulse").inner_text() == "thinking"
        model.say(TextPiece("So be it."))
        await sees(page, "So be it.")
        assert await pill.inner_text() == await page.locator(".pulse").inner_text() == "answering"
        model.end()
        await page.locator(".item.end").wait_for()


async def test_the_state_is_that_of_the_conversation(console: Opens) -> None:
    async with console(scripted(says("One."), says("Two."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await page.locator(".item.end").wait_for()
        await page.locator(".pill", has_text="finished").wait_for()
        # The server's answer about the session is late; its notices are not.
        session = page.url.rpartition("/")[2]
        before = await page.evaluate(f"fetch('/api/sessions/{session}').then((answer) => answer.json())")
        old = {**before, "state": "executing", "reason": None, "steps": before["steps"]}
        await page.route(f"**/api/sessions/{session}", lambda route: route.fulfill(json=old))
        await page.get_by_label("Message").fill("Two?")
        await page.keyboard.press("Enter")
        await page.locator(".item.end").nth(1).wait_for()
        await page.locator(".session-head .pill", has_text="finished").wait_for()


async def test_faults_of_arguments_stand_beside_their_fields(console: Opens) -> None:
    @tool(side_effect="unsafe")
    def put(path: str, times: int = 1) -> str:
        """Put it there."""
        return f"put {times} to {path}"

    model = ScriptedModel(calls(("put", {"path": "a", "times": 1})), says("Done."))
    agent = Agent(model="openai:test", tools=[put], performers={CallModel: model})
    async with console(agent) as opened:
        page = await opened.page()
        await begin(page, "Put")
        await page.get_by_role("button", name="Edit arguments").click()
        fields = page.locator(".question .argument")
        await fields.nth(0).locator("textarea").fill("")
        await fields.nth(1).locator("textarea").fill("many")
        assert await fields.locator(".problem").all_inner_texts() == [
            "path is empty",
            "times is no text, and must be JSON",
        ]
        await page.get_by_role("button", name="Approve as edited").click()
        # Nothing was sent, and the first field with a fault has the focus.
        assert await fields.nth(0).locator("textarea").evaluate("each => each === document.activeElement")
        await fields.nth(0).locator("textarea").fill("b")
        await fields.nth(1).locator("textarea").fill("2")
        await approve(page, "put", "Approve as edited")
        await sees(page, "Done.")


async def test_the_whole_statechart_opens_in_a_window_of_1440_by_900(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.get_by_role("button", name="Whole chart").click()
        chart = page.locator("dialog .tw-chart")
        box = await chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1440
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
        # Its text is as small as it may be at 966 pixels, so a narrow window scrolls.
        assert box["width"] >= 966
        await page.set_viewport_size({"width": 390, "height": 800})
        assert (await chart.bounding_box())["width"] >= 966
        await page.set_viewport_size({"width": 1440, "height": 900})
        await page.keyboard.press("Escape")
        await page.locator(".chart .tw-chart").wait_for()


async def test_a_session_that_is_not_there_is_named(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page("#/s/nothing-like-it")
        await sees(page, "There is no session nothing-like-it", ".talk")
        assert not await page.locator(".pill").is_visible()
        await page.get_by_role("link", name="Show all sessions").click()
        await sees(page, "No session yet", ".list")
        opened.excuse("404")


async def test_the_theme_and_the_help_are_named_on_a_narrow_screen(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page(viewport={"width": 390, "height": 800})
        for theme in ("auto", "light", "dark"):
            await page.get_by_role("button", name=f"Theme: {theme}").click()
        await page.get_by_role("button", name="Keyboard").click()
        await page.locator("dialog.help").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_instructions_that_are_empty_are_said_to_be_none(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page()
        words = await page.evaluate(
            """async () => {
                const {titleWords} = await import('/console/words.js');
                return titleWords({event: 'InstructionsRead', about: '', title: '0b25989c4df2-1 text=""'});
            }"""
        )
        assert words == "there are none"
