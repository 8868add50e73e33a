"""Ranking metrics and their intervals over users."""

from gti_pipeline.evaluate.intervals import Interval, mean_interval, paired_interval
from gti_pipeline.evaluate.stage import Evaluation, Task, evaluate

__all__ = ["Evaluation", "Interval", "Task", "evaluate", "mean_interval", "paired_interval"]
