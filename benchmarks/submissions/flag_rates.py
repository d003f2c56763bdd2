"""Count how many honest and dishonest submissions are held for review, by kind.

    python -m benchmarks.submissions.flag_rates [RUNS_PER_KIND]

Prints the table in `docs/submitting.md`. The kinds are those of the tests
(`tests/eval_harness/store/checks/test_lies.py`) and some that only statistics can tell apart, on
stores with six results of other accounts.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dataset_builders.build import build
from eval_harness.store import examine
from tests.eval_harness.store.checks import test_lies as lies


def key_with_noise(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """A key with enough random changes that no score is remarkable."""
    share = draw.uniform(0.5, 0.97)
    run = world.run()
    yield lies.Attempt(run, world.answers(draw, run, lambda number, sample: share))


def strong(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """A model that is right in 85 to 97 %."""
    run = world.run(name="Strong")
    yield lies.Attempt(run, world.answers(draw, run, draw.uniform(0.85, 0.97)))


def weak(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """A model that guesses, or nearly always gives the same answer."""
    run = world.run(name="Weak")
    rows = world.answers(draw, run, draw.uniform(0.25, 0.5))
    share = draw.choice([0.0, 0.8, 0.97])
    yield lies.Attempt(run, [row | ({"response": "A"} if draw.random() < share else {}) for row in rows])


def own_rerun(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """Ann's rerun, checkpoint or respelled name: mostly the same answers."""
    name = draw.choice(["Ann's model", "Ann's model, step 9000", "ann's MODEL", "Anns-model"])
    run = world.run(name=name)
    changes, share = world.answers(draw, run, 0.65), draw.choice([0.01, 0.05, 0.15])
    rows = [new if draw.random() < share else dict(old) for old, new in zip(world.victim.rows, changes, strict=True)]
    yield lies.Attempt(run, rows, "ann")


def fine_tune(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """Bob's fine-tune of Ann's model: half of its answers or more differ, mostly for the better."""
    run = world.run(name="Bob's fine-tune")
    changes, share = world.answers(draw, run, 0.7), draw.uniform(0.5, 0.9)
    rows = [new if draw.random() < share else dict(old) for old, new in zip(world.victim.rows, changes, strict=True)]
    yield lies.Attempt(run, rows, "bob")


def declines_often(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """A model that declines some of the questions, or whose answers were partly lost."""
    run, share = world.run(name="Careful"), draw.uniform(0.1, 0.6)
    refusal = draw.choice(
        [
            {"response": "I'm sorry, I cannot help with medical images."},
            {"response": "", "delivery": "no response"},
        ]
    )
    rows = world.answers(draw, run, draw.uniform(0.4, 0.9))
    yield lies.Attempt(run, [row | (refusal if draw.random() < share else {}) for row in rows])


def own_arm(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """A run without the right images: a guess, a preference, or the answers with them."""
    image = draw.choice(["withheld", "blank", "swapped"])
    run = lies.changed(world.run(name="Ann's model"), request={"image": image}, method={"image": image})
    rows, share = world.answers(draw, run, draw.uniform(0.2, 0.5)), draw.choice([0.0, 0.7, 1.0])
    rows = [row | ({"response": "B"} if draw.random() < share else {}) for row in rows]
    yield lies.Attempt(run, draw.choice([rows, [dict(row) for row in world.victim.rows]]), "ann")


def other_wording(world: lies.World, draw: random.Random) -> Iterator[lies.Attempt]:
    """Answers of another harness: long, each worded differently."""
    run = world.run(
        name=draw.choice(["GPT-4o", "gpt 4o", "LLaVA-Med", "\u533b\u7597VL \u6a21\u578b", "Model (7B, 4-bit)"])
    )
    rows = world.answers(draw, run, draw.uniform(0.4, 0.85))
    for row in rows:
        row["response"] = (
            f"{'I look at the picture. ' * draw.randint(5, 9)}Case {draw.random()}. The answer is {row['response'].strip('*().')}"
        )
    yield lies.Attempt(run, rows)


UNSURE = (key_with_noise,)
"""Kinds that only statistics can detect, so that not every one is caught."""
HONEST = (lies.honest, strong, weak, own_rerun, fine_tune, declines_often, own_arm, other_wording)


def main(runs: int = 6) -> None:
    """Print a row per kind: its description, and how many submissions were held or refused."""
    # The phantom data stand in for a released dataset: no look-up on the Hub.
    examine.is_released = lambda repo, revision: (repo, revision) == (lies.REPO, lies.RELEASED)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        worlds = []
        for family in lies.LIED_BENCHMARKS:
            build(family, out=Path(folder) / family, text_only=True)
            worlds.append(lies.world_of(Path(folder) / family, Path(folder) / f"{family}-store"))
        for title, kinds in (
            ("dishonest", [*lies.LIE_GENERATORS, *UNSURE]),
            ("honest", HONEST),
        ):
            print(f"| {title} | held for review or refused |\n|---|---|")
            total = caught = 0
            for kind in kinds:
                flagged = [
                    bool(worlds[number % 3].caught(attempt))
                    for number in range(runs)
                    for attempt in kind(worlds[number % 3], random.Random(f"{kind.__name__} {number}"))
                ]
                total, caught = total + len(flagged), caught + sum(flagged)
                print(
                    f"| {str(kind.__doc__).splitlines()[0]} | {sum(flagged)} of {len(flagged)} |",
                    flush=True,
                )
            print(f"| all | {caught} of {total} |\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
