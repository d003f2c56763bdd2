"""Cost of the copies of a repository's images on the Hub: bytes that hf_xet sends of all configs, and of fewer.

Pairs of real images, as MediConfusion's, are written as a repository (in `questions`, in `cases`, and as data URIs in `inspect`), and
published to a loopback Hub with the real client; each choice of configs to a Hub of its own.

    python benchmarks/dataset_builders/image_copies.py FOLDER_OF_IMAGES ...
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

CHOICES = {
    "all configs": (),
    "without inspect": ("inspect*",),
    "cases alone": ("inspect*", "questions"),
}


def repository(folder: Path, images: list[Path]) -> None:
    from dataset_builders.contents.card import Description
    from dataset_builders.contents.repository_files import write_repository
    from dataset_builders.schema import Case, CaseImage, Content, Question

    def image(path: Path) -> CaseImage:
        return CaseImage(path.stem, path.read_bytes, path.stat().st_size, path.name, "CC0-1.0", "measured")

    cases = [
        Case(
            f"{k:05d}",
            (image(first), image(second)),
            tuple(
                Question(
                    f"{k:05d}-{n}", f"{k:05d}", path.stem, "Which of the two is it?", ("the first", "the second"), (n,)
                )
                for n, path in enumerate((first, second))
            ),
        )
        for k, (first, second) in enumerate(zip(images[::2], images[1::2], strict=False))
    ]
    write_repository(
        folder,
        Description("measured", "mediconfusion", "custom", None, False, has_tasks=True),
        Content({"test": cases}),
    )


def sent(folder: Path) -> int:
    """Bytes that the client sends to a Hub that has nothing."""
    from tests.localhub.accounts import CURATOR
    from tests.localhub.server import LocalHub

    with tempfile.TemporaryDirectory() as place, LocalHub() as hub:
        os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": CURATOR, "HF_HOME": f"{place}/home"}
        os.environ.pop("HF_HUB_DISABLE_XET", None)
        from huggingface_hub import HfApi

        from dataset_builders.hub.commits import commit_files

        api = HfApi()
        api.create_repo("ORG/measured", repo_type="dataset")
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.parquet")}
        commit_files(api, "ORG/measured", files, "measured")
        return sum(request.received for request in hub.record.of("*", "^/xet/"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--sent", type=Path, help=argparse.SUPPRESS)  # one choice of configs, in a process of its own
    args = parser.parse_args()
    if args.sent:
        print(sent(args.sent))
        return
    files = sorted(
        path
        for folder in args.folders
        for path in folder.rglob("*")
        if path.suffix.lower() in (".png", ".jpg", ".jpeg")
    )
    print(f"{len(files)} images, {sum(path.stat().st_size for path in files):,} bytes")
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        whole.mkdir()
        repository(whole, files)
        for name, dropped in CHOICES.items():
            part = Path(place) / name.replace(" ", "-")
            shutil.copytree(whole, part)
            for folder in (each for pattern in dropped for each in part.glob(pattern)):
                shutil.rmtree(folder)
            size = sum(path.stat().st_size for path in part.rglob("*.parquet"))
            done = subprocess.run(
                [sys.executable, __file__, "--sent", part], capture_output=True, text=True, check=True, timeout=300
            )
            print(f"{name:16} {size:12,} bytes of Parquet, {int(done.stdout.split()[-1]):12,} sent")


if __name__ == "__main__":
    main()
