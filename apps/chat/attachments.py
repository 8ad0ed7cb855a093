"""Attach files to a prompt, as ``@path``: text goes into the prompt, pictures and PDFs go beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, final
from urllib.parse import unquote, urlsplit

import attrs

from ...effects.errors import ConfigError
from ...effects.messages import Binary
from ...performers.tools.builtin import binary_type
from ..cli.options import read_attached

_ATTACHED: Final = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>[^\s"]+))')
_UNFINISHED: Final = re.compile(r'(?<!\S)@(?P<word>"[^"\n]*|[^\s"]*)\Z')

_SNIFFED: Final = 8_192
"""Bytes of a file in which a zero says that it is no text."""

_SENTENCE_ENDS: Final = ".,;:!?)"

PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
"""The ends of names of files that are attached when their path is pasted."""


@final
@attrs.frozen
class Attached:
    """
    A prompt's whole *text*, and the *files* beside it.

    *missing* are words that look like paths of no file, and *folders* those that name a folder.
    """

    text: str
    files: tuple[Binary, ...] = ()
    missing: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def attached_word(before: str) -> str | None:
    """The path, as far as it is typed, at the end of the text *before* the cursor; None if there is none."""
    match = _UNFINISHED.search(before)
    return None if match is None else match["word"]


def attach(text: str, cwd: Path) -> Attached:
    """
    The prompt *text* with the files it names; relative paths begin in *cwd*.

    A word that names no file stays as it is, since an ``@`` may also name a person. Raises `TooLarge` for
    a large file, and `ConfigError` for one that cannot be read, or is neither text nor of a kind that models
    take.
    """
    texts: dict[str, str] = {}
    files: dict[str, Binary] = {}
    missing: list[str] = []
    folders: list[str] = []
    for word in dict.fromkeys(match["quoted"] or match["plain"] for match in _ATTACHED.finditer(text)):
        # A sentence may end behind a path.
        name = next((each for each in (word, word.rstrip(_SENTENCE_ENDS)) if _is_file(_path(each, cwd))), "")
        folder = word.rstrip(_SENTENCE_ENDS)
        if not name and _is_folder(_path(folder, cwd)):
            folders.append(folder)
            continue
        if not name:
            missing += [word] if "/" in word or Path(word).suffix else []
            continue
        path = _path(name, cwd)
        data = read_attached(path, name)
        if kind := binary_type(data):
            files[name] = Binary(media_type=kind, data=data, name=path.name)
        elif b"\0" in data[:_SNIFFED]:
            msg = f"cannot attach {name!r}: it is a binary file; attach text, a PNG, JPEG, GIF, WebP or PDF"
            raise ConfigError(msg)
        else:
            texts[name] = f'<file path="{name}">\n{data.decode(errors="replace").rstrip()}\n</file>'
    return Attached(
        "\n\n".join([text, *texts.values()]), tuple(files.values()), tuple(missing), tuple(folders)
    )


def _path(name: str, cwd: Path) -> Path:
    try:
        return cwd / Path(name).expanduser()
    except RuntimeError:  # no home of that name
        return cwd / name


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that no file can have
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # as above
        return False


def pasted_text(text: str, cwd: Path) -> str:
    """What to insert for the pasted *text*: the path of a picture becomes an attachment."""
    path = _pasted_path(text.strip())
    if path is None or not path.lower().endswith(PICTURES) or '"' in path or "\n" in path:
        return text
    if not _is_file(_path(path, cwd)):
        return text
    return f'@"{path}" ' if " " in path else f"@{path} "


def _pasted_path(text: str) -> str | None:
    """The one path in *text*, as terminals paste a dropped file: plain, quoted, escaped or an address."""
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    if Path(text).suffix and not text.startswith(("'", '"')) and "\\" not in text:
        return text
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quote
        return None
    return words[0] if len(words) == 1 else None
