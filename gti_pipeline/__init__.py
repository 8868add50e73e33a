"""Generative recommendation with grounded semantic-ID tokens (GTI, arXiv 2604.02324)."""

__version__ = "0.1.0"
