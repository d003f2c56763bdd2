"""List sets of questions that are in use elsewhere, with the meaning of their columns.

Each was checked against the set's own card or a loader that reads it (`checked`, and
`docs/any_set.md`); a set that could not be checked is not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A known set.

    `source`: its repository on the Hub, empty if its files have to be downloaded. `map`: its fields
    in the words of `--map`. `licence`: of the set, as its authors state it. `checked`: what the
    fields were checked against.
    """

    title: str
    source: str = ""
    map: str
    licence: str
    citation: str
    checked: str


def _arxiv(key: str, title: str, authors: str, year: int, number: str) -> str:
    return (
        f"@misc{{{key},\n  title={{{title}}},\n  author={{{authors}}},\n  year={{{year}}},\n"
        f"  eprint={{{number}}},\n  archivePrefix={{arXiv}}\n}}"
    )


_MEDEVALKIT = "the loader of MedEvalKit 9b12e3b3"
_MMMU_SUBJECTS = "Basic_Medical_Science;Clinical_Medicine;Diagnostics_and_Laboratory_Medicine;Pharmacy;Public_Health"
_VLMEVALKIT_MAP = "question=hint;question,image=image,id=index"

PRESETS: Mapping[str, Preset] = {
    "vqa-rad": Preset(
        title="VQA-RAD, yes/no questions",
        source="flaviagiammarino/vqa-rad",
        map="question=question,answer=answer,image=image",
        licence="CC0 1.0",
        citation=(
            "@article{lau2018dataset,\n"
            "  title={A dataset of clinically generated visual questions and answers about radiology images},\n"
            "  author={Lau, Jason J and Gayen, Soumya and Ben Abacha, Asma and Demner-Fushman, Dina},\n"
            "  journal={Scientific Data},\n  volume={5},\n  year={2018}\n}"
        ),
        checked=f"its card (features, splits of 1,793 and 451 rows, licence) and {_MEDEVALKIT}",
    ),
    "slake": Preset(
        title="SLAKE, English closed questions with the answer yes or no",
        map=(
            "files=train.json;valid*.json;test.json,question=question,answer=answer,image=img_name,"
            "where=q_lang=en;answer_type=CLOSED,facets=modality;location;content_type"
        ),
        licence="CC BY 4.0",
        citation=(
            "@inproceedings{liu2021slake,\n"
            "  title={SLAKE: A Semantically-Labeled Knowledge-Enhanced Dataset for Medical Visual Question Answering},\n"
            "  author={Liu, Bo and Zhan, Li-Ming and Xu, Li and Ma, Lin and Yang, Yan and Wu, Xiao-Ming},\n"
            "  booktitle={IEEE International Symposium on Biomedical Imaging},\n  year={2021}\n}"
        ),
        checked=f"the files and licence of BoKelvin/SLAKE, a row printed by a public loader, and {_MEDEVALKIT}",
    ),
    "pathvqa": Preset(
        title="PathVQA, yes/no questions",
        source="flaviagiammarino/path-vqa",
        map="question=question,answer=answer,image=image",
        licence="stated as MIT; the images belong to the publishers of two textbooks",
        citation=_arxiv(
            "he2020pathvqa",
            "PathVQA: 30000+ Questions for Medical Visual Question Answering",
            "He, Xuehai and Zhang, Yichen and Mou, Luntian and Xing, Eric and Xie, Pengtao",
            2020,
            "2003.10286",
        ),
        checked=f"its card (splits of 19.7, 6.26 and 6.72 thousand rows, licence) and {_MEDEVALKIT}",
    ),
    "pmc-vqa": Preset(
        title="PMC-VQA, version 2, test set",
        map=(
            "files=test_2.csv,question=Question,options=Choice A;Choice B;Choice C;Choice D,answer=Answer,"
            "image=Figure_path,id=index"
        ),
        licence="CC BY-SA",
        citation=_arxiv(
            "zhang2023pmcvqa",
            "PMC-VQA: Visual Instruction Tuning for Medical Visual Question Answering",
            "Zhang, Xiaoman and Wu, Chaoyi and Zhao, Ziheng and Lin, Weixiong and Zhang, Ya and Wang, Yanfeng and Xie, Weidi",
            2023,
            "2305.10415",
        ),
        checked=f"the card of xmcmic/PMC-VQA (columns of version 1, licence), two readers of test_2.csv, and {_MEDEVALKIT}",
    ),
    "omnimedvqa": Preset(
        title="OmniMedVQA, open-access part",
        map=(
            "files=QA_information/Open-access/*.json,question=question,options=option_A;option_B;option_C;option_D,"
            "answer=gt_answer,image=image_path,id=question_id,facets=task=question_type;modality=modality_type;dataset"
        ),
        licence="that of each source data set",
        citation=_arxiv(
            "hu2024omnimedvqa",
            "OmniMedVQA: A New Large-Scale Comprehensive Evaluation Benchmark for Medical LVLM",
            "Hu, Yutao and Li, Tianbin and Lu, Quanfeng and Shao, Wenqi and He, Junjun and Qiao, Yu and Luo, Ping",
            2024,
            "2402.09181",
        ),
        checked=f"the card of foreverbeliever/OmniMedVQA (folders, terms) and {_MEDEVALKIT}",
    ),
    "medxpertqa-mm": Preset(
        title="MedXpertQA MM",
        map=(
            "files=MM/*.jsonl,question=question,options=options,answer=label,image=images,id=id,"
            "facets=task=medical_task;body_system;reasoning=question_type"
        ),
        licence="MIT",
        citation=_arxiv(
            "zuo2025medxpertqa",
            "MedXpertQA: Benchmarking Expert-Level Medical Reasoning and Understanding",
            "Zuo, Yuxin and Qu, Shang and Li, Yifei and Chen, Zhangren and Zhu, Xuekai and others",
            2025,
            "2501.18362",
        ),
        checked=f"the card of TsinghuaC3I/MedXpertQA (fields, files, licence, rows MM-2000 to MM-2003) and {_MEDEVALKIT}",
    ),
    "mmmu-medical": Preset(
        title="MMMU, the five subjects of Health and Medicine, validation",
        source="MMMU/MMMU",
        map=(
            f"config={_MMMU_SUBJECTS},where=split=validation,question=question,options=options,answer=answer,"
            "image=image_1;image_2;image_3;image_4;image_5;image_6;image_7,id=id,"
            "facets=subject=config;subfield;difficulty=topic_difficulty;image_kind=img_type"
        ),
        licence="Apache-2.0",
        citation=_arxiv(
            "yue2023mmmu",
            "MMMU: A Massive Multi-discipline Multimodal Understanding and Reasoning Benchmark for Expert AGI",
            "Yue, Xiang and Ni, Yuansheng and Zhang, Kai and Zheng, Tianyu and Liu, Ruoqi and others",
            2023,
            "2311.16502",
        ),
        checked=f"its card (features and splits of each config, licence; options as text of a list) and {_MEDEVALKIT}",
    ),
    "mmbench-tsv": Preset(
        title="TSV in the layout of MMBench and VLMEvalKit",
        map=(
            f"{_VLMEVALKIT_MAP},group=group;patient,license=license,facets=category;l2_category=l2-category;"
            "task=clinical vqa task;department;granularity=perceptual granularity;modality"
        ),
        licence="unknown",
        citation="",
        checked="VLMEvalKit e8e78f0, which reads such files",
    ),
    "gmai-mmbench-tsv": Preset(
        title="VLMEvalKit's TSV of GMAI-MMBench",
        map=(
            f"{_VLMEVALKIT_MAP},facets=task=clinical vqa task;department;granularity=perceptual granularity;modality;"
            "keyword=category"
        ),
        licence="that of each source data set",
        citation=_arxiv(
            "chen2024gmai",
            "GMAI-MMBench: A Comprehensive Multimodal Evaluation Benchmark Towards General Medical AI",
            "Chen, Pengcheng and Ye, Jin and Wang, Guoan and others",
            2024,
            "2408.03361",
        ),
        checked="the authors' sample file and the columns of five result files of VLMEvalKit",
    ),
}
"""Known sets by the name that `--preset` takes."""
