"""New tokens that are no semantic IDs: tool names and codes of several tokens, on an ordinary transformers model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gti_pipeline.config import LmConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.ground import ground_tokens
from gti_pipeline.lm.load import load_model, load_tokenizer

TOOLS = [
    ("weather of a city", "<get_weather>"),
    ("convert an amount to another currency", "<convert_currency>"),
    ("send an email to somebody", "<send_email>"),
    ("book a table in a restaurant", "<book_table>"),
    ("play a song", "<play_song>"),
    ("translate a text", "<translate>"),
]
CODES = [
    ("type 2 diabetes", "<E><11>"),
    ("type 1 diabetes", "<E><10>"),
    ("asthma", "<J><45>"),
    ("pneumonia", "<J><18>"),
    ("hypertension", "<I><10>"),
]
CODE_TOKENS = ["<E>", "<J>", "<I>", "<10>", "<11>", "<18>", "<45>"]
README = Path(__file__).resolve().parent.parent / "README.md"


@pytest.fixture
def lm(tiny_lm):
    """(model, tokenizer) of the tiny LM, its weights larger so that the context matters."""
    model = load_model(tiny_lm, LmConfig(model="tiny", device="cpu"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return model, load_tokenizer(tiny_lm)


def ask(tokenizer, question):
    turns = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")["input_ids"]


def grown(model, tokenizer, pairs, **options):
    return ground_tokens(model, tokenizer, pairs, epochs=60, batch_size=4, learning_rate=0.05, **options)


def losses(found, direction):
    return [value for _, name, value in found.steps if name == f"loss_{direction}"]


def test_the_right_tools_token_is_the_likeliest(lm, tmp_path):
    old = {name: value.clone() for name, value in lm[0].state_dict().items()}
    model, tokenizer, found = grown(*lm, TOOLS)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    new = torch.from_numpy(found.token_ids)
    assert tokenizer.convert_ids_to_tokens(new.tolist()) == [token for _, token in TOOLS]
    right = 0
    for number, (text, _) in enumerate(TOOLS):
        logits = model(ask(tokenizer, f"Which token stands for this? {text}")).logits[0, -1]
        right += logits[new].argmax().item() == number
    assert right >= 5
    assert {name for _, name, _ in found.steps} == {"loss_text_to_tokens", "loss_tokens_to_text"}
    values = losses(found, "text_to_tokens")  # a random LM has no words to learn the other direction by
    assert sum(values[-6:]) < 0.5 * sum(values[:6])
    for name, value in model.state_dict().items():
        assert torch.equal(value[: len(old[name])], old[name]), name
    assert len(model.get_input_embeddings().weight) == len(tokenizer) == int(new.max()) + 1


def test_answers_of_several_tokens(lm):
    model, tokenizer, found = grown(*lm, CODES, new_tokens=CODE_TOKENS)
    assert len(found.token_ids) == len(CODE_TOKENS)
    scores = []
    for text, _ in CODES:
        question = ask(tokenizer, f"Which token stands for this? {text}")
        row = []
        for _, string in CODES:
            answer = tokenizer(string, add_special_tokens=False, return_tensors="pt")["input_ids"]
            assert answer.shape == (1, 2)
            logs = model(torch.cat([question, answer], dim=1)).logits[0, question.shape[1] - 1 : -1].log_softmax(-1)
            row.append(logs.gather(1, answer.T).sum())
        scores.append(torch.stack(row))
    assert (torch.stack(scores).argmax(dim=1) == torch.arange(len(CODES))).sum() >= 4


def test_what_was_passed_keeps_its_state(lm):
    model, tokenizer = lm
    model.train()
    frozen = model.model.layers[0].mlp.up_proj.weight.requires_grad_(False)
    known = len(tokenizer)
    ground_tokens(model, tokenizer, TOOLS, epochs=1)
    assert model.training
    assert [p is frozen for p in model.parameters() if not p.requires_grad] == [True]
    assert len(tokenizer) == known


def test_one_direction_and_templates_of_ones_own(lm):
    model, tokenizer, found = grown(*lm, TOOLS, text_to_tokens=["Tool for: {text}"], tokens_to_text=[])
    assert {name for _, name, _ in found.steps} == {"loss_text_to_tokens"}
    new = torch.from_numpy(found.token_ids)
    best = [model(ask(tokenizer, f"Tool for: {text}")).logits[0, -1][new].argmax().item() for text, _ in TOOLS]
    assert sum(n == token for n, token in enumerate(best)) >= 5


def test_a_tokenizer_without_a_chat_template(lm):
    model, tokenizer = lm
    tokenizer.chat_template = None
    model, extended, found = grown(model, tokenizer, TOOLS)
    assert extended.chat_template is None
    new = torch.from_numpy(found.token_ids)
    best = []
    for text, _ in TOOLS:
        ids = extended(f"Which token stands for this? {text}\n", return_tensors="pt")["input_ids"]
        best.append(model(ids).logits[0, -1][new].argmax().item())
    assert sum(n == token for n, token in enumerate(best)) >= 5


def test_a_token_within_a_text_is_read_as_text(lm):
    """Else the answer would stand in the question and the question would teach nothing."""
    model, tokenizer = lm
    bare = [("play_song plays a song", "play_song"), ("send_email sends an email", "send_email")]
    _, extended, found = ground_tokens(model, tokenizer, bare, epochs=1, tokens_to_text=["What is the tool {tokens}?"])
    assert extended("play_song")["input_ids"] == [found.token_ids[0]]
    # one token and the end of the turn are supervised in each of the two templates, for both pairs
    assert sum(name == "loss_text_to_tokens" for _, name, _ in found.steps) == 1
    assert found.budget.examples == 6


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_changed(lm):
    model, tokenizer = lm
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(GtiError) as error:
        ground_tokens(model, tokenizer, TOOLS, new_tokens=["<|im_end|>", " x"], text_to_tokens=["no place"])
    assert all(
        part in str(error.value)
        for part in ("already knows '<|im_end|>'", "' x' is no token", "'no place' needs {text}")
    )
    pairs = [*TOOLS, ("", "<translate>"), ("a text", "words only")]
    with pytest.raises(GtiError) as error:
        ground_tokens(model, tokenizer, pairs, new_tokens=[*(t for _, t in TOOLS), "<never>"])
    for part in ("pair 6 ('<translate>') has no text", "pair 7: 'words only' holds none", "no pair teaches '<never>'"):
        assert part in str(error.value)
    with pytest.raises(GtiError, match="there is no new token"):
        ground_tokens(model, tokenizer, [])
    with pytest.raises(GtiError, match="learning_rate"):
        ground_tokens(model, tokenizer, TOOLS, learning_rate=-1)
    assert {n: v.shape for n, v in model.state_dict().items()} == {n: v.shape for n, v in before.items()}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_readmes_snippet_runs(lm, tiny_lm, tmp_path, monkeypatch):
    section = README.read_text(encoding="utf-8").split("## Grounding any new tokens")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    assert "data/models/SmolLM2-135M-Instruct" in code
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code.replace("data/models/SmolLM2-135M-Instruct", str(tiny_lm)), "README.md", "exec"), names)
    assert len(names["found"].token_ids) == 3
    assert (tmp_path / "with-tools").is_dir()
