"""A server of Restate, to be killed and started again."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import httpx
from support.installing import CACHE, install_npm

SERVER = "1.7.12"


def server_program() -> str:
    """The server of Restate, installed."""
    folder = CACHE / f"restate-{SERVER}"
    install_npm(folder, f"@restatedev/restate-server@{SERVER}")
    # It is one binary, which needs no node.
    return str(next(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")))


def free_ports(number: int) -> list[int]:
    """So many loopback ports that no process listens on."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(each.getsockname()[1]) for each in taken]
    for each in taken:
        each.close()
    return ports


@attrs.define(eq=False)
class Cluster:
    """The server *program*, which keeps what it needs in *folder*."""

    program: str
    folder: Path
    ports: list[int] = attrs.field(factory=lambda: free_ports(4))
    _process: subprocess.Popen[bytes] = attrs.field(init=False)

    @property
    def ingress(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.ports[1]}"

    def start_server(self) -> None:
        """Start the server over what it kept."""
        ports = ("INGRESS__BIND_ADDRESS", "ADMIN__BIND_ADDRESS", "BIND_ADDRESS")
        env = {f"RESTATE_{name}": f"127.0.0.1:{port}" for name, port in zip(ports, self.ports, strict=False)}
        command = [self.program, "--base-dir", str(self.folder / "data"), "--node-name", "one", "--no-logo"]
        command += ["--listen-mode", "tcp"]
        env["RESTATE_DISABLE_TELEMETRY"] = "true"
        # A worker that hangs holds its connections. Without a balancer in between, the server has to notice.
        env["RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL"] = "1s"
        env["RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT"] = "1s"
        with (self.folder / "server.log").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: answers(f"{self.admin}/health") and answers(f"{self.ingress}/restate/health"))

    def register(self, port: int) -> None:
        """Tell the server that workers serve at *port*."""
        uri = {"uri": f"http://127.0.0.1:{port}"}
        httpx.post(f"{self.admin}/deployments", json=uri, trust_env=False, timeout=30).raise_for_status()

    def crash(self) -> None:
        """Crash, and start again."""
        self.stop()
        self.start_server()

    def stop(self) -> None:
        """Kill it, and wait for its end."""
        self._process.kill()
        self._process.wait(30)


def answers(url: str) -> bool:
    """Whether *url* answers well."""
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def wait_until(holds: Callable[[], bool], within: float = 60.0) -> None:
    """Return when *holds* does."""
    limit = time.monotonic() + within
    while not holds():
        if time.monotonic() > limit:
            msg = f"not within {within} s"
            raise TimeoutError(msg)
        time.sleep(0.05)
