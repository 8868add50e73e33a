"""One schema per Parquet artifact: Arrow types for the file, pandera checks for the values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pandera.pandas as pa_frame
import pyarrow as pa
import pyarrow.parquet as pq

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError

STRING_LIST = pa.list_(pa.string())
CODE_LIST = pa.list_(pa.int32())


@dataclass(frozen=True)
class Table:
    """A table's name, its Arrow fields (None marks a nullable column with `?`) and what must hold for its values."""

    name: str
    fields: dict[str, pa.DataType]
    nullable: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        return pa.schema([pa.field(n, t, nullable=n in self.nullable) for n, t in self.fields.items()])

    def check(self, frame: pd.DataFrame) -> None:
        """Raises `GtiError` with every violated rule: columns, nulls, uniqueness."""
        schema = pa_frame.DataFrameSchema(
            {name: pa_frame.Column(nullable=name in self.nullable) for name in self.fields},
            strict=True,
            unique=list(self.unique) or None,
        )
        try:
            schema.validate(frame.reset_index(drop=True), lazy=True)
        except pa_frame.errors.SchemaErrors as error:
            cases = error.failure_cases[["column", "check", "failure_case"]].head(5).to_string(index=False)
            raise GtiError(f"table {self.name} breaks its schema:\n{cases}") from error

    def write(self, frame: pd.DataFrame, folder: Path) -> Path:
        """Checks and writes `<folder>/<name>.parquet`."""
        self.check(frame)
        table = pa.Table.from_pandas(frame[list(self.fields)], schema=self.arrow_schema(), preserve_index=False)
        path = folder / f"{self.name}.parquet"
        pq.write_table(table, path)
        return path

    def read(self, folder: Path) -> pd.DataFrame:
        """Reads `<folder>/<name>.parquet`, list columns as numpy arrays."""
        return pd.read_parquet(folder / f"{self.name}.parquet")


ITEMS = Table(
    "items",
    {c.ITEM_ID: pa.string(), c.TITLE: pa.string(), c.DESCRIPTION: pa.string(), c.GROUP_ID: pa.string()},
    nullable=(c.GROUP_ID,),
    unique=(c.ITEM_ID,),
)
INTERACTIONS = Table(
    "interactions",
    {c.USER_ID: pa.string(), c.ITEM_ID: pa.string(), c.TIMESTAMP: pa.int64(), c.SOURCE_ROW: pa.int64()},
    unique=(c.SOURCE_ROW,),
)
REJECTED = Table("rejected", {c.FILE: pa.string(), c.LINE: pa.int64(), c.REASON: pa.string(), c.RAW: pa.string()})
SEQUENCES = Table(
    "sequences",
    {c.USER_ID: pa.string(), c.SPLIT: pa.string(), c.HISTORY: STRING_LIST, c.TARGET: pa.string()},
    unique=(c.USER_ID, c.SPLIT),
)
# every item that counts as a hit; `SEQUENCES.target` is the first of them in time
RELEVANT = Table(
    "relevant",
    {c.USER_ID: pa.string(), c.SPLIT: pa.string(), c.ITEM_ID: pa.string()},
    unique=(c.USER_ID, c.SPLIT, c.ITEM_ID),
)
QUERIES = Table("queries", {c.QUERY_ID: pa.string(), c.TEXT: pa.string(), c.SPLIT: pa.string()}, unique=(c.QUERY_ID,))
JUDGMENTS = Table(
    "judgments",
    {c.QUERY_ID: pa.string(), c.ITEM_ID: pa.string(), c.GRADE: pa.int32()},
    unique=(c.QUERY_ID, c.ITEM_ID),
)
ITEM_EMBEDDINGS = Table(
    "item_embeddings", {c.ITEM_ID: pa.string(), c.EMBEDDING: pa.list_(pa.float32())}, unique=(c.ITEM_ID,)
)
SEMANTIC_IDS = Table("semantic_ids", {c.ITEM_ID: pa.string(), c.CODES: CODE_LIST}, unique=(c.ITEM_ID,))
RETIRED_IDS = Table(  # of items that left the catalogue: nobody else gets them
    "retired_ids", {c.ITEM_ID: pa.string(), c.CODES: CODE_LIST}, unique=(c.ITEM_ID,)
)
CODEBOOKS = Table(
    "codebooks",
    {c.LEVEL: pa.int32(), c.CODE: pa.int32(), c.VECTOR: pa.list_(pa.float32())},
    unique=(c.LEVEL, c.CODE),
)
GROUNDING_PAIRS = Table(
    "grounding_pairs",
    {
        c.ITEM_ID: pa.string(),
        c.DIRECTION: pa.string(),
        c.TEMPLATE: pa.string(),
        c.PROMPT: pa.string(),
        c.ANSWER: pa.string(),
        c.SPLIT: pa.string(),  # train, or valid: held out
    },
)
PROBE = Table(
    "probe",
    {c.PHASE: pa.string(), c.ITEM_ID: pa.string(), c.RANK: pa.int32(), c.WINS: pa.float64()},
    nullable=(c.RANK, c.WINS),  # not among the beams; no other title to compare with
    unique=(c.PHASE, c.ITEM_ID),
)
RECOMMENDATIONS = Table(
    "recommendations",
    {c.USER_ID: pa.string(), c.RANK: pa.int32(), c.ITEM_ID: pa.string(), c.SCORE: pa.float64()},
    unique=(c.USER_ID, c.RANK),
)
METRICS = Table(
    "metrics",
    {
        c.ARM: pa.string(),
        c.SLICE: pa.string(),
        c.METRIC: pa.string(),
        c.K: pa.int32(),
        c.VALUE: pa.float64(),
        c.LOW: pa.float64(),
        c.HIGH: pa.float64(),
        c.NUM_USERS: pa.int64(),
    },
    nullable=(c.LOW, c.HIGH),  # coverage is no mean over users, so it has no interval
    unique=(c.ARM, c.SLICE, c.METRIC, c.K),
)
USER_METRICS = Table(
    "user_metrics",
    {
        c.ARM: pa.string(),
        c.USER_ID: pa.string(),
        c.METRIC: pa.string(),
        c.K: pa.int32(),
        c.VALUE: pa.float64(),
    },
    unique=(c.ARM, c.USER_ID, c.METRIC, c.K),
)
USER_SLICES = Table(
    "user_slices", {c.USER_ID: pa.string(), c.SLICE: pa.string()}, unique=(c.USER_ID, c.SLICE)
)  # a user may be in several slices
STEPS = Table("steps", {c.STEP: pa.int64(), c.METRIC: pa.string(), c.VALUE: pa.float64()}, unique=(c.STEP, c.METRIC))

# diagnostics of the new tokens' rows; stage: init, grounded or tuned; level 0: all levels
DIAGNOSTICS = Table(
    "diagnostics",
    {c.STAGE: pa.string(), c.LEVEL: pa.int32(), c.METRIC: pa.string(), c.VALUE: pa.float64()},
    nullable=(c.VALUE,),  # a correlation with rows that are all one point does not exist
    unique=(c.STAGE, c.LEVEL, c.METRIC),
)
COSINES = Table(
    "cosines",
    {
        c.STAGE: pa.string(),
        c.BLOCK: pa.string(),
        c.POSITION: pa.int32(),
        c.TOKEN: pa.string(),
        c.LEVEL: pa.int32(),  # 0: a pretrained token
        c.COSINES: pa.list_(pa.float32()),
    },
    unique=(c.STAGE, c.BLOCK, c.POSITION),
)
SPECTRUM = Table(
    "spectrum", {c.STAGE: pa.string(), c.RANK: pa.int32(), c.VALUE: pa.float64()}, unique=(c.STAGE, c.RANK)
)
NEAREST_WORDS = Table(
    "nearest_words",
    {
        c.STAGE: pa.string(),
        c.LEVEL: pa.int32(),
        c.CODE: pa.int32(),
        c.RANK: pa.int32(),
        c.WORD: pa.string(),
        c.VALUE: pa.float64(),
    },
    unique=(c.STAGE, c.LEVEL, c.CODE, c.RANK),
)
