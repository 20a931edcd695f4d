//! Counts in i32 where the truth values of a CumSum are summed.
//!
//! Exporters write a CumSum of booleans, which the specification does not have, where frameworks count: its type says that
//! the result is boolean, and yet what converts it to numbers is to get counts. The sum is one of i32 here, and so is
//! whatever moves it about; other readers see whether a count is zero.

use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::r#type::convert::{Convert, ConvertAttributes};
use ovir_tensor::ElementType;

use crate::trace::Trace;

/// Layers that move the elements of their first input.
const MOVERS: &[&str] =
    &["Broadcast", "Gather", "Reshape", "Slice", "Squeeze", "StridedSlice", "Transpose", "Unsqueeze"];

/// Widens all such sums; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let (model, inference) = (validated.model(), validated.inference());
    let is_boolean = |source: &Source| inference.get(*source).element_type == ElementType::Boolean;
    let is_sum = |node: &Node| node.is("CumSum") && node.inputs.first().is_some_and(is_boolean);
    if !model.nodes.iter().any(is_sum) {
        return None;
    }
    let mut is_count = vec![false; model.nodes.len()];
    for (id, node) in model.iter() {
        let moves = MOVERS.contains(&&*node.type_name) && node.inputs.first().is_some_and(|s| is_count[s.node.index()]);
        is_count[id.index()] = is_sum(node) || moves;
        if is_sum(node) {
            trace.applied(node, || "counts in i32".to_owned());
        }
    }
    let mut nodes: Vec<Node> = Vec::with_capacity(model.nodes.len() + 8);
    let mut positions: Vec<NodeId> = Vec::with_capacity(model.nodes.len());
    for (id, node) in model.iter() {
        let mut copy = node.clone();
        let counts = |source: &Source| is_count[source.node.index()];
        let compares = (node.is("Equal") || node.is("NotEqual")) && node.inputs.iter().any(counts);
        for (port, source) in node.inputs.iter().enumerate() {
            let here = Source { node: positions[source.node.index()], port: source.port };
            let wants_counts = compares || node.is("Convert") || (is_count[id.index()] && port == 0);
            let wanted = match (counts(source), wants_counts) {
                (true, false) => Some(ElementType::Boolean),
                (false, true) if is_boolean(source) && !node.is("Convert") => Some(ElementType::I32),
                _ => None,
            };
            copy.inputs[port] = match wanted {
                Some(destination_type) => {
                    nodes.push(conversion(&node.friendly_name, here, destination_type));
                    Source { node: NodeId(nodes.len() as u32 - 1), port: 0 }
                }
                None => here,
            };
        }
        positions.push(NodeId(nodes.len() as u32));
        nodes.push(copy);
    }
    let mut changed = Model { nodes, ..model.clone() };
    for id in changed.parameters.iter_mut().chain(&mut changed.results) {
        *id = positions[id.index()];
    }
    Some(changed)
}

/// A Convert.
pub(crate) fn conversion(name: &str, source: Source, destination_type: ElementType) -> Node {
    let operation = Arc::new(Convert { attributes: ConvertAttributes { destination_type } });
    let version = OpVersion::new(1, (1, 16), (1, 1), (1, 1));
    Node::new(name, "Convert", version, operation, vec![source], 1)
}
