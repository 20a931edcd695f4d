//! Moves activations in front of the Transposes and Reshapes that stand between them and a convolution or a product.
//!
//! Networks that go to and fro between images and rows of tokens activate what a convolution gave after they have turned
//! it. An activation of single values can as well come before, where the epilogue of the convolution computes it.

use ovir_graph::{Model, NodeId, Output, Source, Validated};
use ovir_tensor::ElementType;

use crate::chain::Uses;
use crate::fuse_epilogue::{ACTIVATIONS, is_root};
use crate::trace::{Trace, named};

/// Moves all such activations; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut has_moved = false;
    for (id, node) in model.iter() {
        let Some(WayBack { source, first, last }) = way_back(validated, &uses, id) else { continue };
        trace.applied(node, || format!("moves to {}", named(model.node(source.node))));
        for reader in uses.of(id) {
            let inputs = &mut changed.nodes[reader.index()].inputs;
            inputs.iter_mut().filter(|input| input.node == id).for_each(|input| input.node = last);
        }
        changed.nodes[first.index()].inputs[0] = Source { node: id, port: 0 };
        // What readers know by its tensor names is now the value of the last layer.
        let outputs = std::mem::replace(&mut changed.nodes[id.index()].outputs, vec![Output::default()]);
        changed.nodes[last.index()].outputs = outputs;
        let activation = &mut changed.nodes[id.index()];
        activation.inputs[0] = source;
        if let Some(location) = &mut activation.location {
            // Its ports declare the shape that it had behind the others.
            (location.inputs, location.outputs) = Default::default();
        }
        has_moved = true;
    }
    (has_moved && changed.sort()).then_some(changed)
}

/// The Transposes and Reshapes between an activation and a convolution or a product.
struct WayBack {
    /// The value of the convolution or the product.
    source: Source,
    /// The layer that reads it.
    first: NodeId,
    /// The layer that the activation reads.
    last: NodeId,
}

/// What stands between the activation `id` and a convolution or a product, if each layer has one reader and there is any.
fn way_back(validated: &Validated, uses: &Uses, id: NodeId) -> Option<WayBack> {
    let (model, inference) = (validated.model(), validated.inference());
    let node = model.node(id);
    let has_numbers = node.inputs.iter().skip(1).all(|source| uses.is_single(validated, *source));
    let is_activation = ACTIVATIONS.contains(&&*node.type_name) && has_numbers;
    let (last, mut at) = (node.inputs.first()?.node, *node.inputs.first()?);
    let mut reader = id;
    let mut first = None;
    (is_activation && inference.get(at).element_type == ElementType::F32).then_some(())?;
    while moves_only(validated, uses, at.node) && uses.only_reader(at.node) == Some(reader) {
        (first, reader) = (Some(at.node), at.node);
        at = *model.node(at.node).inputs.first()?;
    }
    let producer = model.node(at.node);
    let is_sum = || producer.is("Add") && producer.inputs.iter().any(|source| is_root(model.node(source.node)));
    let fits = uses.only_reader(at.node) == Some(reader) && (is_root(producer) || is_sum());
    first.filter(|_| fits).map(|first| WayBack { source: at, first, last })
}

/// Whether a layer gives the values of its first input in another order or shape.
fn moves_only(validated: &Validated, uses: &Uses, id: NodeId) -> bool {
    let node = validated.model().node(id);
    let is_move = node.is("Transpose") || node.operation.is_reshape();
    is_move && node.outputs.len() == 1 && node.inputs.iter().skip(1).all(|source| uses.is_constant(source.node))
}
