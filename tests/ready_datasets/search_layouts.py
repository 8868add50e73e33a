"""Small files in the layouts of the search tasks: six items, eight queries, three judgments a query, a few faults.

Query q finds item q (mod 6) good, the next one maybe, the one after it not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ITEMS, QUERIES = 6, 8


@dataclass(frozen=True)
class Layout:
    """What must come of the files: texts of some queries and items, judgments, and counts as in `layouts.Layout`."""

    queries: dict[str, str]
    titles: dict[str, str]
    judgments: dict[tuple[str, str], int]
    counts: dict[str, tuple[int, dict[str, int], dict[str, int]]]


def judged() -> list[tuple[int, int, int]]:
    """(query, item, grade)."""
    return [(q, (q + step) % ITEMS, 2 - step) for q in range(QUERIES) for step in range(3)]


def jobs(folder: Path) -> Layout:
    """Three CSV files."""
    candidates = [f"c{i},Cook {i},baking,senior,Here,Bakes." for i in range(ITEMS)]
    head = "candidate_id,headline,skills,seniority,location,summary"
    (folder / "candidates.csv").write_text("\n".join([head, *candidates, "c9,,baking,senior,Here,x"]) + "\n")
    wanted = [f'j{q},Cook {q},"baking, sauces",senior,' for q in range(QUERIES)]
    (folder / "jobs.csv").write_text("\n".join(["job_id,title,required_skills,seniority,location", *wanted]) + "\n")
    rows = [f"j{q},c{i},{grade}" for q, i, grade in judged()]
    (folder / "judgments.csv").write_text("\n".join(["job_id,candidate_id,grade", *rows, "j0,c9,2"]) + "\n")
    return Layout(
        queries={"j3": "title: Cook 3; required skills: baking, sauces; seniority: senior"},
        titles={"c1": "Cook 1"},
        judgments={(f"j{q}", f"c{i}"): grade for q, i, grade in judged()},
        counts={
            "candidates.csv": (7, {"null name": 1}, {}),
            "jobs.csv": (8, {}, {}),
            "judgments.csv": (25, {"item not in catalogue": 1}, {}),
        },
    )


def esci_search(folder: Path) -> Layout:
    """Two Parquet files: products in two locales, and examples, which are both the queries and the judgments."""
    products = [
        {
            "product_id": f"B{i}",
            "product_title": f"Lamp {i}",
            "product_description": "<p>Shines.</p>",
            "product_bullet_point": "Strong",
            "product_brand": "3M",
            "product_color": "Blue",
            "product_locale": locale,
        }
        for locale in ("us", "es")
        for i in range(ITEMS)
    ]
    pd.DataFrame(products).to_parquet(folder / "shopping_queries_dataset_products.parquet")

    def example(number: int, query: int, item: int, label: str, locale: str = "us") -> dict[str, object]:
        about = {"example_id": number, "query": f"lamp number {query}", "query_id": query, "product_id": f"B{item}"}
        return about | {"product_locale": locale, "esci_label": label, "small_version": 0, "split": "train"}

    labels = {2: "E", 1: "S", 0: "I"}
    rows = [example(n, q, i, labels[grade]) for n, (q, i, grade) in enumerate(judged())]
    rows += [example(100, 0, 5, "C"), example(101, 1, 90, "E"), example(102, 50, 1, "E", "es")]
    pd.DataFrame(rows).to_parquet(folder / "shopping_queries_dataset_examples.parquet")
    file = "shopping_queries_dataset_examples.parquet"
    return Layout(
        queries={"3": "lamp number 3"},
        titles={"B1": "Lamp 1"},
        judgments={(str(q), f"B{i}"): grade for q, i, grade in judged()} | {("0", "B5"): 0},
        counts={
            "shopping_queries_dataset_products.parquet": (12, {}, {"left out by keep": 6}),
            f"{file} (queries)": (27, {}, {"left out by keep": 1, "duplicate query, identical: merged": 18}),
            f"{file} (judgments)": (27, {"item not in catalogue": 1}, {"left out by keep": 1}),
        },
    )


LAYOUTS = {layout.__name__: layout for layout in (jobs, esci_search)}
