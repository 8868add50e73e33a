"""Text as exported by shops to text as a language model should see it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from html.parser import HTMLParser

# tags that stand inside a word or a sentence: dropping them must not tear the word apart
INLINE = {"a", "abbr", "b", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "u"}
UNSEEN = {"script", "style"}  # their content is not text


class _TextOnly(HTMLParser):
    """Collects the text between tags; entities are unescaped, comments dropped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden = tag if tag in UNSEEN else self._hidden
        self._gap(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden = None if tag == self._hidden else self._hidden
        self._gap(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._gap(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden is None:
            self.parts.append(data)

    def _gap(self, tag: str) -> None:
        if tag not in INLINE:
            self.parts.append(" ")


def plain_text(text: str) -> str:
    """Drops tags and comments, unescapes entities, collapses white space and NUL bytes to one space."""
    if "<" in text or "&" in text:
        parser = _TextOnly()
        parser.feed(text)
        parser.close()
        text = "".join(parser.parts)
    return " ".join(text.replace("\x00", " ").split())


def list_text(text: str) -> str:
    """`"['summer', 'linen']"` as `summer, linen`, lists within lists too; text that is no list stays as it is."""
    value = _literal(text.strip())
    return ", ".join(_entries(value)) if isinstance(value, list | tuple) else text


def _literal(text: str) -> object:
    """The value of a Python or JSON literal, None where it is none; nothing is evaluated."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def _entries(values: Iterable[object]) -> list[str]:
    entries: list[str] = []
    for value in values:
        if isinstance(value, list | tuple):
            entries += _entries(value)
        elif value is not None and value != "":
            entries.append(str(value))
    return entries
