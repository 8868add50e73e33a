"""Items to vectors: of their texts, and those that the user brings."""

from gti_pipeline.embed.text import NO_TEXT, TFIDF, Embedded, embed, item_texts, tfidf_vectors

__all__ = ["NO_TEXT", "TFIDF", "Embedded", "embed", "item_texts", "tfidf_vectors"]
