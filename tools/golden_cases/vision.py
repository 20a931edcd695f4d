"""Boxes, regions, sampling, colours, random numbers, decoding of sequences. Mostly
without numpy references: CPU plugin and `Model.evaluate` vouch together, or the
one that has the operation does."""

from __future__ import annotations

import itertools

import numpy as np

import detection_reference
from golden_pack import Pack, pack

F32, F16, I32, I64, U8 = np.float32, np.float16, np.int32, np.int64, np.uint8
LOOSE = {"rtol": 1e-3, "atol": 1e-4}


def scalar(value, dtype=I64):
    return np.array(value, dtype)


def boxes(p: Pack, *lead: int, size: float = 1.0) -> np.ndarray:
    """Corner boxes [..., 4] inside a square: x1 < x2, y1 < y2."""
    low = p.random.uniform(0, 0.6, (*lead, 2))
    extent = p.random.uniform(0.1, 0.4, (*lead, 2))
    return (np.concatenate([low, low + extent], -1) * size).astype(F32)


def overlap(a: np.ndarray, b: np.ndarray, center: bool) -> float:
    """Intersection over union; corners are of any diagonal."""
    if center:
        a, b = (np.concatenate([v[:2] - v[2:] / 2, v[:2] + v[2:] / 2]) for v in (a, b))
    a, b = (np.concatenate([np.minimum(v[:2], v[2:]), np.maximum(v[:2], v[2:])]) for v in (a, b))
    sides = np.maximum(0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]))
    areas = [np.prod(v[2:] - v[:2]) for v in (a, b)]
    inner = np.prod(sides)
    return inner / (sum(areas) - inner)


def select_boxes(coordinates, scores, most, threshold, floor, center, sigma):
    """(score, box) of one batch entry and class, in the order they are chosen."""
    left = {i: float(v) for i, v in enumerate(scores)}
    chosen = []
    while left and len(chosen) < most:
        best = max(left, key=lambda i: (left[i], -i))
        score = left.pop(best)
        if score <= floor:
            break
        chosen.append((score, best))
        for i in list(left):
            shared = overlap(coordinates[best], coordinates[i], center)
            if shared > threshold:
                del left[i]
            elif sigma:
                left[i] *= np.exp(-0.5 * shared * shared / sigma)
    return chosen


def suppress(version: str, encoding: str, descending: bool, kind: str):
    """NonMaxSuppression; versions up to 4 fill their declared shape with -1."""

    def apply(coordinates, scores, most, threshold, floor, sigma=0.0):
        rows = []
        for b, c in np.ndindex(*scores.shape[:2]):
            for score, box in select_boxes(
                coordinates[b].astype(np.float64),
                scores[b, c],
                int(most),
                float(threshold),
                float(floor),
                encoding == "center",
                float(sigma),
            ):
                rows.append((score, b, c, box))
        if descending:
            rows.sort(key=lambda row: (-row[0], row[1:]))
        dtype = I64 if kind == "i64" else I32
        indices = np.array([row[1:] for row in rows], dtype).reshape(-1, 3)
        if version in ("opset5", "opset9"):
            triples = np.array([(row[1], row[2], row[0]) for row in rows], F32).reshape(-1, 3)
            return [indices, triples, np.array([len(rows)], dtype)]
        declared = min(coordinates.shape[1], int(most)) * scores.shape[0] * scores.shape[1]
        return np.concatenate([indices, np.full((declared - len(rows), 3), -1, dtype)])

    return apply


@pack(
    "NonMaxSuppression-opset1",
    "NonMaxSuppression-opset3",
    "NonMaxSuppression-opset4",
    "NonMaxSuppression-opset5",
    "NonMaxSuppression-opset9",
)
def non_max_suppression(p: Pack) -> None:
    """Versions 1 and 3 with one batch entry and class only: their declared
    output is too short for the boxes of more."""
    late = p.version in ("opset5", "opset9")
    for encoding, descending, kind in itertools.product(("corner", "center"), (True, False), ("i64", "i32")):
        if p.version == "opset1" and kind == "i32":
            continue
        attributes = {"box_encoding": encoding, "sort_result_descending": descending}
        if p.version != "opset1":
            attributes["output_type"] = kind
        reference = suppress(p.version, encoding, descending, kind)
        for batches, classes, count in ((1, 1, 8), (2, 3, 6)):
            if p.version in ("opset1", "opset3") and batches > 1:
                continue
            coordinates = boxes(p, batches, count)
            if encoding == "center":
                coordinates = np.concatenate(
                    [(coordinates[..., :2] + coordinates[..., 2:]) / 2, coordinates[..., 2:] - coordinates[..., :2]], -1
                )
            scores = (p.distinct(batches, classes, count) % 97 / 97 + 0.01).astype(F32)
            inputs = [coordinates, scores, scalar(4), scalar(0.4, F32), scalar(0.05, F32)]
            name = f"{encoding}_{'sorted' if descending else 'unsorted'}_{kind}_{batches}_{classes}"
            p.case(name, inputs, attributes, constant=(2, 3, 4), reference=reference, example=p.version == "opset4")
            if late and encoding == "corner" and descending:
                p.case(
                    f"{name}_soft", [*inputs, scalar(0.5, F32)], attributes, constant=(2, 3, 4, 5), reference=reference
                )
    if late:
        overlapping = np.array(
            [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]],
            F32,
        )
        scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], F32)
        expected = [
            np.array([[0, 0, 3], [0, 0, 0], [0, 0, 5]], I64),
            np.array([[0, 0, 0.95], [0, 0, 0.9], [0, 0, 0.3]], F32),
            np.array([3], I64),
        ]
        p.case(
            "known",
            [overlapping, scores, scalar(3), scalar(0.5, F32), scalar(0.0, F32)],
            {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"},
            constant=(2, 3, 4),
            reference=expected,
            note="six boxes in three heaps",
        )


@pack("MatrixNms-opset8")
def matrix_nms(p: Pack) -> None:
    """The plugin does not sort by class unless across batches, and fails where nothing is selected."""
    base = {
        "sort_result_type": "score",
        "output_type": "i64",
        "nms_top_k": 5,
        "keep_top_k": -1,
        "sort_result_across_batch": False,
        "score_threshold": 0.1,
        "background_class": -1,
        "decay_function": "linear",
        "gaussian_sigma": 2.0,
        "post_threshold": 0.05,
        "normalized": True,
    }

    def case(name: str, batches: int, classes: int, size: float = 1.0, **changes) -> None:
        attributes = {**base, **changes}
        inputs = [boxes(p, batches, 6, size=size), p.random.uniform(0.0, 1, (batches, classes, 6)).astype(F32)]
        reference = detection_reference.matrix_nms(attributes)
        p.case(name, inputs, attributes, reference=reference, example=True)

    for sort, decay in itertools.product(("score", "classid", "none"), ("linear", "gaussian")):
        case(f"{sort}_{decay}", 1, 2, sort_result_type=sort, decay_function=decay)
    case("background", 2, 3, background_class=0)
    for sort in ("score", "classid"):
        case(f"across_{sort}", 2, 3, sort_result_type=sort, sort_result_across_batch=True)
    case("classid_by_batch", 2, 3, sort_result_type="classid")
    case("keep_top", 2, 3, keep_top_k=2, output_type="i32")
    case("pixels", 1, 2, size=16.0, normalized=False)
    case("all_boxes", 1, 1, nms_top_k=-1, gaussian_sigma=0.5, decay_function="gaussian")
    case("nothing", 2, 2, score_threshold=2.0)


@pack("MulticlassNms-opset8", "MulticlassNms-opset9")
def multiclass_nms(p: Pack) -> None:
    """The plugin suppresses also at the threshold; what it computes where nothing is asked for is left over memory."""
    base = {
        "sort_result_type": "score",
        "output_type": "i64",
        "nms_top_k": 4,
        "keep_top_k": -1,
        "sort_result_across_batch": False,
        "iou_threshold": 0.4,
        "score_threshold": 0.1,
        "background_class": -1,
        "nms_eta": 1.0,
        "normalized": True,
    }

    def case(name: str, inputs: list, is_varied: bool = False, **changes) -> None:
        attributes = {**base, **changes}
        reference = detection_reference.multiclass_nms(attributes)
        p.case(name, inputs, attributes, reference=reference, example=True, is_varied=is_varied)

    def drawn(batches: int, classes: int, count: int = 6, size: float = 1.0) -> list[np.ndarray]:
        scores = p.random.uniform(0.0, 1, (batches, classes, count)).astype(F32)
        return [boxes(p, batches, count, size=size), scores]

    for sort in ("score", "classid", "none"):
        case(sort, drawn(1, 2), sort_result_type=sort)
    case("background", drawn(2, 3, 5), background_class=0)
    case("across_batch", drawn(2, 2, 5), sort_result_across_batch=True)
    case("across_batch_by_class", drawn(2, 2, 5), sort_result_across_batch=True, sort_result_type="classid")
    case("keep_top", drawn(1, 3), keep_top_k=3, output_type="i32")
    case("adaptive", drawn(1, 2, 12), iou_threshold=0.9, nms_eta=0.7, nms_top_k=-1)
    case("pixels", drawn(1, 2, size=16.0), normalized=False)
    halves = np.array([[[0, 0, 2, 1], [1, 0, 2, 1], [3, 0, 4, 1]]], F32)
    apart = [halves, np.array([[[0.9, 0.8, 0.7]]], F32)]
    case("at_the_threshold", apart, is_varied=True, iou_threshold=0.5)
    case("apart", apart, is_varied=True, iou_threshold=0.0)
    reference = detection_reference.multiclass_nms({})
    p.case("defaults", apart, {}, reference=reference, example=True, is_varied=True, strip=tuple(base))
    case("nothing", drawn(2, 2), score_threshold=2.0)
    if p.version == "opset9":
        for kind in (I32, I64):
            own = [boxes(p, 3, 7), p.random.uniform(0.0, 1, (3, 7)).astype(F32), np.array([4, 0, 3], kind)]
            case(f"own_boxes_{np.dtype(kind).name}", own)
        own = [boxes(p, 2, 7), p.random.uniform(0.0, 1, (2, 7)).astype(F32), np.array([2, 5], I64)]
        case("own_boxes_by_class", own, sort_result_type="classid", sort_result_across_batch=True, background_class=1)


@pack("NMSRotated-opset13")
def nms_rotated(p: Pack) -> None:
    def case(name: str, batches=1, classes=1, count=6, most=5, overlap=0.3, score=0.0, angle=None, **changes) -> None:
        centres = p.random.uniform(0, 4, (batches, count, 2))
        extents, turns = p.random.uniform(1, 3, (batches, count, 2)), p.random.uniform(-3, 3, (batches, count, 1))
        turns = turns if angle is None else np.full_like(turns, angle)
        rotated = np.concatenate([centres, extents, turns], -1).astype(F32)
        scores = (p.distinct(batches, classes, count) / (batches * classes * count) + 0.5).astype(F32)
        inputs = [rotated, scores, scalar(most), scalar(overlap, F32), scalar(score, F32)]
        attributes = {"sort_result_descending": True, "output_type": "i64", "clockwise": True, **changes}
        p.case(name, inputs, attributes, constant=(2, 3, 4))

    for clockwise, descending in itertools.product((True, False), repeat=2):
        name = f"clockwise_{clockwise}_{'sorted' if descending else 'unsorted'}"
        case(name, clockwise=clockwise, sort_result_descending=descending)
        case(f"batches_{name}", 2, 3, 5, clockwise=clockwise, sort_result_descending=descending)
    case("most", count=8, most=2, overlap=0.9, output_type="i32")
    case("threshold", classes=2, score=0.6)
    case("upright", angle=0.0)
    case("turned", angle=np.pi / 2)
    case("small_overlap", count=10, most=10, overlap=0.01)
    case("many_turns", angle=29.0)


@pack("PriorBox-opset1", "PriorBox-opset8")
def prior_box(p: Pack) -> None:
    base = {
        "min_size": [10.0],
        "max_size": [20.0],
        "aspect_ratio": [2.0],
        "density": [],
        "fixed_ratio": [],
        "fixed_size": [],
        "clip": False,
        "flip": True,
        "step": 0.0,
        "offset": 0.5,
        "variance": [0.1, 0.1, 0.2, 0.2],
        "scale_all_sizes": True,
    }
    if p.version == "opset8":
        base["min_max_aspect_ratios_order"] = True
    changes = {
        "plain": {},
        "clip": {"clip": True},
        "no_flip": {"flip": False},
        "step": {"step": 16.0},
        "one_variance": {"variance": [0.1]},
        "more_ratios": {"aspect_ratio": [2.0, 3.0]},
        "fixed": {
            "min_size": [],
            "max_size": [],
            "fixed_size": [8.0, 16.0],
            "fixed_ratio": [0.5, 2.0],
            "density": [1.0, 2.0],
            "aspect_ratio": [],
        },
        "no_scale_all": {"scale_all_sizes": False, "max_size": []},
    }
    if p.version == "opset8":
        changes["other_order"] = {"min_max_aspect_ratios_order": False}
    for name, change in changes.items():
        p.case(
            name, [np.array([2, 3], I64), np.array([32, 48], I64)], {**base, **change}, constant=(0, 1), tolerance=LOOSE
        )


@pack("PriorBoxClustered-opset1")
def prior_box_clustered(p: Pack) -> None:
    base = {
        "step": 0.0,
        "step_w": 0.0,
        "step_h": 0.0,
        "width": [8.0, 12.0],
        "height": [10.0, 6.0],
        "clip": True,
        "offset": 0.5,
        "variance": [0.1, 0.1, 0.2, 0.2],
    }
    for name, change in {
        "plain": {},
        "no_clip": {"clip": False},
        "steps": {"step_w": 16.0, "step_h": 8.0},
        "offset": {"offset": 0.0},
    }.items():
        p.case(
            name, [np.array([2, 3], I64), np.array([32, 48], I64)], {**base, **change}, constant=(0, 1), tolerance=LOOSE
        )


@pack("DetectionOutput-opset1", "DetectionOutput-opset8")
def detection_output(p: Pack) -> None:
    base = {
        "background_label_id": 0,
        "top_k": 4,
        "variance_encoded_in_target": False,
        "keep_top_k": [4],
        "code_type": "caffe.PriorBoxParameter.CORNER",
        "share_location": True,
        "nms_threshold": 0.45,
        "confidence_threshold": 0.2,
        "clip_after_nms": False,
        "clip_before_nms": True,
        "decrease_label_id": False,
        "normalized": True,
        "input_height": 1,
        "input_width": 1,
        "objectness_score": 0.0,
    }
    if p.version == "opset1":
        base["num_classes"] = 3
    priors, classes = 5, 3
    for name, change in {
        "corner": {},
        "center": {"code_type": "caffe.PriorBoxParameter.CENTER_SIZE"},
        "encoded": {"variance_encoded_in_target": True},
        "clip_after": {"clip_after_nms": True},
        "separate": {"share_location": False},
        "no_background": {"background_label_id": -1},
    }.items():
        attributes = {**base, **change}
        location = 1 if attributes["share_location"] else classes
        confidence = p.random.uniform(0, 1, (1, priors, classes))
        confidence = (confidence / confidence.sum(-1, keepdims=True)).reshape(1, -1).astype(F32)
        prior = boxes(p, priors).reshape(1, 1, -1)
        variances = np.full_like(prior, 0.1)
        proposals = prior if attributes["variance_encoded_in_target"] else np.concatenate([prior, variances], 1)
        p.case(
            name, [p.normal(1, priors * location * 4, scale=0.3), confidence, proposals], attributes, tolerance=LOOSE
        )


@pack("ROIPooling-opset2")
def roi_pooling(p: Pack) -> None:
    rois = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 6, 5], [0, 2, 0, 7, 7]], F32)
    for method in ("max", "bilinear"):
        scaled = rois.copy()
        if method == "bilinear":
            scaled[:, 1:] /= 8
        p.case(
            method,
            [p.normal(2, 2, 8, 8), scaled],
            {
                "pooled_h": 2,
                "pooled_w": 3,
                "output_size": [2, 3],
                "output_roi": [2, 3],
                "spatial_scale": 1.0,
                "method": method,
            },
        )


@pack("PSROIPooling-opset1")
def psroi_pooling(p: Pack) -> None:
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 6, 5]], F32)
    p.case(
        "average",
        [p.normal(1, 8, 8, 8), rois],
        {
            "output_dim": 2,
            "group_size": 2,
            "spatial_scale": 1.0,
            "mode": "average",
            "spatial_bins_x": 1,
            "spatial_bins_y": 1,
        },
    )
    p.case(
        "bilinear",
        [p.normal(1, 8, 8, 8), rois / np.array([1, 8, 8, 8, 8], F32)],
        {
            "output_dim": 2,
            "group_size": 2,
            "spatial_scale": 1.0,
            "mode": "bilinear",
            "spatial_bins_x": 2,
            "spatial_bins_y": 2,
        },
    )


@pack("DeformablePSROIPooling-opset1")
def deformable_psroi(p: Pack) -> None:
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 6, 5]], F32)
    attributes = {
        "output_dim": 2,
        "group_size": 2,
        "spatial_scale": 1.0,
        "mode": "bilinear_deformable",
        "spatial_bins_x": 2,
        "spatial_bins_y": 2,
        "trans_std": 0.1,
        "part_size": 2,
    }
    p.case("offsets", [p.normal(1, 8, 8, 8), rois, p.normal(2, 2, 2, 2)], attributes)
    p.case("no_offsets", [p.normal(1, 8, 8, 8), rois], {**attributes, "trans_std": 0.0})
    outside = np.array([[1, -3, -3, 2, 2], [0, 6, 6, 12, 9], [1, 4, 4, 4, 4], [0, 1.5, 2.5, 5.5, 3.5]], F32)
    p.case("outside", [p.normal(2, 8, 8, 6), outside, p.normal(4, 2, 2, 2)], attributes)
    p.case("classes", [p.normal(2, 8, 5, 6), outside, p.normal(4, 4, 2, 2)], {**attributes, "spatial_bins_x": 3})
    parts = {**attributes, "output_dim": 1, "group_size": 3, "part_size": 2, "spatial_bins_y": 1}
    p.case("parts", [p.normal(1, 9, 6, 6), rois, p.normal(2, 2, 2, 2)], parts)
    p.case("scaled", [p.normal(1, 8, 4, 4), rois, p.normal(2, 2, 2, 2)], {**attributes, "spatial_scale": 0.5})
    whole = {**parts, "group_size": 1, "part_size": 1}
    p.case("whole", [p.normal(1, 1, 6, 6), rois, p.normal(2, 2, 1, 1)], whole)


@pack("ROIAlign-opset3", "ROIAlign-opset9", "ROIAlignRotated-opset15")
def roi_align(p: Pack) -> None:
    rois = np.array([[0, 0, 4, 4], [1.5, 2, 6.3, 5], [2, 2, 3, 3]], F32)
    batch = np.array([0, 1, 0], I32)
    base = {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": 2, "spatial_scale": 1.0}
    if p.kind == "ROIAlignRotated":
        rotated = np.array([[3, 3, 4, 2, 0.3], [4, 4, 3, 5, -1.2]], F32)
        further = np.array([[0, 0, 6, 6, 2.5], [7, 7, 1, 9, 7.0], [3, 3, 0, 2, 0.1], [-9, 4, 3, 3, 1.0]], F32)
        for clockwise in (True, False):
            for ratio in (0, 2):
                attributes = {**base, "sampling_ratio": ratio, "clockwise_mode": clockwise}
                inputs = [p.normal(2, 2, 8, 8), rotated, batch[:2]]
                p.case(f"clockwise_{clockwise}_{ratio}", inputs, attributes, tolerance=LOOSE)
                inputs = [p.normal(2, 1, 6, 7), further, np.array([1, 0, 1, 0], I64)]
                p.case(f"outside_{clockwise}_{ratio}", inputs, attributes, tolerance=LOOSE)
        for scale in (0.5, 2.0):
            attributes = {**base, "spatial_scale": scale, "clockwise_mode": True}
            p.case(f"scale_{scale}", [p.normal(2, 2, 5, 5), rotated, batch[:2]], attributes, tolerance=LOOSE)
        return
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            for scale in (1.0, 0.5):
                attributes = {**base, "mode": mode, "sampling_ratio": ratio, "spatial_scale": scale}
                for aligned in ("asymmetric", "half_pixel", "half_pixel_for_nn") if p.version == "opset9" else (None,):
                    extra = {"aligned_mode": aligned} if aligned else {}
                    p.case(
                        f"{mode}_{ratio}_{scale}_{aligned or 'plain'}",
                        [p.normal(2, 2, 8, 8), rois, batch],
                        {**attributes, **extra},
                        tolerance=LOOSE,
                    )


@pack("GridSample-opset9")
def grid_sample(p: Pack) -> None:
    """torch's grid_sample in f64."""

    def reference(align, mode, padding):
        def place(grid, size):
            return (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2

        def reflect(x, size):
            low, span = (0, size - 1) if align else (-0.5, size)
            if span == 0:
                return np.zeros_like(x)
            x = np.abs(x - low) % (2 * span)
            return np.where(x > span, 2 * span - x, x) + low

        def fold(x, size):
            if padding == "border":
                return np.clip(x, 0, size - 1)
            if padding == "reflection":
                return np.clip(reflect(x, size), 0, size - 1)
            return x

        def pick(image, y, x):
            h, w = image.shape[1:]
            y, x = np.rint(fold(y, h)), np.rint(fold(x, w))
            inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
            value = image[:, np.clip(y, 0, h - 1).astype(int), np.clip(x, 0, w - 1).astype(int)]
            return np.where(inside, value, 0)

        def weights(t):
            a = -0.75
            outer = lambda s: ((a * s - 5 * a) * s + 8 * a) * s - 4 * a  # noqa: E731
            inner = lambda s: ((a + 2) * s - (a + 3)) * s * s + 1  # noqa: E731
            return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]

        def apply(data, grid):
            result = []
            for image, points in zip(data.astype(np.float64), grid.astype(np.float64)):
                x, y = place(points[..., 0], image.shape[2]), place(points[..., 1], image.shape[1])
                if mode != "bicubic":
                    y, x = fold(y, image.shape[1]), fold(x, image.shape[2])
                if mode == "nearest":
                    result.append(pick(image, y, x))
                    continue
                y0, x0 = np.floor(y), np.floor(x)
                if mode == "bilinear":
                    wy, wx = [1 - (y - y0), y - y0], [1 - (x - x0), x - x0]
                    rows, columns = [y0, y0 + 1], [x0, x0 + 1]
                else:
                    wy, wx = weights(y - y0), weights(x - x0)
                    rows, columns = [y0 + k for k in (-1, 0, 1, 2)], [x0 + k for k in (-1, 0, 1, 2)]
                result.append(sum(a * b * pick(image, r, c) for a, r in zip(wy, rows) for b, c in zip(wx, columns)))
            return np.stack(result).astype(data.dtype)

        return apply

    for align, mode, padding in itertools.product(
        (True, False), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    ):
        grid = p.random.uniform(-1.4, 1.4, (2, 3, 4, 2)).astype(F32)
        p.case(
            f"{mode}_{padding}_{'corners' if align else 'pixels'}",
            [p.normal(2, 2, 4, 5), grid],
            {"align_corners": align, "mode": mode, "padding_mode": padding},
            reference=reference(align, mode, padding),
            tolerance=LOOSE,
        )
    p.case(
        "dynamic",
        [p.normal(1, 2, 4, 5), p.random.uniform(-1, 1, (1, 2, 2, 2)).astype(F32)],
        {"align_corners": False, "mode": "bilinear", "padding_mode": "zeros"},
        shapes={0: [-1, 2, -1, -1], 1: [-1, -1, -1, 2]},
        reference=reference(False, "bilinear", "zeros"),
        tolerance=LOOSE,
    )


@pack("Interpolate-opset1")
def interpolate_old(p: Pack) -> None:
    for mode in ("nearest", "linear", "cubic", "area"):
        for align in (True, False):
            p.case(
                f"{mode}_{'corners' if align else 'plain'}_up",
                [p.normal(1, 2, 3, 4), np.array([6, 8], I64)],
                {
                    "axes": [2, 3],
                    "mode": mode,
                    "align_corners": align,
                    "antialias": False,
                    "pads_begin": [0],
                    "pads_end": [0],
                },
                constant=(1,),
                tolerance=LOOSE,
            )
            p.case(
                f"{mode}_{'corners' if align else 'plain'}_down",
                [p.normal(1, 2, 6, 8), np.array([3, 4], I64)],
                {
                    "axes": [2, 3],
                    "mode": mode,
                    "align_corners": align,
                    "antialias": False,
                    "pads_begin": [0],
                    "pads_end": [0],
                },
                constant=(1,),
                tolerance=LOOSE,
            )


@pack("RegionYolo-opset1")
def region_yolo(p: Pack) -> None:
    base = {
        "anchors": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "axis": 1,
        "coords": 4,
        "classes": 2,
        "end_axis": 3,
        "num": 3,
        "do_softmax": True,
        "mask": [0, 1, 2],
    }
    p.case("softmax", [p.normal(1, 21, 3, 3)], base)
    p.case("no_softmax", [p.normal(1, 21, 3, 3)], {**base, "do_softmax": False})
    p.case("masked", [p.normal(2, 14, 2, 3)], {**base, "do_softmax": False, "mask": [0, 2], "num": 3})


@pack("ReorgYolo-opset2")
def reorg_yolo(p: Pack) -> None:
    p.case("stride2", [p.normal(1, 4, 4, 6)], {"stride": [2]})
    p.case("batch", [p.normal(2, 8, 4, 4)], {"stride": [2]})


@pack("DeformableConvolution-opset1", "DeformableConvolution-opset8")
def deformable(p: Pack) -> None:
    base = {
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads_begin": [0, 0],
        "pads_end": [0, 0],
        "auto_pad": "explicit",
        "group": 1,
        "deformable_group": 1,
    }
    new = p.version == "opset8"
    for name, change, channels, out in (
        ("plain", {}, 2, 5),
        ("pads", {"pads_begin": [1, 1], "pads_end": [1, 1]}, 2, 7),
        ("deformable_groups", {"deformable_group": 2}, 4, 5),
        ("groups", {"group": 2}, 4, 5),
        ("strides", {"strides": [2, 2]}, 2, 3),
    ):
        attributes = {**base, **change}
        groups = attributes["deformable_group"]
        inputs = [
            p.normal(1, channels, 7, 7),
            p.normal(1, 18 * groups, out, out, scale=0.7),
            p.normal(4, channels // attributes["group"], 3, 3),
        ]
        for pad in (True, False) if new else (None,):
            extra = {"bilinear_interpolation_pad": pad} if new else {}
            p.case(f"{name}_{pad}" if new else name, inputs, {**attributes, **extra}, tolerance=LOOSE)
        if new:
            mask = p.random.uniform(0, 1, (1, 9 * groups, out, out)).astype(F32)
            p.case(
                f"{name}_mask", [*inputs, mask], {**attributes, "bilinear_interpolation_pad": False}, tolerance=LOOSE
            )


@pack("Proposal-opset1", "Proposal-opset4")
def proposal(p: Pack) -> None:
    base = {
        "base_size": 16,
        "pre_nms_topn": 20,
        "post_nms_topn": 6,
        "nms_thresh": 0.6,
        "feat_stride": 16,
        "min_size": 4,
        "ratio": [0.5, 1.0],
        "scale": [1.0, 2.0],
        "clip_before_nms": True,
        "clip_after_nms": False,
        "normalize": False,
        "box_size_scale": 1.0,
        "box_coordinate_scale": 1.0,
        "framework": "",
    }
    for name, change in {
        "caffe": {},
        "tensorflow": {"framework": "tensorflow"},
        "normalize": {"normalize": True},
        "clip_after": {"clip_after_nms": True, "clip_before_nms": False},
    }.items():
        anchors = 4
        scores = (p.distinct(1, 2 * anchors, 4, 4) % 127 / 127).astype(F32)
        p.case(
            name,
            [np.abs(scores), p.normal(1, 4 * anchors, 4, 4, scale=0.2), np.array([64, 64, 1], F32)],
            {**base, **change},
            constant=(2,),
            tolerance=LOOSE,
        )


@pack("CTCGreedyDecoder-opset1")
def ctc_greedy(p: Pack) -> None:
    mask = np.array([[1, 1], [1, 1], [1, 1], [1, 0], [1, 0]], F32)
    for merge in (True, False):
        p.case(f"merge_{merge}", [p.distinct(5, 2, 4), mask], {"ctc_merge_repeated": merge})


@pack("CTCGreedyDecoderSeqLen-opset6")
def ctc_greedy_lengths(p: Pack) -> None:
    for merge, kind in itertools.product((True, False), ("i32", "i64")):
        attributes = {"merge_repeated": merge, "classes_index_type": kind, "sequence_length_type": kind}
        p.case(f"merge_{merge}_{kind}", [p.distinct(2, 6, 4), np.array([6, 4], I32)], attributes)
        p.case(
            f"blank_{merge}_{kind}",
            [p.distinct(2, 6, 4), np.array([6, 4], I32), np.array([1], I32)],
            attributes,
            constant=(2,),
        )


@pack("CTCLoss-opset4")
def ctc_loss(p: Pack) -> None:
    """All paths, one by one, as the specification explains the loss."""

    def decode_label(label, collapse, unique):
        if collapse:
            label = [g for i, g in enumerate(label) if not i or g != label[i - 1]]
        return list(dict.fromkeys(label)) if unique else label

    def decode_path(path, blank, merge):
        if merge:
            path = [c for i, c in enumerate(path) if not i or c != path[i - 1]]
        return [c for c in path if c != blank]

    def reference(collapse, merge, unique):
        def apply(logits, lengths, labels, label_lengths, blank):
            losses = []
            for x, steps, label, size in zip(logits.astype(np.float64), lengths, labels, label_lengths):
                target = decode_label([int(v) for v in label[: int(size)]], collapse, unique)
                probability = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
                total = 0.0
                for path in itertools.product(range(x.shape[-1]), repeat=int(steps)):
                    if decode_path(path, int(blank), merge) == target:
                        total += np.prod(probability[np.arange(int(steps)), path])
                losses.append(-np.log(total))
            return np.array(losses, F32)

        return apply

    names = ("preprocess_collapse_repeated", "ctc_merge_repeated", "unique")
    labels = np.array([[0, 1, 1, 0, 0, 0], [2, 2, 0, 1, 0, 0]], I32)
    inputs = [p.normal(2, 6, 4), np.array([6, 5], I32), labels, np.array([4, 0], I32), np.array(3, I32)]
    p.case(
        "defaults",
        inputs,
        {},
        reference=reference(False, True, False),
        tolerance=LOOSE,
        example=True,
        is_varied=True,
        strip=names,
    )
    for collapse, merge, unique in itertools.product((True, False), repeat=3):
        for kind in (I32, I64):
            labels = np.array([[0, 1, 1, 0, 0, 0], [2, 0, 0, 0, 0, 0]], kind)
            inputs = [p.normal(2, 6, 4), np.array([6, 5], I32), labels, np.array([3, 2], I32), np.array(3, kind)]
            p.case(
                f"{collapse}_{merge}_{unique}_{np.dtype(kind).name}",
                inputs,
                {"preprocess_collapse_repeated": collapse, "ctc_merge_repeated": merge, "unique": unique},
                reference=reference(collapse, merge, unique),
                tolerance=LOOSE,
            )


@pack("RandomUniform-opset8")
def random_uniform(p: Pack) -> None:
    """Streams with fixed seeds; a second inference continues the stream."""
    for kind, low, high, dtype in (
        ("f32", 0.0, 1.0, F32),
        ("f32", -3.0, 5.0, F32),
        ("i32", 0, 100, I32),
        ("i64", -5, 1000, I64),
        ("f16", 0.0, 2.0, F16),
    ):
        for alignment in ("tensorflow", "pytorch"):
            for op_seed, global_seed in ((11, 7), (0, 5), (3, 0)):
                p.case(
                    f"{kind}_{low}_{high}_{alignment}_{op_seed}_{global_seed}",
                    [np.array([2, 5], I64), np.array(low, dtype), np.array(high, dtype)],
                    {"output_type": kind, "op_seed": op_seed, "global_seed": global_seed, "alignment": alignment},
                    constant=(0, 1, 2),
                    oracles=("evaluate",) if kind in ("i64", "f16") else ("cpu", "evaluate"),
                )


@pack("NV12toRGB-opset8", "NV12toBGR-opset8", "I420toRGB-opset8", "I420toBGR-opset8")
def colours(p: Pack) -> None:
    def pixels(*shape):
        return p.random.integers(0, 256, shape).astype(U8)

    one = {"rtol": 0.0, "atol": 1.0}
    planes = (
        [pixels(1, 4, 6, 1), pixels(1, 2, 3, 2)]
        if p.kind.startswith("NV12")
        else [pixels(1, 4, 6, 1), pixels(1, 2, 3, 1), pixels(1, 2, 3, 1)]
    )
    p.case("planes_uint8", planes, tolerance=one, note="one step of rounding is free")
    p.case("planes_f32", [v.astype(F32) for v in planes], tolerance={"rtol": 1e-3, "atol": 0.05})
    p.case("single_uint8", [pixels(1, 6, 6, 1)], tolerance=one, note="one step of rounding is free")
    p.case("single_f32", [pixels(2, 6, 4, 1).astype(F32)], tolerance={"rtol": 1e-3, "atol": 0.05})


@pack("STFT-opset15")
def stft(p: Pack) -> None:
    def reference(transposed):
        def apply(signal, window, size, step):
            size, step = int(size), int(step)
            left = (size - len(window)) // 2
            padded = np.pad(window.astype(np.float64), (left, size - len(window) - left))
            rows = np.atleast_2d(signal.astype(np.float64))
            frames = (rows.shape[1] - size) // step + 1
            spectrum = np.stack([np.fft.rfft(rows[:, k * step : k * step + size] * padded) for k in range(frames)], 1)
            pairs = np.stack([spectrum.real, spectrum.imag], -1)
            pairs = np.swapaxes(pairs, 1, 2) if transposed else pairs
            return (pairs[0] if signal.ndim == 1 else pairs).astype(F32)

        return apply

    for transposed in (True, False):
        for name, shape, window, size, step in (
            ("batch", (2, 24), 8, 8, 4),
            ("rank1", (20,), 8, 8, 8),
            ("short_window", (1, 20), 5, 8, 3),
        ):
            p.case(
                f"{name}_{transposed}",
                [p.normal(*shape), p.positive(window), scalar(size), scalar(step)],
                {"transpose_frames": transposed},
                constant=(2, 3),
                reference=reference(transposed),
                tolerance=LOOSE,
            )


@pack("ISTFT-opset16")
def istft(p: Pack) -> None:
    for center, normalized in itertools.product((True, False), repeat=2):
        p.case(
            f"center_{center}_normalized_{normalized}",
            [p.normal(2, 5, 6, 2), p.positive(8), scalar(8), scalar(4)],
            {"center": center, "normalized": normalized},
            constant=(2, 3),
            tolerance=LOOSE,
        )
    p.case(
        "length",
        [p.normal(1, 5, 6, 2), p.positive(8), scalar(8), scalar(4), scalar(20)],
        {"center": False, "normalized": False},
        constant=(2, 3, 4),
        tolerance=LOOSE,
    )


@pack("FakeConvert-opset13")
def fake_convert(p: Pack) -> None:
    for kind in ("f8e4m3", "f8e5m2"):
        p.case(
            f"{kind}_scale", [p.normal(3, 4, scale=3), np.array([1.5], F32)], {"destination_type": kind}, constant=(1,)
        )
        p.case(
            f"{kind}_shift",
            [p.normal(3, 4, scale=3), np.array([2.0], F32), np.array([0.25], F32)],
            {"destination_type": kind},
            constant=(1, 2),
        )
        p.case(
            f"{kind}_per_channel",
            [p.normal(2, 3, scale=3), p.positive(1, 3)],
            {"destination_type": kind},
            constant=(1,),
        )


@pack("SparseFillEmptyRows-opset16")
def sparse_fill(p: Pack) -> None:
    p.case(
        "fills",
        [
            np.array([1, 2, 3, 4], F32),
            np.array([5, 6], I64),
            np.array([[0, 1], [0, 3], [2, 0], [3, 1]], I64),
            np.array(-1, F32),
        ],
        reference=[
            np.array([[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]], I64),
            np.array([1, 2, -1, 3, 4, -1], F32),
            np.array([False, True, False, False, True]),
        ],
    )
    p.case(
        "all_empty",
        [np.zeros(0, F32), np.array([2, 3], I64), np.zeros((0, 2), I64), np.array(7, F32)],
        reference=[np.array([[0, 0], [1, 0]], I64), np.array([7, 7], F32), np.array([True, True])],
        example=True,
    )


@pack("ExperimentalDetectronPriorGridGenerator-opset6")
def prior_grid(p: Pack) -> None:
    priors = boxes(p, 3, size=16)
    maps = [priors, p.normal(1, 1, 3, 4), p.normal(1, 1, 24, 32)]
    for flatten in (True, False):
        base = {"flatten": flatten, "h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0}
        p.case(f"flatten_{flatten}", maps, base)
        p.case(f"strides_{flatten}", maps, {**base, "h": 3, "w": 4, "stride_x": 4.0, "stride_y": 8.0})

        def binding(x, features, image, flatten=flatten):
            used = np.arange(3 * 4 * 3 * 4) < 2 * 3 * 3 * 4
            return used.reshape((3 * 4 * 3, 4) if flatten else (3, 4, 3, 4))

        p.case(
            f"fewer_cells_{flatten}",
            maps,
            {**base, "h": 2, "w": 3},
            reference=fewer_cells(flatten),
            binding=binding,
            oracles=("evaluate",),
            example=True,
            note="the plugin leaves what does not bind as it was in memory",
        )
    p.case("one_cell", [priors[:1], p.normal(1, 2, 1, 1), p.normal(1, 3, 5, 7)], {"flatten": True})
    p.case(
        "defaults",
        [priors[:1], p.normal(1, 2, 1, 1), p.normal(1, 3, 5, 7)],
        {"flatten": True},
        reference=priors[:1] + np.array([3.5, 2.5, 3.5, 2.5], F32),
        example=True,
        is_varied=True,
        strip=("flatten", "h", "w", "stride_x", "stride_y"),
    )


def fewer_cells(flatten: bool):
    """ExperimentalDetectronPriorGridGenerator of 2 by 3 cells on a map of 3 by 4."""

    def apply(priors, features, image):
        step = np.array([image.shape[3] / 3, image.shape[2] / 2], F32)
        cells = np.array([[x, y] for y in range(2) for x in range(3)], F32)
        grid = priors[None] + np.tile((cells + F32(0.5)) * step, 2)[:, None]
        rows = np.zeros((3 * 4 * 3, 4), F32)
        rows[: 2 * 3 * 3] = grid.reshape(-1, 4)
        return rows if flatten else rows.reshape(3, 4, 3, 4)

    return apply


@pack("ExperimentalDetectronTopKROIs-opset6")
def top_rois(p: Pack) -> None:
    def reference(most):
        def apply(rois, probabilities):
            best = np.argsort(-probabilities.astype(np.float64), kind="stable")[:most]
            return np.concatenate([rois[best], np.zeros((most - len(best), 4), rois.dtype)])

        return apply

    for name, count, most in (("plain", 7, 4), ("all", 5, 5), ("one", 3, 1), ("single", 1, 1), ("many", 40, 25)):
        p.case(name, [boxes(p, count), p.distinct(count)], {"max_rois": most}, reference=reference(most))

    def binding(rois, probabilities):
        return np.repeat(np.arange(6) < 4, 4).reshape(6, 4)

    p.case(
        "too_few",
        [boxes(p, 4), p.distinct(4)],
        {"max_rois": 6},
        reference=reference(6),
        binding=binding,
        oracles=("evaluate",),
        example=True,
        note="the plugin leaves what does not bind as it was in memory",
    )


@pack("ExperimentalDetectronROIFeatureExtractor-opset6")
def roi_features(p: Pack) -> None:
    rois = np.array([[0, 0, 20, 20], [4, 4, 30, 28], [10, 2, 14, 8]], F32)
    base = {"output_size": 3, "sampling_ratio": 2, "pyramid_scales": [4, 8], "aligned": True}
    layers = [p.normal(1, 2, 8, 8), p.normal(1, 2, 4, 4)]
    for aligned in (True, False):
        p.case(f"aligned_{aligned}", [rois, *layers], {**base, "aligned": aligned}, tolerance=LOOSE)
        p.case(
            f"adaptive_{aligned}", [rois, *layers], {**base, "sampling_ratio": 0, "aligned": aligned}, tolerance=LOOSE
        )
    large = np.array([[0, 0, 500, 300], [3, 9, 120, 100], [5, 5, 4, 9], [7, 7, 7, 7], [0, 0, 1500, 1500]], F32)
    pyramid = [p.normal(1, 1, 12, 10), p.normal(1, 1, 6, 5), p.normal(1, 1, 3, 3), p.normal(1, 1, 2, 1)]
    attributes = {**base, "output_size": 2, "pyramid_scales": [16, 32, 64, 128, 256]}
    p.case("levels", [large, *pyramid], attributes, tolerance=LOOSE)
    p.case("one_level", [large, pyramid[0]], {**attributes, "output_size": 1}, tolerance=LOOSE)


@pack("ExperimentalDetectronGenerateProposalsSingleImage-opset6", "GenerateProposals-opset9")
def generate_proposals(p: Pack) -> None:
    """OpenVINO takes no nms_eta but 1, and its plugin gives boxes that are too small with a score of 0."""
    base = {"min_size": 1.0, "nms_threshold": 0.6, "post_nms_count": 5, "pre_nms_count": 20}

    def case(name: str, batch: int = 1, info: tuple = (32, 30, 1), shape: tuple = (2, 3, 4), **changes) -> None:
        anchors, h, w = shape
        count = anchors * h * w
        attributes = {**base, **changes}
        grid, deltas = boxes(p, h, w, anchors, size=32), p.normal(batch, anchors * 4, h, w, scale=0.2)
        scores = np.stack([p.distinct(anchors, h, w) / count + 0.5 for _ in range(batch)]).astype(F32)
        inputs = [np.array([info] * batch, F32), grid, deltas, scores]
        reference = detection_reference.proposals(attributes)
        if p.kind != "GenerateProposals":
            inputs = [inputs[0][0], grid.reshape(-1, 4), deltas[0], scores[0]]
            reference = detection_reference.single_image_proposals(attributes)
        patch = {"nms_eta": str(changes["nms_eta"])} if "nms_eta" in changes else None
        attributes = {**attributes, "nms_eta": 1.0} if patch else attributes
        p.case(name, inputs, attributes, reference=reference, tolerance=LOOSE, example=True, patch=patch)

    if p.kind == "GenerateProposals":
        base.update(normalized=True, nms_eta=1.0, roi_num_type="i64")
        case("not_normalized", normalized=False)
        case("batch", batch=3, roi_num_type="i32")
        case("scales", info=(32, 30, 2, 4), min_size=2.0)
        case("adaptive", nms_threshold=0.9, nms_eta=0.7, post_nms_count=20)
    case("plain")
    case("small_boxes", min_size=9.0, pre_nms_count=8)
    case("small_boxes_last", min_size=9.0, post_nms_count=20)
    case("many", shape=(3, 5, 5), pre_nms_count=1000, post_nms_count=40, nms_threshold=0.3)
    case("few", shape=(1, 1, 2))
    case("one", pre_nms_count=1, post_nms_count=1)
    case("large_growth", min_size=0.0, nms_threshold=0.9)


@pack("ExperimentalDetectronDetectionOutput-opset6")
def detectron_output(p: Pack) -> None:
    base = {
        "score_threshold": 0.05,
        "nms_threshold": 0.5,
        "max_delta_log_wh": 4.135,
        "num_classes": 3,
        "post_nms_count": 5,
        "max_detections_per_image": 4,
        "class_agnostic_box_regression": False,
        "deltas_weights": [10.0, 10.0, 5.0, 5.0],
    }
    for name, count, changes in (
        ("plain", 6, {}),
        ("all", 6, {"max_detections_per_image": 30}),
        ("agnostic", 6, {"class_agnostic_box_regression": True}),
        ("few_of_class", 8, {"post_nms_count": 1}),
        ("high_threshold", 6, {"score_threshold": 0.7}),
        ("small_growth", 6, {"max_delta_log_wh": 0.01, "deltas_weights": [1.0, 2.0, 1.0, 0.5]}),
        ("one_region", 1, {}),
        ("many_classes", 12, {"num_classes": 7, "max_detections_per_image": 20}),
    ):
        attributes = {**base, **changes}
        classes = attributes["num_classes"]
        scores = p.random.uniform(0, 1, (count, classes)).astype(F32)
        rois, deltas = boxes(p, count, size=32), p.normal(count, classes * 4, scale=0.3)
        p.case(name, [rois, deltas, scores, np.array([[32, 32, 1]], F32)], attributes, tolerance=LOOSE)
    rois = np.array([[1, 1, 1, 9], [2, 8, 6, 3], [4, 4, 9, 9]], F32)
    inputs = [rois, p.normal(3, 12), np.full((3, 3), 0.5, F32), np.array([[32, 32, 1]], F32)]
    p.case("no_area", inputs, base, tolerance=LOOSE)


@pack("BinaryConvolution-opset1")
def binary_convolution(p: Pack) -> None:
    """The CPU plugin reads memory that it did not write, so numpy speaks alone."""

    def reference(pad_value, pads):
        def apply(x, weights):
            padded = np.pad(x, [(0, 0), (0, 0), (pads, pads), (pads, pads)], constant_values=pad_value)
            n, _, h, w = padded.shape
            o, _, kh, kw = weights.shape
            result = np.zeros((n, o, h - kh + 1, w - kw + 1), F32)
            for i, j in np.ndindex(*result.shape[2:]):
                patch = padded[:, None, :, i : i + kh, j : j + kw] > 0
                equal = patch == (weights[None] > 0)
                result[:, :, i, j] = 2 * equal.sum((2, 3, 4)) - equal[0, 0].size
            return result

        return apply

    import openvino
    from openvino import op

    from golden_pack import make_model, make_node, make_parameter

    for name, pads, pad_value in (("plain", 0, 0.0), ("pad_zero", 1, 0.0), ("pad_one", 1, 1.0)):
        x, weights = (p.random.random((1, 4, 5, 5)) < 0.5).astype(F32), (p.random.random((3, 4, 3, 3)) < 0.5).astype(U8)

        def build(pads=pads, pad_value=pad_value, weights=weights):
            data = make_parameter(F32, [1, 4, 5, 5], "x0")
            kernel = op.Constant(openvino.Type.u1, openvino.Shape([3, 4, 3, 3]), [int(v) for v in weights.ravel()])
            attributes = {
                "strides": [1, 1],
                "pads_begin": [pads, pads],
                "pads_end": [pads, pads],
                "dilations": [1, 1],
                "mode": "xnor-popcount",
                "pad_value": pad_value,
                "auto_pad": "explicit",
            }
            return make_model([make_node("BinaryConvolution", "opset1", [data, kernel], attributes)], [data])

        p.model(
            name,
            build,
            [{"x0": x}],
            reference=[{"y0": reference(pad_value, pads)(x, weights)}],
            example=True,
            oracles=(),
        )


@pack("RGBtoNV12-opset17", "BGRtoNV12-opset17")
def to_nv12(p: Pack) -> None:
    """OpenVINO 2026.4.1 cannot compute these. The images are of blocks of 2 x 2
    equal pixels, so that it does not matter how chroma is sampled."""

    def reference(single):
        def apply(image):
            r, g, b = np.moveaxis(image.astype(np.float64), -1, 0)
            if p.kind.startswith("BGR"):
                r, b = b, r
            luma = 0.257 * r + 0.504 * g + 0.098 * b + 16
            chroma = np.stack([-0.148 * r - 0.291 * g + 0.439 * b + 128, 0.439 * r - 0.368 * g - 0.071 * b + 128], -1)[
                :, ::2, ::2
            ]
            planes = [np.clip(v, 0, 255) for v in (luma[..., None], chroma)]
            if image.dtype == U8:
                planes = [np.rint(v) for v in planes]
            if single:
                n, h, w, _ = planes[0].shape
                planes = [np.concatenate([planes[0], planes[1].reshape(n, h // 2, w, 1)], 1)]
            return [v.astype(image.dtype) for v in planes]

        return apply

    def blocks(n, h, w, dtype):
        small = p.random.integers(0, 256, (n, h // 2, w // 2, 3))
        return small.repeat(2, 1).repeat(2, 2).astype(dtype)

    for single in (True, False):
        attributes = {"single_plane": single}
        p.case(
            f"uint8_{single}",
            [blocks(1, 4, 6, U8)],
            attributes,
            reference=reference(single),
            example=True,
            tolerance={"rtol": 0.0, "atol": 1.0},
            note="one step of rounding is free",
        )
        p.case(
            f"f32_{single}",
            [blocks(2, 2, 4, F32)],
            attributes,
            reference=reference(single),
            example=True,
            tolerance={"rtol": 1e-3, "atol": 0.05},
        )


@pack("Multinomial-opset13")
def multinomial(p: Pack) -> None:
    for replacement, logs in itertools.product((True, False), repeat=2):
        probabilities = p.random.uniform(0.1, 1, (2, 6)).astype(F32)
        probabilities = np.log(probabilities) if logs else probabilities
        attributes = {
            "convert_type": "i32",
            "with_replacement": replacement,
            "log_probs": logs,
            "global_seed": 1,
            "op_seed": 2,
        }
        p.case(f"replacement_{replacement}_logs_{logs}", [probabilities, scalar(4)], attributes, constant=(1,))
