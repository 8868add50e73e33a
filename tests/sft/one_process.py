"""One of the processes of test_processes.py: fine-tunes the tiny LM, writes its weights and what it saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sft_examples import LEVELS, SIZE, losses, make_examples, settings_of, tune

from gti_pipeline.config import LmConfig
from gti_pipeline.lm.extended import ExtendedLM, embedding_rows
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.lm.prompts import Prompter
from gti_pipeline.vocab import extend_tokenizer, initial_rows


def main(tiny: Path, out: Path, settings: str) -> None:
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(tiny)
    ids = extend_tokenizer(tokenizer, LEVELS, SIZE)
    model = load_model(tiny, LmConfig(model="tiny", device="cpu"))
    rows = initial_rows(embedding_rows(model)[: int(ids.min())], ids.size, "random", 1)
    lm = ExtendedLM(model, rows, int(ids.min()))
    seen: list[list[int]] = []

    def look(_, __, batch):
        for row, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
            if (labels >= 0).any():
                seen.append(row[mask.bool()].tolist())

    lm.register_forward_pre_hook(look, with_kwargs=True)
    examples = make_examples(Prompter(tokenizer, "Be helpful.", 256))
    result = tune(lm, examples, settings_of(**json.loads(settings)), out / "work")
    rank = os.environ["RANK"]
    save_file({name: p.detach() for name, p in lm.named_parameters()}, out / f"{rank}.safetensors")
    found = {"seen": seen, "losses": losses(result)}
    (out / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
