"""Time `medprobe curate exam` on generated studies: `python benchmarks/curation/bench_exam.py`.

Each study is a CT or MR series of ten axial or coronal slices of an ellipsoid body. Writing them is
not timed. The text search is on, as by default. Figures are in `benchmarks/README.md`.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from curation.exam.pairs import build_exam

SIDE_PX, SLICES = 256, 10
CLASSES = {"CT": "1.2.840.10008.5.1.4.1.1.2", "MR": "1.2.840.10008.5.1.4.1.1.4"}
AXES = {"axial": [1, 0, 0, 0, 1, 0], "coronal": [1, 0, 0, 0, 0, -1]}


def write_study(folder: Path, number: int, rng: np.random.Generator) -> None:
    """Write the study of one patient."""
    modality, plane = list(CLASSES)[number % 2], list(AXES)[number // 2 % 2]
    rows, columns = np.mgrid[-1 : 1 : SIDE_PX * 1j, -1 : 1 : SIDE_PX * 1j]
    uids = [generate_uid() for _ in range(3)]
    for index in range(SLICES):
        lungs = (np.abs(columns) - 0.4) ** 2 / 0.06 + rows**2 / (0.02 * (index + 1)) < 1
        values = np.where(columns**2 / 0.8 + rows**2 / 0.5 < 1, 1100, 100) - 800 * lungs
        values += rng.integers(0, 80, values.shape)
        data = FileDataset(None, {}, file_meta=FileMetaDataset(), preamble=b"\0" * 128)
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.SOPClassUID, data.SOPInstanceUID, data.Modality = CLASSES[modality], generate_uid(), modality
        data.PatientID, data.BodyPartExamined = f"{number}", "CHEST"
        data.StudyInstanceUID, data.SeriesInstanceUID, data.FrameOfReferenceUID = uids
        data.PhotometricInterpretation, data.SamplesPerPixel = "MONOCHROME2", 1
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
        data.Rows, data.Columns, data.PixelSpacing = SIDE_PX, SIDE_PX, [1.5, 1.5]
        data.RescaleSlope, data.RescaleIntercept = 1, -1024
        data.ImageOrientationPatient = AXES[plane]
        data.ImagePositionPatient = [0, 0, 20 * index] if plane == "axial" else [0, 20 * index, 0]
        data.PixelData = values.clip(0).astype(np.uint16).tobytes()
        (folder / f"{number}").mkdir(exist_ok=True)
        data.save_as(folder / f"{number}" / f"{index}.dcm", enforce_file_format=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        (Path(folder) / "in").mkdir()
        for number in range(options.studies):
            write_study(Path(folder) / "in", number, rng)
        start, processor_start = time.perf_counter(), time.process_time()
        pair_counts, skips = build_exam(Path(folder) / "in", Path(folder) / "exam", limit=options.limit)
        print(
            f"{options.studies} studies, {options.studies * SLICES} files: {sum(pair_counts.values())} pairs in "
            f"{time.perf_counter() - start:.0f} s ({time.process_time() - processor_start:.0f} s of processor time), "
            f"{len(skips)} left out, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB"
        )
        print(pair_counts)


if __name__ == "__main__":
    main()
