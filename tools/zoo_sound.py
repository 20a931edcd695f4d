"""Speech recognisers, synthesisers, vocoders and codecs, with seeded weights."""

from __future__ import annotations

import zoo_inputs as inputs
import zoo_torch as torch_models
from zoo_model import made

VOCABULARY = 40


def recogniser(source, seed: int, kind: str):
    """wav2vec 2.0 and its kin: convolutions over the samples, a transformer, letters."""
    import transformers

    sizes = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
    sizes |= {"conv_dim": (48,) * 7, "num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 4}
    settings = getattr(transformers, f"{kind}Config")(**sizes, vocab_size=VOCABULARY)
    model = torch_models.seed_weights(getattr(transformers, f"{kind}ForCTC")(settings), seed)
    model = torch_models.Picked(model, lambda found: found.logits)
    return torch_models.convert(model, torch_models.noise(seed, 1, 8000), ["input_values"], ["logits"])


def vits(source, seed: int):
    """Text to waveform. Predicted durations decide how long it is; the noise of the
    original is taken away, so that it says the same each time."""
    import torch
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64, "flow_size": 32}
    sizes |= {"spectrogram_bins": 65, "prior_encoder_num_flows": 2, "upsample_initial_channel": 32}
    sizes |= {"upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8], "posterior_encoder_num_wavenet_layers": 2}
    sizes |= {"noise_scale": 0.0, "noise_scale_duration": 0.0, "use_stochastic_duration_prediction": False}
    settings = transformers.VitsConfig(vocab_size=VOCABULARY, **sizes)
    model = torch_models.seed_weights(transformers.VitsModel(settings), seed)
    example = {"input_ids": torch.randint(1, VOCABULARY, (1, 12)), "attention_mask": torch.ones(1, 12).long()}

    class Vits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).waveform

    return torch_models.convert(Vits().eval(), example, None, ["waveform"])


def vocoder(source, seed: int):
    """HiFi-GAN: transposed convolutions and dilated residual blocks."""
    import transformers

    sizes = {"model_in_dim": 40, "upsample_initial_channel": 64, "upsample_rates": [4, 4, 2]}
    settings = transformers.SpeechT5HifiGanConfig(**sizes, upsample_kernel_sizes=[8, 8, 4])
    model = torch_models.seed_weights(transformers.SpeechT5HifiGan(settings), seed)
    return torch_models.convert(model, torch_models.noise(seed, 2, 30, 40), ["spectrogram"], ["waveform"])


def codec(source, seed: int):
    """EnCodec: samples to codes of a residual quantiser, and back."""
    import torch
    import transformers

    sizes = {"num_filters": 8, "hidden_size": 32, "codebook_dim": 32, "codebook_size": 64, "num_lstm_layers": 2}
    settings = transformers.EncodecConfig(**sizes, upsampling_ratios=[4, 4, 2], target_bandwidths=[6.0])
    model = torch_models.seed_weights(transformers.EncodecModel(settings), seed)
    for index, layer in enumerate(model.quantizer.layers):
        layer.codebook.embed.copy_(torch_models.noise(seed + index, 64, 32) * 0.3)

    class Codec(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, samples):
            embedded = self.model.encoder(samples)
            codes = self.model.quantizer.encode(embedded, 6.0)
            return embedded, self.model.decoder(self.model.quantizer.decode(codes))

    return torch_models.convert(
        Codec().eval(), torch_models.noise(seed, 1, 1, 3200), ["samples"], ["embedded", "restored"]
    )


def recurrent(source, seed: int, kind: str):
    """Two bidirectional layers of torch's LSTM, GRU or RNN over padded sequences of given lengths."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(torch.nn, kind)(24, 32, 2, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(64, 7)

        def forward(self, x, lengths):
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            packed, state = self.cells(packed)
            y, _ = pad_packed_sequence(packed, batch_first=True)
            return self.head(y), state[0] if isinstance(state, tuple) else state

    model = torch_models.seed_weights(Recurrent(), seed)
    example = (torch_models.noise(seed, 3, 9, 24), torch.tensor([9, 7, 4]))
    axes = {"x": {0: "batch", 1: "length"}, "lengths": {0: "batch"}}
    return torch_models.convert_through_onnx(model, example, ["x", "lengths"], ["y", "state"], axes)


def _sequences(packages):
    """Lengths are the whole time: OpenVINO reads beyond shorter ones."""
    np = inputs.np
    generator = np.random.default_rng(3)
    return [
        {"x": generator.normal(size=(len(n), max(n), 24)).astype(np.float32), "lengths": np.array(n, np.int64)}
        for n in ([12, 12, 12], [6, 6])
    ]


_SPEECH = ("pocketsphinx",)
_TEXT = inputs.drawn(
    {"input_ids": inputs.ids(VOCABULARY, 1, 14), "attention_mask": inputs.lengths_mask(14)},
    {"input_ids": inputs.ids(VOCABULARY, 1, 23), "attention_mask": inputs.lengths_mask(23)},
)
_PIECES = inputs.speech_pieces("input_values", (8000, 24000), (12000, 19000))
_SAMPLES = inputs.speech_pieces("samples", (8000, 14400), (12000, 15200), rank=3)
_SPECTROGRAM = inputs.drawn(*({"spectrogram": inputs.normal(n, t, 40)} for n, t in ((1, 50), (2, 31))))

MODELS = [
    made("wav2vec2", recogniser, _PIECES, options={"kind": "Wav2Vec2"}, samples=_SPEECH, torch=True),
    made("hubert", recogniser, _PIECES, options={"kind": "Hubert"}, samples=_SPEECH, torch=True),
    made("vits", vits, _TEXT, torch=True),
    made("hifigan", vocoder, _SPECTROGRAM, torch=True),
    made("encodec", codec, _SAMPLES, samples=_SPEECH, torch=True),
    *(
        made(f"torch_{k.lower()}", recurrent, _sequences, options={"kind": k}, torch=True)
        for k in ("LSTM", "GRU", "RNN")
    ),
]
