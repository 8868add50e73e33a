"""Prefect flows: one arm, several arms, and the schedule. Nothing else in the project imports Prefect."""
