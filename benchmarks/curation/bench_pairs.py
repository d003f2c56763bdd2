"""Time the exhaustive pair search against a blocked numpy GEMM on realistic synthetic embeddings.

    python benchmarks/curation/bench_pairs.py --images 80000 [--repeats 3] [--device cuda]

With `--device` (default: cuda if there is a GPU), the search on that device is timed too, against
a lower bound: the float32 products of both encoders over the upper triangle and nothing else.

Both methods must return identical pairs. numpy decides in float32 and rechecks pairs within 1e-5
of a threshold in float64; the recheck is part of its time. Figures: benchmarks/README.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from curation.mining.pair_search import PairSearch

MED_AT_LEAST, GEN_AT_MOST = 0.9, 0.75
NEAR = 1e-5
BLOCK = 2048


def synthetic(n: int, seed: int = 0) -> list[np.ndarray]:
    """Draw realistic unit vectors (n, d) in float32 for two encoders.

    Each vector is the sum of a direction common to all, a modality mode (one of 14), a sub-mode
    (one of 600) and noise; both encoders share the modes. Modes have Zipf-distributed sizes; the
    noise has a k^-0.7 spectrum and a log-normal scale per image; 0.5 % of the images are
    near-duplicates.

    The lengths of the four parts are chosen so that the mean cosine of `med` is 0.42 to 0.43, 0.09
    % of the pairs have med >= 0.9, and about 95 % of those have gen <= 0.75.
    """
    rng = np.random.default_rng(seed)

    def zipf(kinds: int) -> np.ndarray:
        weights = 1 / np.arange(1, kinds + 1)
        return rng.choice(kinds, n, p=weights / weights.sum())

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def normal(rows: int, d: int) -> np.ndarray:
        return rng.standard_normal((rows, d)).astype(np.float32)

    mode, sub = zipf(14), zipf(600)
    size = np.exp(rng.normal(0, 0.25, n)).astype(np.float32)
    embeddings = []
    for d, (common, modes, subs, noise) in zip((512, 768), ((1.0, 0.7, 0.8, 0.67), (1.0, 0.8, 0.7, 1.8)), strict=True):
        rotation = np.linalg.qr(normal(d, d))[0]
        spectrum = np.arange(1, d + 1, dtype=np.float32) ** -0.7
        spectrum /= np.linalg.norm(spectrum)
        centre, mode_centres, sub_centres = unit(normal(1, d)), unit(normal(14, d)), unit(normal(600, d))
        x = np.empty((n, d), np.float32)
        # In blocks, so that the noise of all images is never in memory at once.
        for start in range(0, n, 8192):
            rows = slice(start, min(n, start + 8192))
            spread = (normal(rows.stop - start, d) * spectrum) @ rotation.T
            location = common * centre + modes * mode_centres[mode[rows]] + subs * sub_centres[sub[rows]]
            x[rows] = location + noise * size[rows, None] * spread
        embeddings.append(unit(x))
    # Near-duplicates: overwrite some images by others with a little noise, in both encoders.
    copies = int(0.005 * n)
    source, target = rng.integers(0, n, copies), rng.integers(0, n, copies)
    for x in embeddings:
        x[target] = unit(x[source] + 0.01 / np.sqrt(x.shape[1]) * normal(copies, x.shape[1]))
    return embeddings


def by_numpy(med: np.ndarray, gen: np.ndarray) -> np.ndarray:
    """Search pairs with numpy: multiply block by block over the upper triangle, then threshold.

    Returns the keys i * n + j of the pairs; those near a threshold are decided in float64.
    """
    n, keys = len(med), []
    for start in range(0, n, BLOCK):
        a, b = med[start : start + BLOCK], gen[start : start + BLOCK]
        for second in range(start, n, BLOCK):
            sims = a @ med[second : second + BLOCK].T
            gens = b @ gen[second : second + BLOCK].T
            i, j = np.nonzero((sims >= MED_AT_LEAST - NEAR) & (gens <= GEN_AT_MOST + NEAR))
            # Blocks on the diagonal contain every pair twice, and each image with itself.
            upper = i + start < j + second
            i, j = i[upper], j[upper]
            sure = (sims[i, j] >= MED_AT_LEAST + NEAR) & (gens[i, j] <= GEN_AT_MOST - NEAR)
            i, j = i + start, j + second
            for at in np.flatnonzero(~sure):
                is_alike = cosine(med[i[at]], med[j[at]]) >= MED_AT_LEAST
                sure[at] = is_alike and cosine(gen[i[at]], gen[j[at]]) <= GEN_AT_MOST
            keys.append(i[sure] * n + j[sure])
    return np.sort(np.concatenate(keys))


def cosine(vector: np.ndarray, second_vector: np.ndarray) -> float:
    """Return the cosine of two vectors in float64."""
    a, b = vector.astype(np.float64), second_vector.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def by_us(med: np.ndarray, gen: np.ndarray, device: str = "cpu") -> np.ndarray:
    """Run the whole search: check, upload, search, download. Returns keys like `by_numpy`."""
    search = ready(med, gen, device)
    return np.concatenate([pairs.i * len(med) + pairs.j for pairs in search.all_pairs()])


def ready(med: np.ndarray, gen: np.ndarray, device: str) -> "PairSearch":
    """Check and upload the embeddings, ready to search."""
    from curation.mining.pair_search import PairSearch, Thresholds

    return PairSearch(med, gen, Thresholds(med_at_least=MED_AT_LEAST, gen_at_most=GEN_AT_MOST), device)


def on_device(med: np.ndarray, gen: np.ndarray, device: str, repeats: int) -> tuple[np.ndarray, dict[str, object]]:
    """Search on a device; return the keys and the times.

    The times are those of the whole search (`by_us`), of the search alone with the embeddings
    already on the device, and of the lower bound.
    """
    import torch

    def timed(work: Callable[[], object]) -> list[float]:
        seconds = []
        for _ in range(repeats + 1):
            wait()
            start = time.perf_counter()
            work()
            wait()
            seconds.append(time.perf_counter() - start)
        return [round(duration, 4) for duration in seconds[1:]]  # the first one warms up

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    matrices = [torch.from_numpy(x).to(device) for x in (med, gen)]

    def products(encoders: list[torch.Tensor]) -> None:
        for row_start in range(0, len(med), 4096):
            for column_start in range(row_start, len(med), 16384):
                for x in encoders:
                    x[row_start : row_start + 4096] @ x[column_start : column_start + 16384].t()

    search = ready(med, gen, device)
    report: dict[str, object] = {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "whole": timed(lambda: by_us(med, gen, device)),
        "embeddings_there": timed(lambda: list(search.all())),
        "floor_both_products": timed(lambda: products(matrices)),
        "floor_med_product": timed(lambda: products(matrices[:1])),
    }
    for name in ("whole", "embeddings_there"):
        report[f"{name}_over_floor"] = round(
            statistics.median(report[name]) / statistics.median(report["floor_both_products"]),  # type: ignore[call-overload]
            1,
        )
    return by_us(med, gen, device), report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--device", default=None, help="cuda or cpu [default: cuda if there is a GPU]")
    args = parser.parse_args()
    if args.device is None:
        import torch

        # Without `--device` and without a GPU, only the CPU is measured.
        args.device = "cuda" if torch.cuda.is_available() else None
    med, gen = synthetic(args.images)
    # Warm-up: imports are not part of the times.
    by_us(med[:500], gen[:500])
    times: dict[str, list[float]] = {"ours": [], "numpy": []}
    # CPU time is the fairer measure on a busy machine.
    processor_times: dict[str, list[float]] = {"ours": [], "numpy": []}
    # Alternate the methods, so that other load on the machine affects both.
    for _ in range(args.repeats):
        pairs = []
        for name, method in (("ours", by_us), ("numpy", by_numpy)):
            start, processor_start = time.perf_counter(), time.process_time()
            pairs.append(method(med, gen))
            times[name].append(round(time.perf_counter() - start, 2))
            processor_times[name].append(round(time.process_time() - processor_start, 2))
        assert np.array_equal(*pairs), "numpy and ours disagree"
    report: dict[str, object] = {"images": args.images, "pairs": len(pairs[0])}
    for unit, measured in (("seconds", times), ("processor_seconds", processor_times)):
        ratios = [
            numpy_seconds / our_seconds
            for numpy_seconds, our_seconds in zip(measured["numpy"], measured["ours"], strict=True)
        ]
        report |= {unit: measured, f"numpy_over_ours_{unit}": round(statistics.median(ratios), 1)}
    if args.device:
        keys, report["on_device"] = on_device(med, gen, args.device, args.repeats)
        assert np.array_equal(keys, pairs[0]), f"{args.device} and the CPU disagree"
    else:
        print("no GPU on this machine: the search on a GPU was not timed")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
