"""Ranking metrics, their intervals over users, and the popularity baseline."""

from gti_pipeline.evaluate.intervals import Interval, mean_interval, paired_interval
from gti_pipeline.evaluate.popularity import popular
from gti_pipeline.evaluate.stage import evaluate

__all__ = ["Interval", "evaluate", "mean_interval", "paired_interval", "popular"]
