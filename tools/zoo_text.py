"""Text encoders and the parts of diffusion models, with seeded weights."""

from __future__ import annotations

import zoo_inputs as inputs
import zoo_torch as torch_models
from zoo_model import made

VOCABULARY = 600


def encoder(source, seed: int, kind: str, head: str, **config):
    """A text encoder of transformers from its configuration."""
    import torch
    import transformers

    settings = getattr(transformers, f"{kind}Config")(**{**_SMALL, **config})
    model = torch_models.seed_weights(getattr(transformers, kind + head)(settings), seed)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    example = {"input_ids": torch.randint(3, VOCABULARY, (2, 11)), "attention_mask": torch.ones(2, 11).long()}
    return torch_models.convert(Encoder().eval(), example, None, ["output"])


def denoiser(source, seed: int):
    """The U-Net of latent diffusion: residual blocks, cross attention, time embedding."""
    import diffusers
    import torch

    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=48,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    torch_models.seed_weights(model, seed)
    example = {
        "sample": torch_models.noise(seed, 2, 4, 16, 16),
        "timestep": torch.tensor(500),
        "encoder_hidden_states": torch_models.noise(seed + 1, 2, 7, 48),
    }
    picked = torch_models.Picked(model, lambda found: found[0] if isinstance(found, tuple) else found.sample)
    return torch_models.convert(picked, tuple(example.values()), list(example), ["noise"])


def image_decoder(source, seed: int):
    """The decoder of a variational autoencoder: latents to an image."""
    import diffusers
    import torch

    model = diffusers.AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        norm_num_groups=8,
        sample_size=32,
    )
    torch_models.seed_weights(model, seed)

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, latent):
            return self.model.decode(latent).sample

    return torch_models.convert(Decoder().eval(), torch_models.noise(seed, 1, 4, 16, 16), ["latent"], ["image"])


def diffusion_transformer(source, seed: int):
    """A transformer denoiser with two streams, as Stable Diffusion 3 has."""
    import diffusers
    import torch

    model = diffusers.SD3Transformer2DModel(
        sample_size=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=48,
        caption_projection_dim=64,
        pooled_projection_dim=32,
        out_channels=16,
        pos_embed_max_size=16,
    )
    torch_models.seed_weights(model, seed)
    example = (
        torch_models.noise(seed, 2, 16, 16, 16),
        torch_models.noise(seed + 1, 2, 7, 48),
        torch_models.noise(seed + 2, 2, 32),
        torch.tensor([500.0, 100.0]),
    )
    names = ["hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"]
    picked = torch_models.Picked(model, lambda found: found[0] if isinstance(found, tuple) else found.sample)
    return torch_models.convert(picked, example, names, ["noise"])


def _encoder(name: str, kind: str, head: str = "Model", **options):
    return made(name, encoder, TOKENS, options={"kind": kind, "head": head, **options}, torch=True)


_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 192,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
TOKENS = inputs.drawn(
    {"input_ids": inputs.ids(VOCABULARY, 1, 19), "attention_mask": inputs.lengths_mask(19)},
    {"input_ids": inputs.ids(VOCABULARY, 3, 12), "attention_mask": inputs.lengths_mask(12, 7, 4)},
)
_LATENTS = inputs.drawn({"latent": inputs.normal(1, 4, 16, 16)}, {"latent": inputs.normal(2, 4, 12, 20)})
_STEP = inputs.np.array(981, inputs.np.int64)

MODELS = [
    _encoder("bert", "Bert", "ForSequenceClassification"),
    _encoder("distilbert", "DistilBert", dim=96, n_layers=3, n_heads=4, hidden_dim=192),
    _encoder("roberta", "Roberta", "ForTokenClassification"),
    _encoder("albert", "Albert", embedding_size=48),
    _encoder("mpnet", "MPNet"),
    _encoder("deberta_v2", "DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
    _encoder("modernbert", "ModernBert", "ForMaskedLM", local_attention=8, cls_token_id=1, sep_token_id=2),
    made(
        "diffusion_unet",
        denoiser,
        inputs.drawn(
            {
                "sample": inputs.normal(2, 4, 16, 16),
                "timestep": _STEP,
                "encoder_hidden_states": inputs.normal(2, 7, 48),
            },
            {
                "sample": inputs.normal(1, 4, 16, 24),
                "timestep": _STEP,
                "encoder_hidden_states": inputs.normal(1, 9, 48),
            },
        ),
        torch=True,
    ),
    made("vae_decoder", image_decoder, _LATENTS, torch=True),
    made(
        "diffusion_transformer",
        diffusion_transformer,
        inputs.drawn(
            *(
                {
                    "hidden_states": inputs.normal(n, 16, 16, 16),
                    "encoder_hidden_states": inputs.normal(n, 7, 48),
                    "pooled_projections": inputs.normal(n, 32),
                    "timestep": inputs.uniform(n, high=900),
                }
                for n in (2, 1)
            )
        ),
        torch=True,
    ),
]
