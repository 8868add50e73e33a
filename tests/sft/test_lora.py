"""LoRA on the extended LM: new rows train, everything old stays bit for bit, and merging changes no logit."""

from __future__ import annotations

import copy

import pytest
import torch
from sft_examples import LEVELS, SIZE, make_examples
from sft_examples import tune as tune_examples
from torch import nn
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from gti_pipeline.config import SftConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import ExtendedLM, as_plain, embedding_rows, merge
from gti_pipeline.lm.lora import add_lora
from gti_pipeline.sft.weights import load_trainable, save_trainable

LINEAR = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def settings_of(**changes):
    small = {"method": "lora", "lora_rank": 2, "lora_alpha": 4, "batch_size": 4, "micro_batch_size": 4, "max_steps": 6}
    return SftConfig(**small | {"learning_rate": 1e-2, "new_token_learning_rate": 1e-2} | changes)


@pytest.fixture
def pair(make_tiny):
    """An extended LM, the model that it is made of, and a prompter."""
    lm, prompter, _ = make_tiny(LEVELS, SIZE)
    model = LlamaForCausalLM(lm.decoder.config).eval()
    model.model.load_state_dict(copy.deepcopy(lm.decoder.state_dict()))
    model.tie_weights()
    return ExtendedLM(model, lm.new_rows, lm.first_id), model, prompter


def tune(lm, prompter, config, work):
    return tune_examples(lm, make_examples(prompter), config, work)


def logits_of(model, lm):
    ids = torch.arange(lm.first_id - 4, lm.first_id + LEVELS * SIZE).unsqueeze(0)
    with torch.no_grad():
        return model(input_ids=ids).logits


def test_nothing_changes_until_it_trains(pair):
    lm, _, _ = pair
    ids = torch.arange(40).unsqueeze(0)
    with torch.no_grad():
        before = lm.logits(lm.hidden(ids))
        add_lora(lm, settings_of())
        assert torch.equal(lm.logits(lm.hidden(ids)), before)


def test_new_rows_and_adapters_train_and_all_that_is_old_stays_bit_for_bit(pair, tmp_path):
    lm, _, prompter = pair
    old = {name: value.clone() for name, value in lm.decoder.named_parameters()}
    start = lm.new_rows.detach().clone()
    add_lora(lm, settings_of())
    tune(lm, prompter, settings_of(weight_decay=0.5), tmp_path)
    after = dict(lm.decoder.named_parameters())
    for name, value in old.items():
        now = after.get(name, after.get(name.replace(".weight", ".base_layer.weight")))
        assert torch.equal(now, value), name
    assert ((lm.new_rows - start).abs().max(dim=1).values > 1e-3).all()
    trained = [value for name, value in after.items() if "lora_B" in name]
    assert len(trained) == 2 * len(LINEAR)
    assert all(value.abs().max() > 0 for value in trained)


def test_the_new_rows_have_a_rate_of_their_own(pair, tmp_path):
    lm, _, prompter = pair
    start = lm.new_rows.detach().clone()
    add_lora(lm, settings_of())
    tune(lm, prompter, settings_of(learning_rate=1e-12, new_token_learning_rate=1e-2, warmup_share=0), tmp_path)
    assert (lm.new_rows - start).abs().max() > 5e-3
    assert all(value.abs().max() < 1e-9 for name, value in lm.named_parameters() if "lora_B" in name)


def test_merged_saved_and_reloaded_it_has_the_same_logits_and_stays_tied(pair, tmp_path):
    lm, model, prompter = pair
    tuner = add_lora(lm, settings_of())
    untrained = logits_of(as_plain(model, lm), lm)
    tune(lm, prompter, settings_of(), tmp_path / "work")
    lm.eval()
    tuned = logits_of(as_plain(model, lm), lm)
    assert (tuned - untrained).abs().max() > 0.1
    tuner.merge_and_unload()
    merged = merge(model, lm.new_rows.detach(), lm.first_id)
    assert torch.allclose(logits_of(merged, lm), tuned, atol=1e-5)
    merged.save_pretrained(tmp_path / "model")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert again.get_output_embeddings().weight is embedding_rows(again)
    assert torch.equal(logits_of(again, lm), logits_of(merged, lm))
    assert not any("lora" in name for name, _ in again.named_parameters())


def test_trained_weights_move_to_a_fresh_model(pair, make_tiny, tmp_path):
    """As after training on 4-bit weights: the file holds the adapters and the new rows, nothing of the base."""
    lm, model, prompter = pair
    fresh_model = copy.deepcopy(model)
    add_lora(lm, settings_of())
    tune(lm, prompter, settings_of(), tmp_path / "work")
    lm.eval()
    file = tmp_path / "trained.safetensors"
    save_trainable(lm, file)
    base = sum(p.numel() for p in lm.parameters() if not p.requires_grad)
    assert file.stat().st_size < 4 * base / 2
    fresh = ExtendedLM(fresh_model, torch.zeros_like(lm.new_rows), lm.first_id)
    add_lora(fresh, settings_of())
    load_trainable(fresh, file)
    assert torch.equal(logits_of(as_plain(fresh_model, fresh), lm), logits_of(as_plain(model, lm), lm))


def test_named_layers_alone_get_adapters(pair):
    lm, _, _ = pair
    add_lora(lm, settings_of(lora_targets=("q_proj", "v_proj")))
    found = {name.split(".")[-4] for name, _ in lm.named_parameters() if "lora_" in name}
    assert found == {"q_proj", "v_proj"}
    ranks = {value.shape[0] for name, value in lm.named_parameters() if "lora_A" in name}
    assert ranks == {2}


def test_all_linear_layers_are_the_default(pair):
    lm, _, _ = pair
    count = sum(isinstance(m, nn.Linear) for m in lm.decoder.modules())
    add_lora(lm, settings_of())
    assert sum("lora_A" in name for name, _ in lm.named_parameters()) == count == 2 * len(LINEAR)


def test_unknown_layers_are_all_named_with_what_there_is(pair):
    lm, _, _ = pair
    with pytest.raises(GtiError, match=r"query, v_porj: .* \(did you mean v_proj\?\); it has down_proj, gate_proj"):
        add_lora(lm, settings_of(lora_targets=("query", "v_porj", "o_proj")))


def test_the_adapters_start_by_the_seed_alone(pair):
    """Whatever was drawn before: a run that found its stages done draws less than one that did them."""
    lm, _, _ = pair
    found = []
    for number, seed in enumerate((0, 0, 1)):
        fresh = copy.deepcopy(lm)
        torch.manual_seed(number)
        state = torch.random.get_rng_state()
        add_lora(fresh, settings_of(), seed)
        assert torch.equal(torch.random.get_rng_state(), state)
        found.append({name: value.detach() for name, value in fresh.named_parameters() if "lora_A" in name})
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    assert not any(torch.equal(value, found[2][name]) for name, value in found[0].items())
