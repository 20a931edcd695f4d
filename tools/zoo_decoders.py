"""Language models and other text and speech decoders as optimum-intel exports them: stateful,
with attention over cached keys and values, weights as they are or compressed by NNCF."""

from __future__ import annotations

import zoo_inputs as inputs
import zoo_torch as torch_models
from zoo_model import made

VOCABULARY = 512


def causal(source, seed: int, kind: str, weights: str = "", group: int = 0, **config):
    """A decoder of transformers from its configuration, as `text-generation-with-past`."""
    import transformers

    settings = getattr(transformers, f"{kind}Config")(**{**_SMALL, **config})
    settings.torch_dtype = "float32"
    model = _class_of(kind)(settings)
    torch_models.seed_weights(model, seed)
    exported = _export(model, "text-generation-with-past")["openvino_model.xml"]
    return compress(exported, weights, group) if weights else exported


def compress(model, weights: str, group: int):
    """Weight-only compression by NNCF, free of data; the embedding stays in 8 bits."""
    import nncf

    options = {} if weights.startswith("INT8") else {"ratio": 1.0, "group_size": group, "all_layers": False}
    return nncf.compress_weights(model, mode=getattr(nncf.CompressWeightsMode, weights), **options)


def whisper(source, seed: int, part: str):
    """Whisper's encoder, or its decoder with cached keys and values."""
    import transformers

    sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
    settings = transformers.WhisperConfig(
        **sizes, vocab_size=VOCABULARY, num_mel_bins=80, max_source_positions=1500, max_target_positions=64, **_TOKENS
    )
    model = torch_models.seed_weights(transformers.WhisperForConditionalGeneration(settings), seed)
    return _export(model, "automatic-speech-recognition-with-past")[f"openvino_{part}_model.xml"]


def t5(source, seed: int, part: str):
    """T5's encoder, or its decoder with cached keys and values."""
    import transformers

    settings = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    )
    settings.decoder_start_token_id = 0
    model = torch_models.seed_weights(transformers.T5ForConditionalGeneration(settings), seed)
    return _export(model, "text2text-generation-with-past")[f"openvino_{part}_model.xml"]


def _class_of(kind: str):
    import transformers

    for ending in ("ForCausalLM", "LMHeadModel"):
        found = getattr(transformers, kind.removesuffix("Text") + ending, None)
        if found:
            return found
    raise ValueError(f"transformers has no decoder {kind}")


def _export(model, task: str) -> dict:
    """The models that optimum-intel writes, by file name."""
    import tempfile
    from pathlib import Path

    import openvino
    from optimum.exporters.openvino import export_from_model

    with tempfile.TemporaryDirectory() as temporary:
        export_from_model(model, temporary, task=task, stateful=True, preprocessors=None)
        core = openvino.Core()
        core.set_property({"ENABLE_MMAP": False})
        return {path.name: core.read_model(path) for path in Path(temporary).glob("*.xml")}


def _speech_decoder(packages):
    generator = inputs.np.random.default_rng(5)
    encoded = generator.normal(size=(1, 1500, 64)).astype(inputs.np.float32)
    steps = inputs.decoder_steps(VOCABULARY, [4], 4)(packages)
    keep = ("input_ids", "beam_idx")
    return [{"encoder_hidden_states": encoded, **{k: s[k] for k in keep}} for s in steps]


def _translation(packages):
    generator = inputs.np.random.default_rng(5)
    encoded = generator.normal(size=(2, 9, 64)).astype(inputs.np.float32)
    mask = inputs.lengths_mask(9, 6)
    steps = inputs.decoder_steps(VOCABULARY, [1, 1], 5)(packages)
    keep = ("input_ids", "beam_idx")
    return [
        {"encoder_hidden_states": encoded, "encoder_attention_mask": mask, **{k: s[k] for k in keep}} for s in steps
    ]


def _decoder(name: str, kind: str, positions: bool = True, prompts=(9, 6), compress: bool = False, **options):
    maker = inputs.decoder_steps(VOCABULARY, list(prompts), positions=positions)
    return made(name, causal, maker, options={"kind": kind, **options}, torch=True, compress=compress)


_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT = {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256, "n_inner": 256}


MODELS = [
    _decoder("llama", "Llama"),
    _decoder("llama_fp16", "Llama", compress=True),
    _decoder("llama_int8", "Llama", weights="INT8_ASYM"),
    _decoder("llama_int8_symmetric", "Llama", weights="INT8_SYM"),
    _decoder("llama_int4", "Llama", weights="INT4_ASYM", group=32),
    _decoder("llama_int4_symmetric", "Llama", weights="INT4_SYM", group=64),
    _decoder("llama_int4_channel", "Llama", weights="INT4_SYM", group=-1),
    _decoder("llama_nf4", "Llama", weights="NF4", group=64),
    _decoder("llama_mxfp4", "Llama", weights="MXFP4", group=32),
    _decoder("qwen2", "Qwen2"),
    _decoder("qwen3", "Qwen3"),
    _decoder("qwen3_moe", "Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64),
    _decoder("mixtral", "Mixtral", num_local_experts=4),
    _decoder("gpt2", "GPT2", **_GPT),
    _decoder("gpt_neox", "GPTNeoX"),
    _decoder("gemma2", "Gemma2", sliding_window=6),
    _decoder("gemma3", "Gemma3Text", sliding_window=6, layer_types=["sliding_attention", "full_attention"]),
    _decoder("phi3", "Phi3", sliding_window=8),
    _decoder("mistral", "Mistral", prompts=(9, 9), sliding_window=8),
    _decoder("bloom", "Bloom", positions=False, n_layer=2, n_head=4),
    made(
        "whisper_encoder",
        whisper,
        inputs.drawn({"input_features": inputs.normal(1, 80, 3000)}),
        options={"part": "encoder"},
        torch=True,
    ),
    made("whisper_decoder", whisper, _speech_decoder, options={"part": "decoder"}, torch=True),
    made(
        "t5_encoder",
        t5,
        inputs.drawn({"input_ids": inputs.ids(VOCABULARY, 2, 9), "attention_mask": inputs.lengths_mask(9, 6)}),
        options={"part": "encoder"},
        torch=True,
    ),
    made("t5_decoder", t5, _translation, options={"part": "decoder"}, torch=True),
]
