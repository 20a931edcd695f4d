//! Lets keys and values that a decoder keeps grow where they are.
//!
//! Exporters write what a decoder remembers as `ReadValue → Gather(beams) → Concat(new rows) → Assign`, which copies all that
//! came before at every step, twice. With its rows outermost, new ones go behind the others; the variable then has
//! them so in memory, and the attention reads them so. It is done where attentions and shapes alone read the values.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Location, Model, Node, NodeId, Output, Source, Validated};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::infrastructure::read_value::ReadValue;
use ovir_ops::movement::concat::Concat;
use ovir_ops::movement::gather::Gather;
use ovir_ops::rows::{Append, FromRows, RowsShape, rows_first};
use ovir_ops::sequence::scaled_dot_product_attention::ScaledDotProductAttention;
use ovir_ops::shape::shape_of::ShapeOf;
use ovir_ops::{OpVersion, Operation};
use ovir_tensor::ElementType;

use crate::chain::{Uses, become_fused, remove};
use crate::trace::{Trace, named};

/// A variable that grows.
struct Growing {
    read: NodeId,
    /// The Gather that picks images.
    gather: Option<NodeId>,
    concat: NodeId,
    /// Layers that read the shape of the Gather.
    shapes_before: Vec<NodeId>,
    /// Layers that read the shape of the Concat.
    shapes_after: Vec<NodeId>,
    attentions: Vec<NodeId>,
}

/// Turns all such variables; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    // Variables are those of the whole model.
    if validated.is_body() {
        return None;
    }
    let uses = Uses::new(model);
    let mut all = Vec::new();
    let for_initialisers = for_initialisers(model);
    for (id, node) in model.iter().filter(|(_, node)| node.is("ReadValue")) {
        let found = match for_initialisers[id.index()] {
            true => Err("serves the initialiser of a variable"),
            false => growing(validated, &uses, id),
        };
        match found {
            Ok(found) => {
                trace.applied(node, || format!("grows by {} where it is", named(model.node(found.concat))));
                all.push(found);
            }
            Err(reason) => trace.declined(node, || reason.to_owned()),
        }
    }
    (!all.is_empty()).then(|| changed(model, &all))
}

/// The layers that initialisers of variables need.
fn for_initialisers(model: &Model) -> Vec<bool> {
    let mut needed = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        if needed[index] || node.is("ReadValue") {
            node.inputs.iter().for_each(|source| needed[source.node.index()] = true);
        }
    }
    needed
}

/// What reads the variable, if that is the pattern.
fn growing(validated: &Validated, uses: &Uses, read: NodeId) -> Result<Growing, &'static str> {
    let (model, inference) = (validated.model(), validated.inference());
    let node = model.node(read);
    let value = Source { node: read, port: 0 };
    let facts = inference.get(value);
    let of_variable = |node: &&Node| node.operation.variable_id() == model.node(read).operation.variable_id();
    if model.nodes.iter().filter(of_variable).count() != 2 {
        return Err("is not the only one of its variable, or nothing is assigned to it");
    }
    let has_declaration = node.operation.downcast_ref::<ReadValue>().is_some_and(|read| read.declared().is_some());
    if facts.element_type != ElementType::F32 || facts.shape.rank() != Some(4) || !has_declaration {
        return Err("is no variable of f32 and rank 4 that is declared");
    }
    let mut shapes_before = Vec::new();
    let mut continued = |id: NodeId| -> Result<NodeId, &'static str> {
        let (shapes, others): (Vec<NodeId>, Vec<NodeId>) =
            uses.of(id).iter().partition(|reader| model.node(**reader).operation.downcast_ref::<ShapeOf>().is_some());
        shapes_before.extend(shapes.into_iter().map(|shape| (id, shape)));
        match others[..] {
            [next] => Ok(next),
            _ => Err("is read by several layers"),
        }
    };
    let mut concat = continued(read)?;
    let gather = Some(concat).filter(|id| picks_images(validated, *id, value));
    if let Some(gather) = gather {
        concat = continued(gather)?;
    }
    let before = Source { node: gather.unwrap_or(read), port: 0 };
    if shapes_before.iter().any(|(id, _)| *id != before.node) {
        return Err("has readers of its shape before images are picked");
    }
    let joined = model.node(concat);
    let along_rows = joined.operation.downcast_ref::<Concat>().is_some_and(|c| matches!(c.attributes.axis, 2 | -2));
    if !along_rows || joined.inputs.len() != 2 || joined.inputs[0] != before || joined.inputs[1] == before {
        return Err("is not continued by new rows");
    }
    let (mut shapes_after, mut attentions, mut is_assigned) = (Vec::new(), Vec::new(), false);
    for reader in uses.of(concat) {
        let layer = model.node(*reader);
        if layer.operation.downcast_ref::<ShapeOf>().is_some() {
            shapes_after.push(*reader);
        } else if layer.is("Assign") && layer.operation.variable_id() == node.operation.variable_id() {
            is_assigned = true;
        } else if is_attention_over(layer, Source { node: concat, port: 0 }) {
            attentions.push(*reader);
        } else {
            return Err("is read by a layer that is no attention");
        }
    }
    if !is_assigned || attentions.is_empty() {
        return Err("is not assigned what an attention reads");
    }
    let shapes_before = shapes_before.into_iter().map(|(_, shape)| shape).collect();
    Ok(Growing { read, gather, concat, shapes_before, shapes_after, attentions })
}

/// Whether a layer is a Gather of whole images by a vector of indices.
fn picks_images(validated: &Validated, id: NodeId, data: Source) -> bool {
    let node = validated.model().node(id);
    let inference = validated.inference();
    let axis = node.inputs.get(2).and_then(|source| inference.get(*source).integers());
    let are_indices = node.inputs.get(1).is_some_and(|source| inference.get(*source).shape.rank() == Some(1));
    let operation = node.operation.downcast_ref::<Gather>();
    operation.is_some_and(|gather| gather.attributes.batch_dims == 0)
        && node.inputs.first() == Some(&data)
        && are_indices
        && axis.is_some_and(|axis| matches!(axis[..], [0 | -4]))
}

/// Whether a layer is an attention, alone or with what repeats its operands, with a value as keys or values only.
fn is_attention_over(node: &Node, value: Source) -> bool {
    let is_attention = |operation: &dyn Operation| operation.downcast_ref::<ScaledDotProductAttention>().is_some();
    let ports =
        |node: &Node| -> Vec<usize> { (0..node.inputs.len()).filter(|port| node.inputs[*port] == value).collect() };
    let Some(fused) = node.operation.downcast_ref::<Fused>() else {
        return is_attention(&*node.operation) && ports(node).iter().all(|port| matches!(port, 1 | 2));
    };
    let Some(attention) = fused.stages.iter().find(|stage| is_attention(&*stage.operation)) else { return false };
    ports(node).into_iter().all(|port| {
        let outside = StageInput::Outside(port);
        let reads = |stage: &Stage, at: usize| stage.inputs.get(at) == Some(&outside);
        fused.stages.iter().filter(|stage| stage.inputs.contains(&outside)).all(|stage| {
            match std::ptr::eq(stage, attention) {
                true => (0..stage.inputs.len()).all(|at| !reads(stage, at) || matches!(at, 1 | 2)),
                // What repeats heads does so to keys and values only.
                false => stage.type_name == "Unsqueeze" && reads(stage, 0),
            }
        })
    })
}

fn changed(model: &Model, all: &[Growing]) -> Model {
    let mut changed = model.clone();
    let mut removed: HashSet<NodeId> = HashSet::new();
    let mut joined: HashMap<NodeId, Vec<Source>> = HashMap::new();
    for growing in all {
        let read = &mut changed.nodes[growing.read.index()];
        if let Some(operation) = read.operation.downcast_ref::<ReadValue>() {
            let mut attributes = operation.attributes.clone();
            attributes.variable_shape.0 = rows_first(&attributes.variable_shape.0);
            let class_version = operation.class_version;
            read.operation = Arc::new(ReadValue { attributes, class_version, is_rows_first: true });
        }
        read.friendly_name = format!("{}/rows", read.friendly_name);
        read.outputs = vec![Output::default(); read.outputs.len()];
        let state = Source { node: growing.read, port: 0 };
        let gather = growing.gather.map(|gather| model.node(gather));
        let images = gather.map(|gather| gather.inputs[1]);
        let version =
            gather.and_then(|gather| gather.operation.downcast_ref::<Gather>()).map_or(0, |g| g.class_version);
        let concat = model.node(growing.concat);
        let append = Append { gather_version: version };
        let inputs: Vec<Source> = [state, concat.inputs[1]].into_iter().chain(images).collect();
        changed.nodes[growing.concat.index()] = internal("Append", concat, Arc::new(append), inputs);
        let after = Source { node: growing.concat, port: 0 };
        for (shapes, value, images) in [(&growing.shapes_before, state, images), (&growing.shapes_after, after, None)] {
            for shape in shapes {
                let node = model.node(*shape);
                let output_type = node.operation.downcast_ref::<ShapeOf>().map(|s| s.attributes.output_type);
                let operation = RowsShape { output_type: output_type.unwrap_or(ElementType::I64) };
                let inputs = [value].into_iter().chain(images).collect();
                let mut of_rows = internal("RowsShape", node, Arc::new(operation), inputs);
                // It gives what the layer has given.
                of_rows.friendly_name.clone_from(&node.friendly_name);
                of_rows.outputs.clone_from(&node.outputs);
                changed.nodes[shape.index()] = of_rows;
            }
        }
        for attention in &growing.attentions {
            joined.entry(*attention).or_default().push(after);
        }
        removed.extend(growing.gather);
    }
    for (attention, values) in joined {
        let node = &mut changed.nodes[attention.index()];
        for value in values {
            read_rows(node, value);
        }
    }
    remove(&mut changed, &removed);
    changed
}

/// A layer in the place of another one.
fn internal(kind: &'static str, node: &Node, operation: Arc<dyn Operation>, inputs: Vec<Source>) -> Node {
    let version = OpVersion::new(1, (1, 1), (1, 3), (1, 1));
    let mut copy = Node::new(format!("{}/rows", node.friendly_name), kind, version, operation, inputs, 1);
    copy.opset = Cow::Borrowed("ovir");
    // Its ports are not those that the file declares.
    copy.location = node
        .location
        .as_ref()
        .map(|location| Location { id: location.id.clone(), layer: location.layer, ..Location::default() }.into());
    copy
}

/// Puts a FromRows between a value and the stages that read it.
fn read_rows(node: &mut Node, value: Source) {
    let mut stages = match node.operation.downcast_ref::<Fused>() {
        Some(fused) => fused.stages.clone(),
        None => vec![Stage {
            friendly_name: node.friendly_name.clone(),
            type_name: node.type_name.to_string(),
            operation: node.operation.clone(),
            inputs: (0..node.inputs.len()).map(StageInput::Outside).collect(),
        }],
    };
    let ports: Vec<usize> = (0..node.inputs.len()).filter(|port| node.inputs[*port] == value).collect();
    for port in ports {
        for input in stages.iter_mut().flat_map(|stage| &mut stage.inputs) {
            *input = match *input {
                StageInput::Stage(stage) => StageInput::Stage(stage + 1),
                StageInput::Outside(outside) if outside == port => StageInput::Stage(0),
                outside => outside,
            };
        }
        let (friendly_name, type_name) = (format!("{}/plain", node.friendly_name), "FromRows".to_owned());
        let inputs = vec![StageInput::Outside(port)];
        stages.insert(0, Stage { friendly_name, type_name, operation: Arc::new(FromRows), inputs });
    }
    become_fused(node, stages);
}
