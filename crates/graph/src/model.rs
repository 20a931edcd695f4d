//! The model as a graph of layers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ovir_diagnostics::{LayerReference, Span};
use ovir_ir::{DeclaredDims, RtAttribute, RtInfo};
use ovir_ops::{
    Effects, EvaluateContext, InferContext, OpError, OpResult, OpVersion, Operation, infrastructure::constant::Const,
    infrastructure::parameter::Parameter,
};
use ovir_tensor::{ElementType, PartialShape, Tensor};

use crate::order::topological;

/// The identity of a layer in a [`Model`]: its position in topological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An output of a layer, as the source of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The layer.
    pub node: NodeId,
    /// Its output, counted from 0.
    pub port: u32,
}

/// A graph of layers. Nodes stand in topological order: every source of a node stands before it.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The name of the model.
    pub name: String,
    /// The version of the IR file: 10 or 11.
    pub ir_version: u32,
    /// The layers.
    pub nodes: Vec<Node>,
    /// Parameters in the order of the file.
    pub parameters: Vec<NodeId>,
    /// Results in the order of the file.
    pub results: Vec<NodeId>,
    /// What the model's `rt_info` says.
    pub rt_info: Vec<RtInfo<'static>>,
}

/// One layer.
#[derive(Debug, Clone)]
pub struct Node {
    /// The friendly name.
    pub friendly_name: String,
    /// The type as IR writes it.
    pub type_name: Cow<'static, str>,
    /// The `version` attribute.
    pub opset: Cow<'static, str>,
    /// The class version and the ports that it allows.
    pub version: OpVersion,
    /// What it computes.
    pub operation: Arc<dyn Operation>,
    /// Where the inputs come from.
    pub inputs: Vec<Source>,
    /// The outputs.
    pub outputs: Vec<Output>,
    /// Bodies of If, Loop and TensorIterator.
    pub bodies: Vec<Model>,
    /// The runtime attributes of the layer.
    pub rt_info: Vec<RtAttribute<'static>>,
    /// Where it stands in the file; `None` for layers that did not come from a file.
    pub location: Option<Box<Location>>,
}

/// One output of a layer.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// The tensor names in the order of the file.
    pub tensor_names: Vec<String>,
    /// The runtime attributes of the port.
    pub rt_info: Vec<RtAttribute<'static>>,
}

/// Where a layer stands in the XML, and what its ports declare.
#[derive(Debug, Clone, Default)]
pub struct Location {
    /// The `id` as written.
    pub id: String,
    /// The start tag.
    pub layer: Span,
    /// The attributes of `<data>`: name, and the span of the attribute.
    pub attributes: Vec<(Cow<'static, str>, Span)>,
    /// The input ports.
    pub inputs: Vec<PortLocation>,
    /// The output ports.
    pub outputs: Vec<PortLocation>,
    /// Whether the name of an attribute seems to be misspelt, so that the layer may not yield what is meant.
    pub is_misspelt: bool,
}

/// Where a port stands, and what it declares.
#[derive(Debug, Clone, Default)]
pub struct PortLocation {
    /// The `id` of the port.
    pub id: u64,
    /// The start tag.
    pub span: Span,
    /// The edge that ends here, for inputs.
    pub edge: Option<Span>,
    /// What the file declares.
    pub declared: DeclaredPort,
}

/// What a port declares of its value.
#[derive(Debug, Clone, Default)]
pub struct DeclaredPort {
    /// The element type.
    pub element_type: Option<(ElementType, Span)>,
    /// The dimensions, `None` where there is no `<dim>`; -1 is unknown.
    pub dims: Option<DeclaredDims>,
}

/// How an image is turned into the values of an input, as `model_info` says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preprocessing {
    /// Subtracted per channel.
    pub mean_values: Vec<f32>,
    /// Divided by per channel.
    pub scale_values: Vec<f32>,
    /// Whether red and blue are exchanged.
    pub reverse_input_channels: bool,
    /// How the image is resized: `standard`, `fit_to_window`, `fit_to_window_letterbox`, `crop`.
    pub resize_type: String,
    /// The class names.
    pub labels: Vec<String>,
}

/// A layer that could not be resolved: an unknown operation, or the missing producer of an input. Its outputs are what
/// the file declares.
#[derive(Debug)]
pub struct Unresolved {
    /// The declared outputs.
    pub outputs: Vec<(ElementType, PartialShape)>,
    /// The attributes, to be written back.
    pub attributes: Vec<(String, String)>,
}

impl Operation for Unresolved {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        for (port, (element_type, shape)) in self.outputs.iter().enumerate() {
            context.set_output(port, *element_type, shape.clone());
        }
        Ok(())
    }

    fn evaluate(&self, _context: &mut EvaluateContext<'_>) -> OpResult {
        Err(OpError::unsupported("this version of ovir does not implement the operation"))
    }
}

impl DeclaredPort {
    /// The declared element type, dynamic where there is none.
    pub fn element_type(&self) -> ElementType {
        self.element_type.map_or(ElementType::Dynamic, |(element_type, _)| element_type)
    }

    /// The declared shape. A port without `<dim>` may be a scalar or of unknown rank, so its shape is unknown.
    pub fn shape(&self) -> PartialShape {
        match &self.dims {
            None => PartialShape::DYNAMIC,
            Some(dims) => PartialShape::from_dims(dims.iter().map(|dim| match usize::try_from(dim.value) {
                Ok(size) => ovir_tensor::Dim::fixed(size),
                Err(_) => ovir_tensor::Dim::DYNAMIC,
            })),
        }
    }
}

impl Node {
    /// A layer that did not come from a file.
    pub fn new(
        friendly_name: impl Into<String>,
        type_name: &'static str,
        version: OpVersion,
        operation: Arc<dyn Operation>,
        inputs: Vec<Source>,
        outputs: usize,
    ) -> Node {
        Node {
            friendly_name: friendly_name.into(),
            type_name: Cow::Borrowed(type_name),
            opset: Cow::Owned(format!("opset{}", version.first_opset)),
            version,
            operation,
            inputs,
            outputs: vec![Output::default(); outputs],
            bodies: Vec::new(),
            rt_info: Vec::new(),
            location: None,
        }
    }

    /// A constant.
    pub fn constant(friendly_name: impl Into<String>, tensor: Tensor) -> Node {
        let version = OpVersion::new(1, (1, 16), (0, 0), (1, 1));
        Node::new(friendly_name, "Const", version, Arc::new(Const::of(tensor)), Vec::new(), 1)
    }

    /// Whether this is a layer of the given type.
    pub fn is(&self, type_name: &str) -> bool {
        self.type_name == type_name
    }

    /// The name of one output: the friendly name, with `.port` if there are several outputs.
    pub fn value_name(&self, port: usize) -> String {
        match self.outputs.len() {
            0 | 1 => self.friendly_name.clone(),
            _ => format!("{}.{port}", self.friendly_name),
        }
    }

    /// The tensor of a constant.
    pub fn tensor(&self) -> Option<&Tensor> {
        self.operation.downcast_ref::<Const>()?.tensor.as_ref()
    }

    /// The layer as diagnostics name it.
    pub fn reference(&self) -> LayerReference {
        LayerReference {
            name: self.friendly_name.clone(),
            id: self.location.as_ref().map_or_else(|| "-".to_owned(), |l| l.id.clone()),
            type_name: self.type_name.to_string(),
            version: self.opset.to_string(),
        }
    }
}

impl Model {
    /// For each layer, whether it depends on constants only.
    pub fn constant_layers(&self) -> Vec<bool> {
        let mut is_constant = vec![false; self.nodes.len()];
        for (id, node) in self.iter() {
            is_constant[id.index()] = node.is("Const")
                || (node.operation.effects() == Effects::None
                    && node.bodies.is_empty()
                    && !node.inputs.is_empty()
                    && node.inputs.iter().all(|source| is_constant[source.node.index()]));
        }
        is_constant
    }

    /// Brings the layers into topological order after layers were added. Returns whether there is one.
    pub fn sort(&mut self) -> bool {
        let producers: Vec<Vec<usize>> =
            self.nodes.iter().map(|n| n.inputs.iter().map(|s| s.node.index()).collect()).collect();
        let Ok(order) = topological(&producers) else { return false };
        let mut position = vec![NodeId(0); order.len()];
        for (new, old) in order.iter().enumerate() {
            position[*old] = NodeId(new as u32);
        }
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.nodes = order.iter().filter_map(|old| nodes[*old].take()).collect();
        for source in self.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut()) {
            source.node = position[source.node.index()];
        }
        for id in self.parameters.iter_mut().chain(&mut self.results) {
            *id = position[id.index()];
        }
        true
    }

    /// The layer `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All layers with their identities, in topological order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// The names by which input `index` is known: its tensor names, then its friendly name.
    pub fn input_names(&self, index: usize) -> Vec<&str> {
        let Some(node) = self.parameters.get(index).map(|id| self.node(*id)) else { return Vec::new() };
        let mut names: Vec<&str> =
            node.outputs.iter().flat_map(|o| o.tensor_names.iter()).map(String::as_str).collect();
        names.push(&node.friendly_name);
        names
    }

    /// The names by which output `index` is known: the tensor names of its source, the friendly name of the source
    /// (with `.port` if the source has several outputs), and the friendly name of the Result.
    pub fn output_names(&self, index: usize) -> Vec<String> {
        let Some(result) = self.results.get(index).map(|id| self.node(*id)) else { return Vec::new() };
        let mut names: Vec<String> = result.outputs.iter().flat_map(|o| o.tensor_names.clone()).collect();
        if let Some(source) = result.inputs.first() {
            let producer = self.node(source.node);
            if let Some(output) = producer.outputs.get(source.port as usize) {
                names.extend(output.tensor_names.iter().filter(|n| !result_has(result, n)).cloned());
            }
            names.push(match producer.outputs.len() {
                0 | 1 => producer.friendly_name.clone(),
                _ => format!("{}.{}", producer.friendly_name, source.port),
            });
        }
        names.push(result.friendly_name.clone());
        names
    }

    /// The name under which input `index` is shown and written: the lexicographically first tensor name, else the
    /// friendly name.
    pub fn input_name(&self, index: usize) -> String {
        let Some(node) = self.parameters.get(index).map(|id| self.node(*id)) else { return index.to_string() };
        let names = node.outputs.iter().flat_map(|o| o.tensor_names.iter());
        names.min().unwrap_or(&node.friendly_name).clone()
    }

    /// The name under which output `index` is shown and written: the lexicographically first tensor name; where there
    /// is none, the friendly name of the producer, with `.port` if it has several outputs.
    pub fn output_name(&self, index: usize) -> String {
        let Some(result) = self.results.get(index).map(|id| self.node(*id)) else { return index.to_string() };
        let Some(source) = result.inputs.first() else { return result.friendly_name.clone() };
        let producer = self.node(source.node);
        let own = result.outputs.iter().flat_map(|o| o.tensor_names.iter());
        let of_source = producer.outputs.get(source.port as usize).into_iter().flat_map(|o| o.tensor_names.iter());
        match own.chain(of_source).min() {
            Some(name) => name.clone(),
            None if producer.outputs.len() > 1 => format!("{}.{}", producer.friendly_name, source.port),
            None => producer.friendly_name.clone(),
        }
    }

    /// Element type and declared shape of input `index`.
    pub fn input_facts(&self, index: usize) -> Option<(ElementType, &PartialShape)> {
        let parameter = self.node(*self.parameters.get(index)?).operation.downcast_ref::<Parameter>()?;
        Some((parameter.element_type, &parameter.shape))
    }

    /// The layout of input `index`, such as `[N,C,H,W]`.
    pub fn layout(&self, index: usize) -> Option<String> {
        let node = self.node(*self.parameters.get(index)?);
        let attributes = node.rt_info.iter().chain(node.outputs.iter().flat_map(|o| &o.rt_info));
        let mut layouts = attributes.filter(|a| a.name.value == "layout");
        Some(layouts.find_map(|a| a.attribute("layout"))?.value.value.to_string())
    }

    /// For each layer, the layers that read it.
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.iter() {
            for source in &node.inputs {
                consumers[source.node.index()].push(id);
            }
        }
        consumers
    }

    /// The text of an entry of `rt_info`, by path: `["model_info", "labels"]`.
    pub fn rt_info_text(&self, path: &[&str]) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let mut entry = self.rt_info.iter().find(|e| e.name.value == *first)?;
        for name in rest {
            entry = entry.child(name)?;
        }
        entry.value.as_ref().map(|v| v.as_str())
    }

    /// What `model_info` says about images and labels.
    pub fn preprocessing(&self) -> Preprocessing {
        let text = |name: &str| self.rt_info_text(&["model_info", name]).unwrap_or("");
        let numbers = |name: &str| text(name).split([' ', ',']).filter_map(|t| t.trim().parse().ok()).collect();
        Preprocessing {
            mean_values: numbers("mean_values"),
            scale_values: numbers("scale_values"),
            reverse_input_channels: matches!(text("reverse_input_channels"), "YES" | "True" | "true" | "1"),
            resize_type: text("resize_type").to_owned(),
            labels: text("labels").split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The number of layers by type and version, bodies included.
    pub fn operation_counts(&self) -> Vec<(String, usize)> {
        let mut counts: HashMap<String, usize> = HashMap::new();
        self.count_operations(&mut counts);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort();
        counts
    }

    fn count_operations(&self, counts: &mut HashMap<String, usize>) {
        for node in &self.nodes {
            *counts.entry(format!("{}-{}", node.type_name, node.version.class_version)).or_default() += 1;
            for body in &node.bodies {
                body.count_operations(counts);
            }
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

fn result_has(result: &Node, name: &str) -> bool {
    result.outputs.iter().any(|o| o.tensor_names.iter().any(|n| n == name))
}
