"""What the console keeps of a person's work, and what it does not let the past do; in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.console_page import begin, sees
from support.http_server import scripted

from turnwheel.effects.events import Failure
from turnwheel.testing.scripted import calls, fails, says

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}))


async def test_drafts_are_kept_by_session_until_they_are_sent(console: Opens) -> None:
    async with console(scripted(says("One."), says("Two."))) as opened:
        page = await opened.page()
        url = await begin(page, "One?")
        await sees(page, "One.")
        message, prompt = page.get_by_label("Message"), page.get_by_label("Prompt of a new session")
        await message.fill("half a mess")
        await page.reload()
        assert await message.input_value() == "half a mess"
        await page.goto(opened.url + "#/")
        assert await prompt.input_value() == ""
        await prompt.fill("half a prompt")
        await page.locator(".session-row a").click()
        assert await message.input_value() == "half a mess"
        await page.go_back()
        assert await prompt.input_value() == "half a prompt"
        await page.goto(url)
        await message.fill("Two?")
        await page.keyboard.press("Enter")
        await sees(page, "Two.")
        await page.reload()
        await sees(page, "Two.")
        assert await message.input_value() == ""


async def test_the_past_has_no_move_that_acts_on_the_present(console: Opens) -> None:
    async with console(scripted(PAY)) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await page.locator(".question").wait_for()
        await page.get_by_role("tab", name="Next moves").click()
        await page.get_by_role("button", name="Do it: deny pay").wait_for()
        await page.locator(".slider").get_by_role("button", name="Step back").click()
        await sees(page, "No moves are shown in the past", ".panel")
        assert await page.get_by_role("button", name="Do it").count() == 0
        await page.get_by_role("button", name="Show the moves of now").click()
        await page.get_by_role("button", name="Do it: deny pay").wait_for()


async def test_keys_are_heard_after_a_menu_is_closed(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.get_by_role("button", name="Branch…").and_(page.locator(":enabled")).wait_for()
        await page.locator(".menu summary").click()
        await page.keyboard.press("Escape")
        await page.keyboard.press("b")
        await page.locator("dialog.branch").wait_for()


async def test_a_run_that_failed_is_tried_again(console: Opens) -> None:
    async with console(scripted(fails(Failure.AUTH), says("Here I am."))) as opened:
        page = await opened.page()
        await begin(page, "Are you there?")
        await page.locator(".item.end.kind-wrong").wait_for()
        await page.get_by_role("button", name="Try again").click()
        await sees(page, "Here I am.")
        assert await page.locator(".item.person").all_inner_texts() == [
            text for text in await page.locator(".item.person").all_inner_texts() if "Are you there?" in text
        ]
        await page.locator(".item.end").nth(1).wait_for()
        assert not await page.get_by_role("button", name="Try again").is_visible()
