"""Models of transformers in small configurations: detectors, segmenters, prompts, long texts, state spaces, speech."""

from __future__ import annotations

import numpy as np

import zoo_inputs as inputs
import zoo_torch as torch_models
from zoo_model import made

VOCABULARY = 300


def configured(source, seed: int, kind: str, config, example: dict, outputs: list[str], **options):
    """The class `kind` of transformers, of the configuration that `config` makes from the library, traced with
    `example` (a drawn step). Results are picked by name."""
    import torch
    import transformers

    settings = config(transformers)
    settings.use_cache = False
    model = torch_models.seed_weights(getattr(transformers, kind)(settings), seed)

    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *given):
            found = self.model(**dict(zip(example, given)), **options, return_dict=True)
            return tuple(found[name] for name in outputs)

    (step,) = inputs.drawn(example)(None)
    given = tuple(torch.from_numpy(value) for value in step.values())
    return torch_models.convert(Named().eval(), given if len(given) > 1 else given[0], list(example), outputs)


def _resnet(kind, stages: int):
    """A small ResNet of a class of configurations, which gives its last stages."""
    names = [f"stage{k}" for k in range(5 - stages, 5)]
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1] * 4}
    return kind(**sizes, layer_type="basic", out_features=names)


def _swin(t):
    names = ["stage1", "stage2", "stage3", "stage4"]
    sizes = {"image_size": 64, "embed_dim": 16, "depths": [1] * 4, "num_heads": [2] * 4, "window_size": 4}
    return t.SwinConfig(**sizes, out_features=names)


_OWN_BACKBONE = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
"""Says that a detector's backbone is the one of `backbone_config`, with weights of its own."""


def _detr(t):
    return t.DetrConfig(**_OWN_BACKBONE, backbone_config=_resnet(t.ResNetConfig, 1), **_DETECTOR)


def _deformable_detr(t):
    backbone = _resnet(t.ResNetConfig, 3)
    refined = {"two_stage": True, "with_box_refine": True, "two_stage_num_proposals": 12, "num_feature_levels": 4}
    return t.DeformableDetrConfig(**_OWN_BACKBONE, backbone_config=backbone, **refined, **_DETECTOR)


def _rt_detr(t):
    backbone = _resnet(t.RTDetrResNetConfig, 3)
    widths = {"encoder_hidden_dim": 32, "encoder_in_channels": [32, 48, 64], "decoder_in_channels": [32] * 3}
    given = {k: v for k, v in _DETECTOR.items() if k != "encoder_layers"}
    return t.RTDetrV2Config(backbone_config=backbone, anchor_image_size=None, **widths, **given)


def _mask2former(t):
    sizes = {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "encoder_feedforward_dim": 48}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2, "num_attention_heads": 4, "dim_feedforward": 48}
    return t.Mask2FormerConfig(backbone_config=_swin(t), num_queries=8, num_labels=5, **sizes)


def _segment_anything(t):
    sizes = {"hidden_size": 32, "image_size": 64, "patch_size": 8}
    vision = {"num_hidden_layers": 2, "num_attention_heads": 4, "window_size": 4, "global_attn_indexes": [1]}
    vision |= {"output_channels": 32, "num_pos_feats": 16, "mlp_dim": 48, **sizes}
    decoder = {"hidden_size": 32, "mlp_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return t.SamConfig(
        vision_config=t.SamVisionConfig(**vision).to_dict(),
        prompt_encoder_config=t.SamPromptEncoderConfig(**sizes, mask_input_channels=4).to_dict(),
        mask_decoder_config=t.SamMaskDecoderConfig(**decoder, iou_head_hidden_dim=32).to_dict(),
    )


def _owl(t):
    vision = {**_TEXT, "image_size": 64, "patch_size": 16}
    text = {**_TEXT, "vocab_size": VOCABULARY, "max_position_embeddings": 16}
    return t.OwlViTConfig(text_config=text, vision_config=vision, projection_dim=32)


def _longformer(t):
    return t.LongformerConfig(**_TEXT, vocab_size=VOCABULARY, attention_window=[8, 8], max_position_embeddings=66)


def _big_bird(t):
    sizes = {**_TEXT, "vocab_size": VOCABULARY, "max_position_embeddings": 128}
    return t.BigBirdConfig(**sizes, attention_type="block_sparse", block_size=8, num_random_blocks=2)


def _mamba(t):
    return t.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=8)


def _mamba2(t):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "head_dim": 8, "num_heads": 8}
    return t.Mamba2Config(vocab_size=VOCABULARY, **sizes, n_groups=2, chunk_size=8)


def _speech_to_text(t):
    sizes = {"hidden_size": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "conv_dim": (16,) * 7}
    convolutions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    return t.SpeechT5Config(vocab_size=VOCABULARY, **sizes, **convolutions)


def _univnet(t):
    kernels = {"resblock_kernel_sizes": [3, 3], "resblock_stride_sizes": [4, 4]}
    kernels |= {"resblock_dilation_sizes": [[1, 3], [1, 3]], "kernel_predictor_num_blocks": 1}
    widths = {"model_in_channels": 8, "model_hidden_channels": 8, "num_mel_bins": 20}
    return t.UnivNetConfig(**widths, **kernels, kernel_predictor_hidden_channels=8)


def _dac(t):
    sizes = {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "upsampling_ratios": [4, 2]}
    codes = {"n_codebooks": 3, "codebook_size": 32, "codebook_dim": 4}
    return t.DacConfig(**sizes, **codes, decoder_hidden_size=32, hidden_size=32)


def _perceiver(t):
    sizes = {"num_latents": 16, "d_latents": 32, "d_model": 32, "num_blocks": 1, "num_self_attends_per_block": 2}
    heads = {"num_self_attention_heads": 4, "num_cross_attention_heads": 4}
    return t.PerceiverConfig(**sizes, **heads, vocab_size=262, max_position_embeddings=32)


def _depth(t):
    neck = {"neck_hidden_sizes": [16, 16, 24, 32], "fusion_hidden_size": 16, "reassemble_factors": [4, 2, 1, 0.5]}
    layers = {**_TEXT, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
    return t.DPTConfig(image_size=64, patch_size=16, **layers, **neck)


def _upernet(t):
    names = ["stage1", "stage2", "stage3", "stage4"]
    backbone = t.ConvNextConfig(num_stages=4, hidden_sizes=[16, 24, 32, 48], depths=[1] * 4, out_features=names)
    heads = {"hidden_size": 32, "pool_scales": [1, 2, 3, 6], "auxiliary_channels": 16, "auxiliary_in_channels": 32}
    return t.UperNetConfig(backbone_config=backbone, num_labels=5, **heads)


def _tapas(t):
    kinds = {"type_vocab_sizes": [3, 16, 16, 2, 2, 10, 10], "max_position_embeddings": 64}
    return t.TapasConfig(**_TEXT, vocab_size=VOCABULARY, **kinds)


def _seamless(t):
    sizes = {"hidden_size": 32, "encoder_layers": 1, "decoder_layers": 1, "feature_projection_input_dim": 160}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    speech = {"speech_encoder_layers": 2, "speech_encoder_attention_heads": 4, "speech_encoder_intermediate_size": 48}
    speech |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    return t.SeamlessM4Tv2Config(vocab_size=VOCABULARY, **sizes, **speech)


def _text(*shapes: tuple[int, int], mask: bool = True):
    steps = []
    for batch, length in shapes:
        step = {"input_ids": inputs.ids(VOCABULARY - 10, batch, length)}
        steps.append({**step, "attention_mask": inputs.lengths_mask(*([length] * batch))} if mask else step)
    return steps


def _images(*shapes: tuple[int, int, int]):
    return [{"pixel_values": inputs.normal(batch, 3, height, width)} for batch, height, width in shapes]


def _prompts(*counts: int):
    return [
        {
            "pixel_values": inputs.normal(1, 3, 64, 64),
            "input_points": inputs.uniform(1, 1, count, 2, high=60.0),
            "input_labels": np.ones((1, 1, count), np.int64),
        }
        for count in counts
    ]


def _queries(*batches: int):
    return [
        {
            "input_ids": inputs.ids(VOCABULARY - 10, 2 * batch, 8),
            "attention_mask": inputs.lengths_mask(*([8] * (2 * batch))),
            "pixel_values": inputs.normal(batch, 3, 64, 64),
        }
        for batch in batches
    ]


def _named(name: str, kind: str, config, steps: list[dict], outputs: list[str], **options):
    given = {"kind": kind, "config": config, "example": steps[0], "outputs": outputs, **options}
    return made(name, configured, inputs.drawn(*steps), options=given, torch=True)


_DETECTOR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 12, "num_labels": 5}
_DETECTOR |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_BOXES = ["logits", "pred_boxes"]
_SPEECH = [
    {"input_values": inputs.normal(1, n), "decoder_input_ids": inputs.ids(VOCABULARY, 1, 5)} for n in (4000, 5200)
]
_NOISE = [
    {"input_features": inputs.normal(b, n, 20), "noise_sequence": inputs.normal(b, n, 8)} for b, n in ((1, 12), (2, 17))
]
_BYTES = [{"inputs": inputs.ids(250, b, 32), "attention_mask": inputs.lengths_mask(*([32] * b))} for b in (1, 2)]
_TABLES = [
    {**step, "token_type_ids": np.random.default_rng(3).integers(0, 2, (*size, 7))}
    for size in ((1, 12), (2, 20))
    for step in _text(size)
]
_FEATURES = [
    {"input_features": inputs.normal(1, n, 160), "decoder_input_ids": inputs.ids(VOCABULARY, 1, 5)} for n in (30, 41)
]
_WAVES = [{"input_values": inputs.normal(b, 1, n)} for b, n in ((1, 800), (2, 640))]

MODELS = [
    _named("detr", "DetrForObjectDetection", _detr, _images((1, 64, 64), (2, 64, 64), (1, 96, 64)), _BOXES),
    _named("deformable_detr", "DeformableDetrForObjectDetection", _deformable_detr, _images((2, 64, 96)) * 2, _BOXES),
    _named("rt_detr", "RTDetrV2ForObjectDetection", _rt_detr, _images((1, 64, 64), (2, 64, 64)), _BOXES),
    _named(
        "mask2former",
        "Mask2FormerForUniversalSegmentation",
        _mask2former,
        _images((1, 64, 64), (2, 64, 64)),
        ["class_queries_logits", "masks_queries_logits"],
    ),
    _named("segment_anything", "SamModel", _segment_anything, _prompts(2, 3), ["iou_scores", "pred_masks"]),
    _named("owl", "OwlViTForObjectDetection", _owl, _queries(1, 2), _BOXES),
    _named("longformer", "LongformerForMaskedLM", _longformer, _text((1, 16), (2, 32)), ["logits"]),
    _named("big_bird", "BigBirdForMaskedLM", _big_bird, _text((2, 96)) * 2, ["logits"]),
    _named("mamba", "MambaForCausalLM", _mamba, _text((1, 12), (2, 12), mask=False), ["logits"]),
    _named("mamba2", "Mamba2ForCausalLM", _mamba2, _text((1, 16), (2, 16), mask=False), ["logits"]),
    _named("speech_t5", "SpeechT5ForSpeechToText", _speech_to_text, _SPEECH, ["logits"]),
    _named("univnet", "UnivNetModel", _univnet, _NOISE, ["waveforms"]),
    _named("dac", "DacModel", _dac, _WAVES, ["audio_values", "projected_latents"]),
    _named("perceiver", "PerceiverForMaskedLM", _perceiver, _BYTES, ["logits"]),
    _named("depth", "DPTForDepthEstimation", _depth, _images((1, 64, 64), (2, 64, 64)), ["predicted_depth"]),
    _named("upernet", "UperNetForSemanticSegmentation", _upernet, _images((1, 64, 64), (2, 96, 64)), ["logits"]),
    _named("tapas", "TapasModel", _tapas, _TABLES, ["last_hidden_state"]),
    _named("seamless", "SeamlessM4Tv2ForSpeechToText", _seamless, _FEATURES, ["logits"]),
]
