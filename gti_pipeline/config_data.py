"""What every section of the configuration shares, and the sections that say what is read, cleaned and split."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator


class Section(BaseModel):
    """A frozen group of settings; unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses true and false where a number is meant: pydantic would read them as 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("true and false are no value of this setting")
        return value


Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Columns = str | tuple[str, ...]


def _iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class TableConfig(Section):
    """Where a table's files are and how they are written. Formats: CSV, Parquet, JSON lines; text may be gzipped."""

    file: Columns = ()  # a file, several, or a folder of shards, read in order of name
    delimiter: str = Field(default=",", min_length=1, max_length=8)  # of CSV; may be several characters, as "::"
    encoding: str = "utf-8"  # of text; for example windows-1252
    header: tuple[str, ...] = ()  # the column names of CSV files that bear none
    keep: dict[str, tuple[str, ...]] = {}  # only rows whose column has one of these values; the others are counted


class ItemsConfig(TableConfig):
    """The catalogue, and which of its columns are ours."""

    file: Columns = "items.csv"
    item_id: str = "item_id"
    title: str = "title"
    description: Columns = ()  # several columns are joined with spaces
    group_id: str | None = None
    list_text: tuple[str, ...] = ()  # columns that hold Python-style list text: "['summer', 'linen']"


class JoinConfig(TableConfig):
    """A second table that adds columns to each interaction, as Instacart's orders to its baskets."""

    on: str  # the column that both tables have; unique in this one


class InteractionsConfig(TableConfig):
    """The interactions, and which of their columns are ours."""

    file: Columns = "interactions.csv"
    user_id: str = "user_id"
    item_id: str = "item_id"
    timestamp: str = "timestamp"
    time_format: Literal["auto", "iso", "day_first", "month_first", "seconds", "milliseconds", "order"] = "auto"
    time_zone: str = "UTC"  # of dates without an offset
    end: str | None = None  # the end of a rental: rows that end before they start are rejected
    rating: str | None = None
    min_rating: float | None = None  # rows with a lower rating are left out and counted
    join: JoinConfig | None = None


class QueriesConfig(TableConfig):
    """The queries of a search task, and which of their columns are ours."""

    file: Columns = "queries.csv"  # may be the file of the judgments: a query's rows are merged
    query_id: str = "query_id"
    text: Columns = "query"  # of several columns each is named before its value
    list_text: tuple[str, ...] = ()  # as of items


Grade = Annotated[int, Field(ge=0, le=2)]  # 2 good, 1 maybe, 0 not


class JudgmentsConfig(TableConfig):
    """The graded judgments of a search task, and which of their columns are ours."""

    file: Columns = "judgments.csv"
    query_id: str = "query_id"
    item_id: str = "item_id"
    grade: str = "grade"
    grades: dict[str, Grade] = {"2": 2, "1": 1, "0": 0}  # what the file says: what it means


class SplitConfig(Section):
    """What is trained on, validated on and tested on. Every rule is guarded in every run."""

    method: Literal["leave_one_out", "temporal", "ratio"] = "leave_one_out"
    valid_share: Share = 0.1  # temporal: of all events, before the cut; ratio: of a user's events
    test_share: Share = 0.1
    cut: str | None = None  # temporal: ISO date from which events are tested, in place of test_share
    valid_cut: str | None = None  # temporal: ISO date from which events validate, in place of valid_share

    @field_validator("cut", "valid_cut", mode="before")
    @classmethod
    def _date_as_text(cls, value: Any) -> Any:
        """YAML reads an unquoted date as a date."""
        return value.isoformat() if isinstance(value, date) else value

    @model_validator(mode="after")
    def _check(self) -> SplitConfig:
        """Refuses shares that leave nothing to train on, and dates that are none or have no use."""
        dates = {name: value for name in ("cut", "valid_cut") if (value := getattr(self, name)) is not None}
        wrong = [name for name, value in dates.items() if not _iso(value)]
        problems = [f"{name}={dates[name]!r} is no ISO date such as 2021-06-30" for name in wrong]
        if dates and self.method != "temporal":
            problems.append(f"{' and '.join(dates)}: only method=temporal has a cut, method={self.method} has none")
        if self.method != "leave_one_out" and self.valid_share + self.test_share >= 1:
            problems.append(
                f"valid_share={self.valid_share} and test_share={self.test_share} leave no event to train on:"
                " together they must be less than 1"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self


class DataConfig(Section):
    """What is read, cleaned and split. `name` is the data set's name in paths, tables and runs."""

    name: str = Field(default="unnamed", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    task: Literal["recommend", "search"] = "recommend"  # search: queries and judgments in the place of interactions
    dir: str | None = None  # the folder of the raw files; default data/raw/<name>
    standin: Literal["none", "vibrent", "jobs"] = "none"  # generated data to fall back on, announced loudly
    require_real: bool = False  # refuse the stand-in
    kaggle: str | None = None  # owner/name of a Kaggle data set to try before the stand-in
    items: ItemsConfig = ItemsConfig()
    interactions: InteractionsConfig = InteractionsConfig()
    queries: QueriesConfig = QueriesConfig()
    judgments: JudgmentsConfig = JudgmentsConfig()
    item_level: Literal["outfit", "group"] = "outfit"  # group: all items of one group_id are one item
    repeat_window_days: Count = 0  # same user and item again within so many days: rejected as a duplicate; 0: keep
    k_core: Count = 0  # users and items with fewer interactions are left out, again and again until none is; 0: keep
    max_items: Positive | None = None  # the most frequent items only
    max_users: Positive | None = None  # the first users, of a search task queries, of a seeded shuffle
    min_history: Annotated[int, Field(ge=3)] = 3  # users with fewer interactions are never tested
    max_reject_share: Share = 0.2  # a larger share of rejected rows stops the run
    split: SplitConfig = SplitConfig()
    seed: int = 0
