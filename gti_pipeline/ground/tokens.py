"""Grounding for any vocabulary: tool names, product codes, medical codes. Nothing is assumed about the later task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from gti_pipeline.budget import Budget
from gti_pipeline.config import GroundConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.ground.loop import Progress
from gti_pipeline.ground.train import ground
from gti_pipeline.lm.extended import ExtendedLM, embedding_rows, merge
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.vocab import add_tokens, initial_rows

TEXT_TO_TOKENS = ("Which token stands for this? {text}", "Name the token of the following. {text}")
TOKENS_TO_TEXT = ("What does {tokens} stand for?", "Explain {tokens}.")
# for LMs without a chat template: question and answer on lines of their own
PLAIN_CHAT = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token or '' }}{% endif %}{{ '\n' }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class GroundedTokens:
    """token_ids [n] in the order of the new tokens; steps of (step, loss_<direction>, value); what was done."""

    token_ids: NDArray[np.int64]
    steps: list[tuple[int, str, float]]
    budget: Budget


def ground_tokens(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    *,
    new_tokens: Sequence[str] | None = None,
    text_to_tokens: Sequence[str] = TEXT_TO_TOKENS,
    tokens_to_text: Sequence[str] = TOKENS_TO_TEXT,
    epochs: float = 10,
    batch_size: int = 16,
    learning_rate: float = 1e-3,
    max_text_tokens: int = 512,
    max_tokens: int = 2048,
    system: str = "You are a helpful assistant.",
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, GroundedTokens]:
    """Teaches an LM new tokens from (text, token string) pairs, in both directions; all that it knew stays as it was.

    The new rows start at the mean of the old ones and are all that trains. Method: GTI, arXiv 2604.02324.

    Args:
        model: a causal LM of transformers with tied embeddings; grown in place, its old rows unchanged bit for bit.
        tokenizer: its fast tokenizer, left as it is: a copy is extended. Without a chat template, question and answer
            are lines of their own.
        pairs: a text and the string of new tokens that it stands for, for example ("weather of a city",
            "<get_weather>") or ("type 2 diabetes", "<E><11>"). A text may have several strings and the reverse.
        new_tokens: where strings are of several tokens; by default each distinct string is one.
        text_to_tokens: templates of questions with {text}, each used for every pair; empty: not this direction.
        tokens_to_text: the same with {tokens}.
        epochs: over all pairs in all templates.
        batch_size: pairs of one step.
        learning_rate: of Adam.
        max_text_tokens: longer texts are cut at their end.
        max_tokens: of a question with its answer; no more than the model's context.
        system: the system line, where the chat template has one.
        seed: order of the batches.
        progress: called with (steps done, steps planned).

    Returns:
        The model that was passed and the extended tokenizer, ordinary ones to save and load, and what was done.

    Raises:
        GtiError: pairs, tokens or templates that cannot be used (all of them named), a model that cannot be extended.
    """
    tokens = list(dict.fromkeys(new_tokens if new_tokens is not None else (string for _, string in pairs)))
    config = _config(epochs, batch_size, learning_rate)
    _raise(_token_problems(tokenizer, tokens) + _template_problems(text_to_tokens, tokens_to_text))
    tokenizer = copy.deepcopy(tokenizer)
    token_ids = add_tokens(tokenizer, tokens)
    _raise(_pair_problems(tokenizer, pairs, tokens, token_ids))
    prompter = _prompter(tokenizer, system, max_tokens)
    examples = _examples(prompter, pairs, text_to_tokens, tokens_to_text, max_text_tokens)
    first = int(token_ids.min())
    rows = initial_rows(embedding_rows(model)[:first], len(tokens), "mean", seed)
    training, frozen = model.training, [p for p in model.parameters() if not p.requires_grad]
    model.eval()
    try:
        lm = ExtendedLM(model, rows, first).to(model.device)
        result = ground(lm, examples, config, seed, progress or _quiet)
    finally:
        model.requires_grad_(True)
        for parameter in frozen:
            parameter.requires_grad_(False)
        model.train(training)
    merge(model, lm.new_rows.detach(), first)
    return model, tokenizer, GroundedTokens(token_ids, result.steps, result.budget)


def _quiet(done: int, total: int) -> None:
    """No progress shown."""


def _config(epochs: float, batch_size: int, learning_rate: float) -> GroundConfig:
    try:
        return GroundConfig(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)
    except ValidationError as error:
        raise GtiError("ground_tokens: " + "; ".join(f"{e['loc'][0]}: {e['msg']}" for e in error.errors())) from error


def _token_problems(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str]) -> list[str]:
    known = tokenizer.get_vocab()
    problems = [f"the tokenizer already knows {token!r}: name it otherwise" for token in tokens if token in known]
    spaced = [token for token in tokens if not token or token != token.strip()]
    problems += [f"{token!r} is no token: it is empty or has spaces around it" for token in spaced]
    return problems if tokens else ["there is no new token"]


def _template_problems(text_to_tokens: Sequence[str], tokens_to_text: Sequence[str]) -> list[str]:
    problems = [
        f"the template {template!r} needs {place} once, after some words"
        for templates, place in ((text_to_tokens, "{text}"), (tokens_to_text, "{tokens}"))
        for template in templates
        if template.count(place) != 1 or template.lstrip().startswith(place)
    ]
    return problems if text_to_tokens or tokens_to_text else ["there is no template"]


def _pair_problems(
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    tokens: Sequence[str],
    token_ids: NDArray[np.int64],
) -> list[str]:
    """Empty texts, strings without a new token, tokens that no pair teaches; the tokenizer is the extended one."""
    new = dict(zip(token_ids.tolist(), tokens, strict=True))
    taught: set[int] = set()
    problems = []
    for number, (text, string) in enumerate(pairs):
        held = new.keys() & tokenizer(string, add_special_tokens=False)["input_ids"]
        taught |= held
        if not text.strip():
            problems.append(f"pair {number} ({string!r}) has no text")
        if not held:
            problems.append(f"pair {number}: {string!r} holds none of the new tokens")
    return problems + [f"no pair teaches {token!r}" for i, token in new.items() if i not in taught]


def _raise(problems: Sequence[str]) -> None:
    """All of them at once; of very many the first ten."""
    if problems:
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise GtiError("ground_tokens: " + "; ".join(problems[:10]) + more)


def _prompter(tokenizer: PreTrainedTokenizerBase, system: str, max_tokens: int) -> Prompter:
    """With the tokenizer's own chat template, or lines."""
    if tokenizer.chat_template is None:
        tokenizer = copy.deepcopy(tokenizer)  # what is returned gets no template that it did not have
        tokenizer.chat_template = PLAIN_CHAT
    return Prompter(tokenizer, system, max_tokens)


def _examples(
    prompter: Prompter,
    pairs: Sequence[tuple[str, str]],
    text_to_tokens: Sequence[str],
    tokens_to_text: Sequence[str],
    max_text_tokens: int,
) -> dict[str, list[Example]]:
    """By direction. What looks like a token within a text is read as text; token strings are taken as they are.

    An answer ends with the end of the turn, for strings may be of different lengths.
    """
    cut = [(prompter.cut(text, max_text_tokens), string) for text, string in pairs]
    to_tokens = [(t.replace("{text}", text), string) for t in text_to_tokens for text, string in cut]
    to_text = [(t.replace("{tokens}", string), text) for t in tokens_to_text for text, string in cut]
    return {
        "text_to_tokens": [prompter.example(question, answer, with_end=True) for question, answer in to_tokens],
        "tokens_to_text": [prompter.example(question, answer, with_end=True) for question, answer in to_text],
    }
