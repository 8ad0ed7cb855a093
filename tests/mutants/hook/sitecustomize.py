"""
A mistake on purpose: a module of turnwheel is imported with something else in it than its file says.

No file is written. `announce` has the processes that this one starts import it so: they find this file on
their path, under the name of what a process imports first.
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
VARIABLE = "TURNWHEEL_MISTAKE"


class _Loader(SourceFileLoader):
    """Loads a module with *new* from *begin* to *end*; nothing of it is cached."""

    def __init__(self, name: str, path: str, begin: int, end: int, new: str) -> None:
        super().__init__(name, path)
        self._begin, self._end, self._new = begin, end, new

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = Path(path).read_text("utf-8")
        return compile(text[: self._begin] + self._new + text[self._end :], path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds one module."""

    def __init__(self, file: str, begin: int, end: int, new: str) -> None:
        self._module = module_of(file)
        self._change = begin, end, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: object = None
    ) -> ModuleSpec | None:
        """The module, with its mistake; None for any other one."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, *self._change)
        return spec


def module_of(file: str) -> str:
    """The module whose file is *file*, a path in the package."""
    return ".".join(["turnwheel", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


def install(file: str, begin: int, end: int, new: str) -> None:
    """From now on *file* is imported here with *new* in the place of what it says from *begin* to *end*."""
    sys.meta_path.insert(0, _Finder(file, begin, end, new))


def announce(file: str, begin: int, end: int, new: str) -> dict[str, str]:
    """The environment of a process that is to import *file* as `install` says."""
    folders = [HERE, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: json.dumps([file, begin, end, new]), "PYTHONPATH": os.pathsep.join(folders)}


if VARIABLE in os.environ:
    install(*json.loads(os.environ[VARIABLE]))
