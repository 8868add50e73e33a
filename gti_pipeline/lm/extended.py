"""A pretrained LM whose new token rows are a parameter of their own.

Nothing can decay or drift in the old rows while they are frozen, and the new rows can have their own learning rate.
Input embeddings and head stay tied: both read the same two tensors. Shapes: B batch, T tokens, d hidden size,
n new tokens, V rows of the logits.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from gti_pipeline.errors import GtiError
from gti_pipeline.lm.shared import batch_hidden

IGNORED = -100  # the label of an unsupervised position


class ExtendedLM(nn.Module):
    """Decoder, old rows (inside the decoder) and `new_rows` [n, d], whose ids are first_id .. first_id + n - 1.

    The block may lie beyond the model's rows or inside them (some models have more rows than their tokenizer has
    tokens); there it takes the place of the unused rows.
    """

    accepts_loss_kwargs = True  # tells transformers' Trainer to pass num_items_in_batch

    def __init__(self, model: PreTrainedModel, new_rows: Tensor, first_id: int) -> None:
        super().__init__()
        _check_head(model)
        rows = len(embedding_rows(model))
        if first_id > rows:
            raise GtiError(f"lm.model: it has {rows} rows, but its tokenizer {first_id} tokens before the new ones")
        decoder = model.base_model
        assert isinstance(decoder, PreTrainedModel)
        self.decoder = decoder
        self.new_rows = nn.Parameter(new_rows.detach().clone())
        self.first_id = first_id

    @property
    def old_rows(self) -> Tensor:
        """[rows of the pretrained model, d]."""
        return embedding_rows(self.decoder)

    def embed(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, d]."""
        offset = ids - self.first_id
        is_new = (offset >= 0) & (offset < len(self.new_rows))
        old = F.embedding(ids.masked_fill(is_new, 0), self.old_rows)
        new = F.embedding(offset.clamp(0, len(self.new_rows) - 1), self.new_rows).to(old.dtype)
        return torch.where(is_new.unsqueeze(-1), new, old)

    def hidden(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """[B, T] -> last hidden states [B, T, d]; a given cache is read and extended."""
        output = self.decoder(
            inputs_embeds=self.embed(ids),
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            use_cache=cache is not None,
        )
        states: Tensor = output.last_hidden_state
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] -> float32 [..., V], ids as in the tokenizer."""
        old, end = self.old_rows, self.first_id + len(self.new_rows)
        rows = [old[: self.first_id], self.new_rows.to(old.dtype), old[end:]]
        return torch.cat([hidden @ part.T for part in rows if len(part)], dim=-1).float()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, num_items_in_batch: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Mean next-token NLL over the supervised positions; logits are computed there only, shared beginnings once.

        Args:
            input_ids: [B, T], right-padded.
            attention_mask: [B, T].
            labels: [B, T], the token itself where it is supervised, else `IGNORED`.
            num_items_in_batch: supervised positions of the whole accumulated batch, of which this is a part.
        """
        states = batch_hidden(self, input_ids, attention_mask)[:, :-1]
        targets = labels[:, 1:]
        chosen = targets != IGNORED
        total = F.cross_entropy(self.logits(states[chosen]), targets[chosen], reduction="sum")
        return {"loss": total / (chosen.sum() if num_items_in_batch is None else num_items_in_batch)}


def embedding_rows(model: PreTrainedModel) -> Tensor:
    """The embedding matrix of a model, the parameter itself."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def _check_head(model: PreTrainedModel) -> None:
    """Refuses models whose inputs are more than rows of the embedding, or their logits more than `hidden @ rows.T`."""
    head = model.get_output_embeddings()
    rows = embedding_rows(model)
    name = type(model).__name__
    if head is None or head.weight is not rows:
        raise GtiError(f"lm.model: {name} does not tie its head to its embeddings; a tied model is needed")
    if getattr(head, "bias", None) is not None:
        raise GtiError(f"lm.model: {name} has a bias in its head, which new tokens would lack")
    with torch.no_grad():
        ids = torch.arange(4, device=rows.device).unsqueeze(0)
        ours = model.base_model(inputs_embeds=F.embedding(ids, rows)).last_hidden_state @ rows.T
        if not torch.allclose(ours.float(), model(input_ids=ids).logits.float(), rtol=1e-2, atol=1e-2):
            raise GtiError(f"lm.model: {name} scales its embeddings or changes its logits, which is not supported")


def merge(model: PreTrainedModel, new_rows: Tensor, first_id: int) -> PreTrainedModel:
    """Puts the new rows into the model itself, grown where needed; afterwards it is an ordinary transformers model."""
    rows = embedding_rows(model)
    end = first_id + len(new_rows)
    if end > len(rows):
        model.resize_token_embeddings(end, mean_resizing=False)
    with torch.no_grad():
        embedding_rows(model)[first_id:end] = new_rows.to(rows.dtype)
    return model


def as_plain(model: PreTrainedModel, lm: ExtendedLM) -> PreTrainedModel:
    """What `merge` would make of them, without changing either: decoding in the middle of training needs it.

    It shares every weight with `lm`, adapters too; only the table of rows, old and new, is a copy. So it is of the
    moment, and not to be trained or kept.

    Args:
        model: what `lm` was made of.
        lm: its decoder is that of `model`.
    """
    old, end = lm.old_rows.detach(), lm.first_id + len(lm.new_rows)
    rows = torch.cat([old[: lm.first_id], lm.new_rows.detach().to(old.dtype), old[end:]])
    table = nn.Parameter(rows, requires_grad=False)
    decoder, plain = _shallow(lm.decoder), _shallow(model)
    num_rows, size = table.shape
    embedding = nn.Embedding(num_rows, size, device="meta")
    head = nn.Linear(size, num_rows, bias=False, device="meta")
    embedding.weight = head.weight = table
    decoder.set_input_embeddings(embedding)
    setattr(plain, plain.base_model_prefix, decoder)
    plain.set_output_embeddings(head)
    return plain


def _shallow(model: PreTrainedModel) -> PreTrainedModel:
    """The same modules under a parent of its own, in which some can be exchanged."""
    other = copy.copy(model)
    other._modules = dict(model._modules)
    return other


def freeze_old(lm: ExtendedLM) -> None:
    """Leaves `new_rows` as the only parameter with a gradient."""
    for parameter in lm.parameters():
        parameter.requires_grad_(False)
    lm.new_rows.requires_grad_(True)
