"""turnwheel as a process of its own that begins in a moment: this one once more, which has imported all."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Never, final

from support.patience import PATIENCE

from turnwheel.apps.cli import main

Descriptors = tuple[int, int, int]
"""What a process reads from, writes to and complains to."""


@final
class Forked:
    """This very process once more, with turnwheel in its place."""

    def __init__(
        self,
        arguments: Sequence[str],
        descriptors: Descriptors,
        env: Mapping[str, str],
        folder: Path | None = None,
    ) -> None:
        self.returncode: int | None = None
        with warnings.catch_warnings():
            # The one other thread is a model server, which holds no lock that turnwheel needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            _become(arguments, descriptors, env, folder)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        return self._reaped(os.WNOHANG)

    def wait(self, timeout: float = PATIENCE) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return code

    def _reaped(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _become(
    arguments: Sequence[str], descriptors: Descriptors, env: Mapping[str, str], folder: Path | None
) -> Never:
    code = 99
    try:
        if os.isatty(descriptors[0]):
            os.setsid()
            fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        if "OUTPUT" in env:
            os.dup2(os.open(env["OUTPUT"], os.O_WRONLY | os.O_CREAT), 1)
        for number in (signal.SIGINT, signal.SIGALRM, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
        os.chdir(folder or Path.cwd())
        os.environ.clear()
        os.environ.update(env)
        signs = env.get("PYTHONIOENCODING", "utf-8")
        sys.stdin = open(0, encoding=signs, closefd=False)  # noqa: SIM115  # as long as the process lives
        sys.stdout = open(1, "w", encoding=signs, closefd=False)  # noqa: SIM115  # as above
        sys.stderr = open(2, "w", 1, encoding=signs, closefd=False)  # noqa: SIM115  # as above
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


@final
class Piped:
    """turnwheel with *arguments* in a process of its own, behind three pipes; it works in *folder*."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        (given, stdin), (stdout, out), (stderr, err) = os.pipe(), os.pipe(), os.pipe()
        self.process = Forked(arguments, (given, out, err), dict(env or os.environ), folder)
        for descriptor in (given, out, err):
            os.close(descriptor)
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self.stderr = os.fdopen(stderr, encoding="utf-8")

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Wait for its end, to which nothing more is said; the rest of stdout and stderr."""
        self.stdin.close()
        late = threading.Timer(timeout, self.process.kill)
        late.start()
        try:
            with ThreadPoolExecutor(1) as pool:
                err = pool.submit(self.stderr.read)
                out = self.stdout.read()
            self.process.wait()
        finally:
            late.cancel()
            late.join()
        return out, err.result()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
