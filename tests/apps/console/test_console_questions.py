"""How questions are answered at the console: what is shown before a yes, which key does what; in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.console_page import approve, begin, press, sees
from support.http_server import pay, scripted

from turnwheel import Agent, tool
from turnwheel.effects import CallModel, Concurrency, Policy
from turnwheel.testing.scripted import ScriptedModel, calls, says

if TYPE_CHECKING:
    from turnwheel.testing.scripted import Reply

    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}))
SCRIPT = "\n".join(["set -e", *(f"cp part{n} /srv/{n}" for n in range(40)), "rm -rf /srv/old"])
NARROW = {"width": 390, "height": 844}
WIDE = {"width": 1600, "height": 1000}


@tool(side_effect="unsafe")
def deploy(target: str, script: str, replicas: int = 2) -> str:
    """Deploy to a host."""
    return f"deployed to {target}: {script[:5]} {replicas}"


@tool(side_effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


def asking(*replies: Reply) -> Agent:
    model = ScriptedModel(*replies, partial=True)
    at_once = Policy(concurrency=Concurrency.PARALLEL)
    return Agent(
        model="openai:test", tools=[pay, deploy, note], policy=at_once, performers={CallModel: model}
    )


def posted(page: Any) -> list[str]:
    """The paths that *page* posts to from now on."""
    found: list[str] = []

    def look(request: Any) -> None:
        if request.method == "POST":
            found.append(request.url.rpartition("/api/")[2])

    page.on("request", look)
    return found


async def focused(page: Any) -> str:
    """The name of what has the focus, or its text."""
    name = "each => each.getAttribute('aria-label') ?? each.textContent"
    return str(await page.evaluate(f"({name})(document.activeElement)"))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("where", ["inbox", "session"])
async def test_all_arguments_are_shown_before_a_yes(console: Opens, where: str, size: dict[str, int]) -> None:
    wish = calls(("deploy", {"target": "production", "script": SCRIPT}))
    async with console(asking(wish, says("Deployed."))) as opened:
        page = await opened.page(viewport=size)
        await begin(page, "Deploy")
        card = page.locator(".question")
        await card.wait_for()
        if where == "inbox":
            await page.goto(opened.url + "#/")
            await page.locator(".inbox .question").wait_for()
        assert await card.locator("dt").all_inner_texts() == ["target", "script", "replicas"]
        # Without its end there is no yes, only a way to see it.
        assert "rm -rf" not in await card.inner_text()
        assert await card.locator(".unfold").inner_text() == "… 34 more lines. Show all"
        assert await card.get_by_role("button", name="Approve", exact=True).count() == 0
        assert await card.get_by_role("button", name="Always").count() == 0
        posts = posted(page)
        await card.get_by_role("button", name="Show all to approve").click()
        shown = await card.locator("pre").inner_text()
        assert shown == SCRIPT
        # The buttons stand behind all of it, on the screen and for a keyboard. No box hides a part.
        script, button = card.locator("pre"), card.get_by_role("button", name="Approve", exact=True)
        assert (await script.bounding_box())["y"] + (await script.bounding_box())["height"] <= (
            await button.bounding_box()
        )["y"]
        assert await script.evaluate("each => each.scrollHeight <= each.clientHeight + 1")
        assert await script.evaluate("each => each.scrollWidth <= each.clientWidth + 1")
        await script.focus()
        await page.keyboard.press("Tab")
        assert await focused(page) == "Approve"
        assert posts == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        await approve(page, "deploy")
        if where == "session":
            await sees(page, "Deployed.")
        else:
            await sees(page, "Nothing waits for you.", ".inbox")


async def test_a_change_is_shown_with_all_other_arguments(console: Opens) -> None:
    async with console(scripted(partial=True)) as opened:
        page = await opened.page()
        shown = await page.evaluate("""async () => {
            const {argumentsView} = await import('/console/arguments.js');
            const args = {path: 'a.py', old: 'one', new: 'two', everywhere: true, text: 'first\\nsecond'};
            const view = argumentsView('edit', args, true);
            document.querySelector('main').replaceChildren(view);
            return [...view.children].map((each) => each.innerText);
        }""")
        assert [each.split("\n")[0] for each in shown] == ["path", "everywhere", "text", "old → new"]
        assert shown[2].split("\n")[1:] == ["first", "second"]


async def test_characters_that_cannot_be_seen_are_shown(console: Opens) -> None:
    wish = calls(("deploy", {"target": "a\u202eb\u200bc", "script": "true"}))
    async with console(asking(wish)) as opened:
        page = await opened.page()
        await begin(page, "Deploy")
        await page.locator(".question").wait_for()
        assert await page.locator(".question dd").first.inner_text() == "a\\u202eb\\u200bc"
        # Wherever a call is named, the list and the words for screen readers among them.
        brief = "a\\u202eb\\u200bc"
        assert await page.locator(".question .brief").inner_text() == brief
        assert await page.locator(".item.call .brief").inner_text() == brief
        told = page.get_by_text(f"May it deploy {brief}?", exact=True)
        await told.wait_for(state="attached")
        await page.get_by_role("button", name="Edit arguments").click()
        assert await page.locator(".question .unseen").first.inner_text() == (
            "Has characters that cannot be seen: \\u202e, \\u200b"
        )
        await page.locator(".question textarea").first.fill("abc")
        assert await page.locator(".question .unseen").first.inner_text() == ""
        await page.goto(opened.url)
        await sees(page, f"asks: deploy {brief}", ".session-row")


async def test_an_unsafe_tool_takes_two_presses_and_a_double_click_is_one(console: Opens) -> None:
    async with console(asking(PAY, says("Paid."))) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        posts = posted(page)
        await page.get_by_role("button", name="Approve", exact=True).dblclick()
        await sees(page, "pay may change anything. Press again to run it.", ".question [role=alert]")
        # It is no yes to something else, nor for later.
        await page.get_by_role("button", name="Always").click()
        await sees(page, "each time", ".question [role=alert]")
        await page.keyboard.press("Escape")
        assert not await page.locator(".question .warning").is_visible()
        await page.get_by_role("button", name="Approve", exact=True).click()
        await page.get_by_label("Message").focus()
        assert not await page.locator(".question .warning").is_visible()
        assert posts == []
        await approve(page)
        await sees(page, "Paid.")
        assert len(posts) == 1


async def test_a_safe_tool_takes_one_press(console: Opens) -> None:
    async with console(asking(calls(("note", {"text": "it"})), says("Noted."))) as opened:
        page = await opened.page()
        await begin(page, "Note")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await sees(page, "Noted.")


async def test_a_small_screen_with_a_question_has_room_to_write_and_send(console: Opens) -> None:
    wish = calls(("deploy", {"target": "production", "script": SCRIPT}))
    async with console(asking(wish, says("Deployed."))) as opened:
        page = await opened.page(viewport={"width": 390, "height": 760})
        await begin(page, "Look over what was changed since Monday, and deploy all of it")
        await page.locator(".question").wait_for()
        for button in ("Interrupt", "Send"):
            box = await page.locator(".composer").get_by_role("button", name=button).bounding_box()
            assert box["y"] + box["height"] <= 760


async def test_keys_act_on_the_question_that_has_the_focus(console: Opens) -> None:
    wishes = calls(("note", {"text": "one"}), ("note", {"text": "two"}), ("note", {"text": "three"}))
    async with console(asking(wishes, says("Noted."))) as opened:
        page = await opened.page()
        await begin(page, "Note")
        await page.locator(".question").nth(2).wait_for()
        posts = posted(page)
        # Without a focus the first press gives it, and answers nothing.
        await page.keyboard.press("a")
        assert await page.locator(".question").first.evaluate("each => each === document.activeElement")
        await page.keyboard.press("q")
        await page.keyboard.press("a")
        await page.locator(".question").nth(2).wait_for(state="detached")
        assert len(posts) == 1
        assert await page.locator(".question dd").all_inner_texts() == ["one", "three"]
        # In the inbox, too.
        await page.goto(opened.url + "#/")
        await page.locator(".inbox .question").nth(1).wait_for()
        await page.locator(".inbox .question").nth(1).focus()
        await press(page, "d", page.get_by_label("Reason").nth(1))
        await page.keyboard.type("not that")
        await page.keyboard.press("Enter")
        await page.locator(".question").nth(1).wait_for(state="detached")
        assert await page.locator(".question dd").all_inner_texts() == ["one"]
        # The next one has the focus now.
        assert await page.locator(".question").first.evaluate("each => each === document.activeElement")


async def test_no_key_acts_in_a_field_a_dialog_or_a_menu(console: Opens) -> None:
    async with console(asking(calls(("note", {"text": "it"})), says("Noted."))) as opened:
        page = await opened.page()
        await begin(page, "Note")
        card = page.locator(".question")
        await card.focus()
        posts = posted(page)
        await page.locator(".menu summary").click()
        await page.keyboard.press("a")
        await page.keyboard.press("Escape")
        assert await page.locator(".menu[open]").count() == 0
        await page.locator(".menu summary").focus()
        await page.keyboard.press("a")
        await card.focus()
        await page.keyboard.press("?")
        await page.keyboard.press("a")
        # Its first line is in sight, and the focus is there.
        assert await focused(page) == "Keyboard"
        await page.keyboard.press("Escape")
        for field in ("Message", "Model", "Mode"):
            await page.get_by_label(field, exact=True).focus()
            await page.keyboard.press("a")
        # A key that is held down is one press.
        await card.focus()
        repeated = "new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true})"
        await card.evaluate(f"each => each.dispatchEvent({repeated})")
        assert posts == []
        await page.keyboard.press("a")
        await sees(page, "Noted.")


async def test_a_reason_and_enter_is_one_denial_and_no_message(console: Opens) -> None:
    async with console(asking(PAY, says("Not paid."))) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        posts = posted(page)
        await page.locator(".question").focus()
        await page.keyboard.press("d")
        await page.keyboard.type("a bad idea")
        # Pressed twice, as by one who is in a hurry.
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await sees(page, "Not paid.")
        assert [path.split("/")[2] for path in posts] == ["questions"]
        assert await page.get_by_label("Message").input_value() == ""
        assert await page.locator(".item.person").count() == 1
        await page.locator(".call summary").click()
        await sees(page, ": a bad idea", ".call")


async def test_arguments_that_the_server_refuses_stay_to_be_mended(console: Opens) -> None:
    async with console(asking(PAY, says("Paid."))) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        detail = "invalid arguments for 'pay': amount must be at most 9"
        refusal = {"status": 422, "title": "Unprocessable Content", "detail": detail, "type": "about:blank"}

        async def refuse(route: Any) -> None:
            await route.fulfill(status=422, json=refusal, content_type="application/problem+json")

        await page.route("**/questions/*", refuse)
        await page.get_by_role("button", name="Edit arguments").click()
        await page.locator(".question textarea").fill("10")
        await approve(page, label="Approve as edited")
        await sees(page, detail, ".question [role=alert]")
        assert await page.locator(".question textarea").input_value() == "10"
        await page.unroute("**/questions/*")
        await page.locator(".question textarea").fill("9")
        await approve(page, label="Approve as edited")
        await sees(page, "Paid.")
        opened.excuse("422")


async def test_a_move_that_says_yes_leads_to_the_question(console: Opens) -> None:
    async with console(asking(PAY)) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await page.get_by_role("tab", name="Next moves").click()
        posts = posted(page)
        await page.get_by_role("button", name="To the question: approve pay").first.click()
        assert await focused(page) == "Question about pay"
        assert posts == []


async def test_a_dialog_goes_with_the_view_that_it_stands_over(console: Opens) -> None:
    async with console(asking(PAY)) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await page.locator(".question").focus()
        await page.keyboard.press("?")
        await page.locator("dialog").wait_for()
        await page.go_back()
        await page.locator(".list").wait_for()
        assert await page.locator("dialog").count() == 0


async def test_a_question_is_answered_otherwise_in_a_fork_without_json(console: Opens) -> None:
    wish = calls(("deploy", {"target": "production", "script": "true"}))
    agent = asking(wish, says("Deployed."), says("Deployed elsewhere."), says("Not deployed."))
    async with console(agent) as opened:
        page = await opened.page()
        url = await begin(page, "Deploy")
        await approve(page, "deploy")
        await sees(page, "Deployed.")
        for way, answer in (("Approve deploy with other arguments", "elsewhere"), ("Deny deploy", "Not")):
            await page.goto(url)
            await page.locator(".call summary").click()
            await page.get_by_role("button", name="answer the question about deploy otherwise").click()
            await page.get_by_label("What happens instead").select_option(way)
            if way == "Deny deploy":
                await page.get_by_label("Reason").fill("not today")
            else:
                replicas = page.get_by_label("replicas")
                await replicas.fill('"many"')
                await page.get_by_role("button", name="Fork", exact=True).click()
                await sees(page, "replicas must be integer", "dialog")
                await replicas.fill("3")
                await page.get_by_label("target").fill("staging")
            await page.get_by_role("button", name="Fork", exact=True).click()
            await page.wait_for_url("**/#/compare/**")
            await page.locator("dialog").wait_for(state="detached")
            await page.locator(".side").nth(1).get_by_text(answer).last.wait_for()
            told = "deployed to staging: true 3" if answer == "elsewhere" else "not today"
            await page.locator(".side").nth(1).locator(".call summary").click()
            await page.locator(".side").nth(1).get_by_text(told).first.wait_for()


async def test_an_open_question_is_answered_in_a_fork_and_stays_open(console: Opens) -> None:
    async with console(asking(PAY, says("Not paid."))) as opened:
        page = await opened.page()
        url = await begin(page, "Pay")
        await page.locator(".question").focus()
        await page.keyboard.press("f")
        await page.get_by_label("What happens instead").select_option("Deny pay")
        await page.get_by_role("button", name="Fork", exact=True).click()
        await page.wait_for_url("**/#/compare/**")
        await page.locator(".side").nth(1).get_by_text("Not paid.", exact=True).wait_for()
        await page.goto(url)
        await page.locator(".question").wait_for()


async def test_a_fork_that_is_refused_says_why_and_keeps_the_form(console: Opens) -> None:
    async with console(asking(says("One."))) as opened:
        page = await opened.page()
        await begin(page, "One?")
        await sees(page, "One.")
        await page.locator(".row", has_text="Title set").click()
        await page.get_by_role("button", name="Fork here").click()
        await page.get_by_label("What happens instead").select_option("Another event, as JSON")
        await page.get_by_label("Event", exact=True).fill("{")
        await page.get_by_role("button", name="Fork", exact=True).click()
        await sees(page, "JSON", "dialog [role=alert]")
        assert await page.get_by_label("Event", exact=True).input_value() == "{"


async def test_a_long_question_says_how_much_of_it_is_left(console: Opens) -> None:
    script = "\n".join(f"step {n}" for n in range(200))
    async with console(asking(calls(("deploy", {"target": "here", "script": script})))) as opened:
        page = await opened.page()
        await begin(page, "Deploy")
        card = page.locator(".question")
        await card.focus()
        await page.keyboard.press("a")
        part = card.locator(".part")
        await part.wait_for()
        words = (await part.inner_text()).split()
        assert words[:2] == ["Part", "1"]
        count = int(words[3].rstrip("."))
        assert count > 2
        await page.keyboard.press("a")
        await sees(page, f"Part 2 of {count}.", ".question")
        await card.get_by_role("button", name="To the end").click()
        await part.wait_for(state="hidden")
        assert await card.get_by_role("button", name="Approve", exact=True).is_visible()


async def test_several_questions_are_counted(console: Opens) -> None:
    async with console(asking(calls(*[("note", {"text": str(n)}) for n in range(3)]))) as opened:
        page = await opened.page()
        await begin(page, "Note")
        await sees(page, "question 3 of 3", ".questions")
        await page.goto(opened.url + "#/")
        await sees(page, "question 2 of 3", ".inbox")
