//! Evaluation of a few values at once, outside of a plan: constant expressions and initialisers of variables.

use std::collections::{BTreeSet, HashMap, HashSet};

use ovir_graph::{Model, Node, NodeId, Source, infer_layer};
use ovir_ops::{Body, Environment, EvaluateContext, OpError, OpResult, OutputSlot, OutputSlots, ValueFacts};
use ovir_tensor::{MAX_BOUNDS_ELEMENTS, Shape, SmallVec, Tensor, TensorView};

use crate::RunError;
use crate::fast::{ClaimContext, PackStore, StepShapes, claim};
use crate::layout::Layout;
use crate::precision::InferencePrecision;
use crate::spare::Spare;
use crate::step::run_kernel;

/// Values that are known already, by source.
pub(crate) type Known = HashMap<Source, Tensor>;

/// Which layers are evaluated by kernels, where that is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByKernels {
    /// None.
    Nothing,
    /// Those whose kernels give the bits of the reference: conversions and movements.
    Exact,
    /// All.
    All,
}

impl ByKernels {
    /// Whether a layer is evaluated by its kernel.
    fn takes(self, node: &Node) -> bool {
        const EXACT: [&str; 9] =
            ["Convert", "Transpose", "Concat", "Slice", "StridedSlice", "Split", "VariadicSplit", "Tile", "Broadcast"];
        self == ByKernels::All || self == ByKernels::Exact && EXACT.iter().any(|name| node.is(name))
    }
}

/// Computes `source` and everything that it needs beyond what is `known`; the result is added to `known`, and so are
/// intermediate values that nothing else needed.
///
/// # Errors
/// A needed layer cannot be evaluated, or needs a value that is not there.
pub(crate) fn compute(
    model: &Model,
    source: Source,
    known: &mut Known,
    environment: &mut Environment,
    bodies_of: &dyn Fn(NodeId) -> Vec<Box<dyn Body>>,
    by_kernels: ByKernels,
) -> Result<Tensor, RunError> {
    // Sources stand before their consumers, so walking down and then up in order needs no recursion.
    let mut needed = BTreeSet::from([source.node]);
    let mut pending = vec![source];
    while let Some(at) = pending.pop() {
        if known.contains_key(&at) {
            continue;
        }
        for input in &model.node(at.node).inputs {
            if !known.contains_key(input) && needed.insert(input.node) {
                pending.push(*input);
            }
        }
    }
    let given: HashSet<Source> = known.keys().copied().collect();
    let mut readers: HashMap<Source, usize> = HashMap::new();
    for input in needed.iter().flat_map(|id| &model.node(*id).inputs) {
        *readers.entry(*input).or_default() += 1;
    }
    for id in needed {
        if known.contains_key(&Source { node: id, port: 0 }) {
            continue;
        }
        let outputs = evaluate_layer(model, id, known, environment, bodies_of, by_kernels)?;
        for (port, tensor) in outputs.into_iter().enumerate() {
            known.insert(Source { node: id, port: port as u32 }, tensor);
        }
        // Chains over large constants would otherwise hold every stage at once.
        for input in &model.node(id).inputs {
            let left = readers.entry(*input).and_modify(|count| *count -= 1).or_default();
            if *left == 0 && *input != source && !given.contains(input) {
                known.remove(input);
            }
        }
    }
    let missing = || RunError::new(ovir_diagnostics::Code::InvalidValue, "the value could not be computed");
    known.get(&source).cloned().ok_or_else(missing)
}

fn evaluate_layer(
    model: &Model,
    id: NodeId,
    known: &Known,
    environment: &mut Environment,
    bodies_of: &dyn Fn(NodeId) -> Vec<Box<dyn Body>>,
    by_kernels: ByKernels,
) -> Result<Vec<Tensor>, RunError> {
    let node = model.node(id);
    if let Some(tensor) = node.tensor() {
        return Ok(vec![tensor.clone()]);
    }
    let missing =
        || RunError::new(ovir_diagnostics::Code::InvalidValue, format!("{} has no value here", node.reference()));
    let mut tensors: SmallVec<[Tensor; 4]> = SmallVec::new();
    for source in &node.inputs {
        tensors.push(known.get(source).ok_or_else(missing)?.aligned()?);
    }
    if node.operation.is_reshape() || node.inputs.is_empty() {
        environment.poll()?;
    }
    let views: SmallVec<[TensorView<'_>; 4]> = tensors.iter().map(Tensor::view).collect();
    let facts: SmallVec<[ValueFacts; 4]> = views.iter().map(view_facts).collect::<Result<_, _>>()?;
    let facts: SmallVec<[&ValueFacts; 4]> = facts.iter().collect();
    let mut outputs = vec![ValueFacts::default(); node.outputs.len()];
    infer_layer(model, node, &facts, &mut outputs).map_err(|d| RunError::from(*d))?;
    if by_kernels.takes(node)
        && let Some(result) = run_claimed(node, &facts, &outputs, &views, environment)
    {
        return result.map(|tensor| vec![tensor]).map_err(|error| RunError::in_node(model, node, &error));
    }
    let mut slots: SmallVec<[OutputSlot<'_>; 2]> = outputs.iter().map(|o| OutputSlot::Needed(o.element_type)).collect();
    let bodies = bodies_of(id);
    let bodies: SmallVec<[&dyn Body; 2]> = bodies.iter().map(|b| &**b).collect();
    let mut targets = OutputSlots(&mut slots);
    let mut context = EvaluateContext::new(&views, &mut targets, &bodies, environment, false);
    context.run(&*node.operation).map_err(|e| RunError::in_node(model, node, &e))?;
    let tensors = slots.into_iter().map(|slot| match slot {
        OutputSlot::Produced(tensor) => Ok(tensor),
        _ => Err(missing()),
    });
    tensors.collect()
}

/// Runs a layer with one output of known shape by a kernel that packs nothing; `None` if there is none.
fn run_claimed(
    node: &Node,
    facts: &[&ValueFacts],
    outputs: &[ValueFacts],
    views: &[TensorView<'_>],
    environment: &mut Environment,
) -> Option<OpResult<Tensor>> {
    let [output] = outputs else { return None };
    let shape = output.shape.to_shape().filter(|_| node.bodies.is_empty() && output.element_type.is_native())?;
    let claim = claim(&mut ClaimContext {
        precision: InferencePrecision::F32,
        dynamic_group: 0,
        node,
        inputs: facts,
        outputs,
        constant: &mut |_| None,
        stored: &mut |_| None,
        packed: &mut PackStore::default(),
        is_blocked: false,
        output_layout: Layout::Plain,
        graph: 0,
        computed: &[],
    })?;
    let shapes: SmallVec<[&Shape; 4]> = views.iter().map(TensorView::shape).collect();
    let shapes = StepShapes { inputs: &shapes, outputs: &[&shape] };
    if !claim.packed_inputs.is_empty() || !claim.kernel.accepts(&shapes) {
        return None;
    }
    let mut run = || -> OpResult<Tensor> {
        let output = environment.allocate(output.element_type, &shape)?;
        let scratch = claim.kernel.scratch_bytes(&shapes);
        let given = SmallVec::from_iter([Some(output)]);
        let (spare, random) = (&mut Spare::default(), &mut environment.random);
        let produced = run_kernel(&*claim.kernel, views, given, shapes.outputs, scratch, spare, random)?;
        produced.into_iter().next().ok_or_else(|| OpError::unsupported("an output was not produced"))
    };
    Some(run())
}

/// What is known of a tensor that is there: everything if it is small, else type and shape.
pub(crate) fn view_facts(view: &TensorView<'_>) -> Result<ValueFacts, RunError> {
    if view.elements() <= MAX_BOUNDS_ELEMENTS {
        return Ok(ValueFacts::of_constant(view.to_tensor()?));
    }
    Ok(ValueFacts::new(view.element_type(), view.shape().into()))
}
