//! The located document: what an IR file says, and where it says it.
//!
//! A document that was not read from a file has empty spans everywhere.

use std::borrow::Cow;

use ovir_diagnostics::{LayerReference, Span};
use ovir_tensor::{ElementType, SmallVec};

/// A value with the place where it is written. For an XML attribute that is the text between its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

impl<T> Located<T> {
    /// A value at a place.
    pub const fn new(value: T, span: Span) -> Located<T> {
        Located { value, span }
    }
}

impl<T> From<T> for Located<T> {
    /// A value that was not read from a file.
    fn from(value: T) -> Located<T> {
        Located { value, span: Span::default() }
    }
}

/// A text with its place; character references and the five predefined entities are resolved.
pub type Text<'a> = Located<Cow<'a, str>>;

impl<'a> Text<'a> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.value
    }

    /// A text that was not read from a file.
    pub fn of(text: impl Into<Cow<'a, str>>) -> Text<'a> {
        Located::from(text.into())
    }
}

/// A whole IR file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document<'a> {
    /// The `name` of the model; empty if it has none.
    pub name: Text<'a>,
    /// The IR version: 10 or 11.
    pub version: Located<u32>,
    /// The start tag of `<net>`.
    pub span: Span,
    /// Layers, edges and rt_info.
    pub body: Body<'a>,
    /// The `<pre-process>` sections of version 10, in order. OpenVINO applies the first one only.
    pub pre_process: Vec<PreProcess<'a>>,
    /// What version 10 keeps in `<meta_data>` and `<quantization_parameters>` instead of `<rt_info>`: one entry for
    /// each of these sections.
    pub legacy_metadata: Vec<RtInfo<'a>>,
}

/// The layers of a model, or of a body of If, Loop or TensorIterator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body<'a> {
    /// The layers in the order of the file, which fixes the order of Parameters and Results.
    pub layers: Vec<Layer<'a>>,
    /// The edges in the order of the file.
    pub edges: Vec<Edge>,
    /// The entries of the model's own `<rt_info>`.
    pub rt_info: Vec<RtInfo<'a>>,
    /// Whether layers, ports or edges could not be read and were left out (each with a diagnostic of its own). What is
    /// missing then, such as the producer of a port, is a consequence and not a defect of its own.
    pub is_incomplete: bool,
    /// The start tag of the element that holds the layers: `<net>`, `<body>`, `<then_body>` or `<else_body>`.
    pub span: Span,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer<'a> {
    /// The `id`, unique in its body in a sound file.
    pub id: Located<u64>,
    /// The `id` as written: `007` has the number 7.
    pub id_text: Cow<'a, str>,
    /// The friendly name.
    pub name: Text<'a>,
    /// The type, as written: `Convolution`, `Const`, `relu`.
    pub type_name: Text<'a>,
    /// The `version`: the opset, or the name of a set of custom operations; empty if it is absent.
    pub version: Text<'a>,
    /// The tensor names that a Result carries (`output_names`), without escapes.
    pub output_names: Vec<Text<'a>>,
    /// The attributes of `<data>` in the order of the file.
    pub attributes: Vec<Attribute<'a>>,
    /// The tag of `<data>`, if there is one.
    pub data_span: Option<Span>,
    /// The input ports in the order of the file.
    pub inputs: Vec<Port<'a>>,
    /// The output ports in the order of the file.
    pub outputs: Vec<Port<'a>>,
    /// The runtime attributes of the layer.
    pub rt_info: Vec<RtAttribute<'a>>,
    /// Bodies, port maps and back edges.
    pub control_flow: Option<Box<ControlFlow<'a>>>,
    /// Whether a section could not be read and was left out (with a diagnostic of its own). What is missing then, such as
    /// ports, is a consequence and not a defect of its own.
    pub is_incomplete: bool,
    /// The start tag.
    pub span: Span,
}

impl<'a> Layer<'a> {
    /// The attribute of `<data>` with this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name.value == name)
    }

    /// The layer as diagnostics name it.
    pub fn reference(&self) -> LayerReference {
        LayerReference {
            name: self.name.value.to_string(),
            id: self.id_text.to_string(),
            type_name: self.type_name.value.to_string(),
            version: self.version.value.to_string(),
        }
    }
}

/// One attribute of `<data>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribute<'a> {
    /// The name; it need not be an identifier (`exclude-pad`, `auto_broadcast.auto_broadcast_axis`).
    pub name: Text<'a>,
    /// The value between the quotes.
    pub value: Text<'a>,
}

impl<'a> Attribute<'a> {
    /// An attribute that was not read from a file.
    pub fn of(name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Attribute<'a> {
        Attribute { name: Text::of(name), value: Text::of(value) }
    }

    /// The place of the whole attribute, from its name to its closing quote.
    pub fn span(&self) -> Span {
        Span { start: self.name.span.start, end: self.value.span.end.saturating_add(1) }
    }
}

/// One dimension as a port declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeclaredDim {
    /// The size, or -1 where it is unknown.
    pub value: i64,
    /// The text between `<dim>` and `</dim>`.
    pub span: Span,
}

/// The dimensions that a port declares.
pub type DeclaredDims = SmallVec<[DeclaredDim; 4]>;

/// One port.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Port<'a> {
    /// The `id`, unique among the ports of its layer in a sound file.
    pub id: Located<u64>,
    /// The declared element type; `None` if the attribute is absent (usual for inputs in version 10) or unreadable
    /// (then with a diagnostic).
    pub precision: Option<Located<ElementType>>,
    /// The declared dimensions; `None` if there is no `<dim>`: the port is then a scalar or of unknown rank.
    pub dims: Option<DeclaredDims>,
    /// The tensor names in the order of the file, without escapes.
    pub names: Vec<Text<'a>>,
    /// The runtime attributes of the port, such as the layout of a Parameter.
    pub rt_info: Vec<RtAttribute<'a>>,
    /// The start tag.
    pub span: Span,
}

/// One edge: from an output port to an input port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edge {
    /// The id of the producer.
    pub from_layer: Located<u64>,
    /// The id of its output port.
    pub from_port: Located<u64>,
    /// The id of the consumer.
    pub to_layer: Located<u64>,
    /// The id of its input port.
    pub to_port: Located<u64>,
    /// The tag.
    pub span: Span,
}

/// The bodies of If, Loop or TensorIterator, and how they are connected.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControlFlow<'a> {
    /// `<body>` of Loop and TensorIterator.
    pub body: Option<Body<'a>>,
    /// `<then_body>` of If.
    pub then_body: Option<Body<'a>>,
    /// `<else_body>` of If.
    pub else_body: Option<Body<'a>>,
    /// `<port_map>` of Loop and TensorIterator.
    pub port_map: Option<PortMap<'a>>,
    /// `<then_port_map>` of If.
    pub then_port_map: Option<PortMap<'a>>,
    /// `<else_port_map>` of If.
    pub else_port_map: Option<PortMap<'a>>,
    /// The entries of `<back_edges>`.
    pub back_edges: Vec<BackEdge>,
}

/// How the ports of a layer are connected to the Parameters and Results of a body.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortMap<'a> {
    /// The `<input>` entries in the order of the file.
    pub inputs: Vec<PortMapEntry<'a>>,
    /// The `<output>` entries in the order of the file.
    pub outputs: Vec<PortMapEntry<'a>>,
    /// The start tag.
    pub span: Span,
}

/// One entry of a port map.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortMapEntry<'a> {
    /// The id of the layer's port, or -1 where the Parameter or Result has a purpose instead.
    pub external_port_id: Located<i64>,
    /// The id of the Parameter or Result in the body.
    pub internal_layer_id: Located<u64>,
    /// The axis that is sliced or concatenated.
    pub axis: Option<Located<i64>>,
    /// The first index.
    pub start: Option<Located<i64>>,
    /// The last index.
    pub end: Option<Located<i64>>,
    /// The step.
    pub stride: Option<Located<i64>>,
    /// The size of a slice along the axis.
    pub part_size: Option<Located<i64>>,
    /// `current_iteration` or `execution_condition`.
    pub purpose: Option<Text<'a>>,
    /// The tag.
    pub span: Span,
}

/// A back edge: the Result whose value the Parameter has in the next iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackEdge {
    /// The id of the Result.
    pub from_layer: Located<u64>,
    /// The id of the Parameter.
    pub to_layer: Located<u64>,
    /// The tag.
    pub span: Span,
}

/// A named value, or a named group of such, in the model's `<rt_info>`.
///
/// It is written as `<name value="..."/>`, or as `<info name="..." value="..."/>` where the name is no XML name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RtInfo<'a> {
    /// The name.
    pub name: Text<'a>,
    /// The value; `None` for a group.
    pub value: Option<Text<'a>>,
    /// The members of a group.
    pub children: Vec<RtInfo<'a>>,
    /// The start tag.
    pub span: Span,
}

impl<'a> RtInfo<'a> {
    /// The member of this group with the given name.
    pub fn child(&self, name: &str) -> Option<&RtInfo<'a>> {
        self.children.iter().find(|entry| entry.name.value == name)
    }
}

/// One `<attribute>` in the `<rt_info>` of a layer or port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RtAttribute<'a> {
    /// The element name: nearly always `attribute`.
    pub element: Text<'a>,
    /// The name, such as `layout`; empty if it is absent.
    pub name: Text<'a>,
    /// The version of the attribute's own format, such as `0`; empty if it is absent.
    pub version: Text<'a>,
    /// All other XML attributes, such as `layout="[N,C]"` or `value="..."`.
    pub attributes: Vec<Attribute<'a>>,
    /// The start tag.
    pub span: Span,
}

impl<'a> RtAttribute<'a> {
    /// The value of the XML attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name.value == name)
    }
}

/// A `<pre-process>` section of version 10: what is subtracted from an input before anything else.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PreProcess<'a> {
    /// The friendly name of the Parameter; `None` or empty means the first Parameter of rank 4, or else the first.
    pub reference_layer_name: Option<Text<'a>>,
    /// The precision in which the means are written.
    pub mean_precision: Option<Text<'a>>,
    /// The channels in the order of the file.
    pub channels: Vec<MeanChannel>,
    /// The start tag.
    pub span: Span,
}

/// One `<channel>` of a [`PreProcess`] section.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeanChannel {
    /// The index of the channel; its position in the section where the file does not say.
    pub id: Located<u64>,
    /// The number that is subtracted from each element.
    pub mean: Option<Located<f32>>,
    /// The image that is subtracted element by element.
    pub mean_image: Option<MeanImage>,
    /// The number by which each element is divided. OpenVINO ignores it.
    pub scale: Option<Located<f32>>,
    /// The start tag.
    pub span: Span,
}

/// A mean image in the weights: one value for each position of a channel, in the input's element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeanImage {
    /// The offset of its first byte.
    pub offset: Located<u64>,
    /// Its bytes.
    pub size: Located<u64>,
}
