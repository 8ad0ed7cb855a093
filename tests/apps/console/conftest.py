"""Chromium with the console in it, over a server of this process with a scripted model."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, final

import attrs
import pytest
import uvicorn
from support.installing import CACHE, install_npm
from support.patience import PATIENCE

from turnwheel import Agent, MemoryStore
from turnwheel.apps.server.app import AgentServer, create_app
from turnwheel.performers.stores.base import Store

AXE = "4.14.1"

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium, as Debian has it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed: the console is looked at in it (apt-get install chromium)")
    return found


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds what a page keeps from people who use it in other ways."""
    folder = CACHE / f"axe-core-{AXE}"
    install_npm(folder, f"axe-core@{AXE}")
    return Path(folder, "node_modules/axe-core/axe.min.js").read_text("utf-8")


@final
@attrs.frozen
class Console:
    """
    The console at *url*, and a *browser* to look at it; *faults* are what its pages complained about.

    The *server* is known where it is one of this process.
    """

    url: str
    browser: Any
    faults: list[str]
    server: AgentServer | None = None

    def excuse(self, *texts: str) -> None:
        """Forget the complaints that have one of *texts*: they were to be expected."""
        self.faults[:] = [fault for fault in self.faults if not any(text in fault for text in texts)]

    async def page(self, path: str = "", **more: Any) -> Any:
        """A page of a person of their own."""

        def listen(said: Any) -> None:
            if said.type == "error":
                self.faults.append(said.text)

        context = await self.browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **more})
        context.set_default_timeout(1_000 * PATIENCE)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", listen)
        await page.goto(self.url + path)
        return page


Opens = Callable[..., AbstractAsyncContextManager[Console]]


@pytest.fixture
def console(chromium: str) -> Opens:
    """Opens the console on the sessions of an agent."""
    from playwright.async_api import async_playwright  # noqa: PLC0415  # it takes a while, and few tests ask

    @asynccontextmanager
    async def open_console(
        agent: Agent, store: Store | None = None, **more: Any
    ) -> AsyncGenerator[Console, None]:
        app = create_app(agent, MemoryStore() if store is None else store, **more)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        faults: list[str] = []
        try:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
                yield Console(f"http://127.0.0.1:{port}/", browser, faults, app.state.server)
                await browser.close()
        finally:
            await app.state.server.drain(0.1)
            server.should_exit = True
            await serving
        assert faults == []

    return open_console
