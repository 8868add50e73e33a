"""Supervised fine-tuning on next-item prediction (paper's step 5): full or with LoRA, on one process or several."""

from gti_pipeline.sft.batches import collate
from gti_pipeline.sft.recorder import COMPLETE, SftResult
from gti_pipeline.sft.train import fine_tune

__all__ = ["COMPLETE", "SftResult", "collate", "fine_tune"]
