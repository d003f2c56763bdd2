"""Loading a local model: adapters, quantization, pixel bounds, other classes, missing extras."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlavaConfig, LlavaForConditionalGeneration

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.models.local.pretrained import describe_source, load_pretrained
from eval_harness.models.local.tiny_vlm import make_tiny_vlm
from eval_harness.models.local.transformers_vlm import TransformersVLM
from tests.eval_harness.models.test_model_families import request
from tests.eval_harness.models.tiny_families import build, make


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return make("qwen2_vl", tmp_path_factory.mktemp("pretrained") / "qwen2_vl")


def texts(folder, **settings):
    return [r.text for r in TransformersVLM(str(folder), Settings(**settings)).generate([request(i) for i in range(4)])]


def adapter(folder, out, **options):
    """Save a LoRA with random weights; returns the answers without it, and with it as peft gives
    them.
    """
    backend = TransformersVLM(str(folder), Settings())
    plain = [r.text for r in backend.generate([request(i) for i in range(4)])]
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_alpha=64, **options)
    adapted = get_peft_model(backend.network.model, config)
    # A new LoRA changes nothing: its second matrix is zero.
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    adapted.save_pretrained(out)
    return plain, [r.text for r in backend.generate([request(i) for i in range(4)])]


def test_checkpoint_of_another_class_is_refused(tmp_path):
    """BLIP for questions has a question encoder, which transformers' image-text-to-text class
    lacks.
    """
    model, processor = build("blip")
    transformers.BlipForQuestionAnswering(model.config).save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="checkpoint is a BlipForQuestionAnswering"):
        load_pretrained(str(tmp_path), Settings())


def test_adapter_answers_equal_peft_and_a_mismatched_adapter_is_refused(folder, tmp_path):
    plain, expected = adapter(folder, tmp_path / "lora")
    assert texts(folder, adapter=str(tmp_path / "lora")) == expected != plain
    with pytest.raises(BadInput, match="--model-args adapter"):
        load_pretrained(str(folder), Settings(adapter=str(tmp_path)))
    file = tmp_path / "lora" / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"target_modules": ["k_proj"]}))
    with pytest.raises(BadInput, match="do not fit"):
        load_pretrained(str(folder), Settings(adapter=str(tmp_path / "lora")))


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """A model with layer widths that bitsandbytes supports on the CPU (multiples of 64)."""
    folder = make_tiny_vlm(tmp_path_factory.mktemp("pretrained") / "even")
    config = LlavaConfig.from_pretrained(folder)
    config.vision_config.hidden_size = config.vision_config.intermediate_size = 64
    torch.manual_seed(0)
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["4bit", "8bit"])
def test_quantized_models_batch_equally_and_quantized_checkpoints_load_unchanged(even, tmp_path, name):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    backend = TransformersVLM(str(even), Settings(quantization=name, batch_size=4))
    kinds = {type(module).__name__ for module in backend.network.model.modules()}
    assert kinds & {"Linear4bit", "Linear8bitLt"}
    many = [r.text for r in backend.generate([request(i) for i in range(4)])]
    assert many == texts(even, quantization=name, batch_size=1)
    if name == "4bit":
        processor, model, _ = load_pretrained(str(even), Settings(quantization=name))
        model.save_pretrained(tmp_path / "q")  # before it has run: running repacks the weights for this processor
        processor.save_pretrained(tmp_path / "q")
        assert texts(tmp_path / "q") == many
        with pytest.raises(BadInput, match="quantized already"):
            load_pretrained(str(tmp_path / "q"), Settings(quantization="8bit"))


@pytest.mark.parametrize(
    ("module", "settings"), [("peft", {"adapter": "x"}), ("bitsandbytes", {"quantization": "4bit"})]
)
def test_missing_extra_is_named_in_the_error(folder, monkeypatch, module, settings):
    from dataset_builders import errors

    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == module else object())
    with pytest.raises(BadInput, match=rf"pip install 'medprobe\[{module}\]'"):
        load_pretrained(str(folder), Settings(**settings))


def test_pixel_bounds_are_applied_or_refused(folder, tmp_path):
    def length(**settings):
        backend = TransformersVLM(str(folder), Settings(**settings))
        (response,) = backend.generate([replace(request(1), max_tokens=1)])
        return response.usage[0]

    # The prompt's length shows the number of image tokens.
    assert length(max_pixels=28 * 28) < length() < length(min_pixels=84 * 84, max_pixels=112 * 112)
    make("llava_onevision", tmp_path / "other")
    with pytest.raises(BadInput, match="--max-image-side"):
        load_pretrained(str(tmp_path / "other"), Settings(max_pixels=900))


@pytest.mark.exhaustive
def test_causal_model_with_remote_code_is_loaded_and_sees_images(tmp_path):
    """Like Phi-4-multimodal's repository, whose `auto_map` has only AutoModelForCausalLM."""
    folder = make("llava", tmp_path / "own")
    weights = LlavaForConditionalGeneration.from_pretrained(folder).state_dict()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})  # under the names of the class's own modules
    (folder / "own_model.py").write_text(
        "from transformers import LlavaConfig, LlavaForConditionalGeneration\n"
        "class OwnConfig(LlavaConfig):\n    model_type = 'own_llava'\n"
        "class OwnForCausalLM(LlavaForConditionalGeneration):\n    config_class = OwnConfig\n"
    )
    config = json.loads((folder / "config.json").read_text())
    names = {
        "AutoConfig": "own_model.OwnConfig",
        "AutoModelForCausalLM": "own_model.OwnForCausalLM",
    }
    config |= {"model_type": "own_llava", "architectures": ["OwnForCausalLM"], "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="--trust-remote-code"):
        load_pretrained(str(folder), Settings())
    backend = TransformersVLM(str(folder), Settings(trust_remote_code=True))
    assert type(backend.network.model).__name__ == "OwnForCausalLM"
    assert backend.findings.sees_images
    assert not backend.deviations
    assert [r.text for r in backend.generate([request(i) for i in range(4)])] == texts(
        make("llava", tmp_path / "plain")
    )


def test_revision_is_the_cached_commit(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit, folder = "0123456789abcdef" * 2 + "01234567", tmp_path / "models--org--vlm"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    assert describe_source("org/vlm") == ("org/vlm", commit)
    assert describe_source("org/other") == ("org/other", None)
    assert describe_source(str(folder)) == ("models--org--vlm", None)


def test_tokenizer_chat_template_is_used_and_a_broken_one_is_refused(folder, tmp_path):
    """A template of plain-text turns must load, too, and a generation config for several
    answers.
    """
    own_template = (folder / "chat_template.jinja").read_text()
    of_text = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}"
    for number, template in enumerate((own_template, of_text, "{{ messages + 1 }}")):
        copied = tmp_path / str(number)
        shutil.copytree(folder, copied)
        (copied / "chat_template.jinja").unlink()
        for name, changes in (
            ("tokenizer_config.json", {"chat_template": template}),
            (
                "generation_config.json",
                {"num_return_sequences": 4, "return_dict_in_generate": True},
            ),
        ):
            path = copied / name
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        if "+ 1" in template:
            with pytest.raises(BadInput, match="TypeError"):
                TransformersVLM(str(copied), Settings())
            continue
        backend = TransformersVLM(str(copied), Settings())
        assert not backend.processing.plain and not backend.deviations
        assert [response.status for response in backend.generate([request(i, max_tokens=2) for i in range(2)])] == [
            "answered"
        ] * 2
