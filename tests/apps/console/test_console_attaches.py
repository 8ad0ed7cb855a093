"""Files that go along with a message: chosen, pasted or dropped, up to the bound of the server."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from support.console_page import begin, sees
from support.http_server import scripted

from turnwheel.apps.server.limits import ServerLimits
from turnwheel.testing.scripted import says

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# Does to the element what a person does who pastes or drops a file.
GIVES = """(element, [kind, name, type, data]) => {
    const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    const held = new DataTransfer();
    held.items.add(new File([bytes], name, {type}));
    const given = {bubbles: true, cancelable: true, clipboardData: held, dataTransfer: held};
    const event = kind === "paste" ? new ClipboardEvent(kind, given) : new DragEvent(kind, given);
    return element.dispatchEvent(event);
}"""


def file(name: str, kind: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": kind, "buffer": data}


async def attached(page: Any, *names: str) -> None:
    """Wait until the files with these *names* are attached, and no others."""
    await page.wait_for_function(
        "names => [...document.querySelectorAll('.attached li > span:first-of-type')]"
        ".map((each) => each.textContent).join() === names",
        arg=",".join(names),
    )


async def test_files_go_along_with_a_prompt_and_a_message(console: Opens) -> None:
    async with console(scripted(says("One."), says("Two."))) as opened:
        page = await opened.page()
        # The browser is told now to hand its choosers over. Told as late as the key, it may come too late.
        page.on("filechooser", lambda _: None)
        # By the keyboard: the button opens what the browser has for files.
        await sees(page, "No session yet", ".list")
        async with page.expect_file_chooser() as choosing:
            await page.keyboard.press("+")
        await (await choosing.value).set_files([file("notes.txt", "text/plain", b"Notes")])
        await attached(page, "notes.txt")
        await begin(page, "Look at it")
        await sees(page, "with notes.txt")
        await sees(page, "One.")
        # Pasted, dropped, and taken away again.
        message = page.get_by_label("Message")
        assert not await message.evaluate(GIVES, ["paste", "pixel.png", "image/png", PIXEL])
        await attached(page, "pixel.png")
        await page.locator(".attached img").wait_for()
        await message.evaluate(GIVES, ["drop", "more.bin", "", base64.b64encode(b"More").decode()])
        await attached(page, "pixel.png", "more.bin")
        await page.get_by_role("button", name="Remove more.bin").click()
        await attached(page, "pixel.png")
        # A message may be a file alone.
        await page.get_by_role("button", name="Send").click()
        await sees(page, "Two.")
        await attached(page)
        picture = page.locator(".item.person .picture")
        assert await picture.get_attribute("src") == f"data:image/png;base64,{PIXEL}"
        # A text that is pasted stays one.
        assert await message.evaluate("e => e.dispatchEvent(new ClipboardEvent('paste', {cancelable: true}))")


async def test_a_file_that_is_dropped_anywhere_is_attached_and_never_opened(console: Opens) -> None:
    async with console(scripted(says("One."))) as opened:
        page = await opened.page()
        await sees(page, "No session yet", ".list")
        notes = ["notes.txt", "text/plain", base64.b64encode(b"Notes").decode()]
        for place in ("body", "header", "aside"):
            for kind in ("dragover", "drop"):
                # False where the page has kept the browser from opening it.
                assert not await page.locator(place).first.evaluate(GIVES, [kind, *notes])
        await attached(page, *["notes.txt"] * 3)
        await begin(page, "Look at them")
        await sees(page, "One.")
        assert not await page.locator(".talk").first.evaluate(GIVES, ["drop", *notes])
        await attached(page, "notes.txt")
        # Nothing is said here, so nothing takes it.
        await page.evaluate("location.hash = location.hash.replace(/#.s.([^?]*).*/, '#/compare/$1/$1')")
        await page.locator(".composer").wait_for(state="detached")
        assert not await page.locator("body").evaluate(GIVES, ["drop", *notes])
        await sees(page, "No message is here to attach a file to.", "#toasts")


async def test_more_than_the_server_takes_is_said_before_it_is_sent(console: Opens) -> None:
    async with console(scripted(says("One.")), limits=ServerLimits(body=4_000)) as opened:
        page = await opened.page()
        chosen = page.get_by_label("Files to attach")
        await chosen.set_input_files([file("a.txt", "text/plain", b"a" * 2_000)])
        await attached(page, "a.txt")
        await chosen.set_input_files(
            [file("b.txt", "text/plain", b"b" * 1_500), file("c.txt", "text/plain", b"c")]
        )
        await sees(
            page,
            "b.txt is not attached: it has 1.5 kB, and the files of a message have at most 3 kB together.",
            "#toasts",
        )
        await attached(page, "a.txt", "c.txt")
        await begin(page, "Look")
        await sees(page, "with a.txt")
