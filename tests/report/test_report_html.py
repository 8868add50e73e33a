from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from report_examples import ARMS, NASTY, comparison, crowded_run, metrics, run, steps

from gti_pipeline.report import ReportInput, figures
from gti_pipeline.report.html import Written, build_comparison, build_report, facts

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
    assert all(link.startswith("#") or link == "data:," for link in checker.links), checker.links
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
        run(), arm="mean_sft", steps={"sft": steps(("loss",), 3)}, budgets=(), examples=(), semantic_ids=None
    )
    data = replace(data, metrics=metrics({"mean_sft": 0.02, "popular": 0.067}), differences=())
    written = build_report(data, tmp_path)
    text = written.page.read_text(encoding="utf-8")
    checked(text)
    assert "No loss curve for ground: this method has no grounding stage" in text
    assert "No loss curve for semantic_ids" in text
    assert "is NOT above popularity&#39;s" in text
    assert not {"loss_ground", "codebook_use"} & {path.stem for path in written.figures}


def test_smallest_report(tmp_path: Path) -> None:
    data = ReportInput(
        title="t", dataset="d", arm="gti", metrics=metrics({"gti": 0.1}), config_yaml="", is_standin=True
    )
    text = build_report(data, tmp_path).page.read_text(encoding="utf-8")
    checked(text)
    assert "nothing can be said against popularity" in text
    assert "generated stand-in data" in text  # the banner does not depend on the caller's wording


def test_comparison_shows_gains_and_what_is_not_shown(tmp_path: Path) -> None:
    written = build_comparison(comparison(), tmp_path)
    text = written.page.read_text(encoding="utf-8")
    checked(text)
    assert "+317.5\u00a0%" in text
    assert "*0.1670 [0.1370,\u00a00.1970]" in text
    assert "Cold item: the next item has none" in text
    assert "lc_rec: a difference to mean_sft in Recall@10 is not shown at this size" in text
    assert "gti: Recall@10 is higher than mean_sft&#39;s" in text
    assert "<script" not in text
    assert {path.stem for path in written.figures} == {"compare_recall", "compare_ndcg"}
    assert "+317.5 %" in written.text.read_text(encoding="utf-8")


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
