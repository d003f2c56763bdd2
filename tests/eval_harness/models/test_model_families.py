"""Every model family: texts and option scores equal naive loops, in batches and with shared
prefixes.

Prefixes are shared only where that gives equal results.
"""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image

from dataset_builders.images.lookup import encode_png
from eval_harness.models.local.network import Network
from tests.eval_harness.models.http.asking import request as asked
from tests.eval_harness.models.naive_loops import compare, loaded
from tests.eval_harness.models.tiny_families import make
from tests.sampling import few

pytestmark = pytest.mark.slow


def picture(seed, size=(60, 44)):
    return encode_png(Image.effect_noise(size, 40 + 30 * seed).convert("RGB"))


NOISE_PICTURES = [picture(0), picture(1, (44, 60)), picture(2)]


def request(number, **changes):
    prompt = "Which side of the chest is this " + "left or right " * (number % 4) + f"{number}?"
    return asked(number, **({"prompt": prompt, "image": NOISE_PICTURES[number % 3], "max_tokens": 5} | changes))


def test_self_test_switches_a_wrong_path_off(tmp_path, monkeypatch):
    """With positions off by one after the prompt (a former bug with PaliGemma), `generate` scores
    the options.
    """
    requests = [
        request(i, candidates=("left", "on the right side"), scoring="sequence", options=("x", "y")) for i in range(2)
    ]
    folder = make("gemma3", tmp_path / "gemma3")
    right = {r.question_id: r.scores for r in loaded(folder, 2).score(requests)}
    plain = Network._continue

    def late(self, ids, cache, mask, positions, last_only=False):
        return plain(self, ids, cache, mask, positions if positions is None else positions + 1, last_only)

    # The self-test runs when the model is loaded, so patch before.
    monkeypatch.setattr(Network, "_continue", late)
    backend = loaded(folder, 2)
    assert not backend.network.reads
    assert backend.describe()["self_test"].get("options scored = written by generate", "differs").startswith("differs")
    assert {r.question_id: r.scores for r in backend.score(requests)} == {
        name: pytest.approx(scores, abs=1e-4) for name, scores in right.items()
    }


def test_questions_continue_the_prefix_of_their_own_image(tmp_path):
    """As many questions as images, in another order: stale `rope_deltas` would have the right shape
    but the wrong rows.
    """
    # Images of different sizes have different numbers of tokens.
    backend = loaded(make("qwen2_vl", tmp_path / "qwen2_vl"), 8)
    pictures = [picture(0, (28, 56)), picture(1, (56, 56)), picture(2, (84, 28))]
    for order in ([0, 0, 1, 1, 2, 2], [2, 1, 0, 2, 1, 0], [1, 1, 2], [2, 0, 2]):
        requests = [request(i, image=pictures[number]) for i, number in enumerate(order)]
        shared, full = (
            backend.processing.shared_prefixes(requests),
            backend.processing.full_prompts(requests),
        )
        with torch.inference_mode():
            logits = [backend.network.next_logits(batch) for batch in (shared, full)]
            written = [
                backend.network.generate(batch, 5, 0, [])[0]
                for batch in (backend.processing.shared_prefixes(requests), full)
            ]
        assert float((logits[0] - logits[1]).abs().max()) < 1e-4
        assert written[0].tolist() == written[1].tolist()


TESTED_FAMILIES = (
    "blip2",
    "qwen2_vl",
    "instructblip_t5",
    "blip2_t5",
    "chameleon",
    "florence2",
    "idefics2",
    "idefics3",
    "instructblip",
    "internvl",
    "janus",
    "kosmos2",
    "llava_next",
    "mllama",
    "paligemma",
    "qwen3_vl",
)
"""Families whose scores or padding were once wrong, and a few others.

`benchmarks/models/families.py` runs all families.
"""
PREFIX_SHARING_FAMILIES = ("idefics2", "idefics3", "internvl", "llava_next", "qwen2_vl", "qwen3_vl")


@pytest.mark.parametrize("family", few(TESTED_FAMILIES, 2))
def test_texts_and_scores_equal_naive_loops(family, tmp_path):
    requests = [request(i) for i in range(4)]
    equal_texts, sequence, next_token, backend = compare(make(family, tmp_path / family), requests)
    assert equal_texts == len(requests)
    assert max(sequence, next_token) < 1e-4
    assert backend.describe()["shared_image_prefix"] == (family in PREFIX_SHARING_FAMILIES), (
        "said only where it is done"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("family", "window", "shares"),
    few(
        [
            ("gemma3", 20, False),
            ("qwen2_5_vl", None, True),
            ("gemma3", 76, None),
            ("llama4", 512, True),
        ]
    ),
)
def test_prefixes_are_shared_with_several_position_axes_and_within_attention_windows(family, window, shares, tmp_path):
    """Prompts on both sides of the window; texts and scores equal naive loops in any case."""
    folder = make(family, tmp_path / family)
    config = json.loads((folder / "config.json").read_text())
    if window:
        text = config["text_config"]
        text["attention_chunk_size" if "attention_chunk_size" in text else "sliding_window"] = window
        (folder / "config.json").write_text(json.dumps(config))
    words = "left or right "
    requests = [replace(request(i), prompt=f"{words * length}{i}?") for i, length in enumerate([1, 2, 5, 9, 14, 1])]
    equal_texts, sequence, next_token, backend = compare(folder, requests)
    assert equal_texts == len(requests)
    assert max(sequence, next_token) < 1e-4
    assert shares is None or backend.describe()["shared_image_prefix"] == shares
