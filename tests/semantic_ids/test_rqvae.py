import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.kmeans import kmeans
from gti_pipeline.semantic_ids.losses import _other_of_group, diversity_groups, diversity_loss, losses
from gti_pipeline.semantic_ids.rqvae import Quantized, RqVae, straight_through

CONFIG = SemanticIdsConfig(num_levels=3, codebook_size=8, hidden_dims=(16,), latent_dim=4, dropout=0)


def _model(config: SemanticIdsConfig = CONFIG) -> RqVae:
    torch.manual_seed(0)
    model = RqVae(12, config)
    torch.nn.init.normal_(model.codebooks)
    return model


def test_residual_quantization_matches_a_numpy_loop() -> None:
    model = _model()
    latents = torch.randn(20, 4)
    quantized = model.quantize(latents)
    books = model.codebooks.detach().numpy()
    for i, latent in enumerate(latents.numpy()):
        residual = latent.copy()
        for level, book in enumerate(books):
            np.testing.assert_allclose(quantized.residuals[i, level].detach(), residual, rtol=1e-5, atol=1e-6)
            code = int(np.argmin([np.square(residual - row).sum() for row in book]))
            assert quantized.codes[i, level] == code
            np.testing.assert_array_equal(quantized.codewords[i, level].detach(), book[code])
            residual = residual - book[code]


def test_it_starts_as_the_principal_components_with_latents_of_mean_square_one() -> None:
    model, rng = _model(), np.random.default_rng(0)
    vectors = (rng.normal(size=(50, 12)) * np.arange(1, 13)).astype(np.float32)
    model.set_scale(torch.from_numpy(vectors))
    standard = model.standardise(torch.from_numpy(vectors))
    model.start_from_pca(standard)
    with torch.no_grad():
        latents = model.encode(standard)
        decoded = model.decode(latents).numpy()
    assert float(latents.square().mean()) == pytest.approx(1)
    pca = PCA(4).fit(standard.numpy())
    np.testing.assert_allclose(decoded, pca.inverse_transform(pca.transform(standard.numpy())), atol=1e-4)


def test_equal_vectors_start_with_latents_near_zero() -> None:
    model, vectors = _model(), torch.full((6, 12), 0.3)
    model.set_scale(vectors)
    model.start_from_pca(model.standardise(vectors))
    assert float(model.encode(model.standardise(vectors)).detach().abs().max()) < 1e-4


def test_the_straight_through_gradient_is_the_identity() -> None:
    model = _model()
    latents = torch.randn(5, 4, requires_grad=True)
    through = straight_through(latents, model.quantize(latents).codewords)
    torch.testing.assert_close(through, model.quantize(latents).codewords.sum(1))
    weights = torch.randn(5, 4)
    (through * weights).sum().backward()
    torch.testing.assert_close(latents.grad, weights)
    assert model.codebooks.grad is None  # the codebooks learn from their own loss only


def test_commitment_reaches_the_encoder_at_every_level_and_no_codebook() -> None:
    model = _model()
    latents = torch.randn(6, 4, requires_grad=True)
    quantized = model.quantize(latents)
    (quantized.residuals - quantized.codewords.detach()).square().sum().backward()
    expected = 2 * (quantized.residuals - quantized.codewords).sum(1)
    torch.testing.assert_close(latents.grad, expected.detach())
    assert model.codebooks.grad is None


def test_the_loss_is_the_weighted_sum_of_its_parts() -> None:
    config = CONFIG.model_copy(update={"commitment_weight": 0.5, "diversity_weight": 0.1})
    model, standard = _model(config), torch.randn(30, 12)
    loss, parts = losses(model, standard, diversity_groups(model.codebooks, 0), config)
    expected = parts["reconstruction"] + parts["codebook"] + 0.5 * parts["commitment"] + 0.1 * parts["diversity"]
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_diversity_loss_by_hand() -> None:
    book = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0], [-1.0, 0.5]])
    groups = torch.tensor([[0, 0, 1, 1]])  # groups of two: the positive is certain
    codes = torch.tensor([[0], [3]])
    quantized = Quantized(codes, torch.zeros(2, 1, 2), book[codes])
    expected = 0.0
    for code, positive in ((0, 1), (3, 2)):
        others = [float(torch.exp(book[code] @ book[j])) for j in range(4) if j != code]
        expected -= np.log(float(torch.exp(book[code] @ book[positive])) / sum(others)) / 2
    torch.testing.assert_close(diversity_loss(quantized, book[None], groups), torch.tensor(expected).float())


def test_positives_are_others_of_the_same_group() -> None:
    groups = torch.tensor([2, 0, 1, 0, 2, 2, 0, 3])
    codes = torch.arange(8).repeat(200)
    positives = _other_of_group(codes, groups)
    assert (groups[positives] == groups[codes]).all()
    assert ((positives == codes) == (groups[codes] % 2 == 1)).all()  # codes 2 and 7 are alone
    assert set(positives[codes == 0].tolist()) == {4, 5}


def test_groups_are_of_like_size() -> None:
    groups = diversity_groups(torch.randn(2, 64, 4, generator=torch.Generator().manual_seed(0)), 0)
    assert groups.shape == (2, 64)
    assert all(level.bincount().max() <= 7 for level in groups)


def test_standardising_survives_tight_and_equal_vectors() -> None:
    tight = torch.nn.functional.normalize(1 + 1e-3 * torch.randn(50, 12), dim=1)
    model = _model()
    model.set_scale(tight)
    assert abs(float(model.standardise(tight).square().mean()) - 1) < 1e-2
    model.set_scale(tight[:1].repeat(50, 1))
    assert model.standardise(tight[:1]).abs().max() < 1e-5


def test_kmeans_finds_clusters_and_copes_with_few_points() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [10, 0], [0, 10]], dtype=np.float32)
    points = (centres[rng.integers(0, 3, 300)] + rng.normal(0, 0.1, (300, 2))).astype(np.float32)
    found = kmeans(points, 3, 20, seed=0)
    assert np.abs(np.sort(found.round(), axis=0) - np.sort(centres, axis=0)).max() == 0
    np.testing.assert_array_equal(found, kmeans(points, 3, 20, seed=0))
    few = kmeans(centres, 8, 20, seed=0)
    assert len(np.unique(few, axis=0)) == 8
    assert all((few == row).all(1).any() for row in centres)
    equal = kmeans(np.ones((9, 2), dtype=np.float32), 4, 20, seed=0)
    assert np.isfinite(equal).all()
    assert len(np.unique(equal, axis=0)) == 4
