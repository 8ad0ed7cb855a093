"""A server of Restate, to be killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import attrs
import httpx
from support.installing import CACHE, install_npm
from support.patience import PATIENCE
from support.ports import free_ports

SERVER = "1.7.12"


def server_program() -> str:
    """The server of Restate, installed."""
    folder = CACHE / f"restate-{SERVER}"
    install_npm(folder, f"@restatedev/restate-server@{SERVER}")
    # It is one binary, which needs no node.
    return str(next(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")))


@attrs.define(eq=False)
class Node:
    """One server of *program* at three *ports*, over what is in *folder*; *more* are settings of it."""

    program: str
    folder: Path
    ports: list[int]
    more: Mapping[str, str] = attrs.field(factory=dict)
    _process: subprocess.Popen[bytes] = attrs.field(init=False)

    @property
    def ingress(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.ports[1]}"

    def start(self) -> None:
        """Start it over what it kept."""
        names = ("INGRESS__BIND_ADDRESS", "ADMIN__BIND_ADDRESS", "BIND_ADDRESS")
        settings = {name: f"127.0.0.1:{port}" for name, port in zip(names, self.ports, strict=True)}
        settings["DISABLE_TELEMETRY"] = "true"
        env = {f"RESTATE_{name}": value for name, value in {**settings, **self.more}.items()}
        name = self.folder.name
        command = [self.program, "--base-dir", str(self.folder), "--node-name", name, "--no-logo"]
        command += ["--listen-mode", "tcp"]
        self.folder.mkdir(exist_ok=True)
        with (self.folder.parent / f"{name}.log").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """Wait until it serves."""
        ready = (f"{self.admin}/health", f"{self.ingress}/restate/health")
        log = self.folder.parent / f"{self.folder.name}.log"
        wait_until(f"{self.program} answers at {ready}, see {log}", lambda: all(map(answers, ready)))

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self._process.kill()
        self._process.wait(30)


@attrs.define(eq=False)
class Cluster:
    """
    The server *program* on so many *nodes*, in *folder*; clients ask the first. Workers are at *port*.

    One that is not *patient* gives up connections to a worker that does not answer.
    """

    program: str
    folder: Path
    nodes: int = 1
    patient: bool = attrs.field(default=True, kw_only=True)
    port: int = attrs.field(factory=lambda: free_ports(1)[0])
    _all: list[Node] = attrs.field(init=False)
    _crashes: Iterator[int] = attrs.field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        ports = [free_ports(3) for _ in range(self.nodes)]
        shared: dict[str, str] = {}
        if not self.patient:
            shared["WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL"] = "1s"
            shared["WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT"] = "1s"
        if self.nodes > 1:
            shared |= {
                "CLUSTER_NAME": "tests",
                "BIFROST__DEFAULT_PROVIDER": "replicated",
                "METADATA_SERVER__TYPE": "replicated",
                "METADATA_CLIENT__ADDRESSES": json.dumps([_url(each[2]) for each in ports]),
                # So each may be lost.
                "DEFAULT_REPLICATION": "2",
                "DEFAULT_NUM_PARTITIONS": "6",
            }
        self._all = []
        for number, each in enumerate(ports):
            own = {"ADVERTISED_ADDRESS": _url(each[2]), "AUTO_PROVISION": "false" if number else "true"}
            folder = self.folder / f"node{number}"
            self._all.append(Node(self.program, folder, each, {**shared, **own}))

    @property
    def ingress(self) -> str:
        return self._all[0].ingress

    @property
    def admin(self) -> str:
        return self._all[0].admin

    def start_server(self) -> None:
        """Start all nodes over what they kept."""
        for node in self._all:
            node.start()
        for node in self._all:
            node.wait()

    def register(self, port: int) -> None:
        """Tell the server that workers serve at *port*."""
        uri = {"uri": _url(port)}
        httpx.post(f"{self.admin}/deployments", json=uri, trust_env=False, timeout=30).raise_for_status()

    def crash(self, away: float = 0.0) -> None:
        """Have one node crash, the next one each time, and start it again after so many seconds *away*."""
        node = self._all[next(self._crashes) % len(self._all)]
        node.kill()
        time.sleep(away)
        node.start()
        node.wait()

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self._all:
            node.kill()


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def answers(url: str) -> bool:
    """Whether *url* answers well."""
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Return when *holds* does; raises `TimeoutError` with *what* a program did not do in time."""
    limit = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > limit:
            msg = f"{what}: not within {PATIENCE:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.05)
