"""From prompts to ranked items: a trie of valid semantic IDs, beam search under it, and the exhaustive oracle."""

from gti_pipeline.decode.beam import beam_search
from gti_pipeline.decode.stage import recommend
from gti_pipeline.decode.trie import Trie

__all__ = ["Trie", "beam_search", "recommend"]
