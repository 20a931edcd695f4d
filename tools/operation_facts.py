"""What the specification says of operations, as data: the axes of the grid of golden cases.

One line an operation. `ports` gives the element types of the inputs: a class of `CLASSES`, `=N` for "that of input N", or
types joined by `|`. Inputs that repeat a class of their own, as in Concat, are one port followed by `...`. `ranks` are the ranks of
input 0, `axis` is what counts axes and may be negative (an attribute's name or an input's number), `enums` the values of
attributes (`BOOLEAN` for true and false), `optional` the attributes that may be absent. `zero` tells whether a size of 0 has a
meaning, `inputs` how many inputs there may be where not all are required. A key `Type-opsetN` overrides `Type`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
CLASSES = {
    "float": FLOATS,
    "integer": INTEGERS,
    "number": FLOATS + INTEGERS,
    "any": FLOATS + INTEGERS + ("boolean",),
    "bitwise": INTEGERS + ("boolean",),
    "index": ("i32", "i64"),
    "boolean": ("boolean",),
}
BOOLEAN = "true false"


@dataclass(frozen=True)
class Facts:
    """The axes of one operation's grid; see the module."""

    ports: str
    ranks: str = "0-5"
    axis: str | int | None = None
    enums: dict[str, str] = field(default_factory=dict)
    optional: str = ""
    zero: bool = True
    inputs: str = ""

    def port_types(self) -> list[tuple[str, ...] | int]:
        """By input: the legal types, or the number of the input whose type it shares."""
        types: list[tuple[str, ...] | int] = []
        for word in self.ports.split():
            if word == "...":
                break
            if word.startswith("="):
                types.append(int(word[1:]))
            else:
                types.append(tuple(t for part in word.split("|") for t in CLASSES.get(part, (part,))))
        return types

    def legal_ranks(self) -> list[int]:
        low, _, high = self.ranks.partition("-")
        return list(range(int(low), int(high or low) + 1))

    def input_counts(self) -> list[int]:
        if not self.inputs:
            return [] if "..." in self.ports else [len(self.port_types())]
        if "," in self.inputs:
            return [int(count) for count in self.inputs.split(",")]
        low, _, high = self.inputs.partition("-")
        return list(range(int(low), int(high or low) + 1))


def facts_of(kind: str, version: str) -> Facts | None:
    """The facts of a type in a version, None where there are none yet."""
    return FACTS.get(f"{kind}-{version}") or FACTS.get(kind)


def enum_values(facts: Facts) -> dict[str, list[str]]:
    return {name: (values.split(",") if "," in values else values.split()) for name, values in facts.enums.items()}


NUMPY = {"auto_broadcast": "none numpy"}
PDPD = {"auto_broadcast": "none numpy pdpd"}
REDUCTION = {"keep_dims": BOOLEAN}
DIRECTION = {"direction": "forward reverse bidirectional"}
PAD = {"auto_pad": "explicit same_upper same_lower valid"}
ROUNDING = {"rounding_type": "floor ceil"}
CEIL_TORCH = {"rounding_type": "floor ceil ceil_torch"}
INDEX_TYPE = {"index_element_type": "i32 i64"}
OUTPUT_INDEX = {"output_type": "i32 i64"}
CODE = {"code_type": "caffe.PriorBoxParameter.CORNER,caffe.PriorBoxParameter.CENTER_SIZE"}
COORDINATES = {
    "coordinate_transformation_mode": "half_pixel pytorch_half_pixel asymmetric tf_half_pixel_for_nn align_corners",
    "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil simple",
    "shape_calculation_mode": "sizes scales",
    "antialias": BOOLEAN,
}
DETECTION = {
    "variance_encoded_in_target": BOOLEAN,
    "share_location": BOOLEAN,
    "clip_after_nms": BOOLEAN,
    "clip_before_nms": BOOLEAN,
    "decrease_label_id": BOOLEAN,
    "normalized": BOOLEAN,
    **CODE,
}
PRIOR = {"clip": BOOLEAN, "flip": BOOLEAN, "scale_all_sizes": BOOLEAN}
PROPOSAL = {"clip_before_nms": BOOLEAN, "clip_after_nms": BOOLEAN, "normalize": BOOLEAN}
DETECTIONS = {
    "sort_result_type": "classid score none",
    "sort_result_across_batch": BOOLEAN,
    "normalized": BOOLEAN,
    **OUTPUT_INDEX,
}
ABSENT_OF_DETECTIONS = (
    "sort_result_type output_type nms_top_k keep_top_k sort_result_across_batch iou_threshold score_threshold "
    "background_class nms_eta normalized"
)
NMS = {"box_encoding": "corner center", "sort_result_descending": BOOLEAN}
TOP_K = {"mode": "max min", "sort": "value index none"}

UNARY_NUMBER = "Abs Acos Acosh Asin Asinh Atan Atanh Ceiling Cos Cosh Erf Exp Floor Log Negative ReLU Sigmoid Sign Sin Sinh Sqrt Tan Tanh"
UNARY_FLOAT = "Gelu HSigmoid HSwish Mish SoftPlus SoftSign"

FACTS: dict[str, Facts] = {
    **{name: Facts("number") for name in UNARY_NUMBER.split()},
    **{name: Facts("float") for name in UNARY_FLOAT.split()},
    **{
        name: Facts("number =0", enums=PDPD, optional="auto_broadcast")
        for name in [
            "Add",
            "Divide",
            "FloorMod",
            "Maximum",
            "Minimum",
            "Mod",
            "Multiply",
            "Power",
            "SquaredDifference",
            "Subtract",
        ]
    },
    "Divide": Facts("number =0", enums={**PDPD, "m_pythondiv": BOOLEAN}, optional="auto_broadcast m_pythondiv"),
    **{
        name: Facts("any =0", enums=PDPD, optional="auto_broadcast")
        for name in ["Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"]
    },
    **{
        name: Facts("boolean =0", enums=PDPD, optional="auto_broadcast")
        for name in ["LogicalAnd", "LogicalOr", "LogicalXor", "Xor"]
    },
    **{
        name: Facts("bitwise =0", enums=PDPD, optional="auto_broadcast")
        for name in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]
    },
    **{
        name: Facts("integer =0", enums=PDPD, optional="auto_broadcast")
        for name in ["BitwiseLeftShift", "BitwiseRightShift"]
    },
    "BitwiseNot": Facts("bitwise"),
    "LogicalNot": Facts("boolean"),
    **{
        name: Facts("number integer", axis=1, enums=REDUCTION, optional="keep_dims")
        for name in ["ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"]
    },
    **{
        name: Facts("boolean integer", axis=1, enums=REDUCTION, optional="keep_dims")
        for name in ["ReduceLogicalAnd", "ReduceLogicalOr"]
    },
    "Assign": Facts("any"),
    "ReadValue": Facts("any"),
    "AvgPool": Facts(
        "number", "3-5", None, {**PAD, **ROUNDING, "exclude-pad": BOOLEAN}, "auto_pad rounding_type", False
    ),
    "AvgPool-opset14": Facts(
        "number", "3-5", None, {**PAD, **CEIL_TORCH, "exclude-pad": BOOLEAN}, "auto_pad rounding_type", False
    ),
    "AvgPool-opset16": Facts(
        "number", "3-5", None, {**PAD, **CEIL_TORCH, "exclude-pad": BOOLEAN}, "auto_pad rounding_type dilations", False
    ),
    "Broadcast-opset1": Facts("any integer integer", "0-5", None, {"mode": "numpy explicit"}, "mode"),
    "Broadcast": Facts(
        "any integer integer", "0-5", None, {"mode": "numpy explicit bidirectional"}, "mode", inputs="2-3"
    ),
    "CTCGreedyDecoder": Facts("float =0", "3", None, {"ctc_merge_repeated": BOOLEAN}, "ctc_merge_repeated", False),
    "Clamp": Facts("number"),
    "Concat": Facts("any =0 ...", "1-5", "axis"),
    "Const": Facts(""),
    "Convert": Facts("any", enums={"destination_type": " ".join(CLASSES["any"])}),
    "Convolution": Facts("number =0", "3-5", None, PAD, "auto_pad", False),
    "ConvolutionBackpropData": Facts(
        "number =0 integer", "3-5", None, PAD, "auto_pad output_padding", False, inputs="2-3"
    ),
    "GroupConvolution": Facts("number =0", "3-5", None, PAD, "auto_pad", False),
    "GroupConvolutionBackpropData": Facts(
        "number =0 integer", "3-5", None, PAD, "auto_pad output_padding", False, inputs="2-3"
    ),
    "CumSum": Facts("number index", "1-5", 1, {"exclusive": BOOLEAN, "reverse": BOOLEAN}, "exclusive reverse"),
    "DetectionOutput": Facts(
        "float =0 =0 =0 =0",
        "2",
        None,
        DETECTION,
        "background_label_id top_k code_type confidence_threshold clip_after_nms "
        "clip_before_nms decrease_label_id input_height input_width objectness_score",
        False,
        inputs="3,5",
    ),
    "Elu": Facts("float"),
    "FakeQuantize": Facts("float =0 =0 =0 =0", "0-5", None, {"auto_broadcast": "none numpy pdpd"}, "auto_broadcast"),
    "GRUCell": Facts(
        "float =0 =0 =0 =0",
        "2",
        None,
        {"linear_before_reset": BOOLEAN},
        "activations activations_alpha activations_beta clip linear_before_reset",
        False,
    ),
    "LSTMCell": Facts(
        "float =0 =0 =0 =0 =0",
        "2",
        None,
        {},
        "activations activations_alpha activations_beta clip",
        False,
    ),
    "LSTMCell-opset1": Facts(
        "float =0 =0 =0 =0 =0",
        "2",
        None,
        {"input_forget": BOOLEAN, "weights_format": "fico icof ifco ifoc iofc"},
        "activations activations_alpha activations_beta clip input_forget weights_format",
        False,
    ),
    "RNNCell": Facts("float =0 =0 =0 =0", "2", None, {}, "activations activations_alpha activations_beta clip", False),
    "GRUSequence": Facts(
        "float =0 integer =0 =0 =0",
        "3",
        None,
        {**DIRECTION, "linear_before_reset": BOOLEAN},
        "activations activations_alpha activations_beta clip linear_before_reset",
        False,
    ),
    "LSTMSequence": Facts(
        "float =0 =0 integer =0 =0 =0",
        "3",
        None,
        DIRECTION,
        "activations activations_alpha activations_beta clip",
        False,
    ),
    "RNNSequence": Facts(
        "float =0 integer =0 =0 =0", "3", None, DIRECTION, "activations activations_alpha activations_beta clip", False
    ),
    "Gather-opset1": Facts("any integer integer", "1-5", 2),
    "Gather": Facts("any integer integer", "1-5", 2, {}, "batch_dims"),
    "GatherElements": Facts("any index", "1-5", "axis"),
    "GatherND": Facts("any integer", "1-5", None, {}, "batch_dims"),
    "GatherTree": Facts("number =0 =0 =0", "3", zero=False),
    "Gelu-opset7": Facts("float", enums={"approximation_mode": "ERF,TANH"}, optional="approximation_mode"),
    "GroupNormalization": Facts("float =0 =0", "2-5", zero=False),
    "HardSigmoid": Facts("float =0 =0"),
    "Identity": Facts("any"),
    "If": Facts("boolean ...", "0-1", zero=False),
    "Interpolate-opset1": Facts(
        "float integer",
        "3-5",
        None,
        {"mode": "nearest linear linear_onnx cubic", "align_corners": BOOLEAN, "antialias": BOOLEAN},
        "align_corners antialias pads_begin pads_end",
        False,
    ),
    "Interpolate-opset4": Facts(
        "number integer float integer",
        "2-5",
        None,
        {**COORDINATES, "mode": "nearest linear linear_onnx cubic"},
        "coordinate_transformation_mode nearest_mode antialias pads_begin pads_end cube_coeff",
        False,
        inputs="3-4",
    ),
    "Interpolate": Facts(
        "number index|float integer",
        "2-5",
        None,
        {**COORDINATES, "mode": "nearest linear linear_onnx cubic bilinear_pillow bicubic_pillow"},
        "coordinate_transformation_mode nearest_mode antialias pads_begin pads_end cube_coeff",
        False,
        inputs="2-3",
    ),
    "LRN": Facts("float integer", "1-5", 1),
    "LogSoftmax": Facts("float", "1-5", "axis", {}, "axis"),
    "Loop": Facts("index boolean ...", "0-1", zero=False),
    "MVN-opset2": Facts(
        "float",
        "2-5",
        None,
        {"across_channels": BOOLEAN, "normalize_variance": BOOLEAN},
        "",
    ),
    "MVN": Facts(
        "float index",
        "1-5",
        1,
        {"normalize_variance": BOOLEAN, "eps_mode": "inside_sqrt,outside_sqrt"},
    ),
    "MatMul": Facts(
        "number =0", "1-5", None, {"transpose_a": BOOLEAN, "transpose_b": BOOLEAN}, "transpose_a transpose_b"
    ),
    "MaxPool-opset1": Facts("number", "3-5", None, {**PAD, **ROUNDING}, "auto_pad rounding_type", False),
    "MaxPool-opset8": Facts(
        "number",
        "3-5",
        "axis",
        {**PAD, **ROUNDING, **INDEX_TYPE},
        "auto_pad rounding_type dilations index_element_type axis",
        False,
    ),
    "MaxPool": Facts(
        "number",
        "3-5",
        "axis",
        {**PAD, **CEIL_TORCH, **INDEX_TYPE},
        "auto_pad rounding_type dilations index_element_type axis",
        False,
    ),
    "NonMaxSuppression-opset1": Facts(
        "float =0 integer =0 =0", "3", None, NMS, "box_encoding sort_result_descending", False, inputs="2-5"
    ),
    "NonMaxSuppression-opset3": Facts(
        "float =0 integer =0 =0",
        "3",
        None,
        {**NMS, **OUTPUT_INDEX},
        "box_encoding sort_result_descending output_type",
        False,
        inputs="2-5",
    ),
    "NonMaxSuppression-opset4": Facts(
        "float =0 integer =0 =0",
        "3",
        None,
        {**NMS, **OUTPUT_INDEX},
        "box_encoding sort_result_descending output_type",
        False,
        inputs="2-5",
    ),
    "NonMaxSuppression": Facts(
        "float =0 integer =0 =0 =0",
        "3",
        None,
        {**NMS, **OUTPUT_INDEX},
        "box_encoding sort_result_descending output_type",
        False,
        inputs="2-6",
    ),
    "NonZero": Facts("any", enums=OUTPUT_INDEX, optional="output_type"),
    "NormalizeL2": Facts("float integer", "1-5", 1, {"eps_mode": "add max"}),
    "OneHot-opset1": Facts("integer integer any =2", "0-4", "axis"),
    "OneHot": Facts("integer integer any =2", "0-4", "axis", {"negative_indices_mode": "ignore_negative normalize"}),
    "PReLU": Facts("float =0"),
    "PSROIPooling": Facts(
        "float =0", "4", None, {"mode": "average bilinear"}, "mode spatial_bins_x spatial_bins_y", False
    ),
    "Pad": Facts("any integer integer =0", "0-5", None, {"pad_mode": "constant edge reflect symmetric"}, inputs="3-4"),
    "Parameter": Facts(""),
    "PriorBox-opset1": Facts(
        "integer integer",
        "1",
        None,
        PRIOR,
        "min_size max_size aspect_ratio density fixed_ratio fixed_size clip flip step variance scale_all_sizes",
        False,
    ),
    "PriorBox": Facts(
        "integer integer",
        "1",
        None,
        {**PRIOR, "min_max_aspect_ratios_order": BOOLEAN},
        "min_size max_size aspect_ratio density fixed_ratio fixed_size clip flip step variance scale_all_sizes "
        "min_max_aspect_ratios_order",
        False,
    ),
    "PriorBoxClustered": Facts(
        "integer integer", "1", None, {"clip": BOOLEAN}, "clip step step_w step_h variance", False
    ),
    "Proposal": Facts(
        "float =0 =0",
        "4",
        None,
        {**PROPOSAL, "framework": ",tensorflow"},
        "clip_before_nms clip_after_nms normalize box_size_scale box_coordinate_scale framework",
        False,
    ),
    "RandomUniform": Facts(
        "index f16|bf16|f32|f64|i32|i64 =1",
        "1",
        None,
        {"output_type": " ".join(FLOATS + ("i32", "i64")), "alignment": "tensorflow pytorch"},
        "alignment",
    ),
    "Range-opset1": Facts("number =0 =0", "0", zero=False),
    "Range": Facts("number number number", "0", None, {"output_type": " ".join(CLASSES["number"])}, zero=False),
    "RegionYolo": Facts("float", "4", "axis end_axis", {"do_softmax": BOOLEAN}, "do_softmax", False),
    "ReorgYolo": Facts("any", "4", zero=False),
    "Reshape": Facts("any integer", "0-5", None, {"special_zero": BOOLEAN}),
    "Result": Facts("any"),
    "Reverse": Facts("any integer|boolean", "1-5", None, {"mode": "index mask"}),
    "ReverseSequence": Facts("any integer", "2-5", "seq_axis", {}, "batch_axis seq_axis"),
    "Roll": Facts("any index index", "1-5", 2),
    "Round": Facts("number", enums={"mode": "half_to_even half_away_from_zero"}, optional="mode"),
    "ROIAlign-opset3": Facts("float =0 integer", "4", None, {"mode": "avg max"}, "", False),
    "ROIAlign": Facts(
        "float =0 integer",
        "4",
        None,
        {"mode": "avg max", "aligned_mode": "asymmetric half_pixel_for_nn half_pixel"},
        "aligned_mode",
        False,
    ),
    "ROIPooling": Facts("float =0", "4", None, {"method": "max bilinear"}, "method", False),
    "ScaledDotProductAttention": Facts(
        "float =0 =0 boolean =0 =0", "3-5", None, {"causal": BOOLEAN}, "", False, inputs="3-6"
    ),
    "ScatterElementsUpdate-opset3": Facts("any integer =0 integer", "1-5", 3),
    "ScatterElementsUpdate": Facts(
        "any integer =0 integer",
        "1-5",
        3,
        {"reduction": "none sum prod min max mean", "use_init_val": BOOLEAN},
        "reduction use_init_val",
    ),
    "ScatterNDUpdate-opset4": Facts("any index =0", "1-5"),
    "ScatterNDUpdate": Facts("any index =0", "1-5", None, {"reduction": "none sum sub prod min max"}, "reduction"),
    "ScatterUpdate": Facts("any integer =0 integer", "1-5", 3),
    "Select": Facts("boolean any =1", "0-5", None, PDPD, "auto_broadcast"),
    "Selu": Facts("float =0 =0"),
    "ShapeOf-opset1": Facts("any"),
    "ShapeOf": Facts("any", enums=OUTPUT_INDEX, optional="output_type"),
    "ShuffleChannels": Facts("any", "1-5", "axis", {}, "axis group"),
    "Slice": Facts("any integer integer integer integer", "1-5", 4, inputs="4-5"),
    "SliceScatter": Facts("any =0 integer integer integer integer", "1-5", 5, inputs="5-6"),
    "SoftMax-opset1": Facts("float", "1-5", None, {}, "axis"),
    "SoftMax": Facts("float", "1-5", "axis", {}, "axis"),
    "Split": Facts("any integer", "1-5", 1),
    "Squeeze-opset1": Facts("any integer", "0-5", 1, inputs="1-2"),
    "Squeeze": Facts("any integer", "0-5", 1, {"allow_axis_skip": BOOLEAN}, "allow_axis_skip", inputs="1-2"),
    "StridedSlice": Facts(
        "any integer integer integer", "1-5", None, {}, "new_axis_mask shrink_axis_mask ellipsis_mask", inputs="3-4"
    ),
    "Swish": Facts("float =0", inputs="1-2"),
    "TensorIterator": Facts("any ...", "1-5"),
    "Tile": Facts("any integer", "0-5"),
    "TopK-opset1": Facts("number integer", "1-5", "axis", {**TOP_K, **INDEX_TYPE}, "index_element_type"),
    "TopK-opset3": Facts("number integer", "1-5", "axis", {**TOP_K, **INDEX_TYPE}, "index_element_type"),
    "TopK": Facts(
        "number integer", "1-5", "axis", {**TOP_K, **INDEX_TYPE, "stable": BOOLEAN}, "index_element_type stable"
    ),
    "Transpose": Facts("any integer", "0-5"),
    "Unsqueeze": Facts("any integer", "0-4", 1),
    "VariadicSplit": Facts("any integer integer", "1-5", 1),
    # The rest of the table.
    "AdaptiveAvgPool": Facts("number integer", "3-5", zero=False),
    "AdaptiveMaxPool": Facts("number integer", "3-5", None, INDEX_TYPE, "index_element_type", False),
    "BatchToSpace": Facts("any integer integer integer", "2-5"),
    "SpaceToBatch": Facts("any integer integer integer", "2-5"),
    "Bucketize": Facts(
        "number number", "0-5", None, {**OUTPUT_INDEX, "with_right_bound": BOOLEAN}, "output_type with_right_bound"
    ),
    "ConvertLike": Facts("any any"),
    "DepthToSpace": Facts("any", "3-5", None, {"mode": "blocks_first depth_first"}),
    "SpaceToDepth": Facts("any", "3-5", None, {"mode": "blocks_first depth_first"}),
    "DFT": Facts("float index index", "2-5", 1, zero=False, inputs="2-3"),
    "IDFT": Facts("float index index", "2-5", 1, zero=False, inputs="2-3"),
    "RDFT": Facts("float index index", "1-5", 1, zero=False, inputs="2-3"),
    "IRDFT": Facts("float index index", "2-5", 1, zero=False, inputs="2-3"),
    "Einsum": Facts("number =0 ..."),
    "Eye": Facts("index index index index", "0", None, {"output_type": " ".join(CLASSES["number"])}, inputs="3-4"),
    "GridSample": Facts(
        "number float",
        "4",
        None,
        {"mode": "bilinear bicubic nearest", "padding_mode": "zeros border reflection", "align_corners": BOOLEAN},
        "mode padding_mode align_corners",
        False,
    ),
    **{name: Facts("float") for name in ["IsFinite", "IsNaN"]},
    "IsInf": Facts(
        "float",
        enums={"detect_negative": BOOLEAN, "detect_positive": BOOLEAN},
        optional="detect_negative detect_positive",
    ),
    "BatchNormInference-opset1": Facts("float =0 =0 =0 =0", "1", zero=False),
    "BatchNormInference": Facts("float =0 =0 =0 =0", "2-5", zero=False),
    "GRN": Facts("float", "2-4", zero=False),
    "DeformablePSROIPooling": Facts(
        "float =0 =0",
        "4",
        None,
        {"mode": "bilinear_deformable"},
        "group_size mode spatial_bins_x spatial_bins_y trans_std part_size",
        False,
        inputs="2-3",
    ),
    "ExperimentalDetectronDetectionOutput": Facts(
        "float =0 =0 =0",
        "2",
        None,
        {"class_agnostic_box_regression": BOOLEAN},
        "class_agnostic_box_regression",
        False,
    ),
    "ExperimentalDetectronGenerateProposalsSingleImage": Facts("float =0 =0 =0", "1", zero=False),
    "ExperimentalDetectronPriorGridGenerator": Facts(
        "float =0 =0", "2", None, {"flatten": BOOLEAN}, "flatten h w stride_x stride_y", False
    ),
    "ExperimentalDetectronROIFeatureExtractor": Facts(
        "float =0 ...", "2", None, {"aligned": BOOLEAN}, "aligned", False
    ),
    "ExperimentalDetectronTopKROIs": Facts("float =0", "2", zero=False),
    "GenerateProposals": Facts(
        "float =0 =0 =0",
        "2",
        None,
        {"normalized": BOOLEAN, "roi_num_type": "i32 i64"},
        "normalized nms_eta roi_num_type",
        False,
    ),
    "MatrixNms": Facts(
        "float =0",
        "3",
        None,
        {**DETECTIONS, "decay_function": "gaussian linear"},
        "sort_result_type output_type nms_top_k keep_top_k sort_result_across_batch score_threshold "
        "background_class decay_function gaussian_sigma post_threshold normalized",
        False,
    ),
    "MulticlassNms-opset8": Facts("float =0", "3", None, DETECTIONS, ABSENT_OF_DETECTIONS, False),
    "MulticlassNms": Facts("float =0 index", "3", None, DETECTIONS, ABSENT_OF_DETECTIONS, False, inputs="2-3"),
    "NMSRotated": Facts(
        "float =0 integer float =3",
        "3",
        None,
        {"sort_result_descending": BOOLEAN, "clockwise": BOOLEAN, **OUTPUT_INDEX},
        "sort_result_descending output_type clockwise",
        False,
    ),
    "ROIAlignRotated": Facts("float =0 integer", "4", None, {"clockwise_mode": BOOLEAN}, "clockwise_mode", False),
    "SearchSorted": Facts("number =0", "1-5", None, {"right_mode": BOOLEAN, **OUTPUT_INDEX}, "right_mode output_type"),
    "Unique": Facts(
        "any index",
        "0-5",
        1,
        {"sorted": BOOLEAN, "index_element_type": "i32 i64", "count_element_type": "i32 i64"},
        "sorted index_element_type count_element_type",
        inputs="1-2",
    ),
    # Images, random classes, segments, groups.
    **{
        f"{name}to{order}": Facts("u8|float =0" if name == "NV12" else "u8|float =0 =0", "4", zero=False)
        for name in ("NV12", "I420")
        for order in ("RGB", "BGR")
    },
    **{
        f"{order}toNV12": Facts("u8|float", "4", None, {"single_plane": BOOLEAN}, "single_plane", False)
        for order in ("RGB", "BGR")
    },
    "CTCLoss": Facts(
        "float index index =1 =2",
        "3",
        None,
        {"preprocess_collapse_repeated": BOOLEAN, "ctc_merge_repeated": BOOLEAN, "unique": BOOLEAN},
        "preprocess_collapse_repeated ctc_merge_repeated unique",
        False,
        inputs="4-5",
    ),
    "ErfInv": Facts("float"),
    "FakeConvert": Facts("f16|bf16|f32 =0 =0", enums={"destination_type": "f8e4m3 f8e5m2"}, inputs="2-3"),
    "GroupedMatMul": Facts("number =0 index", "2-3", inputs="2-3"),
    "Inverse": Facts("float", "2-5", None, {"adjoint": BOOLEAN}, "adjoint"),
    "Multinomial": Facts(
        "float index",
        "2",
        None,
        {"convert_type": "i32 i64", "with_replacement": BOOLEAN, "log_probs": BOOLEAN},
        "op_seed",
        False,
    ),
    "SegmentMax": Facts("number index index", "1-5", None, {"fill_mode": "zero lowest"}, inputs="2-3"),
    "SparseFillEmptyRows": Facts("number index =1 =0", "1"),
    "StringTensorPack": Facts("index =0 u8", "0-5"),
}
