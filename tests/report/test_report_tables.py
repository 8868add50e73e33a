from __future__ import annotations

import io
import math

import pandas as pd
import pytest
from report_examples import NASTY, metrics
from rich.console import Console
from rich.table import Table

from gti_pipeline.report import Difference, StageRow
from gti_pipeline.report import tables as t
from gti_pipeline.report.verdict import against_popularity, between_arms


def printed(table: Table, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue()


def paired(low: float, high: float, arm: str = "gti", reference: str = "popular") -> Difference:
    return Difference(arm, reference, "recall", 10, (low + high) / 2, low, high, 300)


def test_final_table_shows_both_arms_with_intervals() -> None:
    frame = t.final_frame(metrics({"gti": 0.2, "popular": 0.1}), "gti")
    assert list(frame["metric"])[:4] == ["Recall@5", "Recall@10", "Recall@20", "Precision@5"]
    row = frame.set_index("metric").loc["Recall@10"]
    assert list(row) == ["0.2000 [0.1700, 0.2300]", "0.1000 [0.0700, 0.1300]", "300"]
    text = printed(t.final_table(metrics({"gti": 0.2, "popular": 0.1}), "gti", title="[red]final[/red]"))
    assert "0.2000 [0.1700, 0.2300]" in text  # brackets are text, not markup
    assert "[red]final[/red]" in text
    assert "NDCG@20" in text


def test_final_table_without_baseline_or_slice() -> None:
    assert set(t.final_frame(metrics({"gti": 0.2}), "gti")["popular"]) == {"-"}
    assert t.final_frame(metrics({"gti": 0.2}), "gti", part="unknown").empty


def test_final_markdown_is_a_table() -> None:
    lines = t.final_markdown(metrics({"gti": 0.2, "popular": 0.1}), "gti", part="novel").splitlines()
    assert lines[:2] == ["| metric | gti | popular | users |", "| --- | ---: | ---: | ---: |"]
    assert len(lines) == 2 + 9
    assert lines[2].endswith("| 240 |")


def test_stage_table_says_what_was_cached() -> None:
    rows = [StageRow("data", "k1", 3.0, True), StageRow("sft", "k2", 12.34, False, f"[bold] {NASTY}")]
    frame = t.stage_frame(rows)
    assert frame[["state", "seconds"]].to_numpy().tolist() == [["already there", "-"], ["done", "12.3"]]
    text = printed(t.stage_table(rows))
    assert "[bold]" in text
    assert NASTY in text


def test_compare_has_the_papers_layout() -> None:
    frame = metrics({"mean_sft": 0.1, "gti": 0.125, "popular": 0.05})
    values = t.compare_values(frame)
    assert list(values.columns) == ["R@5", "R@10", "R@20", "N@5", "N@10", "N@20"]
    assert list(values.index) == ["mean_sft", "gti", "popular"]
    assert values.loc["gti", "N@10"] == pytest.approx(0.075)
    shown = t.compare_frame(frame)
    assert list(shown["R@10"]) == ["0.1000", "0.1250", "+25.0 %", "0.0500", "-50.0 %"]
    assert list(shown["arm"])[1:3] == ["gti", "  against mean_sft"]
    assert "+25.0 %" in t.compare_markdown(frame)
    assert "+25.0 %" in printed(t.compare_table(frame, title="arms"))


@pytest.mark.parametrize("values", [{"mean_sft": 0.0, "gti": 0.1}, {"random_sft": 0.1, "gti": 0.1}])
def test_no_gain_over_zero_or_over_an_arm_that_was_not_run(values: dict[str, float]) -> None:
    gains = t.compare_relative(t.compare_values(metrics(values)), "mean_sft")
    assert gains.isna().all().all()
    assert "inf" not in t.compare_markdown(metrics(values))
    assert ("n/a" in t.compare_markdown(metrics(values))) == ("mean_sft" in values)


def test_markdown_cells_cannot_break_the_table() -> None:
    text = t.markdown(pd.DataFrame([["a\nb | c", "<b>"]], columns=["x", "y"]))
    assert text.splitlines()[2] == "| a b \\| c | &lt;b> |"


def test_numbers_are_spelt_or_said_to_be_missing() -> None:
    assert t.percent(0.0) == "+0.0 %"
    assert t.number(math.nan) == "n/a"
    assert t.with_interval(0.5, math.nan, math.nan) == "0.5000"


@pytest.mark.parametrize(
    ("own", "other", "difference", "tone", "phrase"),
    [
        (0.3, 0.1, None, "good", "is above popularity's"),
        (0.12, 0.1, None, "open", "not shown to be beyond chance"),
        (0.12, 0.1, paired(0.01, 0.03), "good", "excludes zero"),
        (0.3, 0.1, paired(-0.01, 0.03), "open", "holds zero"),
        (0.05, 0.1, None, "bad", "NOT above popularity's: it is below it"),
        (0.1, 0.1, None, "bad", "it is equal to it"),
    ],
)
def test_verdict_against_popularity(
    own: float, other: float, difference: Difference | None, tone: str, phrase: str
) -> None:
    verdict = against_popularity(metrics({"gti": own, "popular": other}), "gti", [difference] if difference else [])
    assert (verdict.tone, phrase in verdict.text) == (tone, True), verdict.text
    assert f"gti {own:.4f} [" in verdict.text
    assert f"popularity {other:.4f} [" in verdict.text
    assert "300 test users" in verdict.text


def test_verdict_with_other_ks_or_no_popularity() -> None:
    assert "Recall@7 " in against_popularity(metrics({"gti": 0.3, "popular": 0.1}, ks=(3, 7)), "gti").text
    assert against_popularity(metrics({"gti": 0.3}), "gti").tone == "open"


def test_sentences_between_arms() -> None:
    differences = [paired(0.1, 0.2, "gti", "mean_sft"), paired(-0.1, 0.2, "lc_rec", "mean_sft")]
    sentences = between_arms(differences, ["mean_sft", "lc_rec", "gti", "random_sft", "popular"], "mean_sft")
    assert [sentence.split(":")[0] for sentence in sentences] == ["lc_rec", "gti", "random_sft"]
    assert "not shown at this size" in sentences[0]
    assert "is higher than mean_sft's" in sentences[1]
    assert "a number only" in sentences[2]
    assert "was not run" in between_arms([], ["gti"], "mean_sft")[0]
