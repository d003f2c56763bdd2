"""Test facts taken from captions: none goes beyond its caption, and each row is reviewed."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.custom_sets.probe_table import read_probe_table
from curation.writing.caption_facts import CAPTION_COLUMNS, caption_stance, parse_facts
from dataset_builders.terms import normalize_term
from tests.curation.commands import curate
from tests.curation.model_server import model_server
from tests.helpers import refused

CAPTION = "Frontal chest X-ray with a nodule in the left upper lobe and small effusions. No pneumothorax; the heart is not enlarged."
VALID_REPLY = {
    "organ": "chest", "modality": "X-ray", "normal": False, "absent": ["pneumothorax"],
    "findings": [{"finding": "nodule", "position": "left upper lobe"}, {"finding": "small effusion", "position": ""}],
}  # fmt: skip


def test_a_good_reply_is_a_row_of_the_table():
    expected = {
        "organ": "chest",
        "modality": "X-ray",
        "findings": "nodule; small effusion",
        "positions": "left upper lobe; ",
        "absent": "pneumothorax",
    }
    for reply in (
        json.dumps(VALID_REPLY),
        # Some models write their reasoning first and put the JSON into a block of code.
        f"<think>hm</think> Here:\n```json\n{json.dumps(VALID_REPLY, indent=1)}\n```",
    ):
        assert parse_facts(reply, CAPTION) == expected


@pytest.mark.parametrize(
    "change",
    [
        # Facts that the caption does not state or contradicts, and malformed replies.
        {"findings": [{"finding": "mass", "position": ""}]},
        {"findings": [{"finding": "nodule", "position": "right upper lobe"}]},
        {"findings": [{"finding": "pneumothorax", "position": ""}]},
        {"absent": ["nodule"]},
        {"normal": True},
        {"findings": []},
        {"findings": [{"finding": "nodule; effusions"}]},
        {"findings": "nodule"},
        {"organ": ""},
        {"organ": "knee"},
        {"modality": "CT"},
    ],
)
def test_facts_beyond_the_caption_are_refused(change):
    assert parse_facts(json.dumps(VALID_REPLY | change), CAPTION) is None


@pytest.mark.parametrize(("caption", "is_read"), [("Normal chest film.", True), ("Chest film. Lungs clear.", True), ("Chest film.", False),
                                                  ("Abnormal chest film.", False), ("Chest film, a mass.", False)])  # fmt: skip
def test_an_image_is_normal_only_if_the_caption_says_so(caption, is_read):
    reply = json.dumps({"organ": "chest", "modality": "X-ray", "normal": True, "findings": [], "absent": []})
    assert (parse_facts(reply, caption) is not None) is is_read


@pytest.mark.parametrize(
    ("caption", "stance"),
    [
        ("Chest film with edema.", "stated"), ("No edema.", "denied"), ("Without pleural fluid or edema", "denied"),
        ("Cannot exclude edema.", "doubted"), ("Possible edema.", "doubted"), ("Edema is suspected.", "doubted"),
        ("Resolved edema.", "doubted"), ("History of edema.", "doubted"), ("Edema was ruled out.", "doubted"),
        ("Edema is not seen.", "denied"), ("Edema without effusion.", "stated"), ("Rule out edema.", "doubted"),
        ("No edema. Later film: edema.", "doubted"), ("Effusion, no edema", "denied"), ("Nodule", ""),
        ("Edema versus pneumonia", "doubted"), ("Edema cannot be excluded.", "doubted"), ("Negative for edema", "denied"),
        ("A woman with edema and no fever", "stated"), ("Edema, seen after contrast", "stated"), ("Edema was removed", "doubted"),
        ("The edema is not displaced", "doubted"), ("Edema has improved", "doubted"), ("Edema: absent", "denied"),
    ],
)  # fmt: skip
def test_the_stance_of_a_caption_on_a_finding(caption, stance):
    assert caption_stance("edema", caption) == stance


KEY_NAMES = st.sampled_from(["organ", "modality", "normal", "findings", "absent", "finding", "position"])
JSON_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY_NAMES, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(JSON_DOCUMENTS)
def test_no_reply_adds_facts_to_the_caption(document):
    facts = parse_facts(json.dumps(document), CAPTION)
    # "Effusions" of the caption may become "effusion".
    if facts and facts["findings"] != "No Finding":
        assert set(normalize_term(facts["findings"]).split()) <= {*normalize_term(CAPTION).split(), "effusion"}


def test_from_captions_to_probes(tmp_path):
    """A second run sends no request and keeps edits. Unreviewed rows cannot be used."""
    captions = {f"{k}.png": CAPTION.replace("left", side) for k, side in enumerate(["left", "right", "left"])}
    pd.DataFrame({"image": [*captions, "3.png"], "caption": [*captions.values(), ""]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    out = tmp_path / "findings.csv"

    def answer(prompt, times_asked):
        if times_asked == 0 and "right" in prompt.split("Caption:")[-1]:
            return json.dumps(VALID_REPLY)  # names the other side: refused, so the request is repeated
        side = "right" if "right" in prompt.split("Caption:")[-1] else "left"
        return json.dumps(VALID_REPLY).replace("left", side)

    command = ("captions", tmp_path / "table.csv", "--model", "m", "--out", out, "--base-url")
    with model_server(answer) as (address, log):
        assert "read 3 captions (0 more in earlier calls); 0 got no valid reply" in curate(*command, address)
        request_count = len(log.requests)
        table = pd.read_csv(out, dtype=str, keep_default_na=False)
        assert tuple(table.columns) == CAPTION_COLUMNS and table["positions"].str.split(";").str[0].tolist() == [
            "left upper lobe", "right upper lobe", "left upper lobe",
        ]  # fmt: skip
        assert "3 of 3 rows are not reviewed" in refused(read_probe_table, out)
        # A person corrects the first row by hand.
        table.loc[0, ["findings", "positions", "reviewed"]] = ["small nodule", "left upper lobe", "Dr A"]
        table.to_csv(out, index=False)
        assert "(3 more in earlier calls)" in curate(*command, address) and len(log.requests) == request_count
    table = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert table.loc[0, "findings"] == "small nodule"
    table["reviewed"] = "Dr A"
    table.to_csv(out, index=False)
    probed = read_probe_table(out).images
    assert [[label.text for label in image.absent] for image in probed] == [["pneumothorax"]] * 3
    assert [(finding.text, finding.position) for finding in probed[1].findings] == [
        ("nodule", "right upper lobe"),
        ("small effusion", ""),
    ]
