//! Layers of types that no opset has: said once for each type, or once for all that come from one place.

use std::collections::BTreeMap;

use ovir_diagnostics::{Code, Diagnostic, LayerReference, Span};
use ovir_ir::Layer;
use ovir_ops::Registry;

use super::is_opset;

/// The most layers that are shown in the text of the file.
const MAX_PLACES: usize = 4;

/// The most layers that are named.
const MAX_NAMES: usize = 1000;

/// The `version` that OpenVINO writes for operations of extension libraries.
const EXTENSION: &str = "extension";

/// The `version`s that OpenVINO writes for operations that its plugins make while they compile.
const PLUGIN_OPSETS: &[&str] = &[
    "SnippetsOpset",
    "cpu_plugin_opset",
    "gpu_opset",
    "ie_internal_opset",
    "internal_opset",
    "legacy",
    "type_relaxed_opset",
];

/// Operations that OpenVINO's passes make and no opset has.
const PLUGIN_TYPES: &[&str] = &[
    "AUGRUCell",
    "AUGRUSequence",
    "CausalMaskPreprocess",
    "ConvolutionBiased",
    "DynamicQuantize",
    "FullyConnected",
    "FullyConnectedCompressed",
    "FullyConnectedQuantized",
    "FullyConnectedQuantizedLegacy",
    "GLU",
    "GatedDeltaNet",
    "GatherCompressed",
    "GatherMatmul",
    "GatherMatmulCompressed",
    "GenerateProposalsIEInternal",
    "GroupedMatMulCompressed",
    "IndirectSDPA",
    "KVCache",
    "LLMMLP",
    "LoraSubgraph",
    "MHA",
    "MOE",
    "MOECompressed",
    "MOEExpert",
    "MulticlassNmsIEInternal",
    "NgramCPU",
    "NmsStaticShapeIE",
    "NonMaxSuppressionIEInternal",
    "PagedAttentionExtension",
    "PagedCausalConv1D",
    "PagedGatedDeltaNet",
    "Placeholder",
    "PowerStatic",
    "QKVProjection",
    "RMS",
    "RoPE",
    "ScaledDotProductAttentionWithKVCache",
    "SDPA",
    "SwiGLU",
    "SwishCPU",
    "TypeRelaxed",
    "VLSDPA",
];

/// The operations of the package openvino-tokenizers. Two of them became operations of opset15.
const TOKENIZER_TYPES: &[&str] = &[
    "BPETokenizer",
    "ByteFallback",
    "BytesToChars",
    "CaseFold",
    "CharsMapNormalization",
    "CharsToBytes",
    "CombineSegments",
    "EqualStr",
    "FuzeRagged",
    "NormalizeUnicode",
    "NumericToString",
    "RaggedTensorPack",
    "RaggedTensorUnpack",
    "RaggedToDense",
    "RaggedToRagged",
    "RaggedToSparse",
    "RegexNormalization",
    "RegexSplit",
    "SentencepieceDetokenizer",
    "SentencepieceStreamDetokenizer",
    "SentencepieceTokenizer",
    "SpecialTokensSplit",
    "StringTensorPack",
    "StringTensorUnpack",
    "StringToHashBucketFast",
    "TrieTokenizer",
    "Truncate",
    "UTF8Validate",
    "UnigramTokenizer",
    "VocabDecoder",
    "VocabEncoder",
    "WordpieceTokenizer",
];

/// A layer whose type is unknown.
pub(super) struct Unknown {
    reference: LayerReference,
    type_name: String,
    version: String,
    span: Span,
    layer_name: String,
    origin: Origin,
}

/// Where the operation is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// Nowhere that ovir knows of.
    Nowhere,
    /// In OpenVINO's plugins.
    Plugins,
    /// In openvino-tokenizers.
    Tokenizers,
}

impl Unknown {
    /// The unknown type of a layer.
    pub(super) fn new(layer: &Layer<'_>) -> Unknown {
        let (type_name, version) = (layer.type_name.as_str(), layer.version.as_str());
        let origin = if is_of_tokenizers(layer) {
            Origin::Tokenizers
        } else if PLUGIN_OPSETS.contains(&version) || (PLUGIN_TYPES.contains(&type_name) && !is_opset(version)) {
            Origin::Plugins
        } else {
            Origin::Nowhere
        };
        Unknown {
            reference: layer.reference(),
            type_name: type_name.to_owned(),
            version: version.to_owned(),
            span: layer.type_name.span,
            layer_name: layer.name.as_str().to_owned(),
            origin,
        }
    }
}

/// Whether a layer is of an operation of openvino-tokenizers.
pub(super) fn is_of_tokenizers(layer: &Layer<'_>) -> bool {
    layer.version.as_str() == EXTENSION && TOKENIZER_TYPES.contains(&layer.type_name.as_str())
}

/// Reports unknown types, each group once with all its layers.
pub(super) fn report(unknown: Vec<Unknown>, registry: &Registry, diagnostics: &mut Vec<Diagnostic>) {
    let mut groups: BTreeMap<(Origin, String, String), Vec<Unknown>> = BTreeMap::new();
    for layer in unknown {
        let key = match layer.origin {
            Origin::Nowhere => (layer.origin, layer.type_name.clone(), layer.version.clone()),
            origin => (origin, String::new(), String::new()),
        };
        groups.entry(key).or_default().push(layer);
    }
    let mut found: Vec<Diagnostic> = groups.into_values().filter_map(|layers| describe(&layers, registry)).collect();
    found.sort_by_key(|diagnostic| diagnostic.primary.as_ref().map(|label| label.span.start));
    diagnostics.extend(found);
}

fn describe(layers: &[Unknown], registry: &Registry) -> Option<Diagnostic> {
    let first = layers.first()?;
    let mut diagnostic = match first.origin {
        Origin::Nowhere => describe_unknown(first, layers.len(), registry),
        Origin::Plugins => {
            let message = format!("{}: in no opset, only inside OpenVINO's plugins", kinds(layers));
            locate(first, message, "made by a plugin")
                .note("OpenVINO makes such operations while it compiles a model; they have no specification")
                .help("save the model before it is compiled for a device, by `openvino.save_model`")
        }
        Origin::Tokenizers => {
            let message = format!("{}: of the package openvino-tokenizers, in no opset", kinds(layers));
            locate(first, message, "of a tokenizer")
                .note("the package extends OpenVINO; ovir reads and checks the rest of the model, but cannot run it")
                .help("make the tokens outside of the model, or register the operations by `Core::register`")
        }
    };
    for other in layers.iter().skip(1).take(MAX_PLACES) {
        diagnostic = diagnostic.also(other.span, "");
    }
    if layers.len() > 1 {
        diagnostic = diagnostic.note(names(layers));
    }
    Some(diagnostic)
}

fn describe_unknown(first: &Unknown, count: usize, registry: &Registry) -> Diagnostic {
    let message = match count {
        1 => format!("{}: unknown operation \"{}\"", first.reference, first.type_name),
        _ => format!("unknown operation \"{}\" of {count} layers", first.type_name),
    };
    let diagnostic = locate(first, message, "no opset has it");
    let near = registry.near(&first.type_name);
    match (near.split_last(), is_opset(&first.version)) {
        (Some((last, [])), _) => diagnostic.help(format!("did you mean {last}?")),
        (Some((last, others)), _) => diagnostic.help(format!("did you mean {} or {last}?", others.join(", "))),
        (None, true) => diagnostic,
        (None, false) => diagnostic
            .note(format!(
                "\"{}\" names an extension; ovir reads and checks the rest of the model, but cannot run it",
                first.version
            ))
            .help("register the operation by `Core::register`"),
    }
}

fn locate(first: &Unknown, message: String, label: &str) -> Diagnostic {
    Diagnostic::new(Code::UnknownOperation, message).in_layer(first.reference.clone()).at(first.span, label)
}

/// The types of layers, each with its number of layers.
fn kinds(layers: &[Unknown]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for layer in layers {
        *counts.entry(&layer.type_name).or_default() += 1;
    }
    let listed: Vec<String> = counts
        .into_iter()
        .map(|(kind, count)| if count == 1 { kind.to_owned() } else { format!("{kind} ({count} layers)") })
        .collect();
    listed.join(", ")
}

/// The names of layers.
fn names(layers: &[Unknown]) -> String {
    let shown: Vec<String> = layers.iter().take(MAX_NAMES).map(|layer| format!("\"{}\"", layer.layer_name)).collect();
    let rest = layers.len() - shown.len();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("the layers are {}{more}", shown.join(", "))
}
