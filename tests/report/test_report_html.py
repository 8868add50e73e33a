from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from report_examples import ARMS, NASTY, comparison, crowded_run, diagnostics, metrics, run, steps

from gti_pipeline.report import ReportInput, figures
from gti_pipeline.report.comparison import build_comparison, comparison_markdown
from gti_pipeline.report.html import build_report, facts
from gti_pipeline.report.page import Written

VOID = {"meta", "link", "br", "img", "hr", "path", "use", "rect", "line", "input"}


class Checker(HTMLParser):
    """Collects tags, ids and links, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids)), "ids of several figures clash"
    inside = ("#", "data:,", "data:image/png;base64,")
    assert all(link.startswith(inside) for link in checker.links), checker.links
    assert not checker.tags & {"script", "iframe", "img", "object"}
    assert not re.search(r"@import|url\((?!#)", page)
    return checker


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return build_report(run(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(report: Written) -> str:
    return report.page.read_text(encoding="utf-8")


def test_report_writes_page_text_and_figures(report: Written) -> None:
    assert report.page.name == "report.html"
    names = {path.stem for path in report.figures}
    assert names == {
        *("loss_semantic_ids", "loss_ground", "loss_sft", "codebook_use"),
        *("metric_recall", "metric_precision", "metric_ndcg"),
        *(f"cosine_{block}_{when}" for block in ("affinity", "by_level") for when in ("init", "grounded", "tuned")),
        *("spectrum", "rsa_pearson", "rsa_spearman"),
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in report.figures)
    text = report.text.read_text(encoding="utf-8")
    assert "STAND-IN DATA" in text
    assert "is above popularity's" in text
    assert "3.0 of 10 epochs (budget ground.max_steps=56)" in text


def test_page_is_self_contained_and_well_formed(page: str) -> None:
    assert "svg" in checked(page).tags
    assert len(page) < 1_000_000


def test_user_text_is_escaped(page: str) -> None:
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page


def test_page_says_what_matters(page: str) -> None:
    for phrase in ("STAND-IN DATA", "is above popularity&#39;s", "3.0 of 10 epochs", "already there", "make compare"):
        assert phrase in page
    assert "0.1670 [0.1370,\u00a00.1970]" in page
    assert "Novel: the next item was not in the history" in page
    assert "Cold item: the next item has none" in page
    assert "95 % bootstrap intervals" in page
    assert "&#10003; hit" in page


def test_page_shows_the_new_tokens_rows(page: str, report: Written) -> None:
    for phrase in ("Effective rank", "after grounding", "Nearest words of the most frequent codes", "word1"):
        assert phrase in page
    text = report.text.read_text(encoding="utf-8")
    assert "| RSA with the codebooks, Pearson | n/a |" in text  # rows that are one point have no such number
    assert "| Effective rank | 1.0 |" in text


def test_a_run_beside_many_baselines(tmp_path: Path) -> None:
    written = build_report(crowded_run(), tmp_path)
    text = written.page.read_text(encoding="utf-8")
    checked(text)
    for name in ARMS:
        assert f'<td class="left ">{name}</td>' in text, name
    assert "The strongest baseline is sasrec. Recall@10 is NOT above sasrec&#39;s" in text
    assert "Recall@10 is above popularity&#39;s" in text
    assert "*0.1810 [0.1510,\u00a00.2110]" in text
    assert "90 % bootstrap intervals over users in brackets; * the best of its column" in text
    said = written.text.read_text(encoding="utf-8")
    assert "The strongest baseline is sasrec" in said
    assert "| sasrec |" in said


def test_method_without_grounding_says_so(tmp_path: Path) -> None:
    data = replace(
        run(),
        arm="mean_sft",
        steps={"sft": steps(("loss",), 3)},
        budgets=(),
        examples=(),
        semantic_ids=None,
        diagnostics=diagnostics(("init", "tuned")),
    )
    data = replace(data, metrics=metrics({"mean_sft": 0.02, "popular": 0.067}), differences=())
    written = build_report(data, tmp_path)
    text = written.page.read_text(encoding="utf-8")
    checked(text)
    assert "No loss curve for ground: this method has no grounding stage" in text
    assert "No loss curve for semantic_ids" in text
    assert "is NOT above popularity&#39;s" in text
    assert not {"loss_ground", "codebook_use", "cosine_affinity_grounded"} & {path.stem for path in written.figures}
    assert "after grounding" not in text


def test_smallest_report(tmp_path: Path) -> None:
    data = ReportInput(
        title="t", dataset="d", arm="gti", metrics=metrics({"gti": 0.1}), config_yaml="", is_standin=True
    )
    text = build_report(data, tmp_path).page.read_text(encoding="utf-8")
    checked(text)
    assert "nothing can be said against popularity" in text
    assert "generated stand-in data" in text  # the banner does not depend on the caller's wording


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return build_comparison(comparison(), tmp_path_factory.mktemp("comparison"))


def test_comparison_shows_gains_and_what_is_not_shown(compared: Written) -> None:
    written = compared
    text = written.page.read_text(encoding="utf-8")
    checked(text)
    assert "+317.5\u00a0%" in text
    assert "*0.1670 [0.1370,\u00a00.1970]" in text
    assert "Cold item: the next item has none" in text
    assert "lc_rec: a difference to mean_sft in Recall@10 is not shown at this size" in text
    assert "gti: Recall@10 is higher than mean_sft&#39;s" in text
    assert "<script" not in text
    assert {path.stem for path in written.figures} == {
        *("compare_recall", "compare_ndcg", "compare_precision", "curve_valid_loss", "curve_valid_recall_10"),
        *("effective_rank", "rsa_pearson", "rsa_spearman", "spectrum_tuned"),
    }
    assert "+317.5 %" in written.text.read_text(encoding="utf-8")


def test_comparison_tells_arms_from_baselines_and_ours_from_the_papers(compared: Written) -> None:
    text = compared.page.read_text(encoding="utf-8")
    assert text.count("content_knn (baseline)") >= 3
    assert "gti (baseline)" not in text
    assert "The strongest baseline is content_knn. Recall@10 is above content_knn&#39;s" in text
    assert "bootstrap intervals over users and seeds" in text
    said = compared.text.read_text(encoding="utf-8")
    assert "arXiv 2604.02324, Vibrent" in said
    # 0.0417 / 0.0342 - 1 and 0.167 / 0.04 - 1
    assert re.search(r"\| gti \| paper \| \+1\.8 % \| \+21\.9 %", said)
    assert re.search(r"\| gti \| ours \| \+317\.5 % \| \+317\.5 %", said)


def test_comparison_says_whether_budgets_are_equal(compared: Written) -> None:
    text = compared.text.read_text(encoding="utf-8")
    assert "Fine-tuning saw the same number of targets (items to recommend) in every arm: 2,000." in text
    assert "lc_rec had 960 text <-> ID pairs beside the same targets" in text
    assert "NOT see the same number of tokens in every arm: mean_sft 60,000, lc_rec 90,000, gti 60,000." in text
    assert "gti had grounding before it: 30,000 tokens, 0.50 times those of its fine-tuning" in text


def test_comparison_says_what_its_size_can_show(compared: Written) -> None:
    text = compared.text.read_text(encoding="utf-8")
    assert "(300 test users, 2 seeds:" in text
    assert "a difference in Recall@10 below about 0.0450 cannot be told from none" in text
    one = comparison_markdown(replace(comparison(), seeds=1))
    assert "one seed: how much training runs differ is not in any interval" in one


def test_comparison_shows_examples_and_rows_of_every_arm(compared: Written) -> None:
    text = compared.page.read_text(encoding="utf-8")
    for arm in ("mean_sft", "lc_rec", "gti"):
        assert f"{arm} recommends" in text
    said = compared.text.read_text(encoding="utf-8")
    assert "| arm | at init | after grounding | after SFT |" in said
    assert re.search(r"\| mean_sft \| 1\.0 \| - \| \d", said)


def test_examples_of_a_search_task_are_queries(tmp_path: Path) -> None:
    data = comparison()
    asked = replace(data, examples=tuple(replace(example, is_query=True) for example in data.examples))
    text = build_comparison(asked, tmp_path).page.read_text(encoding="utf-8")
    checked(text)
    for phrase in ("Some test queries", "<h3>Query user-0</h3>", "gti finds", "Good items:"):
        assert phrase in text
    for phrase in ("Some test users", "<h3>User ", "History, oldest first", "Taken next"):
        assert phrase not in text


def test_facts_are_flat_and_readable() -> None:
    summary = {"a_b": {"c": 1234, "d": True}, "e": [0.5, 1], "f": None, "g": "x", "h": 123456.7}
    assert facts(summary) == [
        ("a b c", "1,234"), ("a b d", "yes"), ("e", "0.5, 1"), ("f", "-"), ("g", "x"), ("h", "123,457"),
    ]  # fmt: skip


def test_figures_leave_out_what_is_missing_and_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    assert figures.loss_figure("vocab", steps(("norm",), 3)) is None
    assert figures.metric_figure(metrics({"gti": 0.1}), "accuracy", ("gti",)) is None
    empty = pd.DataFrame({"item_id": [], "codes": []})
    assert figures.codebook_figure(empty, 8) is None
    constant = figures.loss_figure("sft", pd.DataFrame({"step": [0], "metric": ["loss"], "value": [float("nan")]}))
    assert constant is not None
    assert NASTY.split()[0] not in figures.inline_svg(constant, "x")
    assert dict(matplotlib.rcParams) == before
