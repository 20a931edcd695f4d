//! Computes f16 and bf16 graphs in f32, as OpenVINO's CPU plugin does: values are rounded to their declared type at
//! results, variables and explicit Converts only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated, infer_model};
use ovir_ops::SymbolSource;
use ovir_ops::r#type::convert::{Convert, ConvertAttributes};
use ovir_tensor::ElementType;

use crate::chain::remove;
use crate::count_booleans::conversion;
use crate::trace::Trace;

/// Layers that move elements, or repeat them, and change none.
const MOVEMENTS: &[&str] = &[
    "BatchToSpace",
    "Broadcast",
    "Concat",
    "DepthToSpace",
    "Gather",
    "GatherElements",
    "GatherND",
    "Pad",
    "Reshape",
    "Reverse",
    "ReverseSequence",
    "Roll",
    "ShuffleChannels",
    "Slice",
    "SpaceToBatch",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "StridedSlice",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
];

/// Promotes the graph and its bodies; `None` if there is nothing to promote.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let has_halves = |model: &Model| {
        let inference = infer_model(model, &[], &mut SymbolSource::default(), &mut Vec::new());
        model.iter().any(|(id, node)| {
            !node.is("Const") && inference.outputs(id).iter().any(|facts| is_half(facts.element_type))
        })
    };
    let anywhere = has_halves(model) || model.nodes.iter().flat_map(|n| &n.bodies).any(has_halves);
    anywhere.then(|| {
        let movements = movements(model, &|source| validated.inference().get(*source).element_type);
        for (id, node) in model.iter().filter(|(_, node)| !node.is("Const")) {
            let Some(half) = validated.inference().outputs(id).iter().find(|facts| is_half(facts.element_type)) else {
                continue;
            };
            let half = half.element_type;
            if keeps_type(node) {
                trace.declined(node, || format!("stays {half}: it names its type, or is seen from outside"));
            } else if movements.contains(&id) {
                trace.declined(node, || format!("stays {half}: it moves elements between what has their type anyhow"));
            } else if !node.is("Parameter") {
                trace.applied(node, || format!("computed in f32 instead of {half}"));
            }
        }
        promote(model)
    })
}

fn is_half(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::F16 | ElementType::Bf16)
}

/// The new graph while it grows.
struct Promoted {
    nodes: Vec<Node>,
    /// For each old value, the f32 value (or the unchanged one) that stands for it.
    wide: HashMap<Source, Source>,
    /// For old f16 and bf16 values that exist as such: constants, parameters, variables.
    narrow: HashMap<Source, Source>,
    /// Converts to f32 that this pass has added.
    widening: Vec<NodeId>,
}

fn promote(model: &Model) -> Model {
    let inference = infer_model(model, &[], &mut SymbolSource::default(), &mut Vec::new());
    let type_of = |source: &Source| inference.get(*source).element_type;
    let mut new = Promoted { nodes: Vec::new(), wide: HashMap::new(), narrow: HashMap::new(), widening: Vec::new() };
    let mut position: Vec<NodeId> = Vec::with_capacity(model.nodes.len());
    let movements = movements(model, &type_of);
    for (id, old) in model.iter() {
        let keeps_type = keeps_type(old)
            || movements.contains(&id)
            || (moves(old)
                && old.inputs.iter().all(|source| !is_half(type_of(source)) || new.narrow.contains_key(source)));
        let mut node = old.clone();
        node.bodies = old.bodies.iter().map(promote).collect();
        if old.is("Convert") {
            position.push(new.convert(old, &node, id, &type_of));
            continue;
        }
        for input in &mut node.inputs {
            let element_type = type_of(input);
            *input = if keeps_type && is_half(element_type) {
                new.narrowed(*input, element_type)
            } else {
                new.wide.get(input).copied().unwrap_or(*input)
            };
        }
        let is_source = keeps_type || matches!(&*old.type_name, "Const" | "Parameter");
        let place = new.push(node);
        position.push(place);
        for port in 0..old.outputs.len() as u32 {
            let (from, to) = (Source { node: id, port }, Source { node: place, port });
            if is_source && is_half(type_of(&from)) && !old.is("Result") && !old.is("Assign") {
                new.narrow.insert(from, to);
                let wide = new.converted(to, ElementType::F32, &format!("{}/wide.{port}", old.friendly_name));
                new.wide.insert(from, wide);
            } else {
                new.wide.insert(from, to);
            }
        }
    }
    let mut changed = Model { nodes: new.nodes, ..model.clone() };
    for id in changed.parameters.iter_mut().chain(&mut changed.results) {
        *id = position[id.index()];
    }
    remove_unread(&mut changed, new.widening);
    changed
}

/// Removes the Converts to f32 that nobody reads.
fn remove_unread(model: &mut Model, widening: Vec<NodeId>) {
    let read: HashSet<NodeId> = model.nodes.iter().flat_map(|node| &node.inputs).map(|source| source.node).collect();
    let unread: HashSet<NodeId> = widening.into_iter().filter(|id| !read.contains(id)).collect();
    remove(model, &unread);
}

/// Layers that stay as they are: variables and results, bodies, and layers whose attributes or inputs name the type that
/// they yield (RandomUniform, Range, Eye, ConvertLike...). The lowest number that SegmentMax fills with is that of its type:
/// that of f32 would become an infinity.
fn keeps_type(node: &Node) -> bool {
    let names_type = |text: &str| text == "f16" || text == "bf16" || (node.is("SegmentMax") && text == "LOWEST");
    matches!(&*node.type_name, "Result" | "Assign" | "ReadValue" | "ConvertLike")
        || !node.bodies.is_empty()
        || node.operation.attributes().iter().any(|(_, text)| names_type(text))
}

/// The [`MOVEMENTS`] between what has its type anyhow, such as parameters and results.
fn movements(model: &Model, type_of: &dyn Fn(&Source) -> ElementType) -> HashSet<NodeId> {
    let exists = |node: &Node| matches!(&*node.type_name, "Const" | "Convert" | "Parameter") || keeps_type(node);
    let mut found = HashSet::new();
    for (id, node) in model.iter().filter(|(_, node)| MOVEMENTS.contains(&&*node.type_name)) {
        let mut halves = node.inputs.iter().filter(|source| is_half(type_of(source)));
        if halves.all(|source| found.contains(&source.node) || exists(model.node(source.node))) {
            found.insert(id);
        }
    }
    // What computes reads values of f32, and has them converted before they are moved or after.
    for (id, node) in model.iter().collect::<Vec<_>>().into_iter().rev() {
        if !found.contains(&id) && !keeps_type(node) {
            node.inputs.iter().for_each(|source| {
                found.remove(&source.node);
            });
        }
    }
    found
}

/// Layers that change few elements of a tensor, and round each of these once: they stay as they are where their inputs
/// do, because converting the whole tensor would take longer than the layer itself.
fn moves(node: &Node) -> bool {
    matches!(&*node.type_name, "ScatterUpdate" | "ScatterElementsUpdate" | "ScatterNDUpdate" | "SliceScatter")
}

impl Promoted {
    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// A Convert from a half to f32 is the wide value itself; one to a half rounds and widens again.
    fn convert(&mut self, old: &Node, copy: &Node, id: NodeId, type_of: &dyn Fn(&Source) -> ElementType) -> NodeId {
        let from = Source { node: id, port: 0 };
        let (Some(input), target) = (old.inputs.first(), type_of(&from)) else { return NodeId(0) };
        let wide = self.wide.get(input).copied().unwrap_or(*input);
        if target == ElementType::F32 && is_half(type_of(input)) {
            // The constants of compressed models stay as they are: Const, then this Convert.
            let source = self.narrow.get(input).copied();
            let place = match source {
                Some(narrow) => {
                    let mut node = copy.clone();
                    node.inputs = vec![narrow];
                    Source { node: self.push(node), port: 0 }
                }
                None => wide,
            };
            self.wide.insert(from, place);
            return place.node;
        }
        let mut node = copy.clone();
        node.inputs = vec![wide];
        if is_half(target) && type_of(input) == ElementType::Nf4 {
            // The entries of the table are no halves; decompressed in f32 they keep their values, as in OpenVINO.
            let attributes = ConvertAttributes { destination_type: ElementType::F32 };
            node.operation = Arc::new(Convert { attributes });
            let place = self.push(node);
            self.wide.insert(from, Source { node: place, port: 0 });
            return place;
        }
        let place = self.push(node);
        let narrow = Source { node: place, port: 0 };
        if is_half(target) {
            self.narrow.insert(from, narrow);
            let widened = self.converted(narrow, ElementType::F32, &format!("{}/wide", old.friendly_name));
            self.wide.insert(from, widened);
        } else {
            self.wide.insert(from, narrow);
        }
        place
    }

    /// An old f16 or bf16 value as such: the value itself where it exists, else the wide one rounded.
    fn narrowed(&mut self, old: Source, element_type: ElementType) -> Source {
        if let Some(narrow) = self.narrow.get(&old) {
            return *narrow;
        }
        let Some(wide) = self.wide.get(&old).copied() else { return old };
        let name = self.nodes.get(wide.node.index()).map_or(String::new(), |n| n.friendly_name.clone());
        let narrow = self.converted(wide, element_type, &format!("{name}/rounded.{}", wide.port));
        // Results are named after what they read.
        if let (Some(from), Some(to)) = (
            self.nodes.get(wide.node.index()).and_then(|n| n.outputs.get(wide.port as usize)).cloned(),
            self.nodes.get_mut(narrow.node.index()),
        ) {
            to.outputs = vec![from];
        }
        self.narrow.insert(old, narrow);
        narrow
    }

    fn converted(&mut self, source: Source, element_type: ElementType, name: &str) -> Source {
        let node = self.push(conversion(name, source, element_type));
        if element_type == ElementType::F32 {
            self.widening.push(node);
        }
        Source { node, port: 0 }
    }
}
