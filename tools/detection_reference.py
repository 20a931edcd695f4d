"""Detection operations in numpy, from their specifications.

Attributes come as the IR writes them; those that are absent have their defaults. Boxes are x1, y1, x2, y2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

NMS_DEFAULTS = {
    "sort_result_type": "none",
    "output_type": "i64",
    "nms_top_k": -1,
    "keep_top_k": -1,
    "sort_result_across_batch": False,
    "iou_threshold": 0.0,
    "score_threshold": 0.0,
    "background_class": -1,
    "nms_eta": 1.0,
    "decay_function": "linear",
    "gaussian_sigma": 2.0,
    "post_threshold": 0.0,
    "normalized": True,
}

LARGEST_GROWTH = np.log(1000 / 16)


def overlap(a: np.ndarray, b: np.ndarray, extra: float) -> float:
    """Intersection over union; `extra` is what a width has beyond the difference of its coordinates."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    if (sides < 0).any():
        return 0.0
    inner = np.prod(sides + extra)
    return inner / (np.prod(a[2:] - a[:2] + extra) + np.prod(b[2:] - b[:2] + extra) - inner)


def suppress(order: Iterable[int], most: int, threshold: float, eta: float, shared: Callable) -> list[int]:
    """The boxes that are chosen from an order, best first, with a threshold that adapts."""
    chosen: list[int] = []
    for box in order:
        if len(chosen) < most and all(shared(box, other) <= threshold for other in chosen):
            chosen.append(box)
            threshold *= eta if eta < 1 and threshold > 0.5 else 1
    return chosen


def matrix_nms(attributes: dict[str, Any]) -> Callable:
    """MatrixNms-8."""
    a = {**NMS_DEFAULTS, **attributes}
    extra = 0.0 if a["normalized"] else 1.0

    def decayed(boxes: np.ndarray, scores: np.ndarray) -> list[tuple[int, float]]:
        order = _ranked(scores, scores > a["score_threshold"], a["nms_top_k"])
        shared = np.array([[overlap(boxes[i], boxes[j], extra) for j in order] for i in order])
        shared = shared.reshape(len(order), len(order))
        upper = np.triu(shared, 1)
        largest = upper.max(0, initial=0.0)[:, None]
        if a["decay_function"] == "gaussian":
            factors = np.exp((largest**2 - upper**2) * a["gaussian_sigma"])
        else:
            factors = (1 - upper) / (1 - largest + 1e-10)
        factors = np.where(np.triu(np.ones_like(upper), 1) > 0, factors, 1.0).min(0, initial=1.0)
        found = [(box, float(scores[box] * factor)) for box, factor in zip(order, factors)]
        return [(box, score) for box, score in found if score > a["post_threshold"]]

    def apply(boxes: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
        images = []
        for n in range(len(boxes)):
            found = [
                (c, score, n, box, n * boxes.shape[1] + box, boxes[n, box])
                for c in range(scores.shape[1])
                if c != a["background_class"]
                for box, score in decayed(boxes[n], scores[n, c])
            ]
            images.append(found)
        return _detections(images, a, boxes.dtype)

    return apply


def multiclass_nms(attributes: dict[str, Any]) -> Callable:
    """MulticlassNms-8 and -9."""
    a = {**NMS_DEFAULTS, **attributes}
    extra = 0.0 if a["normalized"] else 1.0

    def shared_area(p: np.ndarray, q: np.ndarray) -> float:
        # Boxes less than a pixel apart touch where coordinates count pixels.
        p, q = p.astype(np.float64), q.astype(np.float64)
        inner = np.prod(np.maximum(np.minimum(p[2:], q[2:]) - np.maximum(p[:2], q[:2]) + extra, 0))
        return inner / (np.prod(p[2:] - p[:2] + extra) + np.prod(q[2:] - q[:2] + extra) - inner)

    def chosen(boxes: np.ndarray, scores: np.ndarray) -> list[int]:
        order = _ranked(scores, scores >= a["score_threshold"], a["nms_top_k"])
        threshold, eta = a["iou_threshold"], a["nms_eta"]
        return suppress(order, len(scores), threshold, eta, lambda i, j: shared_area(boxes[i], boxes[j]))

    def apply(boxes: np.ndarray, scores: np.ndarray, numbers: np.ndarray | None = None) -> list[np.ndarray]:
        images, classes, first = [], scores.shape[-2], 0
        for n in range(len(boxes) if numbers is None else len(numbers)):
            found = []
            count = boxes.shape[1] if numbers is None else int(numbers[n])
            for c in (c for c in range(classes) if c != a["background_class"]):
                own = boxes[n] if numbers is None else boxes[c, first : first + count]
                rated = scores[n, c] if numbers is None else scores[c, first : first + count]
                for box in chosen(own, rated):
                    flat = first + box if numbers is None else (first + box) * classes + c
                    found.append((c, float(rated[box]), n, box, flat, own[box]))
            first += count
            images.append(found)
        return _detections(images, a, boxes.dtype)

    return apply


def proposals(attributes: dict[str, Any]) -> Callable:
    """GenerateProposals-9."""
    a = {"normalized": True, "nms_eta": 1.0, "roi_num_type": "i64", **attributes}
    extra = 0.0 if a["normalized"] else 1.0

    def apply(info: np.ndarray, anchors: np.ndarray, deltas: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
        rois, rated, counts = [], [], []
        for image, shifts, values in zip(info, deltas, scores):
            boxes, flat = _refined(image, anchors.reshape(-1, 4), shifts, values, extra)
            least = a["min_size"] * np.array([image[3] if len(image) > 3 else image[2], image[2]])
            order = np.argsort(-flat, kind="stable")[: a["pre_nms_count"]]
            order = [i for i in order if (boxes[i, 2:] - boxes[i, :2] + extra >= least).all()]
            found = suppress(
                order,
                a["post_nms_count"],
                a["nms_threshold"],
                a["nms_eta"],
                lambda i, j, boxes=boxes: overlap(boxes[i], boxes[j], extra),
            )
            rois += [boxes[i] for i in found]
            rated += [flat[i] for i in found]
            counts.append(len(found))
        dtype = np.dtype("int32" if a["roi_num_type"] == "i32" else "int64")
        return [
            np.array(rois).reshape(-1, 4).astype(info.dtype),
            np.array(rated).astype(info.dtype),
            np.array(counts, dtype),
        ]

    return apply


def single_image_proposals(a: dict[str, Any]) -> Callable:
    """ExperimentalDetectronGenerateProposalsSingleImage-6, pixels counted as OpenVINO counts them."""

    def apply(info: np.ndarray, anchors: np.ndarray, deltas: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
        boxes, flat = _refined(info, anchors, deltas, scores, 1.0)
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= a["min_size"]).all(-1)
        order = [i for i in np.argsort(-flat, kind="stable") if large[i]][: a["pre_nms_count"]]
        most, threshold = a["post_nms_count"], a["nms_threshold"]
        found = suppress(order, most, threshold, 1.0, lambda i, j: overlap(boxes[i], boxes[j], 0.0))
        rois, rated = np.zeros((most, 4)), np.zeros(most)
        rois[: len(found)], rated[: len(found)] = boxes[found], flat[found]
        return [rois.astype(info.dtype), rated.astype(info.dtype)]

    return apply


def _refined(info, anchors, deltas, scores, extra: float) -> tuple[np.ndarray, np.ndarray]:
    """Boxes `[H * W * anchors, 4]` cut to the image, and their scores."""
    anchors = anchors.astype(np.float64)
    count = scores.shape[0]
    shifts = deltas.astype(np.float64).reshape(count, 4, -1).transpose(2, 0, 1).reshape(-1, 4)
    sizes = anchors[:, 2:] - anchors[:, :2] + extra
    centers = shifts[:, :2] * sizes + anchors[:, :2] + sizes / 2
    halves = np.exp(np.minimum(shifts[:, 2:], LARGEST_GROWTH)) * sizes / 2
    boxes = np.concatenate([centers - halves, centers + halves - extra], -1)
    limits = np.tile([info[1] - extra, info[0] - extra], 2)
    return np.clip(boxes, 0, limits), scores.reshape(count, -1).T.reshape(-1)


def _ranked(scores: np.ndarray, able: np.ndarray, most: int) -> list[int]:
    order = [int(i) for i in np.argsort(-scores.astype(np.float64), kind="stable") if able[i]]
    return order if most < 0 else order[:most]


def _detections(images: list[list[tuple]], a: dict[str, Any], dtype: np.dtype) -> list[np.ndarray]:
    """The outputs that MatrixNms and MulticlassNms share, from (class, score, image, box, flat box, corners)."""
    kept = []
    for found in images:
        found = sorted(found, key=lambda d: (-d[1], d[0], d[3]))
        found = found if a["keep_top_k"] < 0 else found[: a["keep_top_k"]]
        by_class = a["sort_result_type"] == "classid" and not a["sort_result_across_batch"]
        kept.append(sorted(found, key=lambda d: d[0]) if by_class else found)
    rows = [d for found in kept for d in found]
    if a["sort_result_across_batch"] and a["sort_result_type"] == "score":
        rows.sort(key=lambda d: (-d[1], d[2], d[0], d[3]))
    if a["sort_result_across_batch"] and a["sort_result_type"] == "classid":
        rows.sort(key=lambda d: (d[0], d[2], -d[1], d[3]))
    index = np.dtype("int32" if a["output_type"] == "i32" else "int64")
    return [
        np.array([[d[0], d[1], *d[5]] for d in rows]).reshape(-1, 6).astype(dtype),
        np.array([[d[4]] for d in rows]).reshape(-1, 1).astype(index),
        np.array([len(found) for found in kept], index),
    ]
