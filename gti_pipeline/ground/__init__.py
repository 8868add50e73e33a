"""GTI grounding (arXiv 2604.02324): the LM is frozen and only the new rows train, on paired text <-> token prompts.

`ground` does it for semantic IDs within the pipeline, `ground_tokens` for any new tokens of any transformers LM.
"""

from gti_pipeline.ground.batches import batches
from gti_pipeline.ground.tokens import GroundedTokens, ground_tokens
from gti_pipeline.ground.train import GroundResult, ground

__all__ = ["GroundResult", "GroundedTokens", "batches", "ground", "ground_tokens"]
