//! The stable codes of all diagnostics, each with its card.
//!
//! A code is never reused. The hundreds tell the area: 1xx XML and file structure, 2xx layers, ports and edges,
//! 3xx types, versions and attributes, 4xx weights and constants, 5xx element types and shapes, 6xx bodies and states,
//! 7xx names and metadata, 9xx limits.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Severity;

/// What `ovir explain` tells about a code.
#[derive(Debug)]
pub struct CodeCard {
    /// The code as printed: `OV503`.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// The severity that findings with this code have unless they say otherwise.
    pub severity: Severity,
    /// What the rule is and why it matters.
    pub explanation: &'static str,
    /// A minimal bad example, as an XML fragment.
    pub example: &'static str,
}

macro_rules! codes {
    ($($variant:ident, $name:literal, $severity:ident, $title:literal, $explanation:literal, $example:literal;)*) => {
        /// The identity of a kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        /// All cards, in order of code.
        pub static CODES: &[CodeCard] = &[
            $(CodeCard {
                name: $name,
                title: $title,
                severity: Severity::$severity,
                explanation: $explanation,
                example: $example,
            },)*
        ];
    };
}

codes! {
    XmlSyntax, "OV101", Error, "the XML is damaged",
        "The text is not well-formed XML, so nothing after this place can be trusted.",
        "<net name=\"m\" version=\"11\"><layers></net>";
    NotIr, "OV102", Error, "this is not an OpenVINO IR file",
        "The root element of an IR file is <net> with a version attribute.",
        "<html></html>";
    UnsupportedIrVersion, "OV103", Error, "this IR version is not supported",
        "IR versions 10 and 11 are read. Version 7 and older files must be converted again; newer versions need a newer ovir.",
        "<net name=\"m\" version=\"7\">";
    UnknownElement, "OV104", Warning, "an unknown XML element",
        "The element has no meaning here. It is ignored, which is rarely what its writer wanted.",
        "<layer id=\"0\" name=\"a\" type=\"ReLU\" version=\"opset1\"><outputs/></layer>";
    MissingElement, "OV105", Error, "a required XML element is missing",
        "The structure of an IR file requires this element.",
        "<net name=\"m\" version=\"11\"></net>";
    MissingXmlAttribute, "OV106", Error, "a required XML attribute is missing",
        "The element cannot be understood without this attribute.",
        "<layer name=\"a\" type=\"ReLU\" version=\"opset1\"/>";
    InvalidNumber, "OV107", Error, "a number cannot be read",
        "The text of this attribute or element must be a number in its range.",
        "<dim>-7</dim>";
    UnknownPrecision, "OV108", Error, "an unknown precision",
        "The precision of a port must be one of FP32, FP16, I64, I32, U8, BOOL and the other element types.",
        "<port id=\"0\" precision=\"FP31\"/>";
    UnknownXmlAttribute, "OV109", Warning, "an unknown XML attribute",
        "The element has no attribute of this name. It is ignored, which is rarely what its writer wanted.",
        "<edge from-layer=\"0\" from-port=\"0\" to-layer=\"1\" to-port=\"0\" weight=\"2\"/>";
    DuplicateElement, "OV110", Error, "an XML element is given twice",
        "This element may appear once in its parent. OpenVINO and ovir read the first and ignore the others.",
        "<layer ...><data axis=\"0\"/><data axis=\"1\"/></layer>";
    DuplicateLayerId, "OV201", Error, "two layers have the same id",
        "Edges name layers by id, so ids must be unique.",
        "<layer id=\"1\" .../><layer id=\"1\" .../>";
    DuplicatePortId, "OV202", Error, "two ports of a layer have the same id",
        "Edges name ports by id, so ids must be unique in a layer.",
        "<port id=\"0\"/><port id=\"0\"/>";
    DanglingEdge, "OV203", Error, "an edge names a layer or port that does not exist",
        "Both ends of an edge must be declared.",
        "<edge from-layer=\"0\" from-port=\"0\" to-layer=\"99\" to-port=\"0\"/>";
    DuplicateEdge, "OV204", Error, "two edges end at the same input port",
        "An input port has exactly one producer.",
        "<edge from-layer=\"0\" .../><edge from-layer=\"1\" .../>";
    MissingEdge, "OV205", Error, "an input port has no producer",
        "Every declared input port needs an edge that ends at it.",
        "<layer ...><input><port id=\"0\"/></input></layer>";
    Cycle, "OV206", Error, "the layers form a cycle",
        "A layer cannot depend on its own result.",
        "a -> b -> a";
    DuplicateFriendlyName, "OV207", Warning, "two layers have the same name",
        "Names are used to address layers; OpenVINO renames one of them silently.",
        "<layer id=\"0\" name=\"x\" .../><layer id=\"1\" name=\"x\" .../>";
    NoResults, "OV208", Warning, "the model has no results",
        "Without a Result layer the model computes nothing that can be seen.",
        "<layers></layers>";
    PortCount, "OV209", Error, "the layer has the wrong number of ports",
        "The specification of the operation fixes how many inputs and outputs it has.",
        "<layer type=\"Add\"><input><port id=\"0\"/></input></layer>";
    Unreachable, "OV210", Warning, "no result depends on this layer",
        "The layer is read and checked but never computed.",
        "<layer type=\"ReLU\"/> without an edge from it";
    UnknownOperation, "OV301", Error, "an unknown operation",
        "The type is in no opset that this version knows. An extension can add it.",
        "<layer type=\"MatMull\" version=\"opset1\"/>";
    UnknownOpset, "OV302", Error, "the opset does not have this operation",
        "The version attribute names the opset from which the operation is taken; it must contain the operation.",
        "<layer type=\"Gelu\" version=\"opset1\"/>";
    NotImplemented, "OV303", Error, "the operation is not implemented for these inputs",
        "The specification allows these element types or values, but this version of ovir cannot compute with them. Validation accepts the model; to run it is an error.",
        "<layer type=\"...\"/>";
    UnknownAttribute, "OV304", Warning, "an unknown attribute",
        "The operation has no attribute of this name; it is ignored, and a default may apply in its stead.",
        "<data axs=\"1\"/>";
    InvalidAttribute, "OV305", Error, "an attribute has a value that is not allowed",
        "The value cannot be read as its type, or is outside the range or the list that the specification allows.",
        "<data transpose_a=\"maybe\"/>";
    MissingAttribute, "OV306", Error, "a required attribute is missing",
        "The specification requires the attribute. OpenVINO would silently use a default.",
        "<layer type=\"Convolution\"><data dilations=\"1,1\"/></layer>";
    ShortWeights, "OV401", Error, "a constant lies outside the weights file",
        "offset + size must be within the .bin file. The file may be truncated, or belong to another model.",
        "<data offset=\"1000000\" size=\"4\"/> with a .bin of 4 bytes";
    ConstantSize, "OV402", Error, "the size of a constant disagrees with its shape",
        "size must be the number of bytes that element_type and shape take.",
        "<data element_type=\"f32\" shape=\"2\" offset=\"0\" size=\"4\"/>";
    MissingWeights, "OV403", Error, "the weights file is missing",
        "The model has constants, but no .bin file was found or given.",
        "model.xml without model.bin";
    InvalidConstant, "OV404", Error, "the bytes of a constant cannot be read",
        "String constants carry a count, offsets and UTF-8 bytes; these do not.",
        "<data element_type=\"string\" .../>";
    ConstantOverlap, "OV405", Warning, "two constants overlap partly",
        "Constants may share all of their bytes, which writers use for equal values, or none. Where ranges overlap only in part, one of the offsets or sizes is wrong.",
        "<data offset=\"0\" size=\"16\" .../> beside <data offset=\"12\" size=\"16\" .../>";
    GitLfsPointer, "OV406", Error, "the weights file is a Git LFS pointer",
        "The .bin holds the few lines by which Git LFS refers to the weights, not the weights. Fetch them with `git lfs pull`.",
        "a .bin that begins with `version https://git-lfs.github.com/spec/v1`";
    NotFinite, "OV407", Warning, "a constant holds NaN or infinity",
        "Looked for with --check-values only. NaN spreads to everything that is computed from it. Infinities are legal, as in masks, but often left over from an overflow.",
        "a weight of value NaN";
    HalfOverflow, "OV408", Warning, "a constant does not fit into f16",
        "Looked for with --check-values only. Values beyond 65504 become infinities when the model is compressed to f16 or run in half precision.",
        "a weight of value 1e6";
    UnknownWithoutWeights, "OV409", Note, "shapes are unknown without weights",
        "With --no-weights the values of constants are unknown. Where a shape depends on one, as the target of a Reshape, the declared shape was not checked.",
        "`ovir validate --no-weights` on a model with a Reshape";
    StaleShape, "OV501", Warning, "a declared shape is stale",
        "The dims written in the port are not what the operation yields. They are ignored by OpenVINO and by ovir.",
        "<port id=\"1\"><dim>7</dim></port> where the operation yields 8";
    StalePrecision, "OV502", Warning, "a declared precision is stale",
        "The precision written in the port is not what the operation yields. It is ignored by OpenVINO and by ovir.",
        "<port id=\"1\" precision=\"I64\"/> where the operation yields f32";
    ShapeMismatch, "OV503", Error, "shapes do not fit",
        "The ranks or dimensions of the inputs violate a rule of the operation.",
        "Add of [2,3] and [4,3]";
    TypeMismatch, "OV504", Error, "element types do not fit",
        "The element type of an input is not allowed by the operation, or two that must be equal differ.",
        "Add of f32 and i64";
    InvalidValue, "OV505", Error, "a constant input has a value that is not allowed",
        "An axis, index, shape or pad given by a constant violates a rule of the operation.",
        "Gather with axis 5 on a tensor of rank 2";
    IndexOutOfRange, "OV506", Error, "an index is out of range",
        "An index must address an element that exists.",
        "ScatterUpdate with index 7 on an axis of size 3";
    InvalidBody, "OV601", Error, "a body of the layer is malformed",
        "The port map or the back edges of If, Loop or TensorIterator name ports or layers that do not exist.",
        "<input external_port_id=\"9\" internal_layer_id=\"0\"/>";
    InvalidVariable, "OV602", Error, "a variable is used wrongly",
        "ReadValue and Assign of the same variable_id must agree in element type and shape, and each needs the other.",
        "<layer type=\"Assign\"><data variable_id=\"v\"/></layer> without ReadValue";
    MissingMapping, "OV603", Error, "a port of a body is not connected",
        "Every Parameter of a body needs an <input> entry or a back edge that gives it a value, and every output of the layer an <output> entry.",
        "<port_map><output external_port_id=\"2\" internal_layer_id=\"4\"/></port_map> without an entry for Parameter 0";
    DuplicateTensorName, "OV701", Warning, "a tensor name is used twice",
        "Tensor names address inputs and outputs and should be unique.",
        "names=\"x\" on two ports";
    LimitExceeded, "OV901", Error, "a limit is exceeded",
        "Limits protect against damaged and hostile files.",
        "a shape of rank 1000";
}

impl Code {
    /// The card of this code.
    pub fn card(self) -> &'static CodeCard {
        &CODES[self as usize]
    }

    /// The code as printed: `OV503`.
    pub fn name(self) -> &'static str {
        self.card().name
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_ordered() {
        assert!(CODES.windows(2).all(|w| w[0].name < w[1].name));
        assert_eq!(Code::ShapeMismatch.name(), "OV503");
        assert!(CODES.iter().all(|c| !c.explanation.is_empty() && !c.example.is_empty()));
    }
}
