"""What people do at the console, and what happens to a page meanwhile: played in Chromium."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from support.console_page import approve, begin, sees
from support.http_server import scripted
from support.told_model import Told

from turnwheel import Agent, tool
from turnwheel.effects import CallModel, Policy
from turnwheel.effects.events import Failure
from turnwheel.effects.history import TextPiece
from turnwheel.testing.scripted import ScriptedModel, calls, fails, says, stalls

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}))


@tool(side_effect="read_only", timeout=None)
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


async def test_a_call_that_runs_is_cancelled(console: Opens) -> None:
    model = ScriptedModel(calls(("wait", {})), says("Never mind."), calls(("wait", {})), says("Nor that."))
    agent = Agent(model="openai:test", tools=[wait], performers={CallModel: model})
    async with console(agent) as opened:
        page = await opened.page()
        await begin(page, "Wait")
        await page.get_by_role("button", name="Cancel wait").click()
        await sees(page, "cancelled")
        await sees(page, "Never mind.")
        # And by the keyboard.
        await page.get_by_label("Message").fill("Again")
        await page.keyboard.press("Enter")
        await page.locator(".phase-running").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("x")
        await sees(page, "Nor that.")


async def test_model_and_mode_are_changed(console: Opens) -> None:
    agent = scripted(says("One."), calls(("pay", {"amount": 5})), says("Two."), models=["openai:other"])
    async with console(agent) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.get_by_label("Model", exact=True).select_option("openai:other")
        await sees(page, "From now on: openai:other", "#toasts")
        await page.get_by_label("Mode", exact=True).select_option("bypass")
        await sees(page, "From now on: bypass", "#toasts")
        # Between two runs they are kept for the next one, and a page that comes later says so.
        await page.reload()
        await sees(page, "One.")
        await page.wait_for_function("document.querySelector('select[aria-label=Mode]').value === 'bypass'")
        assert await page.get_by_label("Model", exact=True).input_value() == "openai:other"
        await page.get_by_label("Message").fill("Two?")
        await page.keyboard.press("Enter")
        # Nothing was asked, and the other model answered.
        await sees(page, "Two.")
        await sees(page, "openai:other", ".answer header")


async def test_a_server_with_tokens_asks_for_one(console: Opens) -> None:
    async with console(scripted(says("One.")), tokens={"secret": "ann"}) as opened:
        page = await opened.page()
        await page.get_by_label("Token").fill("other")
        await page.keyboard.press("Enter")
        await sees(page, "does not know that token", "#token-form [role=alert]")
        await page.get_by_label("Token").fill("secret")
        await page.keyboard.press("Enter")
        url = await begin(page, "One?")
        await sees(page, "One.")
        await page.reload()
        await sees(page, "One.")
        # Of this tab alone.
        other = await opened.page(url.removeprefix(opened.url))
        await sees(other, "asks for a token", "#token-form")
        opened.excuse("401")


async def test_what_a_session_waits_for_is_said(console: Opens) -> None:
    agent = scripted(
        fails(Failure.OVERLOADED, retry_after=600.0), PAY, partial=True, policy=Policy(answer_within=900.0)
    )
    async with console(agent) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await sees(page, "(try 2) in 10 min", ".timers")
        # Nothing answers meanwhile, and the page does not say so.
        assert await page.locator(".item.live").count() == 0
        await page.get_by_label("When it is read").select_option("now")
        await page.get_by_label("Message").fill("Go on")
        await page.get_by_role("button", name="Send").click()
        await sees(page, "withdrawn in 15 min", ".question")
        await page.locator(".timers:empty").wait_for(state="attached")
        await page.goto(opened.url + "#/")
        await sees(page, "withdrawn in 15 min", ".inbox")


async def test_an_answer_of_another_person_is_said_to_the_one_who_writes(console: Opens) -> None:
    async with console(scripted(PAY, says("Paid."))) as opened:
        one = await opened.page()
        url = await begin(one, "Pay")
        await one.get_by_role("button", name="Edit arguments").click()
        other = await opened.page(url.removeprefix(opened.url))
        # A look at the past takes nothing of it away.
        await one.locator(".question textarea").fill("7")
        await one.locator(".row").first.click()
        await one.locator(".question").wait_for(state="hidden")
        await one.get_by_role("button", name="Back to live").click()
        assert await one.locator(".question textarea").input_value() == "7"
        assert await one.locator(".toast").count() == 0
        await one.locator(".question textarea").focus()
        await approve(other)
        await sees(one, "it was answered elsewhere, or withdrawn. Yours was not sent.", "#toasts")
        # The focus is not lost with the question.
        assert await one.evaluate("document.activeElement.className") == "conversation"
        # And the rest of a word that is typed does nothing: no key of the page is heard for a moment.
        await one.keyboard.press("?")
        assert await one.locator("dialog").count() == 0
        await sees(one, "Paid.")
        assert await other.locator(".toast.bad").count() == 0


async def test_a_branch_goes_on_from_an_earlier_run(console: Opens) -> None:
    agent = scripted(says("One."), says("Two."), says("Three."), says("Four."))
    async with console(agent) as opened:
        page = await opened.page()

        async def late(route: Any) -> None:
            await asyncio.sleep(0.3)
            await route.continue_()

        # What happens is told before the page has asked how the session is.
        await page.route(re.compile(r"/sessions/[^/?]+$"), late)
        await begin(page, "First")

        async def ask(text: str, answer: str, number: int) -> None:
            await page.get_by_label("Message").fill(text)
            await page.keyboard.press("Enter")
            await sees(page, answer)
            await page.locator(".item.end").nth(number - 1).wait_for()
            await page.keyboard.press("Escape")

        async def go_back(to: str) -> None:
            await page.keyboard.press("b")
            await page.get_by_label("Go on from").select_option(label=to)
            await page.get_by_role("button", name="Branch", exact=True).click()
            await page.locator("dialog").wait_for(state="detached")

        await sees(page, "One.")
        await page.get_by_role("button", name="Branch…").and_(page.locator(":enabled")).wait_for()
        await ask("Second", "Two.", 2)
        await page.keyboard.press("b")
        # The run before is what one goes back to most of all.
        chosen = page.get_by_label("Go on from").locator("option:checked")
        assert await chosen.inner_text() == "The end of: First"
        await page.keyboard.press("Escape")
        await go_back("The end of: First")
        await sees(page, "Back to the end of an earlier run.")
        await ask("Third", "Three.", 3)
        assert await page.locator(".item.other").all_inner_texts() == await page.locator(
            ".item", has_text="Second"
        ).all_inner_texts() + await page.locator(".item", has_text="Two.").all_inner_texts() + [
            await page.locator(".item.end").nth(1).inner_text()
        ]
        # To the branch that was left, and to the beginning; and so it is for a page that comes later.
        await go_back("The end of: Second")
        await page.locator(".item.other", has_text="Three.").wait_for()
        await go_back("The beginning")
        await sees(page, "Back to the beginning.")
        await page.reload()
        await ask("Fourth", "Four.", 4)
        assert await page.locator(".item.person.other").count() == 3
        texts = await page.locator(".item.note").all_inner_texts()
        assert [text.split(".")[0] for text in texts] == [
            "Back to the end of an earlier run",
            "Back to the end of an earlier run",
            "Back to the beginning",
        ]


@pytest.mark.parametrize("size", [(1600, 1000), (390, 844)], ids=["wide", "narrow"])
async def test_long_texts_do_not_push_the_buttons_out_of_a_dialog(
    console: Opens, size: tuple[int, int]
) -> None:
    long = "Write a report on " + "everything that happened in this quarter, " * 4
    window = {"width": size[0], "height": size[1]}
    async with console(scripted(says("One."), calls(("look", {})), says("Two."))) as opened:
        page = await opened.page(viewport=window)
        await begin(page, long)
        await sees(page, "One.")
        await page.get_by_label("Message").fill(long)
        await page.keyboard.press("Enter")
        await sees(page, "Two.")
        await page.locator(".pill", has_text="finished").wait_for()
        await page.locator("button:enabled", has_text="Branch…").wait_for(state="attached")
        await page.keyboard.press("Escape")
        for key in ("b", "f", "w", "?"):
            await page.keyboard.press(key)
            dialog = page.locator("dialog[open]")
            await dialog.wait_for()
            outside = await dialog.evaluate("""(box) => {
                const {left, right} = box.getBoundingClientRect();
                const parts = [...box.querySelectorAll("button, select, textarea, h2, p:not([hidden])")];
                return parts.filter((part) => {
                    const place = part.getBoundingClientRect();
                    return place.left < left || place.right > right;
                }).map((part) => part.outerHTML);
            }""")
            assert outside == [], key
            assert await dialog.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0, key
            await page.keyboard.press("Escape")
            await dialog.wait_for(state="detached")


async def test_a_long_id_stays_in_its_side_of_a_comparison(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page(viewport={"width": 390, "height": 844})
        await begin(page, "One?")
        await sees(page, "One.")
        await page.evaluate("location.hash = location.hash.replace(/#.s.(.*)/, '#/compare/$1/$1')")
        # The page draws a side again when its session has come; a place is asked of what is drawn.
        await page.wait_for_function(
            """() => {
                const names = [...document.querySelectorAll(".side > header .quiet")]
                const places = names.map((name) => name.getBoundingClientRect())
                const within = places.filter((one) => one.width > 0 && one.left >= 0 && one.right <= 390)
                return places.length >= 2 && within.length === places.length
            }"""
        )


async def test_a_run_under_way_has_no_branch(console: Opens) -> None:
    async with console(scripted(PAY, partial=True)) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await page.locator(".question").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("b")
        await sees(page, "Branch once the run is over", "#toasts")
        assert await page.get_by_role("button", name="Branch…").is_disabled()


async def test_a_session_that_is_deleted_is_said_to_be_gone(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page()
        url = await begin(page, "One?")
        await sees(page, "One.")
        other = await opened.page()
        other.on("dialog", lambda dialog: dialog.accept())
        await other.locator(".session-row").hover()
        await other.get_by_role("button", name="Delete One?").click()
        await other.locator(".session-row").wait_for(state="detached")
        await sees(page, "There is no session", ".talk")
        # What was said can be read still, and nothing can be done.
        await sees(page, "One.")
        for gone in (".composer", ".session-head select", ".machine"):
            assert not await page.locator(gone).first.is_visible()
        await page.goto(opened.url)
        await sees(page, "No session yet", ".list")
        # Back, forward, and the address by hand.
        await page.go_back()
        await sees(page, "There is no session", ".talk")
        assert page.url == url
        await page.go_forward()
        await sees(page, "No session yet", ".list")
        opened.excuse("404")


async def test_a_server_that_went_and_came_back_is_heard_again(console: Opens) -> None:
    async with console(scripted(says("One."), says("Two."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.context.set_offline(True)
        await page.get_by_label("Message").fill("Two?")
        await page.keyboard.press("Enter")
        await sees(page, "the server cannot be reached", "#toasts")
        # What was written is there to be sent again, and counts once.
        assert await page.get_by_label("Message").input_value() == "Two?"
        await page.context.set_offline(False)
        await page.get_by_role("button", name="Send").click()
        await sees(page, "Two.")
        assert await page.locator(".item.person").count() == 2
        opened.excuse("ERR_INTERNET_DISCONNECTED")


async def test_the_same_tab_is_reloaded_in_the_middle_of_an_answer(console: Opens) -> None:
    async with console(scripted(says("One."), stalls("Half of it"), says("On."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.get_by_label("Message").fill("Two?")
        await page.keyboard.press("Enter")
        await sees(page, "Half of it")
        await page.reload()
        await sees(page, "answering")
        # What streamed before is there at once.
        await sees(page, "Half of it")
        await page.get_by_role("button", name="Interrupt").click()
        await sees(page, "Run interrupted")
        await page.locator(".pill.kind-wrong", has_text="interrupted").wait_for()
        await page.get_by_label("Message").fill("Go on")
        await page.keyboard.press("Enter")
        await sees(page, "On.")


async def test_an_answer_goes_on_whole_in_a_tab_that_was_not_looked_at(console: Opens) -> None:
    model = Told()
    async with console(Agent(model="openai:test", performers={CallModel: model})) as opened:
        page = await opened.page()

        async def look(*, away: bool) -> None:
            await page.evaluate(
                """away => {
                    Object.defineProperty(document, "hidden", {get: () => away, configurable: true});
                    document.dispatchEvent(new Event("visibilitychange"));
                }""",
                away,
            )

        await begin(page, "One?")
        session = page.url.rpartition("/")[2]
        model.say(TextPiece("one "))
        await sees(page, "one")
        await look(away=True)
        async with httpx.AsyncClient(base_url=opened.url) as other:
            await other.post(f"/api/sessions/{session}/messages", json={"text": "More"})
            model.say(TextPiece("two "))
            await look(away=False)
            model.say(TextPiece("three"))
            await sees(page, "one two three", ".item.live")
        model.end()
        await page.locator(".item.end").last.wait_for()
        texts = await page.locator(".item.person, .item.answer").all_inner_texts()
        assert [text.splitlines()[-1] for text in texts] == ["One?", "one two three", "More"]


async def test_a_screen_reader_is_told_what_is_asked_and_how_it_ends(console: Opens) -> None:
    async with console(scripted(PAY, says("Paid."))) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await sees(page, "May it pay 5?", ".unseen[role=status]")
        # A new view begins at its heading.
        assert await page.evaluate("document.activeElement.tagName") == "H1"
        await approve(page)
        await sees(page, "The agent: finished", ".unseen[role=status]")
