"""Test splitting reasoning from the answer, for every family's delimiters and any text."""

import pytest
from hypothesis import given, settings, strategies as st

from eval_harness.reader.reasoning import split_reasoning

REASONING_DELIMITERS = {
    "think": ("<think>", "</think>"),
    "thinking": ("<thinking>", "</thinking>"),
    "thought": ("<thought>\n", "\n</thought>\n"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "kimi": ("◁think▷", "◁/think▷"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "medgemma": ("<unused94>thought\n", "<unused95>"),
    "command": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    "open thoughts": ("<|begin_of_thought|>", "<|end_of_thought|>\n"),
    "harmony": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "harmony without markers": ("analysis", "assistantfinal"),
    "agent": ("Thought: ", "\nAnswer: "),
}
WORDS = "the lesion is dark A B C not so fracture option or 12 wait . , \n"
words = st.lists(st.sampled_from(WORDS.split(" ")), max_size=60)
trace = words.map(lambda drawn_words: "We see " + " ".join(drawn_words) + " end.")


@pytest.mark.parametrize("family", REASONING_DELIMITERS)
@settings(max_examples=40, deadline=None)
@given(
    trace=trace,
    answer=st.sampled_from(["B", "The answer is B.", "**B**", "Yes.", "I cannot tell."]),
)
def test_every_family_is_split_at_its_end_delimiter(family: str, trace: str, answer: str) -> None:
    start, end = REASONING_DELIMITERS[family]
    split = split_reasoning(start + trace + end + answer)
    assert split.answer.strip().removeprefix("Answer: ").removeprefix("<|START_RESPONSE|>") == answer
    assert split.reasoning is not None and split.reasoning.split() == trace.split()
    assert not split.unfinished


@pytest.mark.parametrize("family", sorted(set(REASONING_DELIMITERS) - {"agent"}))
@settings(max_examples=40, deadline=None)
@given(trace=trace)
def test_truncated_trace_has_no_answer(family: str, trace: str) -> None:
    split = split_reasoning(REASONING_DELIMITERS[family][0] + trace)
    assert split.unfinished and not split.answer
    assert split.reasoning is not None and split.reasoning.split()[-1] == "end."


@settings(max_examples=60, deadline=None)
@given(trace=trace)
def test_tag_opened_by_the_chat_template(trace: str) -> None:
    assert split_reasoning(trace, opened=True) == split_reasoning("<think>" + trace)
    assert split_reasoning(trace + "</think>B", opened=True).answer == "B"
    assert split_reasoning(trace + "</think>B").answer == "B"
    assert split_reasoning(trace) == split_reasoning(trace, opened=False)
    assert split_reasoning(trace).reasoning is None and split_reasoning(trace).answer == trace


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>A or B\n<answer>A</answer>", "<answer>A</answer>"),
        ("<think>a<think>b\n</think>\n<answer>D</answer>", "\n<answer>D</answer>"),
        ("<think>It is dense.\nFinal answer: B", ""),
        ("<think>So it is dense.\nThus \\boxed{B}", "\\boxed{B}"),
        ("B\n<think>because of the", "B\n"),
        ("<think>x</think>C<think>and then", "C"),
        ("<think>I put it in <answer>B</answer> if sure. Now the", ""),
        ("B<think>because it is dark</think>", "B"),
        ("<think>because it is dark</think>", ""),
        ("<|im_start|>assistant\n<think>so", ""),
    ],
)
def test_what_counts_as_the_answer(response: str, answer: str) -> None:
    assert split_reasoning(response).answer == answer


def test_thought_without_an_end_stays_whole_and_unfinished() -> None:
    for response in ("Thought: It may be B, or", "thought\nIt may be B, or"):
        split = split_reasoning(response)
        assert (split.reasoning, split.answer, split.unfinished) == (None, response, True)


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from([*sum(REASONING_DELIMITERS.values(), ()), "B", "<answer>", "</answer>", "\\boxed{", "}", "\n"]),
        max_size=20,
    ).map("".join),
    st.booleans(),
)
def test_any_text_is_split(response: str, opened: bool) -> None:
    split = split_reasoning(response, opened)
    assert split.answer in response
