"""Configuration: frozen sections, merged from YAML files and `--set` overrides, all errors reported at once.

Order of precedence, lowest first: defaults here, profile, data set, method, `--set`, `--seed`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from gti_pipeline.config_data import (
    Count,
    DataConfig,
    InteractionsConfig,
    ItemsConfig,
    JoinConfig,
    JudgmentsConfig,
    Positive,
    QueriesConfig,
    Rate,
    Section,
    Share,
    SplitConfig,
    TableConfig,
)

__all__ = [
    "AlsConfig",
    "BaselineName",
    "BaselinesConfig",
    "BprConfig",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "EmbedConfig",
    "EvaluateConfig",
    "GroundConfig",
    "InteractionsConfig",
    "ItemsConfig",
    "JoinConfig",
    "JudgmentsConfig",
    "LmConfig",
    "QueriesConfig",
    "SasrecConfig",
    "SearchConfig",
    "Section",
    "SemanticIdsConfig",
    "SftConfig",
    "SplitConfig",
    "TableConfig",
    "VectorsConfig",
    "VocabConfig",
]


class VectorsConfig(Section):
    """Vectors that the user brings, of images for instance."""

    file: str  # Parquet with item_id and embedding (lists of one length)
    weight: Annotated[float, Field(gt=0)] = 1.0  # their length beside the text's vectors, which have length 1


class EmbedConfig(Section):
    """Item text to vectors. `tfidf` is hashed TF-IDF with SVD: no model needed."""

    model: str = "all-MiniLM-L6-v2"  # a bundled model's name, a local folder, a hub name, `tfidf`, or `none`
    pooling: Literal["model", "mean", "last_token"] = "model"  # model: as its own files say; last_token: causal LMs
    instruction: str = ""  # of encoders that take one (Qwen3-Embedding): "Instruct: ...", before each text
    vectors: tuple[VectorsConfig, ...] = ()  # joined to the text's vectors, each by its weight
    dim: Positive = 64  # of `tfidf` only; a model brings its own
    max_tokens: Positive = 2048
    batch_size: Positive = 64
    dtype: Literal["float32", "bfloat16"] = "float32"


class SemanticIdsConfig(Section):
    """L codebooks of K codes: RQ-VAE (paper's step 2), or RQ-k-means, the fast choice for large catalogues."""

    method: Literal["rqvae", "rqkmeans"] = "rqvae"
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
    min_code_use: Share = 0.3  # a level that uses a smaller share of the codes it could use stops the run: collapse
    max_collision_rate: Share = 0.9  # and so does a larger share of items that only the assignment tells apart
    base: str | None = None  # `latest` or an artifact's key: its items keep their IDs, only new ones are given some
    seed: int = 0  # apart from the run's seed, so that arms and seeds share their semantic IDs


class LmConfig(Section):
    """The pretrained language model."""

    model: str = "SmolLM2-135M-Instruct"  # a bundled model's name, a local folder, a hub name, or `tiny`
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_tokens: Positive = 2048  # longest prompt with its answer
    system: str = "You are a helpful assistant."


class VocabConfig(Section):
    """How the rows of the new tokens start.

    mean: at the mean of the old rows (MI). random: at their scale (RI). keyword: each at the mean of the words in the
    titles of the items under its code, words that few items share weighing more (TS-Rec, arXiv 2602.22632).
    """

    init: Literal["mean", "random", "keyword"] = "mean"


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
    valid_share: Share = 0.05  # of the items: one of their wordings is held out; the rows with the least loss are kept
    check_steps: Positive = 50  # steps between checks of the held-out loss; each check is a checkpoint to resume from
    patience: Count = 3  # checks without a gain that end the training; 0: never
    second_phase_steps: Count = 0  # then so many steps on the same pairs with everything unfrozen
    second_phase_learning_rate: Rate = 5e-5  # of all but the new rows, which keep theirs
    probe_items: Count = 200  # items of the retrieval probe before and after; 0: none


class SftConfig(Section):
    """Supervised fine-tuning on next-item prediction (paper's step 5)."""

    tasks: Literal["next_item", "multitask"] = "next_item"
    # of a step that are text<->SID pairs, when multitask; they stand beside batch_size next-item examples
    pairs_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    targets: Literal["last", "all"] = "all"  # all: each item of the history is a target too
    epochs: Annotated[float, Field(gt=0)] = 3
    max_steps: Positive | None = None
    batch_size: Positive = 16
    micro_batch_size: Positive = 16
    learning_rate: Rate = 5e-5
    new_token_learning_rate: Rate = 5e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup_share: Share = 0.1
    extra_steps: Count = 0  # on top of epochs and max_steps, as a control that has grounding's compute too
    max_history: Positive = 20
    save_steps: Positive = 50  # a checkpoint to resume from
    valid_users: Count = 64  # a sample of validation users for the loss and recall curves; 0: none
    eval_every: Annotated[float, Field(gt=0, le=1)] = 0.25  # share of the steps between two measurements of recall
    select: Literal["last", "best"] = "last"  # best: the weights with the best validation recall
    method: Literal["full", "lora", "qlora"] = "full"  # the last two need the extra peft, qlora a GPU and bitsandbytes
    lora_rank: Positive = 16
    lora_alpha: Positive = 32
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    lora_targets: tuple[str, ...] = ()  # names of linear layers, q_proj for instance; none: all of them


class DecodeConfig(Section):
    """Beam search over the trie of valid semantic IDs (paper's step 6)."""

    beams: Positive = 20
    batch_size: Positive = 8
    max_users: Positive | None = None  # test a seeded sample of the users; said in every table


class EvaluateConfig(Section):
    """Full ranking over the catalogue."""

    ks: tuple[Positive, ...] = (5, 10, 20)
    headline_k: Positive = 10  # the K of sentences and of wide tables; the nearest of ks where it is none of them
    bootstrap: Positive = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


class SearchConfig(Section):
    """A search task (data.task=search): query text to ranked items (paper's industrial setting)."""

    max_query_tokens: Positive = 128  # a longer query is cut at its end
    candidates: Positive = 200  # items returned for each query; fewer where the catalogue has fewer
    ks: tuple[Positive, ...] = (5, 10, 20, 50, 100)  # the cut-offs, in place of evaluate.ks


class AlsConfig(Section):
    """Alternating least squares, of the library `implicit`."""

    factors: Positive = 128
    regularization: Annotated[float, Field(ge=0)] = 0.1
    alpha: Rate = 5.0  # how much an event weighs against an item never had
    iterations: Positive = 15


class BprConfig(Section):
    """Bayesian personalised ranking, of the library `implicit`."""

    factors: Positive = 64
    regularization: Annotated[float, Field(ge=0)] = 0.01
    learning_rate: Rate = 0.05
    iterations: Positive = 100


class SasrecConfig(Section):
    """SASRec with cross-entropy over the whole catalogue; validation NDCG@10 ends the training."""

    dim: Positive = 256  # wide and shallow: better on validation than 64 or 128 wide and two layers deep
    layers: Positive = 1
    heads: Positive = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    epochs: Positive = 200  # a ceiling: see patience
    patience: Positive = 5  # epochs without a gain that end the training
    learning_rate: Rate = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Positive = 128  # of users
    max_history: Positive = 50

    @model_validator(mode="after")
    def _check(self) -> SasrecConfig:
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} is not a multiple of heads={self.heads}")
        return self


BaselineName = Literal["popular", "recent_popular", "repeat", "popular_repeat", "content_knn", "als", "bpr", "sasrec"]


class BaselinesConfig(Section):
    """What the arms are compared with, by the same code on the same users."""

    names: tuple[BaselineName, ...] = get_args(BaselineName)
    recent_share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the training events that are recent
    repeat_decay: Annotated[float, Field(gt=0, le=1)] = 0.5  # weight of an event against the next one; 1: count only
    als: AlsConfig = AlsConfig()
    bpr: BprConfig = BprConfig()
    sasrec: SasrecConfig = SasrecConfig()


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
    search: SearchConfig = SearchConfig()
    baselines: BaselinesConfig = BaselinesConfig()

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
        if not self.search.ks:
            problems.append("search.ks is empty")
        if max(self.search.ks, default=0) > self.search.candidates:
            problems.append(
                f"search.ks asks for {max(self.search.ks)} results, search.candidates={self.search.candidates} finds"
                " fewer: raise search.candidates or lower search.ks"
            )
        if self.sft.batch_size % self.sft.micro_batch_size:
            problems.append(
                f"sft.batch_size={self.sft.batch_size} is not a multiple of"
                f" sft.micro_batch_size={self.sft.micro_batch_size}"
            )
        problems += _unmet(self.sft, self.lm)
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _unmet(sft: SftConfig, lm: LmConfig) -> list[str]:
    """What `sft.method` needs and this machine lacks: said at once, not after the stages before it."""
    unmet = []
    if sft.method != "full" and find_spec("peft") is None:
        unmet.append(f"sft.method={sft.method} needs the extra peft: pip install 'gti-pipeline[peft]'")
    if sft.method == "qlora":
        from torch import cuda  # a second's work, for this setting alone

        if lm.device == "cpu" or not cuda.is_available():
            unmet.append("sft.method=qlora needs a GPU: set sft.method=lora")
        if find_spec("bitsandbytes") is None:
            unmet.append("sft.method=qlora needs bitsandbytes: pip install bitsandbytes, or set sft.method=lora")
    return unmet
