from __future__ import annotations

import io
import math

import pandas as pd
import pytest
from report_examples import ARMS, NASTY, metrics
from rich.console import Console, Group
from rich.table import Table

from gti_pipeline.report import Difference, StageRow
from gti_pipeline.report import compare_tables as compared
from gti_pipeline.report import tables as t
from gti_pipeline.report.verdict import against_popularity, between_arms, strongest, verdicts


def printed(table: Table | Group, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue()


def paired(low: float, high: float, arm: str = "gti", reference: str = "popular") -> Difference:
    return Difference(arm, reference, "recall", 10, (low + high) / 2, low, high, 300)


def test_final_table_shows_both_arms_with_intervals() -> None:
    frame = t.final_frame(metrics({"gti": 0.2, "popular": 0.1}), "gti")
    assert list(frame["metric"])[:4] == ["Recall@5", "Recall@10", "Recall@20", "NDCG@5"]
    names = list(dict.fromkeys(frame["metric"].str.split("@").str[0]))
    assert names == [
        *("Recall", "NDCG", "Precision", "MRR", "Hit rate", "Coverage", "Popularity", "Repeats"),
        *("SID 1 code", "SID 2 codes"),
    ]
    cells = frame.set_index("metric")["gti"]
    assert (cells["Coverage@5"], cells["Popularity@10"]) == ("0.5020", "0.2 %")  # no interval; as a share of events
    row = frame.set_index("metric").loc["Recall@10"]
    assert list(row) == ["0.2000 [0.1700, 0.2300]", "0.1000 [0.0700, 0.1300]", "300"]
    text = printed(t.final_table(metrics({"gti": 0.2, "popular": 0.1}), "gti", title="[red]final[/red]"))
    assert "0.2000 [0.1700, 0.2300]" in text  # brackets are text, not markup
    assert "[red]final[/red]" in text
    assert "NDCG@20" in text


def test_final_table_without_baseline_or_slice() -> None:
    assert set(t.final_frame(metrics({"gti": 0.2}), "gti")["popular"]) == {"-"}
    assert set(t.final_frame(metrics({"gti": 0.2}), "gti", ()).columns) == {"metric", "gti", "users"}
    assert t.final_frame(metrics({"gti": 0.2}), "gti", part="unknown").empty


def test_final_markdown_is_a_table() -> None:
    lines = t.final_markdown(metrics({"gti": 0.2, "popular": 0.1}), "gti", part="novel").splitlines()
    assert lines[:2] == ["| metric | gti | popular | users |", "| --- | ---: | ---: | ---: |"]
    assert len(lines) == 2 + 3 * 9  # coverage is of all users alone
    assert lines[2].endswith("| 240 |")


def test_many_arms_stand_below_one_another_and_the_best_is_marked() -> None:
    frame = metrics(ARMS)
    table = t.arms_frame(frame, list(ARMS), t.FIRST, (10,)).set_index("arm")
    assert list(table.columns) == ["Recall@10", "NDCG@10", "Precision@10"]
    assert table.loc["sasrec", "Recall@10"] == "*0.1810 [0.1510, 0.2110]"
    assert table.loc["gti", "Recall@10"] == "0.1670 [0.1370, 0.1970]"
    assert (table.map(lambda cell: cell.startswith("*")).sum() == 1).all()
    lists = t.arms_frame(frame, list(ARMS), ("coverage", "popularity", "repeats"))
    assert not lists.map(lambda cell: "*" in cell).any(axis=None)  # more of them is not better
    assert list(lists.columns)[1:4] == ["Coverage@5", "Coverage@10", "Coverage@20"]


def test_equal_bests_are_both_marked_and_what_was_not_measured_is_a_dash() -> None:
    frame = metrics({"gti": 0.2, "als": 0.2, "bpr": 0.1})
    cells = t.arms_frame(frame, ["gti", "als", "bpr", "other"], ("recall",), (10,), intervals=False)["Recall@10"]
    assert cells.tolist() == ["*0.2000", "*0.2000", "0.1000", "-"]


def test_the_closing_table_fits_a_hundred_columns_however_many_arms() -> None:
    text = printed(t.final_table(metrics(ARMS), "gti", list(ARMS)[1:], title="all arms", k=12), width=100)
    assert max(map(len, text.splitlines())) <= 100
    for phrase in (*ARMS, "Recall@10", "NDCG@10", "Precision@10", "MRR", "Coverage", "Popularity", "Repeats"):
        assert phrase in text, phrase
    assert "*0.1810 [0.1510, 0.2110]" in text
    assert "Recall@20" not in text


def test_slices_one_below_the_other() -> None:
    frame = t.slices_frame(metrics({"gti": 0.2, "popular": 0.1}), ["gti", "popular"], "recall", 10)
    assert list(frame.columns) == ["Recall@10", "gti", "popular", "users"]
    assert frame["users"].tolist() == ["300", "60", "240", "290", "10", "300"]
    assert frame["Recall@10"].tolist()[0] == "All test users"
    assert frame["Recall@10"].tolist()[-1] == "History of 11 items or more"
    assert frame["gti"].tolist()[0] == "0.2000 [0.1700, 0.2300]"


def test_stage_table_says_what_was_cached() -> None:
    rows = [StageRow("data", "k1", 3.0, True), StageRow("sft", "k2", 12.34, False, f"[bold] {NASTY}")]
    frame = t.stage_frame(rows)
    assert frame[["state", "seconds"]].to_numpy().tolist() == [["already there", "-"], ["done", "12.3"]]
    text = printed(t.stage_table(rows))
    assert "[bold]" in text
    assert NASTY in text


def test_compare_has_the_papers_layout() -> None:
    frame = metrics({"mean_sft": 0.1, "gti": 0.125, "popular": 0.05})
    values = compared.compare_values(frame)
    assert list(values.columns) == ["R@5", "R@10", "R@20", "N@5", "N@10", "N@20"]
    assert list(values.index) == ["mean_sft", "gti", "popular"]
    assert values.loc["gti", "N@10"] == pytest.approx(0.075)
    shown = compared.compare_frame(frame)
    assert list(shown["R@10"]) == ["0.1000", "0.1250", "+25.0 %", "0.0500", "-50.0 %"]
    assert list(shown["arm"])[1:3] == ["gti", "  against mean_sft"]
    assert "+25.0 %" in compared.compare_markdown(frame)
    assert "+25.0 %" in printed(compared.compare_table(frame, title="arms"))


@pytest.mark.parametrize("values", [{"mean_sft": 0.0, "gti": 0.1}, {"random_sft": 0.1, "gti": 0.1}])
def test_no_gain_over_zero_or_over_an_arm_that_was_not_run(values: dict[str, float]) -> None:
    gains = compared.compare_relative(compared.compare_values(metrics(values)), "mean_sft")
    assert gains.isna().all().all()
    assert "inf" not in compared.compare_markdown(metrics(values))
    assert ("n/a" in compared.compare_markdown(metrics(values))) == ("mean_sft" in values)


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


def test_the_strongest_baseline_by_recall_is_the_one_to_beat() -> None:
    frame = metrics(ARMS)
    assert strongest(frame, "gti") == "sasrec"
    assert strongest(frame, "sasrec") == "gti"
    assert strongest(metrics({"gti": 0.1}), "gti") is None
    first, second = verdicts(frame, "gti", [paired(-0.05, 0.02, "gti", "sasrec"), paired(0.05, 0.15)])
    assert first.tone == "bad"
    assert "The strongest baseline is sasrec. Recall@10 is NOT above sasrec's: it is below it (gti 0.1670" in first.text
    assert "holds zero" in first.text
    assert second.tone == "good"
    assert "Recall@10 is above popularity's" in second.text


def test_popularity_alone_is_one_sentence_and_the_k_is_the_one_asked_for() -> None:
    (said,) = verdicts(metrics({"gti": 0.3, "popular": 0.1}), "gti", k=20)
    assert said.text.startswith("Recall@20 is above popularity's")
    (said,) = verdicts(metrics({"gti": 0.3, "als": 0.1}), "gti")
    assert said.text.startswith("The strongest baseline is als. Recall@10 is above als's")
    (said,) = verdicts(metrics({"gti": 0.3}), "gti")
    assert (said.tone, "was not measured" in said.text) == ("open", True)


def test_sentences_between_arms() -> None:
    differences = [paired(0.1, 0.2, "gti", "mean_sft"), paired(-0.1, 0.2, "lc_rec", "mean_sft")]
    sentences = between_arms(differences, ["mean_sft", "lc_rec", "gti", "random_sft", "popular"], "mean_sft")
    assert [sentence.split(":")[0] for sentence in sentences] == ["lc_rec", "gti", "random_sft"]
    assert "not shown at this size" in sentences[0]
    assert "is higher than mean_sft's" in sentences[1]
    assert "a number only" in sentences[2]
    assert "was not run" in between_arms([], ["gti"], "mean_sft")[0]
