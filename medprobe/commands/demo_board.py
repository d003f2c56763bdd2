"""Build the demo from scratch, offline: phantoms -> datasets -> evaluations -> a results store.

See also: the board that shows it (`leaderboard_space/`).
"""

from collections.abc import Callable
from pathlib import Path

from dataset_builders.benchmarks import BENCHMARKS
from medprobe import BadInput, build, evaluate, open_dataset, submit

TINY = "tiny-vlm"
BASELINES = ("baseline:chance", "baseline:always-A", "baseline:oracle")
"""Baselines that the demo runs in addition to a tiny model with random weights."""


def make_demo(folder: Path, say: Callable[[str], None]) -> Path:
    """Create `folder/{data,models,runs,results}`.

    Finished parts are kept, so a second call takes seconds, and one that was killed is resumed.

    Args:
        folder: where everything is written.
        say: called with one line per step.

    Returns:
        The results store, which is `folder` itself.

    Raises:
        BadInput: the folder cannot be used.
    """
    for family in BENCHMARKS:
        _dataset(family, folder / "data" / family, say)
    model = folder / "models" / TINY
    if not model.is_dir():
        from eval_harness.models.local.tiny_vlm import make_tiny_vlm

        say(f"making a tiny vision-language model with random weights in {model}")
        model.parent.mkdir(parents=True, exist_ok=True)
        make_tiny_vlm(model)
    try:
        for family in BENCHMARKS:
            for name in (*BASELINES, str(model)):
                _evaluation(family, name, folder, say)
    except BadInput as error:
        raise BadInput(f"{error} If {folder} was made by another version, delete it and run the demo again.") from None
    return folder


def _dataset(family: str, folder: Path, say: Callable[[str], None]) -> None:
    if folder.is_dir():
        try:
            if open_dataset(folder).origin == "phantom":
                return
        except BadInput:
            pass
        raise BadInput(
            f"{folder}: is not a phantom dataset of this demo. Move it away, or give the demo another folder."
        )
    say(f"building {family} from phantoms in {folder}")
    build(family, out=folder)


def _evaluation(family: str, model: str, folder: Path, say: Callable[[str], None]) -> None:
    out = folder / "runs" / f"{family}-{Path(model).name.removeprefix('baseline:')}"
    data = folder / "data" / family
    # Only a new evaluation is reported.
    is_new = not (out / "result.json").exists()
    argv = ("eval", family, "--model", model, "--data", str(data), "--out", str(out))
    run = evaluate(family, model, data=data, out=out, argv=argv)
    assert run.result is not None  # the demo is one process
    if is_new:
        say(f"evaluated {run.result.model.name} on {family}")
    submit(run, folder)
