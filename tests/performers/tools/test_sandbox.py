"""Programs of tools in a sandbox: what they may do there, and 250 attempts to do more."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, final

import attrs
import pytest

from turnwheel import Agent, tool
from turnwheel.effects.config import AutoAllow, Config, ModelSpec, Policy, Sandbox
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.history import History
from turnwheel.effects.permissions import Rule
from turnwheel.effects.requests import RunTool
from turnwheel.performers.base import PerformContext, SystemClock, noop
from turnwheel.performers.tools import sandbox
from turnwheel.performers.tools.builtin import bash
from turnwheel.performers.tools.decorator import ToolContext
from turnwheel.performers.tools.runner import ToolRunner

SECRET = "masked-secret"  # noqa: S105  # what is looked for

ESCAPES = dict(
    line.split(": ", 1)
    for line in Path(__file__).with_name("escapes.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)

# Of the machine, what commands in the list try to change.
WATCHED = (
    *("/etc/passwd", "/etc/cron.d", "/etc/profile.d", "/var/spool/cron", "/proc/sys/kernel/core_pattern"),
    *("/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/user/max_user_namespaces"),
    *("/proc/sys/net/ipv4/ip_forward", "~/.bashrc", "~/.ssh", "/dev/mqueue"),
)
PLACES = ("/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/opt", "/mnt", "/sys", "/boot")  # noqa: S108  # places to look for strays in


def fault() -> str:
    try:
        sandbox.check_sandbox(Sandbox())
    except ConfigError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(fault()), reason=fault() or "there is a sandbox")


@final
@attrs.frozen(kw_only=True)
class World:
    """A folder to work in, one outside of it, a process and sockets there; all of them watched."""

    work: Path
    out: Path
    sentinel: subprocess.Popen[bytes]
    sockets: list[socket.socket]
    names: dict[str, str]

    def state(self) -> dict[str, object]:
        """All that must stay as it is."""
        watched = [Path(path).expanduser() for path in WATCHED]
        files = {str(path): look for root in (self.out, *watched) for path, look in looks(root)}
        strays = [place for place in PLACES if Path(place, "turnwheel-escape").exists()]
        status = Path(f"/proc/{self.sentinel.pid}/status").read_text("utf-8")
        return {**files, "strays": strays, "stopped": "State:\tT" in status}

    def heard(self) -> bool:
        """Whether anything came to the sockets."""
        for each in self.sockets:
            with contextlib.suppress(BlockingIOError):
                each.recv(1) if each.type is socket.SOCK_DGRAM else each.accept()[0].close()
                return True
        return False


def looks(root: Path) -> Iterator[tuple[Path, tuple[int, int, str]]]:
    """All below *root*, and how each looks: its mode, its time, its content."""
    for path in [root, *sorted(root.rglob("*"))] if root.is_dir() else [root]:
        if path.exists():
            # The kernel makes up times for its own files.
            found, content = path.lstat(), path.read_bytes() if path.is_file() else b""
            time = 0 if str(path).startswith(("/proc", "/dev")) else found.st_mtime_ns
            yield path, (found.st_mode, time, sha256(content).hexdigest())


@pytest.fixture
def world() -> Iterator[World]:
    # Not below /tmp, which is an empty one in there.
    base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="turnwheel-test-"))  # a folder of our own
    work, out = base / "work", base / "out"
    for name, text in {
        **dict.fromkeys(
            ("work/.env", "work/deep/in/.env", "work/secrets/key", "work/secrets/in/key"), SECRET
        ),
        **dict.fromkeys(("work/sessions.db", "work/sessions.db-wal", "out/denied/key"), SECRET),
        "out/kept": "kept",
    }.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    (work / "linked").symlink_to(out / "denied" / "key")
    shutil.copy("/bin/cat", work / "rootcat")
    (work / "rootcat").chmod(0o4755)
    sentinel = subprocess.Popen(
        ["turnwheel-sentinel", "1000"],
        executable=shutil.which("sleep"),
        env={**os.environ, "OUTSIDE_SECRET": "1"},
    )
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        stack.callback(sentinel.wait)
        stack.callback(sentinel.kill)
        abstract = f"turnwheel-{uuid.uuid4().hex}"
        tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
        port = tcp.getsockname()[1]
        with contextlib.suppress(OSError):  # another program has it, and hears no more of us for it
            udp.bind(("127.0.0.1", port))
        unix = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for each, name in zip(
            unix, (str(out / "s.sock"), str(work / "server.sock"), f"\0{abstract}"), strict=True
        ):
            each.bind(name)
            each.listen()
        sockets = [tcp, udp, *unix]
        for each in sockets:
            stack.callback(each.close)
            each.settimeout(0)
        names = {
            "OUT": str(out),
            "PID": str(sentinel.pid),
            "PORT": str(port),
            "SOCK": str(out / "s.sock"),
            "ABSTRACT": abstract,
        }
        yield World(work=work, out=out, sentinel=sentinel, sockets=sockets, names=names)


def config_of(world: World, *, network: bool = False) -> Config:
    rules = [("read", "*.env"), ("*", "secrets/*"), ("read", f"{world.out}/denied/*")]
    return Config(
        model=ModelSpec(name="m"),
        rules=tuple([Rule(verdict="deny", tool=tool, where=(("path", glob),)) for tool, glob in rules]),
        protected=(f"{world.work}/sessions.db*",),
        sandbox=Sandbox(memory=1_000_000_000, tmp=10_000_000, network=network),
    )


@tool(sandboxed=True)
async def told(context: ToolContext[Any], words: list[str]) -> str:
    """Run a program."""
    return (await context.run(words)).output


async def performed(world: World, name: str, config: Config, **arguments: Any) -> str:
    """What the model reads of a call of the tool *name*."""
    runner = ToolRunner([bash, told], cwd=world.work, directories=[*world.out.glob("more")])
    request = RunTool(id="r", call="c", tool=name, arguments=json.dumps(arguments))
    scene = PerformContext(
        clock=SystemClock(), session="s", run="r", config=config, history=History.of(), emit=noop
    )
    return (await runner(request, scene)).content


async def ran(world: World, command: str, *, network: bool = False, seconds: float = 20.0) -> str:
    names = " ".join(f"{name}={quote(value)}" for name, value in world.names.items())
    config = config_of(world, network=network)
    return await performed(world, "bash", config, command=f"export {names}\n{command}", timeout=seconds)


def left_of(mark: str) -> list[str]:
    """The processes that have *mark* in their environment."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.real
@pytest.mark.parametrize("name", ESCAPES)
async def test_nothing_gets_out(name: str, world: World, until: Any) -> None:
    before, mark = world.state(), uuid.uuid4().hex
    said = await ran(world, f"export MARK={mark}\n{ESCAPES[name]}")
    assert "WIN" not in said.replace("W' + 'IN", "").replace("echo WIN", "")
    assert SECRET not in said
    assert world.state() == before
    assert not world.heard()
    await until(lambda: not left_of(mark))


# What a program may do


async def test_a_program_works_in_its_folders_and_has_a_tmp_of_its_own(world: World) -> None:
    said = await ran(world, 'pwd; echo new > made; touch /tmp/a; ls "$TMPDIR"; cat "$OUT/kept"; exit 3')
    assert said == f"{world.work}\na\nkept\n[exit code 3]"
    assert (world.work / "made").read_text() == "new\n"
    assert await ran(world, "ls /tmp") == "[exit code 0]"


async def test_each_directory_of_the_agent_is_writable(world: World) -> None:
    more = world.out / "more"
    more.mkdir()
    words = ["sh", "-c", f"echo x > {more}/made; echo y > {world.out}/new"]
    assert "Read-only file system" in await performed(world, "told", config_of(world), words=words)
    assert ((more / "made").exists(), (world.out / "new").exists()) == (True, False)


async def test_the_network_is_there_where_it_is_wanted(world: World) -> None:
    assert (
        await ran(world, "exec 5<>/dev/tcp/127.0.0.1/$PORT && echo open", network=True)
        == "open\n[exit code 0]"
    )
    assert world.heard()
    # Sockets of the machine are not: that of a container engine would open all.
    for name in ("unix socket", "unix socket own folder", "unix abstract", "unix datagrams"):
        assert "Operation not permitted" in await ran(world, ESCAPES[name], network=True)
    assert not world.heard()


async def test_a_program_speaks_with_those_that_it_starts(world: World) -> None:
    command = (
        """python3 -c "import asyncio; print(asyncio.run(asyncio.sleep(0, 'looped')))"; echo piped | cat"""
    )
    assert await ran(world, command) == "looped\npiped\n[exit code 0]"


async def test_a_command_ends_in_time_with_all_that_it_started(world: World, until: Any) -> None:
    mark = uuid.uuid4().hex
    said = await ran(world, f"export MARK={mark}; echo begun; setsid sleep 1000 & sleep 1000", seconds=1.0)
    assert "ended after 1 s; until then it said:\nbegun" in said
    await until(lambda: not left_of(mark))


async def test_a_link_that_a_rule_denies_is_masked_where_it_leads(world: World) -> None:
    (world.work / "prod.env").symlink_to(world.out / "kept")
    assert "kept" not in (await ran(world, "cat prod.env $OUT/kept")).replace("out/kept", "")
    (world.work / "all.env").symlink_to("..")
    assert "all.env', which is, or holds, the folder that the agent works in" in await ran(world, "true")


async def test_a_path_below_a_masked_folder_needs_no_mask_of_its_own(world: World) -> None:
    (world.work / "a.env").symlink_to("secrets/key")
    assert (
        await ran(world, "cat a.env; ls secrets; echo $?")
        == "cat: a.env: No such file or directory\n0\n[exit code 0]"
    )


async def test_where_a_glob_may_match_anywhere_nothing_runs(world: World) -> None:
    config = config_of(world)
    rule = Rule(verdict="deny", tool="read", where=(("path", "/*/key"),))
    said = await performed(world, "told", attrs.evolve(config, rules=(rule,)), words=["touch", "ran"])
    assert "cannot look everywhere for what '/*/key' denies; name a folder" in said
    assert not (world.work / "ran").exists()


@pytest.mark.parametrize("place", ["/", "/proc", "/sys/kernel", "/dev/shm", "/run"])  # noqa: S108  # refused
async def test_what_is_the_kernels_is_no_folder_to_write_in(place: str) -> None:
    with pytest.raises(ValueError, match=f"in '{place}' they must not"):
        await sandbox.sandboxed(
            ["true"], sandbox=Sandbox(), directories=[Path(place)], tool="", rules=[], store=[]
        )


async def test_a_folder_that_became_a_link_is_not_written_in(world: World) -> None:
    made = ToolRunner([told], cwd=world.work)
    world.work.rename(world.work.with_name("old"))
    world.work.symlink_to(world.out)
    request = RunTool(id="r", call="c", tool="told", arguments=json.dumps({"words": ["touch", "new"]}))
    scene = PerformContext(
        clock=SystemClock(), session="s", run="r", config=config_of(world), history=History.of(), emit=noop
    )
    assert "is a link to" in (await made(request, scene)).content
    assert not (world.out / "new").exists()


async def test_bubblewrap_is_not_looked_for_where_a_program_may_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.work / "bwrap").write_text(f"#!/bin/sh\ntouch {world.out}/new\n")
    (world.work / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{world.work}:{os.environ['PATH']}")
    assert await ran(world, "echo ran") == "ran\n[exit code 0]"
    assert not (world.out / "new").exists()


@pytest.mark.parametrize("bound", ["MOST_SEEN", "MOST_MASKED"])
async def test_more_than_can_be_masked_is_an_error_and_runs_nothing(
    bound: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, bound, 2)
    assert "let these globs name whole folders: *.env" in await ran(world, "touch ran")
    assert not (world.work / "ran").exists()


# Where there is none


def test_an_agent_is_not_made_where_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_PROGRAMS", "/nowhere")
    # Another one than in other tests: a process tries each once.
    with pytest.raises(ConfigError, match=r"bwrap is in none of /nowhere; install bubblewrap 0\.8 or later"):
        Agent(model="openai:gpt-5", sandbox=Sandbox(tmp=123_456))


async def test_a_context_without_the_sandbox_of_its_agent_runs_nothing(world: World) -> None:
    with pytest.raises(ValueError, match="this context was made without one"):
        await bash(ToolContext(cwd=world.work, deps=None, config=config_of(world)), "touch ran")
    assert not (world.work / "ran").exists()


def test_what_runs_in_a_sandbox_is_not_allowed_without_one() -> None:
    policy = Policy(auto_allow=AutoAllow.SANDBOXED)
    with pytest.raises(ConfigError, match="nothing runs in a sandbox; set sandbox, too"):
        Config(model=ModelSpec(name="m"), policy=policy)
    assert Config(model=ModelSpec(name="m"), policy=policy, sandbox=Sandbox()).policy == policy
