"""The extended LM against the plain transformers model that it becomes when merged."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import IGNORED, ExtendedLM, as_plain, embedding_rows, freeze_old, merge

SPARE = [0, 50]  # the block beyond the model's rows, and inside them
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


@pytest.fixture(params=SPARE, ids=["beyond the rows", "inside the rows"])
def pair(request, make_tiny):
    """An extended LM, an equal plain model (both from the same weights), and a padded batch with old and new ids."""
    lm, _, ids = make_tiny(spare_rows=request.param)
    plain = merge(make_plain(lm), lm.new_rows.detach(), lm.first_id)
    generator = torch.Generator().manual_seed(5)
    batch = torch.randint(3, int(ids.max()) + 1, (3, 14), generator=generator)
    batch[:, 2:4] = torch.from_numpy(ids[:, :1].T)
    batch[2, 9:] = 0
    mask = torch.ones_like(batch)
    mask[2, 9:] = 0
    labels = batch.masked_fill(mask == 0, IGNORED)
    labels[:, :2] = IGNORED
    labels[0, 5:9] = IGNORED
    return lm, plain, {"input_ids": batch, "attention_mask": mask, "labels": labels}


def make_plain(lm):
    """A causal LM of the same weights that shares no tensor with `lm`."""
    plain = LlamaForCausalLM(lm.decoder.config).eval()
    plain.model.load_state_dict(copy.deepcopy(lm.decoder.state_dict()))
    return plain


def test_logits_are_the_merged_models(pair):
    lm, plain, batch = pair
    with torch.no_grad():
        ours = lm.logits(lm.hidden(batch["input_ids"], batch["attention_mask"]))
        theirs = plain(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    assert ours.shape == theirs.shape
    real = batch["attention_mask"].bool()
    assert torch.allclose(ours[real], theirs[real], atol=1e-5)
    assert theirs[real].std() > 0.05  # nothing degenerate was compared


def test_the_loss_is_transformers_own(pair):
    lm, plain, batch = pair
    assert lm(**batch)["loss"].item() == pytest.approx(plain(**batch).loss.item(), rel=1e-6)


def test_gradients_are_the_merged_models(pair):
    lm, plain, batch = pair
    lm(**batch)["loss"].backward()
    plain(**batch).loss.backward()
    theirs = embedding_rows(plain).grad
    end = lm.first_id + len(lm.new_rows)
    assert torch.allclose(lm.new_rows.grad, theirs[lm.first_id : end], atol=1e-6)
    old = lm.old_rows.grad
    assert torch.allclose(old[: lm.first_id], theirs[: lm.first_id], atol=1e-6)
    assert torch.allclose(old[end:], theirs[end:], atol=1e-6)
    assert not old[lm.first_id : end].any()  # rows that the block replaces are never used
    assert lm.new_rows.grad.abs().max() > 1e-3


def test_accumulated_parts_equal_the_whole_batch(pair):
    lm, _, batch = pair
    whole = lm(**batch)["loss"]
    whole.backward()
    gradient = lm.new_rows.grad.clone()
    lm.zero_grad()
    total = (batch["labels"][:, 1:] != IGNORED).sum()
    parts = [lm(**{k: v[i : i + 1] for k, v in batch.items()}, num_items_in_batch=total)["loss"] for i in range(3)]
    sum(parts).backward()
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-6)
    assert torch.allclose(lm.new_rows.grad, gradient, atol=1e-7)


@pytest.mark.parametrize("spare", SPARE)
def test_merged_saved_and_reloaded_it_stays_tied_with_the_same_logits(make_tiny, tmp_path, spare):
    lm, _, ids = make_tiny(spare_rows=spare)
    plain = make_plain(lm)
    old = embedding_rows(plain).detach().clone()
    merged = merge(plain, lm.new_rows.detach(), lm.first_id)
    end = lm.first_id + len(lm.new_rows)
    rows = embedding_rows(merged)
    assert merged.get_output_embeddings().weight is rows
    assert len(rows) == merged.config.vocab_size == max(end, len(old))
    assert torch.equal(rows[: lm.first_id], old[: lm.first_id])
    assert torch.equal(rows[end:], old[end:])
    assert torch.equal(rows[lm.first_id : end], lm.new_rows)
    merged.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert again.get_output_embeddings().weight is embedding_rows(again)
    batch = torch.from_numpy(ids)
    with torch.no_grad():
        assert torch.equal(again(input_ids=batch).logits, merged(input_ids=batch).logits)


def test_a_gradient_step_on_a_merged_model_keeps_head_and_embeddings_one(make_tiny):
    lm, _, ids = make_tiny()
    merged = merge(make_plain(lm), lm.new_rows.detach(), lm.first_id)
    optimizer = torch.optim.SGD(merged.parameters(), lr=0.1)
    batch = torch.from_numpy(ids)
    merged(input_ids=batch, labels=batch).loss.backward()
    before = embedding_rows(merged).detach().clone()
    optimizer.step()
    assert not torch.equal(before, embedding_rows(merged))
    assert torch.equal(merged.get_output_embeddings().weight, embedding_rows(merged))


def test_freeze_old_leaves_the_new_rows_alone_trainable(make_tiny):
    lm, _, _ = make_tiny()
    freeze_old(lm)
    assert [name for name, parameter in lm.named_parameters() if parameter.requires_grad] == ["new_rows"]


def test_new_rows_stay_float32_over_a_bfloat16_model(make_tiny):
    lm, _, ids = make_tiny()
    lm.decoder.to(torch.bfloat16)
    batch = torch.from_numpy(ids)
    logits = lm.logits(lm.hidden(batch))
    assert lm.new_rows.dtype == logits.dtype == torch.float32
    assert logits.shape[-1] == lm.first_id + len(lm.new_rows)


def llama(**changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**SIZES | {"tie_word_embeddings": True} | changes)).eval()


def test_a_tied_model_is_accepted():
    assert ExtendedLM(llama(), torch.zeros(2, 16), 40).first_id == 40


def test_an_untied_model_is_refused():
    with pytest.raises(GtiError, match=r"LlamaForCausalLM does not tie its head to its embeddings"):
        ExtendedLM(llama(tie_word_embeddings=False), torch.zeros(2, 16), 40)


def test_a_biased_head_is_refused():
    model = llama()
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(40))
    with pytest.raises(GtiError, match="has a bias in its head"):
        ExtendedLM(model, torch.zeros(2, 16), 40)


def test_softcapped_logits_are_refused():
    config = Gemma2Config(**SIZES | {"final_logit_softcapping": 0.02, "tie_word_embeddings": True})
    with pytest.raises(GtiError, match="changes its logits"):
        ExtendedLM(Gemma2ForCausalLM(config).eval(), torch.zeros(2, 16), 40)


def test_scaled_embeddings_are_refused():
    """Gemma 3 multiplies inside its embedding module, which rows of our own would pass by."""
    config = Gemma3TextConfig(**SIZES | {"final_logit_softcapping": None, "initializer_range": 0.5})
    with pytest.raises(GtiError, match="Gemma3ForCausalLM scales its embeddings"):
        ExtendedLM(Gemma3ForCausalLM(config).eval(), torch.zeros(2, 16), 40)


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_is_refused():
    """Logits would otherwise be shifted against the token ids."""
    with pytest.raises(GtiError, match="40 rows"):
        ExtendedLM(llama(), torch.zeros(2, 16), 45)


@pytest.mark.parametrize("spare", SPARE)
def test_the_plain_view_has_the_merged_models_logits_and_leaves_both_alone(make_tiny, spare):
    lm, _, ids = make_tiny(spare_rows=spare)
    model = make_plain(lm)
    lm = ExtendedLM(model, lm.new_rows, lm.first_id)
    before = {name: value.clone() for name, value in lm.state_dict().items()}
    rows = embedding_rows(model)
    plain = as_plain(model, lm)
    batch = torch.cat([torch.from_numpy(ids), torch.arange(8).view(2, 4)])
    with torch.no_grad():
        seen = plain(input_ids=batch).logits
    assert plain.get_output_embeddings().weight is embedding_rows(plain)
    assert embedding_rows(model) is rows
    assert len(rows) == len(lm.old_rows)
    assert lm.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in lm.state_dict().items())
    with torch.no_grad():
        assert torch.equal(seen, merge(model, lm.new_rows.detach(), lm.first_id)(input_ids=batch).logits)


def test_the_plain_view_copies_nothing_but_the_rows(make_tiny):
    lm, _, _ = make_tiny()
    model = make_plain(lm)
    lm = ExtendedLM(model, lm.new_rows, lm.first_id)
    ours = {id(p) for p in lm.parameters()}
    assert sum(id(p) not in ours for p in as_plain(model, lm).parameters()) == 1
