//! Stores values that only quantised layers read as codes of one byte.
//!
//! Where all readers of a value begin with the same FakeQuantize, the value is encoded once, by the layer that makes it if
//! that is one of bytes itself, and each reader decodes it: the FakeQuantize of a convolution's or product's data becomes a
//! Decode, and so does one that stands in front of a residual sum. A MaxPool in between works on codes as well.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_ops::{OpVersion, Operation};
use ovir_tensor::ElementType;

use crate::chain::Uses;
use crate::split_quantizers::{are_usual, limits_of_tensor};
use crate::trace::{Trace, all_named};

/// Data of so few channels are read another way.
const FEW_CHANNELS: usize = 4;

/// From values to codes, and from codes to values.
type Coding = (Levels, Levels);

/// What becomes of a value.
struct Plan {
    coding: Coding,
    /// Whether the layer that makes the value encodes it; otherwise a layer of its own does.
    by_producer: bool,
}

/// All changes.
#[derive(Default)]
struct Changes {
    /// The values that become codes.
    encoded: HashMap<NodeId, Plan>,
    /// The MaxPools that work on codes.
    pools: HashSet<NodeId>,
    /// The layers that decode their data.
    data: HashMap<NodeId, Levels>,
    /// The FakeQuantizes in front of residual sums, which their readers take in.
    residuals: HashMap<NodeId, Levels>,
}

/// Encodes all such values; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    if !model.nodes.iter().any(is_of_bytes) {
        return None;
    }
    let uses = Uses::new(model);
    let mut changes = Changes::default();
    for (id, node) in model.iter() {
        let facts = validated.inference().outputs(id);
        let is_f32 = matches!(facts, [facts] if facts.element_type == ElementType::F32);
        if !is_f32 || uses.is_constant(id) || changes.pools.contains(&id) {
            continue;
        }
        let pooled = uses.only_reader(id).filter(|reader| is_max_pool(model.node(*reader)));
        let Some(readers) = readers_of(validated, &uses, pooled.unwrap_or(id)) else { continue };
        let by_producer = is_of_bytes(node);
        if !by_producer && readers.data.len() + readers.residuals.len() < 2 {
            trace.declined(node, || "one reader alone can encode it as well".to_owned());
            continue;
        }
        let all = || all_named(readers.data.iter().chain(&readers.residuals).map(|reader| model.node(*reader)));
        trace.applied(node, || format!("is read as codes by {}", all()));
        let decoded = readers.coding.1;
        changes.pools.extend(pooled);
        changes.encoded.insert(id, Plan { coding: readers.coding, by_producer });
        changes.data.extend(readers.data.into_iter().map(|reader| (reader, decoded)));
        changes.residuals.extend(readers.residuals.into_iter().map(|quantizer| (quantizer, decoded)));
    }
    (!changes.encoded.is_empty()).then(|| changed(model, &changes))
}

/// The readers of a value, all of which begin with the same FakeQuantize.
struct Readers {
    coding: Coding,
    /// Layers of bytes that read it as their data.
    data: Vec<NodeId>,
    /// FakeQuantizes whose values are the residuals of such layers.
    residuals: Vec<NodeId>,
}

fn readers_of(validated: &Validated, uses: &Uses, id: NodeId) -> Option<Readers> {
    let (model, value) = (validated.model(), Source { node: id, port: 0 });
    let (mut data, mut residuals, mut coding) = (Vec::new(), Vec::new(), None);
    for reader in uses.of(id) {
        let node = model.node(*reader);
        let is_once = node.inputs.iter().filter(|source| **source == value).count() == 1;
        let found = match data_quantizer(node) {
            Some((stage, port)) if is_once && node.inputs.get(port) == Some(&value) => {
                reads_codes(validated, node, value).then_some(())?;
                data.push(*reader);
                let input = |port: usize| match stage.inputs.get(port)? {
                    StageInput::Outside(outside) => node.inputs.get(*outside).copied(),
                    StageInput::Stage(_) => None,
                };
                coding_of(model, &*stage.operation, input)?
            }
            _ if node.is("FakeQuantize") && is_once && node.inputs.first() == Some(&value) => {
                let quantized = Source { node: *reader, port: 0 };
                let adds_it = |layer: &NodeId| is_residual(model.node(*layer), quantized);
                (!uses.of(*reader).is_empty() && uses.of(*reader).iter().all(adds_it)).then_some(())?;
                residuals.push(*reader);
                coding_of(model, &*node.operation, |port| node.inputs.get(port).copied())?
            }
            _ => return None,
        };
        (*coding.get_or_insert(found) == found).then_some(())?;
    }
    Some(Readers { coding: coding?, data, residuals })
}

/// The FakeQuantize of the data of a layer of bytes, and the input that it reads.
fn data_quantizer(node: &Node) -> Option<(&Stage, usize)> {
    let stage = node.operation.downcast_ref::<Fused>()?.stages.first()?;
    stage.operation.downcast_ref::<FakeQuantize>()?;
    match (stage.inputs.first()?, is_of_bytes(node)) {
        (StageInput::Outside(port), true) => Some((stage, *port)),
        _ => None,
    }
}

/// Whether a layer is a convolution or a product of bytes: only these have a FakeQuantize in front of such a layer.
fn is_of_bytes(node: &Node) -> bool {
    let Some(fused) = node.operation.downcast_ref::<Fused>() else { return false };
    let is_quantizer = |stage: &Stage| stage.operation.downcast_ref::<FakeQuantize>().is_some();
    fused.stages.first().is_some_and(is_quantizer)
        && fused.stages.get(1).is_some_and(|stage| matches!(&*stage.type_name, "Convolution" | "MatMul"))
}

/// Whether a layer of bytes takes codes of a value as they are.
fn reads_codes(validated: &Validated, node: &Node, value: Source) -> bool {
    let root = node.operation.downcast_ref::<Fused>().and_then(|fused| fused.stages.get(1));
    let is_product = root.is_some_and(|stage| stage.type_name == "MatMul");
    let dims = validated.inference().get(value).shape.dims();
    let channels = dims.and_then(|dims| dims.get(1)?.get());
    is_product || channels.is_some_and(|channels| channels > FEW_CHANNELS)
}

/// Whether a layer of bytes adds a value, and reads it nowhere else.
fn is_residual(node: &Node, value: Source) -> bool {
    let Some(fused) = node.operation.downcast_ref::<Fused>().filter(|_| is_of_bytes(node)) else { return false };
    let Some(port) = node.inputs.iter().position(|source| *source == value) else { return false };
    let readers: Vec<&Stage> =
        fused.stages.iter().filter(|stage| stage.inputs.contains(&StageInput::Outside(port))).collect();
    matches!(readers[..], [add] if add.type_name == "Add")
}

fn is_max_pool(node: &Node) -> bool {
    node.is("MaxPool") && node.outputs.len() == 1
}

/// The two halves of a FakeQuantize, whose inputs are given by port.
fn coding_of(model: &Model, operation: &dyn Operation, input: impl Fn(usize) -> Option<Source>) -> Option<Coding> {
    let operation = operation.downcast_ref::<FakeQuantize>()?;
    let [input_low, input_high, low, high] = limits_of_tensor(model, input)?;
    let last = u8::try_from(operation.levels.checked_sub(1)?).ok()?;
    let fits = are_usual(input_low, input_high) && last > 0;
    fits.then_some((Levels { low: input_low, high: input_high, last }, Levels { low, high, last }))
}

fn changed(model: &Model, changes: &Changes) -> Model {
    let mut nodes: Vec<Node> = Vec::with_capacity(model.nodes.len() + changes.encoded.len());
    // Where the layers are, and where their values are read.
    let (mut positions, mut places) = (Vec::with_capacity(model.nodes.len()), Vec::with_capacity(model.nodes.len()));
    for (id, node) in model.iter() {
        if changes.residuals.contains_key(&id) {
            // Who reads it reads the codes of its data.
            let place: Source = places[node.inputs[0].node.index()];
            positions.push(place.node);
            places.push(place);
            continue;
        }
        let mut copy = node.clone();
        if let Some(levels) = changes.data.get(&id) {
            decode_data(&mut copy, *levels);
        }
        decode_residual(&mut copy, changes);
        for source in &mut copy.inputs {
            *source = Source { port: source.port, ..places[source.node.index()] };
        }
        let mut place = Source { node: NodeId(nodes.len() as u32), port: 0 };
        positions.push(place.node);
        match changes.encoded.get(&id) {
            Some(plan) if plan.by_producer => {
                encode(&mut copy, plan.coding.0);
                nodes.push(copy);
            }
            Some(plan) => {
                let version = OpVersion::new(1, (1, 1), (1, 1), (1, 1));
                let operation = Arc::new(Encode { levels: plan.coding.0 });
                let mut encoder = Node::new(&*node.friendly_name, "Encode", version, operation, vec![place], 1);
                encoder.opset = Cow::Borrowed("ovir");
                encoder.outputs.clone_from(&node.outputs);
                nodes.extend([copy, encoder]);
                place.node.0 += 1;
            }
            None => nodes.push(copy),
        }
        places.push(place);
    }
    let mut changed = Model { nodes, ..model.clone() };
    for id in changed.parameters.iter_mut().chain(&mut changed.results) {
        *id = positions[id.index()];
    }
    changed
}

/// Puts a Decode in the place of the FakeQuantize of a layer's data.
fn decode_data(node: &mut Node, levels: Levels) {
    let Some(mut stages) = stages(node) else { return };
    if let Some(stage) = stages.first_mut() {
        stage.type_name = "Decode".to_owned();
        stage.operation = Arc::new(Decode { levels });
        stage.inputs.truncate(1);
    }
    node.operation = Arc::new(Fused { stages });
}

/// Puts a Decode in front of the sum with a value whose FakeQuantize is taken in.
fn decode_residual(node: &mut Node, changes: &Changes) {
    let found = node.inputs.iter().enumerate().find_map(|(port, s)| Some((port, *changes.residuals.get(&s.node)?)));
    let (Some((port, levels)), Some(mut stages)) = (found, stages(node)) else { return };
    let outside = StageInput::Outside(port);
    let Some(at) = stages.iter().position(|stage| stage.inputs.contains(&outside)) else { return };
    for input in stages.iter_mut().skip(at).flat_map(|stage| &mut stage.inputs) {
        match input {
            StageInput::Stage(stage) if *stage >= at => *stage += 1,
            input if *input == outside => *input = StageInput::Stage(at),
            _ => {}
        }
    }
    let (friendly_name, operation) = (stages[at].friendly_name.clone(), Arc::new(Decode { levels }));
    stages.insert(at, Stage { friendly_name, type_name: "Decode".to_owned(), operation, inputs: vec![outside] });
    node.operation = Arc::new(Fused { stages });
}

/// Puts an Encode behind the last stage of a layer.
fn encode(node: &mut Node, levels: Levels) {
    let Some(mut stages) = stages(node) else { return };
    let Some(last) = stages.len().checked_sub(1) else { return };
    let (friendly_name, operation) = (stages[last].friendly_name.clone(), Arc::new(Encode { levels }));
    let inputs = vec![StageInput::Stage(last)];
    stages.push(Stage { friendly_name, type_name: "Encode".to_owned(), operation, inputs });
    node.operation = Arc::new(Fused { stages });
}

fn stages(node: &Node) -> Option<Vec<Stage>> {
    Some(node.operation.downcast_ref::<Fused>()?.stages.clone())
}
