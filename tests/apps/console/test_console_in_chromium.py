"""The console as people see it: played in Chromium, by two of them at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.console_page import approve, begin, press, sees
from support.http_server import scripted

from turnwheel.testing.scripted import calls, says, stalls

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}), text="I will **pay** it.")


async def test_a_session_is_played_by_two(console: Opens) -> None:
    agent = scripted(PAY, says("Paid as told."), stalls("Let me"), says("On its way."), stalls("Hm"))
    async with console(agent) as opened:
        one = await opened.page()
        await sees(one, "Nothing waits for you.", ".inbox")
        url = await begin(one, "Pay the bill")
        other = await opened.page(url.removeprefix(opened.url))
        # Markdown is elements, and its marks are gone.
        assert await one.locator(".answer strong").inner_text() == "pay"
        for page in (one, other):
            await page.locator(".question").wait_for()
            await page.locator(".tw-chart .state.lit[data-state=confirming]").wait_for()
        # A mistake is said before anything is sent.
        await one.get_by_role("button", name="Edit arguments").click()
        await one.locator(".question textarea").fill('"six"')
        await sees(one, "amount must be integer", ".question")
        await one.locator(".question textarea").fill("6")
        await approve(one, label="Approve as edited")
        for page in (one, other):
            await sees(page, "Paid as told.")
            await page.locator(".question").wait_for(state="detached")
            await page.locator(".tw-chart .state.lit[data-state=done]").wait_for()
        # Steered by the one, seen by the other.
        await one.get_by_label("Message").fill("Go on")
        await one.keyboard.press("Enter")
        await sees(other, "Let me")
        await other.get_by_label("When it is read").select_option("now")
        await other.get_by_label("Message").fill("Quick")
        await other.get_by_role("button", name="Send").click()
        await sees(one, "Quick")
        await sees(one, "On its way.")
        # And interrupted by the keyboard.
        await one.get_by_label("Message").fill("More")
        await one.keyboard.press("Enter")
        await sees(other, "Hm")
        await other.locator(".conversation").focus()
        await other.keyboard.press("i")
        await sees(one, "Run interrupted")


async def test_time_goes_back_and_forth_and_another_way_is_taken(console: Opens, tmp_path: Path) -> None:
    async with console(scripted(PAY, says("Paid."), says("Not paid."))) as opened:
        page = await opened.page()
        url = await begin(page, "Pay")
        await page.locator(".question").wait_for()
        await page.keyboard.press("Escape")
        # To the question, yes, and yes to what may change anything.
        for _ in range(3):
            await page.keyboard.press("a")
        await sees(page, "Paid.")
        # Back, by the keyboard: what was said later is gone, and is there again behind it.
        await page.keyboard.press("Home")
        row = page.locator(".row", has_text="Answer received")
        await row.click()
        await sees(page, "asks you")
        assert await page.get_by_text("Paid.", exact=True).count() == 0
        number = int(await row.locator(".number").inner_text())
        assert f"step={number}" in page.url
        await press(page, "2", page.locator("#tab-step[aria-selected=true]"))
        await sees(page, f"Step {number}", ".panel")
        # The address leads back to the same step.
        other = await opened.page(page.url.removeprefix(opened.url))
        await sees(other, f"Step {number} of", ".slider")
        await page.keyboard.press("f")
        await page.get_by_label("What happens instead").select_option("Deny pay")
        await page.get_by_label("Reason").fill("too much")
        await page.get_by_role("button", name="Fork", exact=True).click()
        await page.wait_for_url("**/#/compare/**")
        await sees(page, "They part here", ".verdict")
        await page.locator(".side").nth(1).get_by_text("Not paid.", exact=True).wait_for()
        assert await page.locator(".row.marked").count() == 2
        await page.goto(url)
        await sees(page, "Paid.")
        await page.keyboard.press("w")
        await sees(page, "answered", "dialog")
        await page.get_by_role("button", name="Close").click()
        # Saved, it needs neither the server nor a script.
        await page.locator(".menu summary").click()
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Offline page").click()
        await (await saving.value).save_as(tmp_path / "saved.html")
        saved = await (await opened.browser.new_context(java_script_enabled=False)).new_page()
        await saved.goto((tmp_path / "saved.html").as_uri())
        await saved.locator(".conversation").get_by_text("Paid.", exact=True).wait_for()
        fill = "element => getComputedStyle(element).fill"
        assert await saved.locator(".state.lit > rect").evaluate(fill) != "rgb(0, 0, 0)"


async def test_moves_are_tried_before_they_are_done(console: Opens) -> None:
    async with console(scripted(PAY, says("Not paid."))) as opened:
        page = await opened.page()
        await begin(page, "Pay")
        await page.locator(".question").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("3")
        await page.get_by_role("button", name="Try deny pay").click()
        await sees(page, "would lead to", ".outcome")
        assert await page.locator(".question").count() == 1
        await page.get_by_role("button", name="Do it: deny pay").click()
        await sees(page, "Not paid.")


async def test_texts_of_a_model_stay_texts(console: Opens) -> None:
    evil = '<img src=x onerror="document.title=1">[a](javascript:alert(1)) <script>document.title=2</script>'
    async with console(scripted(says(evil))) as opened:
        page = await opened.page()
        await begin(page, evil)
        await sees(page, "<img src=x")
        assert await page.locator(".conversation img, .conversation script, .conversation a").count() == 0
        assert (await page.title()).startswith("<img")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(console: Opens, axe: str, scheme: str) -> None:
    async with console(scripted(PAY, says("Paid, with `code` and [a link](https://example.com)."))) as opened:
        page = await opened.page(color_scheme=scheme, bypass_csp=True)
        await page.evaluate(axe)

        told: list[tuple[str, str, str]] = []

        async def check(where: str) -> None:
            found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            told.extend(
                (where, each["id"], node["html"][:150])
                for each in found["violations"]
                for node in each["nodes"]
            )

        await check("an empty list")
        await begin(page, "Pay")
        await page.locator(".question").wait_for()
        await check("a question")
        await page.get_by_role("button", name="Edit arguments").click()
        await check("its arguments")
        for tab in ("Step", "Next moves", "Spend", "Children"):
            await page.get_by_role("tab", name=tab).click()
            await page.locator(".panel > *").first.wait_for()
            await check(tab)
        await approve(page, label="Approve as edited")
        await sees(page, "Paid, with")
        await check("the end")
        await page.keyboard.press("Escape")
        # It is offered once the run is over, which may be after its last words.
        await page.get_by_role("button", name="Branch…").click()
        await check("a branch to choose")
        await page.get_by_role("button", name="Branch", exact=True).click()
        await sees(page, "Back to the beginning.")
        await check("another branch")
        await page.get_by_role("button", name="Keyboard").click()
        await check("the help")
        await page.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Plain").click()
        await check("the plain view")
        await page.goto(opened.url + "#/")
        await page.locator(".session-row").wait_for()
        await check("the list")
        assert told == []
