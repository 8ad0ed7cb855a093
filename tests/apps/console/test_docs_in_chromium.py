"""The page of the operations in Chromium: operations are tried on it, and no other server is asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import scripted
from support.patience import PATIENCE

from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from .conftest import Console, Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}))
LIGHT_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
DARK_DESK = {"viewport": {"width": 1600, "height": 900}, "color_scheme": "dark"}


async def operations_page(opened: Console, **look: Any) -> Any:
    page = await opened.page("docs", **look)
    # Swagger UI is large: on a busy machine a click takes seconds.
    page.set_default_timeout(60_000)
    return page


async def tried(page: Any, name: str, **parameters: str) -> Any:
    """What the operation *name* answers, with the body of its example."""
    block = page.locator(f"[id$='-{name}'].opblock")
    if not await block.locator(".execute").count():
        await block.locator(".opblock-summary-control").click()
    for parameter, value in parameters.items():
        await block.locator(f"tr[data-param-name='{parameter}'] input").fill(value)
    await block.locator(".execute").click()
    return await block.locator(".live-responses-table .response .microlight").first.inner_text()


@pytest.mark.parametrize("look", [LIGHT_PHONE, DARK_DESK], ids=["light phone", "dark desk"])
async def test_a_run_is_begun_and_its_question_answered_on_the_page(
    console: Opens, look: dict[str, Any]
) -> None:
    agent = scripted(PAY, says("Paid."))
    async with console(agent, tokens={"secret": "acme"}) as opened:
        page = await operations_page(opened, **look)
        await page.locator("button.authorize").click()
        await page.locator(".dialog-ux input").fill("secret")
        await page.locator(".dialog-ux button.authorize").click()
        await page.locator(".dialog-ux .btn-done").click()
        assert json.loads(await tried(page, "create"))["id"] == "weekly"
        async with asyncio.timeout(PATIENCE):
            while not (questions := json.loads(await tried(page, "session"))["questions"]):
                pass  # each try awaits an answer
        answered = json.loads(await tried(page, "answer", question=questions[0]["id"]))
        assert (answered["decision"], answered["by"]) == ("approve", "acme over http")
        assert json.loads(await tried(page, "sessions"))["items"][0]["id"] == "weekly"
        assert "event: RunStarted" in await tried(page, "get_events")
        loaded = await page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
        assert opened.url + "docs/swagger-ui-bundle.js" in loaded
        assert [url for url in loaded if not url.startswith((opened.url, "data:"))] == []
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= look["viewport"]["width"]
        ground = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (ground != "rgba(0, 0, 0, 0)") == (look["color_scheme"] == "dark")


async def test_without_a_token_the_page_shows_the_refusal(console: Opens) -> None:
    async with console(scripted(), tokens={"secret": "acme"}) as opened:
        page = await operations_page(opened)
        assert json.loads(await tried(page, "sessions"))["status"] == 401
        opened.excuse("401")
