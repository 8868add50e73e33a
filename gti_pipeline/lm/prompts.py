"""Prompts as token ids: one chat template, one system line, and what of it is supervised.

All wording lives here. Item text is the user's: whatever in it looks like a special or a semantic-ID token is broken
up, so that it is read as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from gti_pipeline.errors import GtiError
from gti_pipeline.vocab import sid_text

TEXT_TO_SID = {
    "title": "Which item has this title? {title}",
    "description": "Which item fits this description? {description}",
    "both": "Which item is this? Title: {title}. Description: {description}",
}
SID_TO_TEXT = {
    "title": ("What is the title of {sid}?", "{title}"),
    "description": ("What is the description of {sid}?", "{description}"),
    "both": ("What are the title and description of {sid}?", "{title}. {description}"),
}
# wordings that nothing is trained on, for the retrieval probe
PROBE_TO_SID = "Find the item that is called: {title}"
PROBE_TO_TEXT = "What is {sid} called?"
NEXT_ITEM = (
    "A customer chose these items, oldest first: {history}\nWhich item comes next?",
    "Predict the next item of this sequence: {history}",
    "The history of a customer, in order of time: {history}\nRecommend the next item.",
)

SID = re.compile(r"<sid_\d+_\d+>")


@dataclass(frozen=True)
class Example:
    """Token ids, and which of them are supervised (the loss is on predicting them)."""

    ids: list[int]
    supervised: list[bool]


class Prompter:
    """Turns user messages and answers into token ids with the model's own chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, system: str, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.opening, self.closing, self.end = _chat_pieces(tokenizer, system)
        added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
        literal = sorted(filter(None, added | set(tokenizer.all_special_tokens)), key=len, reverse=True)
        self._tokenlike = re.compile("|".join([SID.pattern, *map(re.escape, literal)]))

        self._sids = {int(i) for i, token in tokenizer.added_tokens_decoder.items() if SID.fullmatch(str(token))}

    def is_sid(self, token: int) -> bool:
        """Whether a token id is a semantic-ID code's."""
        return token in self._sids

    def clean(self, text: str) -> str:
        """Item text in which nothing is a token of the template or a semantic ID."""
        return self._tokenlike.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def cut(self, text: str, max_tokens: int) -> str:
        """Item text of at most `max_tokens` tokens, cleaned."""
        text = self.clean(text)
        while True:
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            offsets = encoded["offset_mapping"]
            if len(offsets) <= max_tokens:
                return text
            # a character may be several tokens, and what is left may be split otherwise: look again
            text = text[: min(offsets[max_tokens - 1][1], offsets[max_tokens][0], len(text) - 1)]

    def encode(self, text: str) -> list[int]:
        """Text to ids, nothing added."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def prompt(self, message: str) -> list[int]:
        """A user's message as a whole prompt, ready for the answer."""
        return self.encode(self.opening + message + self.closing)

    def example(self, message: str, answer: str, *, with_end: bool) -> Example:
        """Prompt and answer; only the answer is supervised, `with_end` with the end-of-turn token.

        An answer that is too long for the context is cut at its end.
        """
        prompt = self.prompt(message)
        answer_ids = self.encode(answer + self.end if with_end else answer)
        ids = (prompt + answer_ids)[: self.max_tokens]
        if len(ids) <= len(prompt):
            raise GtiError(
                f"lm.max_tokens={self.max_tokens}: a prompt of {len(prompt)} tokens leaves no room for its answer:"
                " raise lm.max_tokens or lower ground.max_text_tokens"
            )
        return Example(ids, [False] * len(prompt) + [True] * (len(ids) - len(prompt)))

    def next_item(self, history: Sequence[Sequence[int]], wording: int, answer_tokens: int) -> list[int]:
        """The next-item prompt; a history too long for the context loses its oldest items, never the question.

        Args:
            history: codes of the items, oldest first.
            wording: which of the wordings.
            answer_tokens: room to leave for the answer, L.

        Raises:
            GtiError: not even one item fits.
        """
        template = NEXT_ITEM[wording % len(NEXT_ITEM)]
        empty = len(self.prompt(template.format(history="")))
        levels = len(history[0]) if history else 1
        room = max(0, self.max_tokens - answer_tokens - empty) // levels
        while True:
            if (history and not room) or self.max_tokens < empty + answer_tokens:
                raise GtiError(f"lm.max_tokens={self.max_tokens} leaves no room for a single item: raise it")
            kept = history[-room:]
            ids = self.prompt(template.format(history="".join(map(sid_text, kept))))
            # tokens at the seams of the empty template may have merged: then it is a little longer than reckoned
            if len(ids) + answer_tokens <= self.max_tokens or not history:
                return ids
            room -= 1


def _chat_pieces(tokenizer: PreTrainedTokenizerBase, system: str) -> tuple[str, str, str]:
    """The chat template's text before the user's message, between message and answer, and the end of the answer."""
    user, assistant = "USER-PLACE", "ASSISTANT-PLACE"
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    asked = _render(tokenizer, turns, add_generation_prompt=True)
    told = _render(tokenizer, [*turns, {"role": "assistant", "content": assistant}], add_generation_prompt=False)
    if asked.count(user) != 1 or told.count(assistant) != 1:
        raise GtiError("lm.model: its chat template does not show the user's message exactly once")
    opening, closing = asked.split(user)
    return opening, closing, told.split(assistant)[1].rstrip()


def _render(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    text = tokenizer.apply_chat_template(
        turns,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
        enable_thinking=False,  # Qwen3: an empty thought, so that the answer comes at once
    )
    return str(text)
