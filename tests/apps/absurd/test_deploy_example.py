"""The example of a deployment does what it says: its compose file is read, and its services are started."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it has none
import attrs
import httpx
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.compose import Service, interpolated, plain_of, seconds, services_of
from support.patience import PATIENCE
from support.ports import free_ports
from support.postgres import ON_ONE_WORKER, PostgresServer, postgres_server

from turnwheel.apps.stand_in.wire import ChatRequest, ScriptedAnswer, ScriptedCall, chunks

__all__ = ["postgres_server"]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "deploy"
GIVEN = {"POSTGRES_PASSWORD": "p", "SERVER_TOKEN": "a-long-secret", "OPENAI_API_KEY": "k"}
PLAIN = plain_of(EXAMPLE / "compose.yaml")
SERVICES = services_of(PLAIN, GIVEN)

# What the file uses of the compose specification.
TOP = {"name", "services", "volumes", "x-app", "x-worker"}
KEYS = {
    *(
        "build",
        "image",
        "command",
        "environment",
        "depends_on",
        "healthcheck",
        "stop_grace_period",
        "restart",
    ),
    *("init", "read_only", "tmpfs", "cap_drop", "security_opt", "ports", "volumes", "shm_size"),
}
# Seconds between two looks at another process.
LOOK_AGAIN = 0.05

CHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def test_the_compose_file_is_well_formed() -> None:
    assert set(PLAIN) == TOP
    assert set(SERVICES) == {"postgres", "tables", "worker-1", "worker-2", "server"}
    for service in SERVICES.values():
        keys = service.keys
        assert set(keys) <= KEYS, service.name
        assert keys["restart"] == ("no" if service.name == "tables" else "unless-stopped")
        for name, how in keys.get("depends_on", {}).items():
            assert (name in SERVICES, how["condition"] in CONDITIONS) == (True, True)
            assert how["condition"] != "service_healthy" or SERVICES[name].health_check
        for volume in keys.get("volumes", []):
            assert volume.partition(":")[0] in PLAIN["volumes"]
        if service.name != "tables":
            check = keys["healthcheck"]
            assert set(check) <= CHECK_KEYS
            assert seconds(check["timeout"]) <= seconds(check["interval"]) or service.name == "postgres"
            assert (bool(service.health_check), service.grace > 10) == (True, True)


def test_what_is_secret_is_asked_for_and_never_in_the_file() -> None:
    for name in GIVEN:
        with pytest.raises(LookupError, match=rf"{name}: write it into \.env"):
            interpolated(PLAIN, {**GIVEN, name: ""})
    assert [
        name for name in GIVEN if f"\n{name}=\n" not in (EXAMPLE / "env.example").read_text("utf-8")
    ] == []


def test_each_variable_of_a_program_is_one_of_its_service() -> None:
    used = {
        name
        for program in EXAMPLE.glob("*.py")
        for name in re.findall(r'environ(?:\.get\(|\[)"(\w+)"', program.read_text("utf-8"))
    }
    assert used <= set(SERVICES["worker-1"].environment)
    assert SERVICES["server"].environment == SERVICES["worker-1"].environment


def test_the_image_has_the_programs_and_leaves_out_what_is_not_needed() -> None:
    dockerfile = (EXAMPLE / "Dockerfile").read_text("utf-8")
    assert all(f"examples/deploy/{program.name}" in dockerfile for program in EXAMPLE.glob("*.py"))
    assert dockerfile.rstrip().splitlines()[-1] == "USER agent"
    build: Any = SERVICES["server"].keys["build"]
    root = (EXAMPLE / build["context"]).resolve()
    assert root / build["dockerfile"] == EXAMPLE / "Dockerfile"


@attrs.define(eq=False)
class World:
    """A provider whose model fetches a page and tells what it says, and that page, which may never answer."""

    address: str
    asked: int = 0
    news: asyncio.Event = attrs.Factory(asyncio.Event)
    answers: asyncio.Event = attrs.Factory(asyncio.Event)

    async def model(self, request: Request) -> Response:
        chat = msgspec.json.decode(await request.body(), type=ChatRequest)
        last = chat.messages[-1]
        if last.role == "tool":
            step = ScriptedAnswer(text=f"It says: {last.text}")
        else:
            page = msgspec.json.encode({"url": f"{self.address}/page"}).decode()
            step = ScriptedAnswer(text="", calls=(ScriptedCall(id="c1", name="fetch", arguments=page),))
        used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "1", "created": 0, "model": chat.model}
        lines = [f"data: {msgspec.json.encode(each).decode()}\n\n" for each in chunks(about, step, used)]
        return Response("".join([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    async def requested(self, number: int) -> None:
        """Wait until so many have asked for the page."""
        while self.asked < number:
            self.news.clear()
            await self.news.wait()

    async def page(self, _: Request) -> Response:
        self.asked += 1
        self.news.set()
        await self.answers.wait()
        return PlainTextResponse("hello")


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = World(f"http://127.0.0.1:{listening.getsockname()[1]}")
        routes = [
            Route("/v1/chat/completions", made.model, methods=["POST"]),
            Route("/page", made.page),
        ]
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield made
        finally:
            made.answers.set()
            server.should_exit = True
            await serving


@attrs.define(eq=False)
class Machine:
    """Starts *services* as compose would, with the server of the tests in place of `postgres`."""

    server: PostgresServer
    database: str
    folder: Path
    services: dict[str, Service]
    running: dict[str, subprocess.Popen[bytes]] = attrs.Factory(dict)

    @property
    def dsn(self) -> str:
        return self.server.dsn.replace("/postgres?", f"/{self.database}?")

    def environment(self, name: str) -> dict[str, str]:
        """That of the service *name*, with the places of this machine for those of the containers."""
        programs = [str(Path(sys.executable).parent), str(self.server.binaries), os.environ["PATH"]]
        places = {
            "DATABASE_URL": self.dsn,
            "ALIVE": str(self.folder / name),
            "PATH": os.pathsep.join(programs),
        }
        return {**self.services[name].environment, **places, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, name: str) -> None:
        """Run a service that ends by itself."""
        command, place = self.services[name].command, self.environment(name)
        subprocess.run(command, check=True, cwd=EXAMPLE, env=place, timeout=30)

    async def start(self, *names: str) -> None:
        """Start services, and wait until they are healthy."""
        for name in names:
            command, place = self.services[name].command, self.environment(name)
            self.running[name] = subprocess.Popen(command, cwd=EXAMPLE, env=place)
        for name in names:
            while not await asyncio.to_thread(self.is_healthy, name):
                assert self.running[name].poll() is None, name
                await asyncio.sleep(0.1)

    def is_healthy(self, name: str) -> bool:
        check, place = self.services[name].health_check, self.environment(name)
        return not subprocess.run(check, check=False, env=place, capture_output=True).returncode

    def kill(self, process: int) -> None:
        """Kill the service that has that *process*."""
        (name,) = [name for name, each in self.running.items() if each.pid == process]
        self.running[name].kill()
        self.running.pop(name).wait()

    def stop(self) -> None:
        """End all services as compose does; raises where it would kill one."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.running.items():
            # uvicorn raises the signal again once all is done.
            assert process.wait(self.services[name].grace) in {0, -signal.SIGTERM}, name
        self.running.clear()

    async def query(self, number: int) -> list[Any]:
        """What that query of the README finds."""
        found = re.findall(r"```sql\n(.*?)```", (EXAMPLE / "README.md").read_text("utf-8"), re.DOTALL)
        db = await asyncpg.connect(self.dsn)
        try:
            return [tuple(row) for row in await db.fetch(found[number])]
        finally:
            await db.close()


@asynccontextmanager
async def started(server: PostgresServer, folder: Path, model: str) -> AsyncGenerator[Machine]:
    """The services over a new database, asking the *model* at that address."""
    given = {**GIVEN, "PORT": str(free_ports(1)[0]), "MODEL_URL": model}
    machine = Machine(server, f"deploy_{uuid.uuid4().hex[:8]}", folder, services_of(PLAIN, given))
    await server.run(f"create database {machine.database}")
    try:
        # Compose runs it with each start.
        machine.run("tables")
        machine.run("tables")
        await machine.start("worker-1", "worker-2", "server")
        yield machine
    finally:
        for process in machine.running.values():
            process.kill()
            process.wait()


@pytest.mark.real
@ON_ONE_WORKER
async def test_a_killed_worker_is_followed_by_the_other_one_and_all_end_in_time(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(90),
        world() as there,
        started(postgres_server, tmp_path, f"{there.address}/v1") as machine,
    ):
        published = machine.services["server"].keys["ports"][0].rpartition(":")[0]
        head = {"Authorization": f"Bearer {GIVEN['SERVER_TOKEN']}"}
        async with httpx.AsyncClient(
            base_url=f"http://{published}", headers=head, timeout=PATIENCE
        ) as client:
            await played(client, there, machine)
            async with client.stream("GET", "/api/sessions/s/events") as events:
                lines = events.aiter_lines()
                while await anext(lines) != "event: RunEnded":
                    pass
                # It stays open behind that, and the server ends all the same.
                await asyncio.to_thread(machine.stop)


async def played(client: httpx.AsyncClient, there: World, machine: Machine) -> None:
    """A session with an approval, and a worker that is killed in the middle of its tool."""

    async def ask(method: str, path: str, body: object = None) -> Any:
        return (await client.request(method, path, json=body)).raise_for_status().json()

    await ask("POST", "/api/sessions", {"id": "s", "prompt": "Read the page"})
    while not (asked := (await ask("GET", "/api/sessions/s"))["questions"]):  # noqa: ASYNC110  # as a person would
        await asyncio.sleep(LOOK_AGAIN)
    assert asked[0]["arguments"] == {"url": f"{there.address}/page"}
    # The turn that led to the question may not be over yet.
    while (await machine.query(0))[0][:2] != (0, 0):  # noqa: ASYNC110  # as above
        await asyncio.sleep(LOOK_AGAIN)
    await ask("POST", f"/api/sessions/s/questions/{asked[0]['id']}", {"decision": "approve"})
    await there.requested(1)
    ((worker, turns),) = await machine.query(1)
    machine.kill(int(worker.rpartition(":")[2]))
    await there.requested(2)
    ((other, _),) = await machine.query(1)
    assert (turns, other == worker) == (1, False)
    there.answers.set()
    while (await ask("GET", "/api/sessions/s"))["state"] != "done":  # noqa: ASYNC110  # as above
        await asyncio.sleep(LOOK_AGAIN)
    assert "It says: hello" in str((await ask("GET", "/api/sessions/s/export"))["messages"][-1])
    assert await machine.query(2) == []
    metrics = (await client.get("/metrics")).raise_for_status().text
    assert 'turnwheel_http_requests_total{method="POST",path="/api/sessions",status="201"} 1.0' in metrics
