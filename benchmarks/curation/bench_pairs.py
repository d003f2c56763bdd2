"""Time the exhaustive pair search against a blocked numpy GEMM and faiss range_search, in one run, on embeddings drawn
as real ones look.

    python benchmarks/curation/bench_pairs.py --images 80000 [--repeats 3] [--only ours,numpy,faiss] [--device cuda]

With `--device` (by itself where there is a GPU) the search on that device is timed too, against the floor: the float32 products of both
encoders over the upper triangle and nothing else.

All methods must return identical pairs (numpy and faiss decide in float32; pairs within 1e-5 of a threshold are decided
in float64 for them as well, and that recheck is timed with them). `faiss-cpu` is needed for its row only and is no
requirement of the project; without it the row is left out and the output says so. Figures: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import resource
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


def synthetic(n: int, dims: tuple[int, int] = (512, 768), seed: int = 0, cone: float = 1.0) -> list[np.ndarray]:
    """Unit vectors (n, d) float32 for two encoders: a common cone + 14 Zipf-sized modality modes + 600 Zipf-sized
    sub-modes + noise with a k^-0.7 spectrum and log-normal size per image + 0.5% near-duplicates; both encoders share
    the modes. (cone, mode, sub-mode, noise) lengths are set so that the mean med cosine is 0.42-0.43, P(med >= 0.9)
    about 9e-4 and about 95% of those have gen <= 0.75. `cone` makes the common part longer: images of one modality lie close together.
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
    made = []
    for d, (common, modes, subs, noise) in zip(dims, ((cone, 0.7, 0.8, 0.67), (cone, 0.8, 0.7, 1.8)), strict=True):
        rotation = np.linalg.qr(normal(d, d))[0]
        spectrum = np.arange(1, d + 1, dtype=np.float32) ** -0.7
        spectrum /= np.linalg.norm(spectrum)
        centre, mode_centres, sub_centres = unit(normal(1, d)), unit(normal(14, d)), unit(normal(600, d))
        x = np.empty((n, d), np.float32)
        for first in range(0, n, 8192):
            rows = slice(first, min(n, first + 8192))
            spread = (normal(rows.stop - first, d) * spectrum) @ rotation.T
            location = common * centre + modes * mode_centres[mode[rows]] + subs * sub_centres[sub[rows]]
            x[rows] = location + noise * size[rows, None] * spread
        made.append(unit(x))
    copies = int(0.005 * n)
    source, target = rng.integers(0, n, copies), rng.integers(0, n, copies)
    for x in made:
        x[target] = unit(x[source] + 0.01 / np.sqrt(x.shape[1]) * normal(copies, x.shape[1]))
    return made


def settle(med: np.ndarray, gen: np.ndarray, i: np.ndarray, j: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Float32 candidates -> keys i * n + j of the pairs; those near a threshold are decided in float64."""
    second = np.empty(len(i), np.float32)
    for at in range(0, len(i), 65536):
        rows = slice(at, at + 65536)
        second[rows] = np.einsum("ij,ij->i", gen[i[rows]], gen[j[rows]])
    sure = (first >= MED_AT_LEAST + NEAR) & (second <= GEN_AT_MOST - NEAR)
    near = np.flatnonzero((first >= MED_AT_LEAST - NEAR) & (second <= GEN_AT_MOST + NEAR) & ~sure)
    for at in near:
        cosines = []
        for x in (med, gen):
            a, b = x[i[at]].astype(np.float64), x[j[at]].astype(np.float64)
            cosines.append(a @ b / np.sqrt((a @ a) * (b @ b)))
        sure[at] = cosines[0] >= MED_AT_LEAST and cosines[1] <= GEN_AT_MOST
    return np.sort(i[sure] * len(med) + j[sure])


def by_numpy(med: np.ndarray, gen: np.ndarray) -> np.ndarray:
    """Both products block by block over the upper triangle, then a threshold."""
    n = len(med)
    keys = []
    for first in range(0, n, BLOCK):
        a, b = med[first : first + BLOCK], gen[first : first + BLOCK]
        for second in range(first, n, BLOCK):
            sims = a @ med[second : second + BLOCK].T
            gens = b @ gen[second : second + BLOCK].T
            i, j = np.nonzero((sims >= MED_AT_LEAST - NEAR) & (gens <= GEN_AT_MOST + NEAR))
            upper = i + first < j + second
            i, j = i[upper], j[upper]
            keys.append(settle_block(med, gen, i + first, j + second, sims[i, j], gens[i, j]))
    return np.sort(np.concatenate(keys))


def settle_block(
    med: np.ndarray, gen: np.ndarray, i: np.ndarray, j: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """As `settle`, where the second product is there already."""
    sure = (first >= MED_AT_LEAST + NEAR) & (second <= GEN_AT_MOST - NEAR)
    near = ~sure
    keys = [i[sure] * len(med) + j[sure]]
    if near.any():
        keys.append(settle(med, gen, i[near], j[near], first[near]))
    return np.concatenate(keys)


def by_faiss(med: np.ndarray, gen: np.ndarray) -> np.ndarray:
    """range_search of the med vectors in a flat inner-product index, then the gen cosines of what it returns."""
    import faiss

    n = len(med)
    index = faiss.IndexFlatIP(med.shape[1])
    index.add(med)
    keys = []
    for first in range(0, n, 8192):
        limits, sims, found = index.range_search(med[first : first + 8192], MED_AT_LEAST - NEAR)
        i = np.repeat(np.arange(first, min(n, first + 8192)), np.diff(limits).astype(np.int64))
        upper = i < found
        keys.append(settle(med, gen, i[upper], found[upper], sims[upper]))
    return np.sort(np.concatenate(keys))


def by_us(med: np.ndarray, gen: np.ndarray, device: str = "cpu") -> np.ndarray:
    """The search, everything included: check, upload, search, download."""
    search = ready(med, gen, device)
    return np.concatenate([pairs.i * len(med) + pairs.j for pairs in search.all()])


def ready(med: np.ndarray, gen: np.ndarray, device: str) -> PairSearch:
    from curation.mining.pair_search import PairSearch, Thresholds

    return PairSearch(med, gen, Thresholds(med_at_least=MED_AT_LEAST, gen_at_most=GEN_AT_MOST), device)


def on_device(med: np.ndarray, gen: np.ndarray, device: str, repeats: int) -> tuple[np.ndarray, dict[str, object]]:
    """The device's search, and its times: whole (`by_us`), with the embeddings on the device already, and the floor."""
    import torch

    def timed(work: Callable[[], object]) -> list[float]:
        seconds = []
        for _ in range(repeats + 1):
            wait()
            start = time.perf_counter()
            work()
            wait()
            seconds.append(time.perf_counter() - start)
        return [round(each, 4) for each in seconds[1:]]  # the first one warms up

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    there = [torch.from_numpy(x).to(device) for x in (med, gen)]

    def products(encoders: list[torch.Tensor]) -> None:
        for first in range(0, len(med), 4096):
            for last in range(first, len(med), 16384):
                for x in encoders:
                    x[first : first + 4096] @ x[last : last + 16384].t()

    search = ready(med, gen, device)
    report: dict[str, object] = {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "whole": timed(lambda: by_us(med, gen, device)),
        "embeddings_there": timed(lambda: list(search.all())),
        "floor_both_products": timed(lambda: products(there)),
        "floor_med_product": timed(lambda: products(there[:1])),
    }
    for name in ("whole", "embeddings_there"):
        report[f"{name}_over_floor"] = round(
            statistics.median(report[name]) / statistics.median(report["floor_both_products"]),  # type: ignore[call-overload]
            1,
        )
    return by_us(med, gen, device), report


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ours": by_us,
    "numpy": by_numpy,
    "faiss": by_faiss,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="ours,numpy,faiss")
    parser.add_argument("--cone", type=float, default=1.0, help="3: half of all pairs reach the med threshold")
    parser.add_argument("--device", default=None, help="cuda, cpu [default: cuda where there is a GPU]")
    args = parser.parse_args()
    if args.device is None:
        import torch

        args.device = "cuda" if torch.cuda.is_available() else None
    names = args.only.split(",")
    if "faiss" in names:
        try:
            import faiss  # noqa: F401
        except ImportError:
            names.remove("faiss")
            print("faiss is not installed: its row is left out")
    med, gen = synthetic(args.images, cone=args.cone)
    if "ours" in names:
        by_us(med[:500], gen[:500])  # imports what it needs
    times: dict[str, list[float]] = {name: [] for name in names}
    memory: dict[str, float] = {}
    pairs: dict[str, np.ndarray] = {}
    for _ in range(args.repeats):  # in turn, so that a busy machine is busy for all of them
        for name in names:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.perf_counter()
            pairs[name] = METHODS[name](med, gen)
            times[name].append(time.perf_counter() - start)
            memory.setdefault(name, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
    first = pairs[names[0]]
    for name in names[1:]:
        assert np.array_equal(first, pairs[name]), f"{name} and {names[0]} disagree"
    report = {
        "images": args.images,
        "pairs": len(first),
        "identical": names,
        "embeddings_gb": round((med.nbytes + gen.nbytes) / 2**30, 3),
    }
    for name in names:
        report[name] = {
            "seconds": [round(seconds, 2) for seconds in times[name]],
            "median": round(statistics.median(times[name]), 2),
            "peak_growth_gb": round(memory[name], 3),
        }
        if "ours" in names and name != "ours":
            ratios = [theirs / our for theirs, our in zip(times[name], times["ours"], strict=True)]
            report[name]["times_ours"] = round(statistics.median(ratios), 1)
    if args.device:
        keys, report["on_device"] = on_device(med, gen, args.device, args.repeats)
        assert np.array_equal(keys, first), f"{args.device} and {names[0]} disagree"
    else:
        print("there is no GPU here: its search was not timed")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
