import numpy as np
import pytest
import torch

from gti_pipeline import schemas
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import nearest_codes
from gti_pipeline.semantic_ids.judge import code_use, collision_rate
from gti_pipeline.semantic_ids.train import Training, fit, latents_of, revive

CONFIG = SemanticIdsConfig(
    num_levels=2, codebook_size=8, hidden_dims=(32,), latent_dim=8, epochs=300, batch_size=256, patience=3
)


def _quiet(done: int, total: int) -> None:
    assert 0 < done <= total


def _clusters(items: int = 160, count: int = 8, dim: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.arange(items) % count
    return (rng.normal(size=(count, dim))[label] + rng.normal(0, 0.05, (items, dim))).astype(np.float32), label


def _codes(training: Training, vectors: np.ndarray) -> np.ndarray:
    latents = latents_of(training.model, training.model.standardise(torch.from_numpy(vectors)))
    return nearest_codes(latents.numpy(), training.model.codebooks.detach().numpy())[0]


def _metric(training: Training, name: str) -> np.ndarray:
    return training.steps.loc[training.steps["metric"] == name, "value"].to_numpy()


def test_clusters_are_recovered() -> None:
    vectors, label = _clusters()
    training = fit(vectors, CONFIG.model_copy(update={"epochs": 1000, "learning_rate": 3e-3}), _quiet)
    first = _codes(training, vectors)[:, 0]
    assert len(set(zip(first, label, strict=True))) == 8 == len(set(first))  # one code, one cluster
    assert _metric(training, "reconstruction_error").min() < 0.01
    assert training.epochs < 1000
    assert "no gain" in training.stopped


def test_the_error_falls_below_that_of_the_start() -> None:
    vectors = np.random.default_rng(0).normal(size=(160, 24)).astype(np.float32)
    errors = _metric(fit(vectors, CONFIG, _quiet), "reconstruction_error")
    assert errors[-1] < errors[0] - 0.05


def test_history_is_a_table_of_finite_steps(tmp_path) -> None:
    vectors, _ = _clusters()
    training = fit(vectors, CONFIG.model_copy(update={"epochs": 40}), _quiet)
    schemas.STEPS.write(training.steps, tmp_path)
    assert np.isfinite(training.steps["value"]).all()
    assert {"loss", "loss_reconstruction", "loss_diversity", "collision_rate", "code_use_2", "perplexity_1"} <= set(
        training.steps["metric"]
    )
    assert training.epochs == 40
    assert "ceiling" in training.stopped


def test_same_seed_same_model_and_the_random_state_is_left_alone() -> None:
    vectors, _ = _clusters()
    config = CONFIG.model_copy(update={"epochs": 40})
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = fit(vectors, config, _quiet)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    second = fit(vectors, config, _quiet)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    other = fit(vectors, config.model_copy(update={"seed": 1}), _quiet)
    assert not torch.equal(first.model.codebooks, other.model.codebooks)


@pytest.mark.parametrize(
    "vectors",
    [
        np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32),
        np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32),
        np.ones((40, 6), dtype=np.float32),
        np.zeros((40, 6), dtype=np.float32),
        np.repeat(np.eye(6, dtype=np.float32)[:3], 10, axis=0),
        np.full((20, 6), 1e-20, dtype=np.float32),
        np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * 1e15,
    ],
    ids=["fewer-than-codes", "one", "equal", "zero", "three-distinct", "tiny", "huge"],
)
@pytest.mark.parametrize("epochs", [1, 60])
def test_degenerate_vectors_train_without_nan(vectors: np.ndarray, epochs: int) -> None:
    training = fit(vectors, CONFIG.model_copy(update={"epochs": epochs}), _quiet)
    assert all(torch.isfinite(value).all() for value in training.model.state_dict().values())
    assert np.isfinite(training.steps["value"]).all()


def test_tight_unit_vectors_keep_their_codes_in_use() -> None:
    rng = np.random.default_rng(0)
    vectors = 1 + 0.01 * rng.normal(size=(300, 256)) + 0.03 * rng.normal(size=(12, 256))[np.arange(300) % 12]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    config = CONFIG.model_copy(update={"codebook_size": 16, "epochs": 60})
    training = fit(vectors, config, _quiet)
    use, _ = code_use(_codes(training, vectors), 16)
    assert min(use) >= 0.9
    assert _metric(training, "reconstruction_error").min() < 0.6


def test_unused_codes_come_back() -> None:
    vectors, _ = _clusters()
    training = fit(vectors, CONFIG.model_copy(update={"epochs": 5}), _quiet)
    model = training.model
    with torch.no_grad():
        model.codebooks[0, 3:] = 1e3
    latents = latents_of(model, model.standardise(torch.from_numpy(vectors)))
    with torch.random.fork_rng(devices=[]):
        assert revive(model, latents, torch.optim.Adam(model.parameters())) >= 5
        while revive(model, latents):  # two may have come back to one cluster
            pass
    assert code_use(_codes(training, vectors), 8)[0][0] == 1


def test_bad_vectors_and_divergence_are_clear_errors() -> None:
    vectors, _ = _clusters()
    with pytest.raises(GtiError, match="learning_rate"):
        fit(vectors, CONFIG.model_copy(update={"learning_rate": 1e25}), _quiet)
    with pytest.raises(GtiError, match="latents after the warm-up: not finite"):
        fit(vectors, CONFIG.model_copy(update={"learning_rate": 1e30}), _quiet)
    vectors[3, 2] = np.nan
    with pytest.raises(GtiError, match="1 of 160 item vectors hold NaN"):
        fit(vectors, CONFIG, _quiet)
    with pytest.raises(GtiError, match="at least one item"):
        fit(np.zeros((0, 6), dtype=np.float32), CONFIG, _quiet)


def test_measures_by_hand() -> None:
    codes = np.array([[0, 1], [0, 1], [1, 1], [1, 0]])
    assert collision_rate(codes) == 0.25
    use, perplexity = code_use(codes, 4)
    assert use == [0.5, 0.5]
    assert perplexity == pytest.approx([2.0, np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))])
