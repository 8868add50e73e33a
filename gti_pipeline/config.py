"""Configuration: frozen sections, merged from YAML files and `--set` overrides, all errors reported at once.

Order of precedence, lowest first: defaults here, profile, data set, method, `--set`, `--seed`.
"""

from __future__ import annotations

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


class ItemsConfig(Section):
    """Where the catalogue is and which of its columns are ours. Formats: CSV, Parquet, JSON lines."""

    file: str | tuple[str, ...] = "items.csv"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    item_id: str = "item_id"
    title: str = "title"
    description: Columns = ()  # several columns are joined with spaces
    group_id: str | None = None
    list_text: tuple[str, ...] = ()  # columns that hold Python-style list text: "['summer', 'linen']"


class InteractionsConfig(Section):
    """Where the interactions are and which of their columns are ours."""

    file: str | tuple[str, ...] = "interactions.csv"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    user_id: str = "user_id"
    item_id: str = "item_id"
    timestamp: str = "timestamp"  # ISO dates, or numbers where only the order counts
    end: str | None = None  # the end of a rental: rows that end before they start are rejected


class DataConfig(Section):
    """What is read, cleaned and split. `name` is the data set's name in paths, tables and runs."""

    name: str = Field(default="unnamed", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    dir: str | None = None  # the folder of the raw files; default data/raw/<name>
    standin: Literal["none", "vibrent"] = "none"  # generated data to fall back on, announced loudly
    require_real: bool = False  # refuse the stand-in
    kaggle: str | None = None  # owner/name of a Kaggle data set to try before the stand-in
    items: ItemsConfig = ItemsConfig()
    interactions: InteractionsConfig = InteractionsConfig()
    repeat_window_days: Count = 0  # same user and item again within so many days: rejected as a duplicate; 0: keep
    max_items: Positive | None = None  # the most frequent items only
    max_users: Positive | None = None  # the first users of a seeded shuffle
    min_history: Annotated[int, Field(ge=3)] = 3  # users with fewer interactions are never tested
    max_reject_share: Share = 0.2  # a larger share of rejected rows stops the run
    seed: int = 0


class EmbedConfig(Section):
    """Item text to vectors. `tfidf` is hashed TF-IDF with SVD: no model needed."""

    model: str = "all-MiniLM-L6-v2"  # a bundled model's name, a local folder, a hub name, or `tfidf`
    dim: Positive = 64  # of `tfidf` only; a model brings its own
    max_tokens: Positive = 2048
    batch_size: Positive = 64
    dtype: Literal["float32", "bfloat16"] = "float32"


class SemanticIdsConfig(Section):
    """RQ-VAE (paper's step 2): L codebooks of K codes."""

    num_levels: Positive = 4
    codebook_size: Annotated[int, Field(ge=2)] = 256
    hidden_dims: tuple[Positive, ...] = (512, 256)
    latent_dim: Positive = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    epochs: Positive = 20000  # a ceiling: see patience
    batch_size: Positive = 256  # more steps an epoch learn faster on a CPU; raise it with the codebook_size
    learning_rate: Rate = 2e-3
    commitment_weight: Annotated[float, Field(ge=0)] = 0.25
    diversity_weight: Annotated[float, Field(ge=0)] = 0.0001
    sinkhorn_epsilon: Annotated[float, Field(ge=0)] = 0.003  # last level in training; 0: plain nearest code
    kmeans_iterations: Positive = 50
    patience: Positive = 3  # checks (every 50 steps or an epoch) without a gain that end the training early
    seed: int = 0  # apart from the run's seed, so that arms and seeds share their semantic IDs


class LmConfig(Section):
    """The pretrained language model."""

    model: str = "SmolLM2-135M-Instruct"  # a bundled model's name, a local folder, a hub name, or `tiny`
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_tokens: Positive = 2048  # longest prompt with its answer
    system: str = "You are a helpful assistant."


class VocabConfig(Section):
    """How the rows of the new tokens start: mean of the old rows (MI) or random at their scale (RI)."""

    init: Literal["mean", "random"] = "mean"


class GroundConfig(Section):
    """GTI grounding (paper's step 4): only the new rows train, on text<->SID pairs, loss on the answer only."""

    enabled: bool = True
    epochs: Annotated[float, Field(gt=0)] = 10
    batch_size: Positive = 16
    learning_rate: Rate = 1e-3
    text_to_sid: tuple[Literal["title", "description", "both"], ...] = ("title", "description", "both")
    sid_to_text: tuple[Literal["title", "description", "both"], ...] = ("title", "description", "both")
    max_text_tokens: Positive = 512  # of one item's text within a pair
    max_steps: Positive | None = None  # a budget; the report says how many epochs it was
    cache_mb: Count = 2048  # memory for the frozen prefixes' key/value cache; beyond it they are computed again


class SftConfig(Section):
    """Supervised fine-tuning on next-item prediction (paper's step 5)."""

    tasks: Literal["next_item", "multitask"] = "next_item"
    pairs_share: Share = 0.5  # of the training examples that are text<->SID pairs, when multitask
    targets: Literal["last", "all"] = "all"  # all: each item of the history is a target too
    epochs: Annotated[float, Field(gt=0)] = 3
    max_steps: Positive | None = None
    batch_size: Positive = 16
    micro_batch_size: Positive = 16
    learning_rate: Rate = 5e-5
    new_token_learning_rate: Rate = 5e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup_share: Share = 0.1
    max_history: Positive = 20
    save_steps: Positive = 50  # a checkpoint to resume from


class DecodeConfig(Section):
    """Beam search over the trie of valid semantic IDs (paper's step 6)."""

    beams: Positive = 20
    batch_size: Positive = 8
    max_users: Positive | None = None  # test a seeded sample of the users; said in every table


class EvaluateConfig(Section):
    """Full ranking over the catalogue."""

    ks: tuple[Positive, ...] = (5, 10, 20)
    bootstrap: Positive = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


class Config(Section):
    """A whole run."""

    profile: str = ""
    dataset: str = ""
    method: str = ""
    seed: int = 0
    home: str = "data"  # artifacts, models, MLflow and Prefect state lie below it
    data: DataConfig = DataConfig()
    embed: EmbedConfig = EmbedConfig()
    semantic_ids: SemanticIdsConfig = SemanticIdsConfig()
    lm: LmConfig = LmConfig()
    vocab: VocabConfig = VocabConfig()
    ground: GroundConfig = GroundConfig()
    sft: SftConfig = SftConfig()
    decode: DecodeConfig = DecodeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @model_validator(mode="after")
    def _check(self) -> Config:
        """Refuses settings that contradict one another."""
        problems = []
        if self.ground.enabled and not (self.ground.text_to_sid or self.ground.sid_to_text):
            problems.append("ground.text_to_sid and ground.sid_to_text are both empty: nothing to ground on")
        if max(self.evaluate.ks, default=0) > self.decode.beams:
            problems.append(
                f"evaluate.ks asks for {max(self.evaluate.ks)} results, decode.beams={self.decode.beams} finds fewer:"
                " raise decode.beams or lower evaluate.ks"
            )
        if not self.evaluate.ks:
            problems.append("evaluate.ks is empty")
        if self.sft.batch_size % self.sft.micro_batch_size:
            problems.append(
                f"sft.batch_size={self.sft.batch_size} is not a multiple of"
                f" sft.micro_batch_size={self.sft.micro_batch_size}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self
