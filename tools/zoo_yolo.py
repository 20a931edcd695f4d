"""The structure of YOLOv8 in torch, small."""

from __future__ import annotations

import torch
import torchvision
from torch import nn

WIDTHS = (16, 32, 64, 96)
CLASSES = 8
BINS = 16
STRIDES = (8, 16, 32)


def _conv(a: int, b: int, size: int = 1, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class _Bottleneck(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = _conv(width, width, 3), _conv(width, width, 3)

    def forward(self, x):
        return x + self.second(self.first(x))


class _C2f(nn.Module):
    """Two halves; one goes through bottlenecks, and every stage is kept."""

    def __init__(self, a: int, b: int, count: int = 1):
        super().__init__()
        self.first = _conv(a, b)
        self.stages = nn.ModuleList(_Bottleneck(b // 2) for _ in range(count))
        self.last = _conv(b + b // 2 * count, b)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for stage in self.stages:
            parts.append(stage(parts[-1]))
        return self.last(torch.cat(parts, 1))


class _PoolingPyramid(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first, self.last = _conv(width, width // 2), _conv(width * 2, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """[batch, 3, height, width] to [batch, 4 + classes, anchors], or to the boxes,
    scores and labels that remain of the first image if `end_to_end`."""

    def __init__(self, end_to_end: bool):
        super().__init__()
        self.end_to_end = end_to_end
        a, b, c, d = WIDTHS
        self.stem = nn.Sequential(_conv(3, a, 3, 2), _conv(a, b, 3, 2), _C2f(b, b))
        self.third = nn.Sequential(_conv(b, b, 3, 2), _C2f(b, b, 2))
        self.fourth = nn.Sequential(_conv(b, c, 3, 2), _C2f(c, c, 2))
        self.fifth = nn.Sequential(_conv(c, d, 3, 2), _C2f(d, d), _PoolingPyramid(d))
        self.up4, self.up3 = _C2f(c + d, c), _C2f(b + c, b)
        self.down4, self.down5 = _conv(b, b, 3, 2), _conv(c, c, 3, 2)
        self.join4, self.join5 = _C2f(b + c, c), _C2f(c + d, d)
        widths = (b, c, d)
        self.boxes = nn.ModuleList(nn.Sequential(_conv(w, 32, 3), nn.Conv2d(32, 4 * BINS, 1)) for w in widths)
        self.classes = nn.ModuleList(nn.Sequential(_conv(w, 32, 3), nn.Conv2d(32, CLASSES, 1)) for w in widths)

    def forward(self, images):
        levels = self._pyramid(images)
        boxes, scores = self._decode(levels)
        if not self.end_to_end:
            return torch.cat([boxes, scores], 1)
        return self._select(boxes[0].T, scores[0].T)

    def _pyramid(self, images):
        third = self.third(self.stem(images))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        grow = nn.functional.interpolate
        fourth = self.up4(torch.cat([grow(fifth, scale_factor=2.0), fourth], 1))
        third = self.up3(torch.cat([grow(fourth, scale_factor=2.0), third], 1))
        fourth = self.join4(torch.cat([self.down4(third), fourth], 1))
        return third, fourth, self.join5(torch.cat([self.down5(fourth), fifth], 1))

    def _decode(self, levels):
        """Distances as the expectation over bins, from the centre of each cell."""
        boxes, scores = [], []
        bins = torch.arange(BINS, dtype=torch.float32)
        for level, box, kind, stride in zip(levels, self.boxes, self.classes, STRIDES):
            batch, _, height, width = level.shape
            raw = box(level).view(batch, 4, BINS, height * width).softmax(2)
            left, top, right, bottom = (raw * bins.view(1, 1, -1, 1)).sum(2).chunk(4, 1)
            y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            x, y = x.reshape(1, 1, -1), y.reshape(1, 1, -1)
            centre = [(x + (right - left) / 2), (y + (bottom - top) / 2)]
            boxes.append(torch.cat([*centre, left + right, top + bottom], 1) * stride)
            scores.append(kind(level).flatten(2).sigmoid())
        return torch.cat(boxes, 2), torch.cat(scores, 2)

    def _select(self, boxes, scores):
        best, labels = scores.max(1)
        keep = best > 0.6
        boxes, best, labels = boxes[keep], best[keep], labels[keep]
        centre, size = boxes[:, :2], boxes[:, 2:]
        corners = torch.cat([centre - size / 2, centre + size / 2], 1)
        chosen = torchvision.ops.batched_nms(corners, best, labels, 0.5)[:100]
        return corners[chosen], best[chosen], labels[chosen]
