"""Semantic IDs: our training against a plain per-batch RQ-VAE loop with the same losses, and RQ-k-means at scale.

Run:  .venv/bin/python tests/benchmarks/semantic_ids.py --items 1000 16000
      .venv/bin/python tests/benchmarks/semantic_ids.py --items 1000000 --methods rqkmeans --dim 384

Vectors are drawn from a tree (clusters within clusters, and noise), of unit length, as sentence encoders give. The
plain loop is the usual one: codebooks by k-means on the first batch, a random batch at a time through textbook
Sinkhorn, an epoch's error, again, until it reaches the error that ours ended with (or `--limit` seconds). Every size
runs in a process of its own; so the peak of memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import common
import faiss  # noqa: F401 (loading it is not training)
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.assign import nearest_codes, unique_codes
from gti_pipeline.semantic_ids.judge import code_use, collision_rate
from gti_pipeline.semantic_ids.losses import diversity_groups, diversity_loss
from gti_pipeline.semantic_ids.rqkmeans import fit_rqkmeans, rqkmeans_error
from gti_pipeline.semantic_ids.rqvae import Quantized, RqVae, squared_distances, straight_through
from gti_pipeline.semantic_ids.train import Training, fit, latents_of, reconstruction_error


def tree_vectors(items: int, dim: int, seed: int = 0) -> np.ndarray:
    """Unit vectors [items, dim] of a tree with 32 branches, 16 twigs each, and noise."""
    rng = np.random.default_rng(seed)
    branches, twigs = (rng.normal(size=(count, dim)).astype(np.float32) for count in (32, 32 * 16))
    basis = rng.normal(size=(24, dim)).astype(np.float32)  # noise of few dimensions, as text vectors have
    vectors = np.empty((items, dim), dtype=np.float32)
    for part in np.array_split(np.arange(items), max(1, items // 50_000)):
        branch, twig = rng.integers(32, size=len(part)), rng.integers(16, size=len(part))
        noise = rng.normal(size=(len(part), 24)).astype(np.float32) @ basis
        rows = branches[branch] + 0.6 * twigs[branch * 16 + twig] + 0.12 * noise
        vectors[part] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors


def textbook_sinkhorn(distances: torch.Tensor, epsilon: float, iterations: int = 50) -> torch.Tensor:
    """Codes [B] under a balanced plan: 50 passes of column and row scaling over the whole matrix."""
    middle, span = (distances.max() + distances.min()) / 2, (distances.max() - distances.min()) / 2
    q = torch.exp(-((distances - middle) / (span + 1e-5)).double() / epsilon)
    for _ in range(iterations):
        q = q / q.sum(0, keepdim=True).clamp(min=1e-300) / q.shape[1]
        q = q / q.sum(1, keepdim=True).clamp(min=1e-300) / q.shape[0]
    return q.argmax(dim=1)


def plain_step(model: RqVae, batch: torch.Tensor, groups: torch.Tensor, config: SemanticIdsConfig) -> torch.Tensor:
    """The same losses, written plainly."""
    latents = model.encode(batch)
    residual, codes, residuals, codewords = latents, [], [], []
    for level in range(config.num_levels):
        distances = squared_distances(residual.detach(), model.codebooks[level].detach())
        last = level == config.num_levels - 1
        code = textbook_sinkhorn(distances, config.sinkhorn_epsilon) if last else distances.argmin(dim=1)
        codeword = model.codebooks[level][code]
        codes.append(code)
        residuals.append(residual)
        codewords.append(codeword)
        residual = residual - codeword.detach()
    q = Quantized(torch.stack(codes, 1), torch.stack(residuals, 1), torch.stack(codewords, 1))
    loss = F.mse_loss(model.decode(straight_through(latents, q.codewords)), batch)
    loss = loss + config.num_levels * F.mse_loss(q.codewords, q.residuals.detach())
    loss = loss + config.commitment_weight * config.num_levels * F.mse_loss(q.residuals, q.codewords.detach())
    return loss + config.diversity_weight * diversity_loss(q, model.codebooks, groups)


def plain_loop(vectors: np.ndarray, config: SemanticIdsConfig, target: float, limit: float) -> tuple[float, float, int]:
    """Seconds, error and epochs until the error is at most `target`, or the time is up."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = RqVae(vectors.shape[1], config)
    for linear in (model.linear_encoder, model.linear_decoder):  # the usual RQ-VAE is two MLPs and no more
        torch.nn.init.zeros_(linear.weight).requires_grad_(False)
    data = torch.from_numpy(vectors)
    model.set_scale(data)
    standard = model.standardise(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    residual = model.encode(standard[torch.randperm(len(standard))[:1024]]).detach()
    for level in range(config.num_levels):
        count = min(config.codebook_size, len(residual))
        rows = KMeans(count, n_init=1, max_iter=config.kmeans_iterations, random_state=0).fit(residual.numpy())
        with torch.no_grad():
            model.codebooks[level, :count] = torch.from_numpy(rows.cluster_centers_)
            residual = residual - model.codebooks[level][torch.from_numpy(rows.labels_).long()]
    error, epoch = float("inf"), 0
    while error > target and time.perf_counter() - start < limit:
        epoch += 1
        model.train()
        groups = diversity_groups(model.codebooks, 0)
        for batch in torch.randperm(len(standard)).split(config.batch_size):
            loss = plain_step(model, standard[batch], groups, config)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        codes = nearest_codes(latents_of(model, standard).numpy(), model.codebooks.detach().numpy())[0]
        error = reconstruction_error(model, standard, torch.from_numpy(codes))
    return time.perf_counter() - start, error, epoch


def measure(method: str, items: int, dim: int, config: SemanticIdsConfig, limit: float) -> dict[str, object]:
    """One row of the table."""
    vectors = tree_vectors(items, dim)
    start = time.perf_counter()
    if method == "rqkmeans":
        codebooks, _ = fit_rqkmeans(vectors, config, lambda *_: None)
        latents, trained = vectors, "-"
    else:
        ticks: list[float] = []
        training = fit(vectors, config, lambda *_: ticks.append(time.perf_counter() - start))
        standard = training.model.standardise(torch.from_numpy(vectors))
        latents = latents_of(training.model, standard).numpy()
        codebooks, trained = training.model.codebooks.detach().numpy(), f"{training.epochs} epochs"
    fitted = time.perf_counter() - start
    assignment = unique_codes(latents, codebooks)
    total = time.perf_counter() - start
    if method == "rqkmeans":
        error = rqkmeans_error(vectors, codebooks, assignment.nearest)
    else:
        error = reconstruction_error(training.model, standard, torch.from_numpy(assignment.nearest))
    row: dict[str, object] = {
        "method": method,
        "items": items,
        "dim": dim,
        "fit s": round(fitted, 1),
        "assign s": round(total - fitted, 1),
        "error": round(error, 4),
        "min code use": round(min(code_use(assignment.codes, config.codebook_size)[0]), 3),
        "moved": f"{assignment.moved / items:.1%}",
        "collisions": collision_rate(assignment.codes),
        "trained": trained,
        "peak GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    if method == "rqvae" and limit:
        ours, target = first_reached(training, ticks, len(vectors), config.batch_size)
        seconds, reached, epochs = plain_loop(vectors, config, target, limit)
        sign = "" if reached <= target else "more than "
        row["to error"] = f"{target:.4f}: {ours:.1f} s"
        row["plain loop"] = f"{seconds:.0f} s, {epochs} epochs, error {reached:.4f}"
        row["ratio"] = f"{sign}{seconds / ours:.1f}"
    return row


def first_reached(training: Training, ticks: list[float], items: int, batch_size: int) -> tuple[float, float]:
    """Seconds to the first check within 1 % of the best error, and its error; the rest of a fit shows that it is flat.

    A check comes after its epoch's tick, so the next epoch's tick is the time by which it was done.
    """
    checks = training.steps[training.steps["metric"] == "reconstruction_error"]
    first = checks[checks["value"] <= 1.01 * checks["value"].min()].iloc[0]
    epoch = int(first["step"]) // -(-items // batch_size)
    return ticks[min(epoch, len(ticks) - 1)], float(first["value"])


def main() -> None:
    """Each size and method in a process of its own; one Markdown table."""
    parser = common.parser(__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[1000, 16000])
    parser.add_argument("--dim", type=int, nargs="+", default=[384])
    parser.add_argument("--methods", nargs="+", default=["rqvae", "rqkmeans"], choices=["rqvae", "rqkmeans"])
    parser.add_argument("--levels", type=int, default=4)
    parser.add_argument("--codes", type=int, default=256)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the plain loop; 0 leaves it out")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    config = SemanticIdsConfig(num_levels=args.levels, codebook_size=args.codes)
    if args.one:
        method, items, dim = args.one
        sys.stdout.write(json.dumps(measure(method, int(items), int(dim), config, args.limit)) + "\n")
        return
    table = common.Table(args.rows_file)
    for items in args.items:
        for dim in args.dim:
            for method in args.methods:
                command = [sys.executable, __file__, "--one", method, str(items), str(dim)]
                command += ["--levels", str(args.levels), "--codes", str(args.codes), "--limit", str(args.limit)]
                table.add(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    main()
