//! Every operation that the specification knows, implemented here or not.

/// An operation of the specification in one class version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Specified {
    /// The type as IR writes it.
    pub type_name: &'static str,
    /// The class version of the specification.
    pub class_version: u8,
    /// The first opset that has it, nearly always of the same number.
    pub first_opset: u8,
    /// The last opset that has it.
    pub last_opset: u8,
}

/// All operations of opset1 to opset17 (OpenVINO 2026), by type and version.
pub static SPECIFIED: &[Specified] = &[
    specified("Abs", 1, (1, 16)),
    specified("Acos", 1, (1, 16)),
    specified("Acosh", 3, (4, 16)),
    specified("AdaptiveAvgPool", 8, (8, 16)),
    specified("AdaptiveMaxPool", 8, (8, 16)),
    specified("Add", 1, (1, 16)),
    specified("Asin", 1, (1, 16)),
    specified("Asinh", 3, (4, 16)),
    specified("Assign", 3, (3, 5)),
    specified("Assign", 6, (6, 16)),
    specified("Atan", 1, (1, 16)),
    specified("Atanh", 3, (4, 16)),
    specified("AvgPool", 1, (1, 13)),
    specified("AvgPool", 14, (14, 15)),
    specified("AvgPool", 16, (16, 16)),
    specified("BGRtoNV12", 17, (17, 17)),
    specified("BatchNormInference", 1, (1, 4)),
    specified("BatchNormInference", 5, (5, 16)),
    specified("BatchToSpace", 2, (2, 16)),
    specified("BinaryConvolution", 1, (1, 16)),
    specified("BitwiseAnd", 13, (13, 16)),
    specified("BitwiseLeftShift", 15, (15, 16)),
    specified("BitwiseNot", 13, (13, 16)),
    specified("BitwiseOr", 13, (13, 16)),
    specified("BitwiseRightShift", 15, (15, 16)),
    specified("BitwiseXor", 13, (13, 16)),
    specified("Broadcast", 1, (1, 2)),
    specified("Broadcast", 3, (3, 16)),
    specified("Bucketize", 3, (3, 16)),
    specified("CTCGreedyDecoder", 1, (1, 16)),
    specified("CTCGreedyDecoderSeqLen", 6, (6, 16)),
    specified("CTCLoss", 4, (4, 16)),
    specified("Ceiling", 1, (1, 16)),
    specified("Clamp", 1, (1, 16)),
    specified("Col2Im", 15, (15, 16)),
    specified("Concat", 1, (1, 16)),
    specified("Const", 1, (1, 16)),
    specified("Convert", 1, (1, 17)),
    specified("ConvertLike", 1, (1, 16)),
    specified("ConvertPromoteTypes", 14, (14, 16)),
    specified("Convolution", 1, (1, 16)),
    specified("ConvolutionBackpropData", 1, (1, 16)),
    specified("Cos", 1, (1, 16)),
    specified("Cosh", 1, (1, 16)),
    specified("CumSum", 3, (3, 16)),
    specified("DFT", 7, (7, 16)),
    specified("DeformableConvolution", 1, (1, 7)),
    specified("DeformableConvolution", 8, (8, 16)),
    specified("DeformablePSROIPooling", 1, (1, 16)),
    specified("DepthToSpace", 1, (1, 16)),
    specified("DetectionOutput", 1, (1, 7)),
    specified("DetectionOutput", 8, (8, 16)),
    specified("Divide", 1, (1, 16)),
    specified("Einsum", 7, (7, 16)),
    specified("Elu", 1, (1, 16)),
    specified("EmbeddingBagOffsets", 15, (15, 16)),
    specified("EmbeddingBagOffsetsSum", 3, (3, 16)),
    specified("EmbeddingBagPacked", 15, (15, 16)),
    specified("EmbeddingBagPackedSum", 3, (3, 16)),
    specified("EmbeddingSegmentsSum", 3, (3, 16)),
    specified("Equal", 1, (1, 16)),
    specified("Erf", 1, (1, 16)),
    specified("ErfInv", 17, (17, 17)),
    specified("Exp", 1, (1, 16)),
    specified("ExperimentalDetectronDetectionOutput", 6, (6, 16)),
    specified("ExperimentalDetectronGenerateProposalsSingleImage", 6, (6, 16)),
    specified("ExperimentalDetectronPriorGridGenerator", 6, (6, 16)),
    specified("ExperimentalDetectronROIFeatureExtractor", 6, (6, 16)),
    specified("ExperimentalDetectronTopKROIs", 6, (6, 16)),
    specified("ExtractImagePatches", 3, (3, 16)),
    specified("Eye", 9, (9, 16)),
    specified("FakeConvert", 13, (13, 16)),
    specified("FakeQuantize", 1, (1, 16)),
    specified("Floor", 1, (1, 16)),
    specified("FloorMod", 1, (1, 16)),
    specified("GRN", 1, (1, 16)),
    specified("GRUCell", 3, (3, 16)),
    specified("GRUSequence", 5, (5, 16)),
    specified("Gather", 1, (1, 6)),
    specified("Gather", 7, (7, 7)),
    specified("Gather", 8, (8, 16)),
    specified("GatherElements", 6, (6, 16)),
    specified("GatherND", 5, (5, 7)),
    specified("GatherND", 8, (8, 16)),
    specified("GatherTree", 1, (1, 16)),
    specified("Gelu", 2, (2, 6)),
    specified("Gelu", 7, (7, 16)),
    specified("GenerateProposals", 9, (9, 16)),
    specified("Greater", 1, (1, 16)),
    specified("GreaterEqual", 1, (1, 16)),
    specified("GridSample", 9, (9, 16)),
    specified("GroupConvolution", 1, (1, 16)),
    specified("GroupConvolutionBackpropData", 1, (1, 16)),
    specified("GroupNormalization", 12, (12, 16)),
    specified("GroupedMatMul", 17, (17, 17)),
    specified("HSigmoid", 5, (5, 16)),
    specified("HSwish", 4, (4, 16)),
    specified("HardSigmoid", 1, (1, 16)),
    specified("I420toBGR", 8, (8, 16)),
    specified("I420toRGB", 8, (8, 16)),
    specified("IDFT", 7, (7, 16)),
    specified("IRDFT", 9, (9, 16)),
    specified("ISTFT", 16, (16, 16)),
    specified("Identity", 16, (16, 16)),
    specified("If", 8, (8, 16)),
    specified("Interpolate", 1, (1, 3)),
    specified("Interpolate", 4, (4, 10)),
    specified("Interpolate", 11, (11, 16)),
    specified("Inverse", 14, (14, 16)),
    specified("IsFinite", 10, (10, 16)),
    specified("IsInf", 10, (10, 16)),
    specified("IsNaN", 10, (10, 16)),
    specified("LRN", 1, (1, 16)),
    specified("LSTMCell", 1, (1, 3)),
    specified("LSTMCell", 4, (4, 16)),
    specified("LSTMSequence", 5, (5, 16)),
    specified("Less", 1, (1, 16)),
    specified("LessEqual", 1, (1, 16)),
    specified("Log", 1, (1, 16)),
    specified("LogSoftmax", 5, (5, 16)),
    specified("LogicalAnd", 1, (1, 16)),
    specified("LogicalNot", 1, (1, 16)),
    specified("LogicalOr", 1, (1, 16)),
    specified("LogicalXor", 1, (2, 16)),
    specified("Loop", 5, (5, 16)),
    specified("MVN", 1, (2, 5)),
    specified("MVN", 6, (6, 16)),
    specified("MatMul", 1, (1, 16)),
    specified("MatrixNms", 8, (8, 16)),
    specified("MaxPool", 1, (1, 7)),
    specified("MaxPool", 8, (8, 13)),
    specified("MaxPool", 14, (14, 16)),
    specified("Maximum", 1, (1, 16)),
    specified("Minimum", 1, (1, 16)),
    specified("Mish", 4, (4, 16)),
    specified("Mod", 1, (1, 16)),
    specified("MulticlassNms", 8, (8, 8)),
    specified("MulticlassNms", 9, (9, 16)),
    specified("Multinomial", 13, (13, 16)),
    specified("Multiply", 1, (1, 16)),
    specified("NMSRotated", 13, (13, 16)),
    specified("NV12toBGR", 8, (8, 16)),
    specified("NV12toRGB", 8, (8, 16)),
    specified("Negative", 1, (1, 16)),
    specified("NonMaxSuppression", 1, (1, 2)),
    specified("NonMaxSuppression", 3, (3, 3)),
    specified("NonMaxSuppression", 4, (4, 4)),
    specified("NonMaxSuppression", 5, (5, 8)),
    specified("NonMaxSuppression", 9, (9, 16)),
    specified("NonZero", 3, (3, 16)),
    specified("NormalizeL2", 1, (1, 16)),
    specified("NotEqual", 1, (1, 16)),
    specified("OneHot", 1, (1, 15)),
    specified("OneHot", 16, (16, 16)),
    specified("PReLU", 1, (1, 16)),
    specified("PSROIPooling", 1, (1, 16)),
    specified("Pad", 1, (1, 11)),
    specified("Pad", 12, (12, 16)),
    specified("Parameter", 1, (1, 17)),
    specified("Power", 1, (1, 16)),
    specified("PriorBox", 1, (1, 7)),
    specified("PriorBox", 8, (8, 16)),
    specified("PriorBoxClustered", 1, (1, 16)),
    specified("Proposal", 1, (1, 3)),
    specified("Proposal", 4, (4, 16)),
    specified("RDFT", 9, (9, 16)),
    specified("RGBtoNV12", 17, (17, 17)),
    specified("RNNCell", 1, (1, 16)),
    specified("RNNSequence", 5, (5, 16)),
    specified("ROIAlign", 3, (3, 8)),
    specified("ROIAlign", 9, (9, 16)),
    specified("ROIAlignRotated", 15, (15, 16)),
    specified("ROIPooling", 1, (2, 16)),
    specified("RandomUniform", 8, (8, 16)),
    specified("Range", 1, (1, 3)),
    specified("Range", 4, (4, 16)),
    specified("ReLU", 1, (1, 16)),
    specified("ReadValue", 3, (3, 5)),
    specified("ReadValue", 6, (6, 16)),
    specified("ReduceL1", 4, (4, 16)),
    specified("ReduceL2", 4, (4, 16)),
    specified("ReduceLogicalAnd", 1, (1, 16)),
    specified("ReduceLogicalOr", 1, (1, 16)),
    specified("ReduceMax", 1, (1, 16)),
    specified("ReduceMean", 1, (1, 16)),
    specified("ReduceMin", 1, (1, 16)),
    specified("ReduceProd", 1, (1, 16)),
    specified("ReduceSum", 1, (1, 16)),
    specified("RegionYolo", 1, (1, 16)),
    specified("ReorgYolo", 1, (2, 16)),
    specified("Reshape", 1, (1, 16)),
    specified("Result", 1, (1, 16)),
    specified("Reverse", 1, (1, 1)),
    specified("ReverseSequence", 1, (1, 16)),
    specified("Roll", 7, (7, 16)),
    specified("Round", 5, (5, 16)),
    specified("STFT", 15, (15, 16)),
    specified("ScaledDotProductAttention", 13, (13, 16)),
    specified("ScatterElementsUpdate", 3, (3, 11)),
    specified("ScatterElementsUpdate", 12, (12, 16)),
    specified("ScatterNDUpdate", 3, (4, 14)),
    specified("ScatterNDUpdate", 15, (15, 16)),
    specified("ScatterUpdate", 3, (3, 16)),
    specified("SearchSorted", 15, (15, 16)),
    specified("SegmentMax", 16, (16, 16)),
    specified("Select", 1, (1, 16)),
    specified("Selu", 1, (1, 16)),
    specified("ShapeOf", 1, (1, 2)),
    specified("ShapeOf", 3, (3, 17)),
    specified("ShuffleChannels", 1, (1, 16)),
    specified("Sigmoid", 1, (1, 16)),
    specified("Sign", 1, (1, 16)),
    specified("Sin", 1, (1, 16)),
    specified("Sinh", 1, (1, 16)),
    specified("Slice", 8, (8, 16)),
    specified("SliceScatter", 15, (15, 16)),
    specified("SoftMax", 1, (1, 7)),
    specified("SoftMax", 8, (8, 16)),
    specified("SoftPlus", 4, (4, 16)),
    specified("SoftSign", 9, (9, 16)),
    specified("SpaceToBatch", 2, (2, 16)),
    specified("SpaceToDepth", 1, (1, 16)),
    specified("SparseFillEmptyRows", 16, (16, 16)),
    specified("Split", 1, (1, 16)),
    specified("Sqrt", 1, (1, 16)),
    specified("SquaredDifference", 1, (1, 16)),
    specified("Squeeze", 1, (1, 14)),
    specified("Squeeze", 15, (15, 16)),
    specified("StridedSlice", 1, (1, 16)),
    specified("StringTensorPack", 15, (15, 16)),
    specified("StringTensorUnpack", 15, (15, 16)),
    specified("Subtract", 1, (1, 16)),
    specified("Swish", 4, (4, 16)),
    specified("Tan", 1, (1, 16)),
    specified("Tanh", 1, (1, 16)),
    specified("TensorIterator", 1, (1, 16)),
    specified("Tile", 1, (1, 16)),
    specified("TopK", 1, (1, 2)),
    specified("TopK", 3, (3, 10)),
    specified("TopK", 11, (11, 16)),
    specified("Transpose", 1, (1, 16)),
    specified("Unique", 10, (10, 16)),
    specified("Unsqueeze", 1, (1, 16)),
    specified("VariadicSplit", 1, (1, 16)),
    specified("Xor", 1, (1, 1)),
];

/// What is known of an operation that is not implemented: enough to check how a layer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// The type as IR writes it.
    pub type_name: &'static str,
    /// The class version of the specification.
    pub class_version: u8,
    /// The smallest and largest number of inputs.
    pub inputs: (usize, usize),
    /// The smallest and largest number of outputs.
    pub outputs: (usize, usize),
    /// The names of the attributes.
    pub attributes: &'static [&'static str],
}

/// The operations of [`SPECIFIED`] that are not implemented, as OpenVINO writes them: none of those of OpenVINO 2026.4.
/// What a new opset adds stands here until it is implemented.
pub static OUTLINES: &[Outline] = &[];

const fn specified(type_name: &'static str, class_version: u8, opsets: (u8, u8)) -> Specified {
    Specified { type_name, class_version, first_opset: opsets.0, last_opset: opsets.1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use pretty_assertions::assert_eq;

    #[test]
    fn every_built_in_version_is_specified() {
        let is_specified =
            |name: &str, version: u8| SPECIFIED.iter().any(|s| s.type_name == name && s.class_version == version);
        let built_in = Registry::default().built_in();
        let versions = built_in.iter().flat_map(|d| d.versions.iter().map(|v| (d.type_name, v.class_version)));
        let strange: Vec<_> = versions.filter(|(name, version)| !is_specified(name, *version)).collect();
        assert_eq!(strange, []);
    }

    #[test]
    fn every_operation_is_built_in_or_outlined() {
        let built_in = Registry::default().built_in();
        let is_known = |s: &Specified| {
            let is_built_in = |d: &&crate::OpDef| {
                d.type_name == s.type_name && d.versions.iter().any(|v| v.class_version == s.class_version)
            };
            let is_outlined = |o: &Outline| o.type_name == s.type_name && o.class_version == s.class_version;
            built_in.iter().any(is_built_in) || OUTLINES.iter().any(is_outlined)
        };
        let strange: Vec<_> = SPECIFIED.iter().filter(|s| !is_known(s)).map(|s| s.type_name).collect();
        assert_eq!(strange, Vec::<&str>::new());
    }

    #[test]
    fn the_list_is_ordered() {
        let keys: Vec<_> = SPECIFIED.iter().map(|s| (s.type_name, s.class_version)).collect();
        let mut sorted = keys.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(keys, sorted);
    }
}
