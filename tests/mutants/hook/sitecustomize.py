"""
A mistake on purpose: a module of turnwheel is imported with something else in it than its file says.

No file is written. `install` does it in this process, and the processes that this one starts do the same:
they find this file on their path, under the name of what a process imports first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

HERE = str(Path(__file__).resolve().parent)
VARIABLE = "TURNWHEEL_SWAPPED"


class SwapError(Exception):
    """The text that is to be swapped does not stand there once."""


class _Loader(SourceFileLoader):
    """Loads a module with *new* where *old* stands; nothing of it is cached."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = Path(path).read_text("utf-8")
        if text.count(self._old) != 1:
            msg = f"{path} has changed, or says it more than once: write {self._old!r} anew"
            raise SwapError(msg)
        return compile(text.replace(self._old, self._new), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds one module."""

    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._old, self._new = module, old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: object = None
    ) -> ModuleSpec | None:
        """The module, with its mistake; None for any other one."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._old, self._new)
        return spec


def install(file: str, old: str, new: str) -> None:
    """From now on *file*, by its path in the package, is imported with *new* in the place of *old*."""
    _install(file, old, new)
    os.environ[VARIABLE] = json.dumps([file, old, new])
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


def _install(file: str, old: str, new: str) -> None:
    module = ".".join(["turnwheel", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
    if module in sys.modules:
        msg = f"{module} was imported before"
        raise SwapError(msg)
    sys.meta_path.insert(0, _Finder(module, old, new))


if VARIABLE in os.environ:
    _install(*json.loads(os.environ[VARIABLE]))
