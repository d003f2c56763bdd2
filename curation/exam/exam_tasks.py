"""The tasks of an exam: which slices are asked about, the question, and the answer by construction.

A header task shows two slices whose headers prove different answers. A change task shows one slice
twice, changed so that the answers differ. Questions are worded so that the key follows from
geometry alone: "which side of the patient is on the left" also holds for a patient with situs
inversus, whereas "is it mirrored" might be answered from the organs.

See also: rules for readers (`docs/exam.md`), the choice of pairs (`pairs.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, count

import numpy as np
from PIL import Image, ImageFilter

from curation.exam.series import UNPAIRED_REGIONS, SourceSlice
from curation.readers.pixels import Skipped

Change = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Makes both pictures of a pair from one. Raises Skipped if the difference would hardly show."""
Request = tuple[str, tuple[str, str], Change]
"""Question, the options that are correct for the first and for the second picture, change."""

SIZE_PX = 256
"""Side of a picture."""
MIN_DIFFERENCE_LEVELS = 4.0
"""Mean difference between a picture and its mirrored or turned copy."""
MIN_ROUGHNESS_RATIO = 2.0
MIN_BRIGHTNESS_GAP, MAX_BRIGHTNESS_SPREAD = 40.0, 12.0
"""Grey levels of 255: difference of the means inside two rings; standard deviation inside each."""
MARGIN_PX, MIDLINE_PX = 36, 24
"""Distance of markers from the edges and from the midlines of a picture."""
PLACE_TRIES = 300
MARKER_RADIUS_PX, RIM_PX = 6, 3
DISTANCES_PX = np.hypot(*np.mgrid[-12:13, -12:13])
"""Distances from the centre of a marker."""
BLUR_RADIUS_PX, NOISE_LEVELS = 2.5, 25.0
"""Strength of the changes: a Gaussian's standard deviation in pixels, and in grey levels of 255."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pair that could be asked.

    Attributes:
        options: correct for the first picture, correct for the second.
        slices: one slice for each picture, or one that `change` makes both pictures from.
    """

    question: str
    options: tuple[str, str]
    slices: tuple[SourceSlice, ...]
    change: Change | None = None


@dataclass(frozen=True)
class Task:
    """One kind of question.

    Attributes:
        ability: what a model that answers correctly can do; the category of the pairs.
        propose: endless candidates from all slices, of which the first ones use each patient once.
    """

    ability: str
    propose: Callable[[Sequence[SourceSlice], np.random.Generator], Iterator[Proposal]]


def third(source: SourceSlice) -> int:
    """Return 0, 1 or 2: the third of its series that a slice lies in."""
    return int(source.share >= 1 / 3) + int(source.share > 2 / 3)


# Header tasks


def _contrast(
    slices: Sequence[SourceSlice],
    rng: np.random.Generator,
    label: Callable[[SourceSlice], str],
    match: Callable[[SourceSlice], Hashable],
    question: str,
    option: str,
) -> Iterator[Proposal]:
    """Propose pairs of slices with equal `match` and different labels, of one patient if possible.

    Patients without a partner of their own are paired in a fixed order, so that few patients are
    linked by shared pairs.
    """
    groups: dict[Hashable, dict[str, dict[str, list[SourceSlice]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for source in slices:
        if value := label(source):
            groups[match(source)][value][source.patient].append(source)
    couples = []
    for by_label in groups.values():
        for values in combinations(sorted(by_label), 2):
            by_patient, partners = (by_label[value] for value in values)
            patients = [(patient, patient) for patient in by_patient if patient in partners]
            patients += zip(
                [patient for patient in by_patient if patient not in partners],
                [patient for patient in partners if patient not in by_patient],
                strict=False,
            )
            couples += [(values, by_patient[patient], partners[partner]) for patient, partner in patients]
    # Every couple of patients once, then all again with other slices.
    while couples:
        for index in rng.permutation(len(couples)):
            values, *members = couples[index]
            pair = tuple(slices[rng.integers(len(slices))] for slices in members)
            texts = [option.format(value=value, region=pair[0].region).strip() for value in values]
            yield Proposal(question.format(region=pair[0].region or "body"), (texts[0], texts[1]), pair)


def _central(label: Callable[[SourceSlice], str]) -> Callable[[SourceSlice], str]:
    """Restrict a label to the middle third of each series."""
    return lambda source: label(source) if third(source) == 1 else ""


def _half(source: SourceSlice) -> str:
    """Return the half of its axial series that a slice is from; "" for the middle third."""
    is_usable = source.has_halves and source.plane == "axial" and source.region in UNPAIRED_REGIONS
    ends = ("lower half, towards the feet", "", "upper half, towards the top of the head")
    return ends[third(source)] if is_usable else ""


# Change tasks


def _changes(
    slices: Sequence[SourceSlice],
    rng: np.random.Generator,
    ask: Callable[[SourceSlice, np.random.Generator], Request | None],
) -> Iterator[Proposal]:
    """Propose central slices for which `ask` has a question, each patient in turn."""
    by_patient: dict[str, list[SourceSlice]] = defaultdict(list)
    for source in slices:
        if third(source) == 1 and ask(source, rng):
            by_patient[source.patient].append(source)
    # The same slices in every task: each is searched for text only once.
    for turn in count() if by_patient else ():
        for sources in by_patient.values():
            source = sources[turn % len(sources)]
            if request := ask(source, rng):
                yield Proposal(request[0], request[1], (source,), request[2])


def _checked(picture: np.ndarray, changed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if np.abs(picture.astype(int) - changed).mean() < MIN_DIFFERENCE_LEVELS:
        raise Skipped("looks nearly the same mirrored or turned")
    return picture, changed


def _ask_mirror(source: SourceSlice, _: np.random.Generator) -> Request | None:
    """Ask for the patient's side; of the head, which is nearly symmetric, for the face."""
    if source.region in ("chest", "abdomen") and source.plane in ("axial", "coronal"):
        question = "Which side of the patient is on the left of this picture?"
        options = ("The patient's right side", "The patient's left side")
    elif source.region == "head" and source.plane == "sagittal":
        question, options = "To which side of this picture does the face look?", ("To the left", "To the right")
    else:
        return None
    return question, options, lambda picture, _: _checked(picture, picture[:, ::-1])


def _ask_turn(source: SourceSlice, _: np.random.Generator) -> Request | None:
    if not source.plane or not source.region:
        return None
    part = "front of the body" if source.plane == "axial" else "end of the body part towards the top of the head"
    question = f"Is the {part} at the top or at the bottom of this picture?"
    return question, ("At the top", "At the bottom"), lambda picture, _: _checked(picture, picture[::-1, ::-1])


def _ask_marker(_: SourceSlice, rng: np.random.Generator) -> Request:
    axis = int(rng.integers(2))
    ends = (("left", "right"), ("upper", "lower"))[axis]
    question = f"A white disc with a black rim was drawn on this picture. Is it in the {ends[0]} or the {ends[1]} half?"

    def change(picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        place = _place(rng, axis)
        mirrored = list(place)
        mirrored[axis] = SIZE_PX - 1 - place[axis]
        return _mark(picture, place), _mark(picture, (mirrored[0], mirrored[1]))

    return question, (f"In the {ends[0]} half", f"In the {ends[1]} half"), change


def _place(rng: np.random.Generator, axis: int, is_far: bool = False) -> tuple[int, int]:
    """Draw a place (x, y) in the left (axis 0) or upper (1) half, or in the other one."""
    # Away from the midline, so that the half is beyond doubt.
    place = rng.integers(MARGIN_PX, SIZE_PX - MARGIN_PX, 2)
    near = rng.integers(MARGIN_PX, SIZE_PX // 2 - MIDLINE_PX)
    place[axis] = SIZE_PX - 1 - near if is_far else near
    return int(place[0]), int(place[1])


def _count(picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    axis = int(rng.integers(2))
    places = [_place(rng, axis), _place(rng, axis, is_far=True)]
    return _mark(picture, places[rng.integers(2)]), _mark(_mark(picture, places[0]), places[1])


def _brighter(picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Mark two places, first with the brighter one on the left, then with others."""
    # Whether the left of the two places is the brighter one -> picture.
    marked: dict[bool, np.ndarray] = {}
    for _ in range(PLACE_TRIES):
        places = _place(rng, 0), _place(rng, 0, is_far=True)
        values = [_inside_ring(picture, place) for place in places]
        gap = values[0].mean() - values[1].mean()
        is_clear = abs(gap) >= MIN_BRIGHTNESS_GAP and max(map(np.std, values)) <= MAX_BRIGHTNESS_SPREAD
        if is_clear and (gap > 0) not in marked:
            marked[gap > 0] = _mark(_mark(picture, places[0], is_ring=True), places[1], is_ring=True)
            if len(marked) == 2:
                return marked[True], marked[False]
    raise Skipped("has no places that differ clearly in brightness")


def _mark(picture: np.ndarray, place: tuple[int, int], is_ring: bool = False) -> np.ndarray:
    """Draw a white disc with a black rim, or only a white rim inside a black one.

    Args:
        picture: (height, width) uint8.
        place: (x, y) of the centre in pixels, at least 12 pixels from the edges.
        is_ring: leave the pixels inside as they are.
    """
    marked = picture.copy()
    patch = _patch(marked, place)
    patch[(DISTANCES_PX > MARKER_RADIUS_PX) & (DISTANCES_PX <= MARKER_RADIUS_PX + 2 * RIM_PX)] = 0
    inner_px = MARKER_RADIUS_PX if is_ring else -1
    patch[(inner_px < DISTANCES_PX) & (DISTANCES_PX <= MARKER_RADIUS_PX + RIM_PX)] = 255
    return marked


def _inside_ring(picture: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """Return the grey values inside a ring at (x, y)."""
    return _patch(picture, place)[DISTANCES_PX <= MARKER_RADIUS_PX]


def _patch(picture: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """Return a view of the pixels that `DISTANCES_PX` are the distances of from (x, y)."""
    (x, y), reach = place, len(DISTANCES_PX) // 2
    return picture[y - reach : y + reach + 1, x - reach : x + reach + 1]


def _noise(picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Add Gaussian noise of `NOISE_LEVELS`."""
    noisy = (picture + rng.normal(0, NOISE_LEVELS, picture.shape)).round().clip(0, 255).astype(np.uint8)
    _check_roughness(picture, noisy, "is too noisy for a question on added noise")
    return picture, noisy


def _blur(picture: np.ndarray, _: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    blurred = _gaussian_blur(picture, BLUR_RADIUS_PX)
    _check_roughness(blurred, picture, "is too smooth for a question on blur")
    return picture, blurred


def _check_roughness(smooth: np.ndarray, rough: np.ndarray, reason: str) -> None:
    """Raise Skipped unless one picture is clearly rougher than the other.

    Roughness is the mean difference in grey levels from a slightly blurred copy.
    """
    smooth_level, rough_level = (
        np.abs(picture.astype(float) - _gaussian_blur(picture, 1)).mean() for picture in (smooth, rough)
    )
    if rough_level < MIN_ROUGHNESS_RATIO * smooth_level:
        raise Skipped(reason)


def _gaussian_blur(picture: np.ndarray, radius_px: float) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius_px)))


def _change_task(ability: str, question: str, options: tuple[str, str], change: Change) -> Task:
    """Make a task that asks the same question about every slice."""
    return Task(ability, partial(_changes, ask=lambda *_: (question, options, change)))


TASKS: dict[str, Task] = {
    "modality": Task(
        "tells imaging techniques apart",
        partial(
            _contrast,
            label=_central(lambda source: source.modality if source.plane else ""),
            match=lambda source: (source.plane, source.region),
            question="Which imaging technique made this picture?",
            option="{value}",
        ),
    ),
    "plane": Task(
        "tells planes apart",
        partial(
            _contrast,
            label=_central(lambda source: source.plane),
            match=lambda source: (source.modality, source.region),
            question="Which plane of the body does this picture show?",
            option="The {value} plane",
        ),
    ),
    "view": Task(
        "tells frontal from lateral views",
        partial(
            _contrast,
            label=lambda source: source.view,
            match=lambda source: source.region,
            question="Is this radiograph a frontal or a lateral view?",
            option="A {value} view",
        ),
    ),
    "side": Task(
        "tells left from right hips, knees and shoulders",
        partial(
            _contrast,
            label=_central(lambda source: source.side if source.plane in ("axial", "coronal") else ""),
            match=lambda source: (source.modality, source.plane, source.region),
            question="In this picture the patient's right is on the left. Is it of the left or of the right {region}?",
            option="The {value} {region}",
        ),
    ),
    "half": Task(
        "tells upper from lower slices",
        partial(
            _contrast,
            label=_half,
            match=lambda source: source.series,
            question="This is a slice of an axial series of the {region}. From which half of the series is it?",
            option="The {value}",
        ),
    ),
    "mirror": Task("tells left from right", partial(_changes, ask=_ask_mirror)),
    "turn": Task("tells upright from upside down", partial(_changes, ask=_ask_turn)),
    "marker": Task("tells where a marker is", partial(_changes, ask=_ask_marker)),
    "count": _change_task(
        "tells one marker from two",
        "How many white discs with a black rim were drawn on this picture?",
        ("One", "Two"),
        _count,
    ),
    "brighter": _change_task(
        "tells which of two places is brighter",
        "Two places on this picture are marked by rings. Inside which of the two rings is the picture brighter?",
        ("Inside the left ring", "Inside the right ring"),
        _brighter,
    ),
    "noise": _change_task(
        "tells added noise from none",
        "Was strong noise added to this picture?",
        ("No noise was added", "Noise was added"),
        _noise,
    ),
    "blur": _change_task(
        "tells blurred from sharp",
        "Was this picture blurred?",
        ("It was not blurred", "It was blurred"),
        _blur,
    ),
}
"""Name on the command line -> task, in the order of the exam."""
