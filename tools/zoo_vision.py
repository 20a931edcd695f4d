"""Classifiers, detectors, segmenters and vision transformers, with seeded weights."""

from __future__ import annotations

import zoo_inputs as inputs
import zoo_torch as torch_models
from zoo_model import made


def timm_model(source, seed: int, kind: str, size: int = 224, **options):
    """A model of timm, with a dynamic batch and, for convolutional ones, any image size."""
    import timm

    model = torch_models.seed_weights(timm.create_model(kind, pretrained=False, **options), seed, 1.3)
    example = torch_models.noise(seed, 2, 3, size, size)
    torch_models.calibrate_normalisation(model, example)
    return torch_models.convert(model, example, ["image"], ["logits"])


def torchvision_model(source, seed: int, kind: str, size: int = 224, pick=None, **options):
    """A classifier or segmenter of torchvision."""
    import torchvision

    families = {**vars(torchvision.models), **vars(torchvision.models.segmentation)}
    model = families[kind](weights=None, **options)
    torch_models.seed_weights(model, seed, 1.3)
    example = torch_models.noise(seed, 2, 3, size, size)
    torch_models.calibrate_normalisation(model, example)
    if pick:
        model = torch_models.Picked(model, pick)
    return torch_models.convert(model, example, ["image"])


def detector(source, seed: int, kind: str, height: int = 224, width: int = 320):
    """A detector of torchvision: image in, detections of data-dependent number out."""
    import torch

    model = _detector_model(kind)
    torch_models.seed_weights(model, seed, 1.2)
    images = [torch_models.noise(seed, 3, height, width).abs().clamp(0, 1) for _ in range(2)]
    torch_models.calibrate_normalisation(model, images)
    if kind == "fcos":
        _spread(model, images)
    else:
        _scale_last_layers(model)
    keys = {"mask_rcnn": ["boxes", "scores", "masks"], "keypoint_rcnn": ["boxes", "scores", "keypoints"]}
    keys["faster_rcnn"] = ["boxes", "scores"]
    keys = keys.get(kind, ["boxes", "scores", "labels"])

    class Detector(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, image):
            found = self.model([image])
            found = found[1][0] if isinstance(found, tuple) else found[0]
            return tuple(found[key] for key in keys)

    return torch_models.convert_through_onnx(
        Detector().eval(), (images[0],), ["image"], keys, {"image": {1: "height", 2: "width"}}
    )


def _detector_model(kind: str):
    from torch.nn import BatchNorm2d
    from torchvision.models import detection
    from torchvision.models.detection import faster_rcnn, keypoint_rcnn, mask_rcnn
    from torchvision.models.detection.backbone_utils import mobilenet_backbone

    options = {"min_size": 224, "max_size": 320}
    options_of_backbone = {"weights": None, "fpn": True, "trainable_layers": 6}
    if kind == "fcos":
        options_of_backbone["norm_layer"] = BatchNorm2d
    backbone = mobilenet_backbone("mobilenet_v3_small", **options_of_backbone)
    if kind in ("retinanet", "fcos"):
        from torchvision.models.detection.anchor_utils import AnchorGenerator

        levels = 3
        if kind == "fcos":
            anchors = AnchorGenerator(tuple((s,) for s in (16, 32, 64)[:levels]), ((1.0,),) * levels)
            return detection.FCOS(
                backbone, 12, anchor_generator=anchors, score_thresh=0.3, detections_per_img=30, **options
            )
        sizes = tuple((s, int(s * 1.26), int(s * 1.59)) for s in (32, 64, 128))
        anchors = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * levels)
        return detection.RetinaNet(
            backbone, 12, anchor_generator=anchors, score_thresh=0.3, detections_per_img=30, **options
        )
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    anchors = AnchorGenerator(((32, 64, 128),) * 3, ((0.5, 1.0, 2.0),) * 3)
    options |= {"rpn_anchor_generator": anchors, "rpn_pre_nms_top_n_test": 100, "rpn_post_nms_top_n_test": 30}
    options |= {"box_detections_per_img": 10, "box_score_thresh": 0.1}
    # Heads of a few megabytes instead of the hundreds of the originals.
    classes = 2 if kind == "keypoint_rcnn" else 6
    options |= {"box_head": faster_rcnn.TwoMLPHead(256 * 7 * 7, 128)}
    options |= {"box_predictor": faster_rcnn.FastRCNNPredictor(128, classes)}
    if kind == "faster_rcnn":
        return detection.FasterRCNN(backbone, **options)
    if kind == "mask_rcnn":
        head, predictor = mask_rcnn.MaskRCNNHeads(256, (64, 64), 1), mask_rcnn.MaskRCNNPredictor(64, 64, classes)
        return detection.MaskRCNN(backbone, mask_head=head, mask_predictor=predictor, **options)
    head = keypoint_rcnn.KeypointRCNNHeads(256, (64, 64, 64))
    predictor = keypoint_rcnn.KeypointRCNNPredictor(64, 7)
    return detection.KeypointRCNN(backbone, keypoint_head=head, keypoint_predictor=predictor, **options)


def _scale_last_layers(model) -> None:
    """Proposals whose scores differ, and boxes that stay near their anchors."""
    import torch

    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("cls_logits.weight"):
                value.mul_(3.0)
            if name.endswith("bbox_pred.weight"):
                value.mul_(0.3)


def _spread(model, images) -> None:
    """Scale the last layers, so that scores differ clearly, for their order must not hang on
    a rounding, and boxes stay near their anchors."""
    import torch

    wanted = {"cls_logits": 1.5, "cls_score": 1.5, "bbox_pred": 0.3, "bbox_reg": 0.3}
    last = {m: wanted[name.split(".")[-1]] for name, m in model.named_modules() if name.split(".")[-1] in wanted}
    # The region proposals come first: what they propose decides what the other heads see.
    for module in last:
        seen = []
        hook = module.register_forward_hook(lambda _, __, result, seen=seen: seen.append(result.std()))
        with torch.no_grad():
            model(images)
            hook.remove()
            module.weight.mul_(last[module] / torch.stack(seen).mean().clamp(min=1e-6))


def unet(source, seed: int):
    """A U-Net: convolutions down, transposed convolutions up, skips by concatenation."""
    import torch
    from torch import nn

    def block(a: int, b: int):
        layers = [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [16, 32, 64, 96]
            self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *widths], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
            self.join = nn.ModuleList(block(2 * a, a) for a in widths[:-1])
            self.head = nn.Conv2d(16, 5, 1)

        def forward(self, x):
            skips = []
            for layer in self.down[:-1]:
                x = layer(x)
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.down[-1](x)
            for up, join, skip in zip(self.up[::-1], self.join[::-1], skips[::-1]):
                x = join(torch.cat([up(x), skip], 1))
            classes = self.head(x)
            return classes.softmax(1)

    example = torch_models.noise(seed, 2, 3, 64, 96)
    model = torch_models.seed_weights(UNet(), seed, 1.4)
    torch_models.calibrate_normalisation(model, example)
    return torch_models.convert(model, example, ["image"], ["probabilities"])


def yolo_v8(source, seed: int, end_to_end: bool = False):
    """The structure of YOLOv8: C2f blocks, pooling pyramid, decoupled heads, distribution
    over distances; with the selection of boxes inside if `end_to_end`."""
    import torch
    import zoo_yolo

    model = torch_models.seed_weights(zoo_yolo.Yolo(end_to_end), seed, 1.6)
    example = torch_models.noise(seed, 1, 3, 160, 192)
    torch_models.calibrate_normalisation(model, example)
    if not end_to_end:
        return torch_models.convert(model, example, ["images"], ["output0"])
    with torch.no_grad():
        return torch_models.convert_through_onnx(
            model, (example,), ["images"], ["boxes", "scores", "labels"], {"images": {2: "height", 3: "width"}}
        )


def transformer(source, seed: int, kind: str, size: int, outputs: list[str], config: dict):
    """A vision model of transformers from its configuration."""
    import torch
    import transformers

    settings = getattr(transformers, f"{kind.split(':')[0]}Config")(**config)
    model = getattr(transformers, kind.split(":")[1])(settings)
    torch_models.seed_weights(model, seed, 1.3)
    example = torch_models.noise(seed, 2, 3, size, size)
    torch_models.calibrate_normalisation(model, example)

    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            found = self.model(pixel_values=pixel_values)
            return tuple(found[name] for name in outputs)

    return torch_models.convert(Named().eval(), example, ["pixel_values"], outputs)


def clip(source, seed: int):
    """Both towers of CLIP, and the similarity of images and texts."""
    import torch
    import transformers

    text = {
        "vocab_size": 1000,
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "eos_token_id": 999,
    }
    vision = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 96,
        "patch_size": 16,
    }
    settings = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=64)
    model = torch_models.seed_weights(transformers.CLIPModel(settings), seed, 1.5)
    with torch.no_grad():
        model.logit_scale.fill_(2.0)

    class Clip(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, pixel_values):
            found = self.model(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values)
            return found.logits_per_image, found.text_embeds, found.image_embeds

    example = {
        "input_ids": torch.randint(2, 999, (2, 7)),
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "pixel_values": torch_models.noise(seed, 2, 3, 96, 96),
    }
    outputs = ["logits_per_image", "text_embeds", "image_embeds"]
    return torch_models.convert(Clip().eval(), example, None, outputs)


def _image(name: str, convert, maker, **options):
    return made(name, convert, maker, options=options, samples=("scikit-image",), torch=True)


def square(size: int, key: str = "image"):
    return inputs.photographs(key, (size, size), (size, size))


def _pick_out(found):
    return found["out"]


def _clip_inputs(packages):
    photographs = inputs.photographs("pixel_values", (96, 96), (96, 96))(packages)
    text = inputs.drawn(
        {"input_ids": inputs.ids(999, 3, 9), "attention_mask": inputs.lengths_mask(9, 6, 4)},
        {"input_ids": inputs.ids(999, 1, 16), "attention_mask": inputs.lengths_mask(16)},
    )(packages)
    return [{**a, **b} for a, b in zip(photographs, text)]


_FREE = inputs.photographs("image", (320, 224), (224, 288))
_ONE = inputs.photographs("image", (320, 224), (256, 256), batch=False)
_WHOLE = inputs.unit_photographs("images", (192, 160), (256, 128), last=False)
_SEGMENTER = {"weights_backbone": None, "pick": _pick_out}
_VIT = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 192, "image_size": 96}

MODELS = [
    _image("mobilenet_v3", timm_model, square(224), kind="mobilenetv3_small_100"),
    _image("efficientnet_b0", timm_model, _FREE, kind="efficientnet_b0"),
    _image("regnet_y", timm_model, square(224), kind="regnety_004"),
    _image("convnext_atto", timm_model, _FREE, kind="convnext_atto"),
    _image("shufflenet_v2", torchvision_model, square(224), kind="shufflenet_v2_x0_5"),
    _image("ghostnet", timm_model, square(224), kind="ghostnet_050"),
    _image("mobilevit", timm_model, square(256), kind="mobilevit_xxs", size=256),
    _image("repvgg", timm_model, square(224), kind="repvgg_a0"),
    _image("nfnet", timm_model, square(192), kind="nf_regnet_b0", size=192),
    _image("vit", timm_model, square(224), kind="vit_tiny_patch16_224", depth=4),
    _image("swin", timm_model, square(224), kind="swin_s3_tiny_224", embed_dim=48, depths=(1, 1, 2, 1)),
    _image("edgenext", timm_model, square(224), kind="edgenext_xx_small"),
    _image("maxvit", timm_model, square(256), kind="maxvit_rmlp_pico_rw_256", size=256),
    _image("nest", timm_model, square(224), kind="nest_tiny_jx"),
    _image("csat", timm_model, square(224), kind="csatv2", size=224),
    _image("deeplab_v3", torchvision_model, _FREE, kind="deeplabv3_mobilenet_v3_large", **_SEGMENTER),
    _image("lraspp", torchvision_model, _FREE, kind="lraspp_mobilenet_v3_large", **_SEGMENTER),
    _image("unet", unet, inputs.photographs("image", (96, 64), (128, 160))),
    _image("yolo_v8", yolo_v8, _WHOLE),
    _image("yolo_v8_selecting", yolo_v8, _WHOLE, end_to_end=True),
    _image("faster_rcnn", detector, _ONE, kind="faster_rcnn"),
    _image("mask_rcnn", detector, _ONE, kind="mask_rcnn"),
    _image("keypoint_rcnn", detector, _ONE, kind="keypoint_rcnn"),
    _image("retinanet", detector, _ONE, kind="retinanet"),
    _image("fcos", detector, _ONE, kind="fcos"),
    made("clip", clip, _clip_inputs, samples=("scikit-image",), torch=True),
    _image(
        "dinov2",
        transformer,
        square(98, "pixel_values"),
        kind="Dinov2:Dinov2Model",
        size=98,
        outputs=["last_hidden_state"],
        config={**_VIT, "image_size": 98, "patch_size": 14},
    ),
    _image(
        "segformer",
        transformer,
        inputs.photographs("pixel_values", (128, 128), (192, 96)),
        kind="Segformer:SegformerForSemanticSegmentation",
        size=128,
        outputs=["logits"],
        config={"num_labels": 7},
    ),
    _image(
        "yolos",
        transformer,
        square(160, "pixel_values"),
        kind="Yolos:YolosForObjectDetection",
        size=160,
        outputs=["logits", "pred_boxes"],
        config={**_VIT, "image_size": [160, 160]},
    ),
]
