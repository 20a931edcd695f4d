//! What Loop and TensorIterator share: cutting inputs into iterations, putting outputs together, going around.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementType, ForeignBytes, INFINITE, PartialShape, Shape, Tensor};

use crate::infer::normalize_axis;
use crate::spread::{is_packed, pack, spread_out};
use crate::{
    Blame, Body, BodyPorts, Environment, InferContext, InputMap, OpError, OpResult, OutputMap, Slicing, ValueFacts,
};

/// How often inference may walk around a body before shapes that still grow are given up as unbounded.
const MAX_INFERENCE_ROUNDS: usize = 4;

/// The most bytes that are kept free for what an output collects before it is there.
const MOST_RESERVED_BYTES: usize = 1 << 24;

impl Slicing {
    /// The number of iterations that an axis of `size` gives.
    ///
    /// # Errors
    /// When the bounds do not fit the axis, or the stride does not divide the length.
    pub(crate) fn iterations(&self, size: usize, blame: Blame) -> OpResult<usize> {
        let (low, high) = self.range(size);
        let step = self.stride.unsigned_abs() as i64;
        let signed = size as i64;
        if step == 0 || low < 0 || high > signed || high < low || (high - low) % step != 0 {
            let message = format!(
                "an axis of size {size} cannot be cut with start {}, end {}, stride {} and part_size {}",
                self.start, self.end, self.stride, self.part_size
            );
            return Err(OpError::shape(blame, message));
        }
        Ok(((high - low) / step) as usize)
    }

    /// The number of iterations where the size is an interval.
    pub(crate) fn iterations_of(&self, size: Dim, blame: Blame) -> OpResult<Dim> {
        match size.get() {
            Some(size) => Ok(Dim::fixed(self.iterations(size, blame)?)),
            None => {
                let step = self.stride.unsigned_abs().max(1) as i64;
                Ok(Dim::interval(0, size.div_ceil(step).max()))
            }
        }
    }

    /// The first position of iteration `index`.
    fn position(&self, size: usize, index: usize) -> Option<usize> {
        let (low, high) = self.range(size);
        let step = (index as i64).checked_mul(self.stride.unsigned_abs() as i64)?;
        let start = if self.stride < 0 { high.checked_sub(step)?.checked_sub(self.part_size)? } else { low + step };
        usize::try_from(start).ok().filter(|start| start.saturating_add(self.part()) <= size)
    }

    /// The number of positions an iteration takes.
    pub(crate) fn part(&self) -> usize {
        usize::try_from(self.part_size).unwrap_or(0)
    }

    /// Both ends as boundaries between positions, in rising order; a negative end counts from behind the last position.
    fn range(&self, size: usize) -> (i64, i64) {
        let boundary = |value: i64| if value < 0 { value.saturating_add(size as i64 + 1) } else { value };
        let (start, end) = (boundary(self.start), boundary(self.end));
        if self.stride < 0 { (end, start) } else { (start, end) }
    }
}

/// The shape of one iteration of a sliced input.
pub(crate) fn sliced_shape(shape: &PartialShape, slicing: &Slicing, blame: Blame) -> OpResult<PartialShape> {
    let Some(rank) = shape.rank() else { return Ok(PartialShape::DYNAMIC) };
    let axis = normalize_axis(slicing.axis, rank, blame)?;
    let mut part = shape.clone();
    if let Some(dims) = part.dims_mut() {
        dims[axis] = Dim::fixed(slicing.part());
    }
    Ok(part)
}

/// The shape of an output that is put together from `count` iterations.
pub(crate) fn gathered_shape(
    shape: &PartialShape,
    slicing: &Slicing,
    count: Dim,
    blame: Blame,
) -> OpResult<PartialShape> {
    let Some(rank) = shape.rank() else { return Ok(PartialShape::DYNAMIC) };
    let axis = normalize_axis(slicing.axis, rank, blame)?;
    let mut whole = shape.clone();
    if let Some(dims) = whole.dims_mut() {
        dims[axis] = dims[axis] * count;
    }
    Ok(whole)
}

/// Where the part of an input that an iteration takes lies.
struct Part {
    shape: Shape,
    /// The rows that lie apart, each of which has a piece of the part.
    rows: usize,
    /// The bytes of a row.
    row_bytes: usize,
    /// The first byte of the piece in a row.
    start: usize,
    /// The bytes of the piece.
    length: usize,
}

impl Part {
    /// The part of `tensor` that iteration `index` takes. Elements must fill whole bytes, see [`in_bytes`].
    ///
    /// # Errors
    /// When the part lies outside of the tensor.
    fn of(tensor: &Tensor, slicing: &Slicing, index: usize, port: usize) -> OpResult<Part> {
        let blame = Blame::Input(port);
        let axis = normalize_axis(slicing.axis, tensor.shape().rank(), blame.clone())?;
        let size = tensor.shape()[axis];
        let outside =
            || OpError::shape(blame.clone(), format!("iteration {index} lies outside of an axis of size {size}"));
        let start = slicing.position(size, index).ok_or_else(outside)?;
        let mut shape = tensor.shape().clone();
        shape[axis] = slicing.part();
        let rows: usize = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product::<usize>() * whole_bytes(tensor.element_type())?;
        Ok(Part { shape, rows, row_bytes: size * inner, start: start * inner, length: slicing.part() * inner })
    }

    /// Copies the part out of a tensor, into memory that is there already where nobody shares it.
    ///
    /// # Errors
    /// When memory cannot be had.
    fn copy(&self, tensor: &Tensor, slot: &mut Option<Tensor>) -> OpResult<Tensor> {
        Tensor::prepare(slot, tensor.element_type(), &self.shape)?;
        let Some(part) = slot else { return Err(OpError::unsupported("the part has no memory")) };
        let (source, target) = (tensor.bytes(), part.bytes_mut()?);
        for row in 0..self.rows {
            let from = row * self.row_bytes + self.start;
            target[row * self.length..(row + 1) * self.length].copy_from_slice(&source[from..from + self.length]);
        }
        Ok(part.clone())
    }
}

/// An input that is cut into iterations.
struct Cut<'a> {
    input: &'a InputMap,
    slicing: &'a Slicing,
    /// The type of the input.
    element_type: ElementType,
    /// The input, with a byte at least for each element.
    whole: Tensor,
    /// The same, if its parts lie one behind the other, so that they need not be copied.
    shared: Option<Arc<dyn ForeignBytes>>,
    /// The memory of the last parts: the body may still hold that of the last iteration, but not the one before.
    slots: [Option<Tensor>; 2],
}

/// A tensor whose bytes parts of it share.
struct Whole(Tensor);

impl ForeignBytes for Whole {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl<'a> Cut<'a> {
    fn new(input: &'a InputMap, slicing: &'a Slicing, tensor: &Tensor) -> OpResult<Cut<'a>> {
        let (element_type, whole) = (tensor.element_type(), in_bytes(tensor)?);
        let axis = normalize_axis(slicing.axis, whole.shape().rank(), Blame::Input(input.external))?;
        let is_connected = !is_packed(element_type) && whole.shape()[..axis].iter().all(|size| *size == 1);
        let shared = is_connected.then(|| Arc::new(Whole(whole.clone())) as Arc<dyn ForeignBytes>);
        Ok(Cut { input, slicing, element_type, whole, shared, slots: [None, None] })
    }

    /// The part that iteration `index` takes.
    ///
    /// # Errors
    /// When it lies outside of the input, or memory cannot be had.
    fn part(&mut self, index: usize) -> OpResult<Tensor> {
        let part = Part::of(&self.whole, self.slicing, index, self.input.external)?;
        match &self.shared {
            Some(owner) => Ok(Tensor::from_foreign(self.element_type, part.shape, owner.clone(), part.start)?),
            None => in_type(part.copy(&self.whole, &mut self.slots[index % 2])?, self.element_type),
        }
    }
}

/// What an output collects of each iteration.
struct Collected<'a> {
    slicing: &'a Slicing,
    port: usize,
    /// The most iterations, where that is known.
    limit: Option<usize>,
    /// The parts, one behind the other, where they can be put together as they come.
    joined: Option<Tensor>,
    /// The parts, where they cannot.
    parts: Vec<Tensor>,
}

impl Collected<'_> {
    /// Adds what an iteration gives.
    ///
    /// # Errors
    /// When it differs from what others gave off the axis, or memory cannot be had.
    fn add(&mut self, part: &Tensor) -> OpResult {
        let axis = normalize_axis(self.slicing.axis, part.shape().rank(), Blame::Output(self.port))?;
        let is_connected = self.slicing.stride > 0
            && part.element_type().byte_width().is_some()
            && part.shape()[..axis].iter().all(|size| *size == 1);
        let Some(whole) = &mut self.joined else {
            match is_connected && self.parts.is_empty() {
                true => self.joined = Some(self.begin(part, axis)?),
                false => self.parts.push(part.clone()),
            }
            return Ok(());
        };
        fits(part, whole, axis, self.port)?;
        let mut shape = whole.shape().clone();
        shape[axis] = shape[axis].saturating_add(part.shape()[axis]);
        let end = whole.bytes().len();
        whole.resize(&shape)?;
        match whole.bytes_mut()?.get_mut(end..) {
            Some(rest) if rest.len() == part.bytes().len() => rest.copy_from_slice(part.bytes()),
            _ => return Err(OpError::unsupported("the iterations have no memory")),
        }
        Ok(())
    }

    /// A tensor of the first part alone, with room for the others if they are not too many.
    fn begin(&self, part: &Tensor, axis: usize) -> OpResult<Tensor> {
        let bytes = self.limit.and_then(|limit| limit.checked_mul(part.bytes().len()));
        let mut shape = part.shape().clone();
        if bytes.is_some_and(|bytes| (1..=MOST_RESERVED_BYTES).contains(&bytes)) {
            shape[axis] *= self.limit.unwrap_or(1);
        }
        let mut whole = Tensor::zeros(part.element_type(), shape)?;
        whole.resize(part.shape())?;
        whole.bytes_mut()?.copy_from_slice(part.bytes());
        Ok(whole)
    }

    /// The iterations put together; `None` if there was none.
    ///
    /// # Errors
    /// As [`gather`].
    fn whole(self) -> OpResult<Option<Tensor>> {
        match self.joined {
            Some(whole) => Ok(Some(whole)),
            None => gather_parts(&self.parts, self.slicing, self.port),
        }
    }
}

/// Whether an iteration gives what others gave, but for the axis along which they are put together.
///
/// # Errors
/// When it does not.
fn fits(part: &Tensor, other: &Tensor, axis: usize, port: usize) -> OpResult {
    let (shape, expected) = (part.shape(), other.shape());
    let is_same = part.element_type() == other.element_type()
        && shape.rank() == expected.rank()
        && (0..shape.rank()).all(|i| i == axis || shape[i] == expected[i]);
    if is_same {
        return Ok(());
    }
    let (element_type, other_type) = (part.element_type(), other.element_type());
    let message = format!("an iteration yields {element_type}{shape} after one that yields {other_type}{expected}");
    Err(OpError::shape(Blame::Output(port), message))
}

/// Puts the iterations of an output together along its axis, in the order in which they lie. Elements must fill whole
/// bytes, see [`in_bytes`].
///
/// # Errors
/// When the parts differ in type, or in shape off the axis.
pub(crate) fn gather(parts: &[Tensor], slicing: &Slicing, port: usize) -> OpResult<Option<Tensor>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let axis = normalize_axis(slicing.axis, first.shape().rank(), Blame::Output(port))?;
    let width = whole_bytes(first.element_type())?;
    let mut shape = first.shape().clone();
    shape[axis] = 0;
    for part in parts {
        fits(part, first, axis, port)?;
        shape[axis] += part.shape()[axis];
    }
    let outer: usize = shape[..axis].iter().product();
    let inner = shape[axis + 1..].iter().product::<usize>() * width;
    let row_bytes = shape[axis] * inner;
    let mut whole = Tensor::zeros(first.element_type(), shape)?;
    let target = whole.bytes_mut()?;
    let mut position = 0;
    let ordered: Box<dyn Iterator<Item = &Tensor>> =
        if slicing.stride < 0 { Box::new(parts.iter().rev()) } else { Box::new(parts.iter()) };
    for part in ordered {
        let length = part.shape()[axis] * inner;
        for row in 0..outer {
            let to = row * row_bytes + position;
            target[to..to + length].copy_from_slice(&part.bytes()[row * length..(row + 1) * length]);
        }
        position += length;
    }
    Ok(Some(whole))
}

/// Infers the results of a body that goes around `count` times, from the facts of its parameters in the first
/// iteration. Shapes that grow from iteration to iteration become unbounded.
///
/// # Errors
/// What the body says.
pub(crate) fn infer_around(
    body: &dyn Body,
    ports: &BodyPorts,
    parameters: &mut [ValueFacts],
    count: Dim,
) -> OpResult<Vec<ValueFacts>> {
    let goes_around = count.max() > 1;
    if goes_around {
        for edge in &ports.back_edges {
            if let Some(parameter) = parameters.get_mut(edge.parameter) {
                forget_values(parameter);
            }
        }
    }
    for round in 0..=MAX_INFERENCE_ROUNDS {
        let results = body.infer(parameters)?;
        if !goes_around {
            return Ok(results);
        }
        let mut changed = false;
        for edge in &ports.back_edges {
            let (Some(parameter), Some(result)) = (parameters.get_mut(edge.parameter), results.get(edge.result)) else {
                continue;
            };
            let widened = widen(&parameter.shape, &result.shape, round);
            if widened != parameter.shape {
                *parameter = ValueFacts::new(parameter.element_type, widened);
                changed = true;
            }
        }
        if !changed {
            return Ok(results);
        }
    }
    body.infer(parameters)
}

/// Runs one iteration after another until the body says stop or `limit` is reached; gives the results of every
/// iteration that an output collects, and the last results.
pub(crate) struct Rounds<'a> {
    /// The body.
    pub body: &'a dyn Body,
    /// Its port map.
    pub ports: &'a BodyPorts,
    /// Inputs of the layer.
    pub inputs: &'a [Tensor],
    /// The parameters of the first iteration; sliced and iteration parameters are set anew each time.
    pub parameters: Vec<Tensor>,
}

impl<'a> Rounds<'a> {
    /// Runs. `limit` is the number of iterations, `None` if only the body ends the loop; `condition` says whether there
    /// is a first one.
    ///
    /// # Errors
    /// What the body says, and limits of the surroundings.
    pub(crate) fn run(
        mut self,
        limit: Option<usize>,
        condition: bool,
        environment: &mut Environment,
    ) -> OpResult<Vec<Option<Tensor>>> {
        let mut cuts = self.cuts()?;
        let mut collected = self.collected(limit);
        let mut last: Vec<Tensor> = Vec::new();
        let mut goes_on = condition;
        let mut iteration = 0usize;
        while goes_on && limit.is_none_or(|limit| iteration < limit) {
            environment.poll()?;
            self.set_parameters(iteration, &mut cuts)?;
            last = self.body.run(&self.parameters, environment)?;
            for (output, collected) in self.ports.outputs.iter().zip(&mut collected) {
                let Some(collected) = collected else { continue };
                let part = result(&last, output.result)?;
                if let Some(limits) = environment.limits() {
                    limits.claim(part.bytes().len())?;
                }
                collected.add(part)?;
            }
            if let Some(port) = self.ports.special.execution_condition {
                goes_on = truth(result(&last, port)?);
            }
            for edge in &self.ports.back_edges {
                if let Some(parameter) = self.parameters.get_mut(edge.parameter) {
                    *parameter = result(&last, edge.result)?.clone();
                }
            }
            iteration += 1;
        }
        self.outputs(collected, &last)
    }

    /// The inputs that are cut; packed ones are spread once, not in every iteration.
    fn cuts(&self) -> OpResult<Vec<Cut<'a>>> {
        let inputs = self.inputs;
        let cut = |input: &'a InputMap| Some((input, input.slicing.as_ref()?, inputs.get(input.external)?));
        let cuts = self.ports.inputs.iter().filter_map(cut);
        cuts.map(|(input, slicing, tensor)| Cut::new(input, slicing, tensor)).collect()
    }

    /// What each output collects, for those that do, before the first iteration.
    fn collected(&self, limit: Option<usize>) -> Vec<Option<Collected<'a>>> {
        let new = |output: &'a OutputMap| {
            let (slicing, port) = (output.slicing.as_ref()?, output.external);
            Some(Collected { slicing, port, limit, joined: None, parts: Vec::new() })
        };
        self.ports.outputs.iter().map(new).collect()
    }

    fn set_parameters(&mut self, iteration: usize, cuts: &mut [Cut<'_>]) -> OpResult {
        if let Some(port) = self.ports.special.current_iteration
            && let Some(parameter) = self.parameters.get_mut(port)
        {
            *parameter = iteration_number(parameter, iteration)?;
        }
        for cut in cuts {
            if let Some(parameter) = self.parameters.get_mut(cut.input.parameter) {
                *parameter = cut.part(iteration)?;
            }
        }
        Ok(())
    }

    /// What the layer yields: parts put together, last values, or initial values where there was no iteration.
    fn outputs(&self, collected: Vec<Option<Collected<'_>>>, last: &[Tensor]) -> OpResult<Vec<Option<Tensor>>> {
        let mut outputs = Vec::new();
        for (output, collected) in self.ports.outputs.iter().zip(collected) {
            let value = match collected {
                Some(collected) => collected.whole()?,
                None => last.get(output.result).cloned().or_else(|| self.initial(output.result)),
            };
            if outputs.len() <= output.external {
                outputs.resize(output.external + 1, None);
            }
            outputs[output.external] = value;
        }
        Ok(outputs)
    }

    fn initial(&self, result: usize) -> Option<Tensor> {
        let edge = self.ports.back_edges.iter().find(|edge| edge.result == result)?;
        self.parameters.get(edge.parameter).cloned()
    }
}

/// The parameters of the first iteration: what comes in whole, and zeros of the declared type elsewhere.
pub(crate) fn first_parameters(body: &dyn Body, ports: &BodyPorts, inputs: &[Tensor]) -> OpResult<Vec<Tensor>> {
    let mut parameters = Vec::with_capacity(ports.parameter_count);
    for index in 0..ports.parameter_count {
        let whole = ports.inputs.iter().find(|i| i.parameter == index && i.slicing.is_none());
        parameters.push(match whole.and_then(|i| inputs.get(i.external)) {
            Some(tensor) => tensor.clone(),
            None => {
                let declared = body.parameter(index);
                let element_type = Some(declared.element_type).filter(|t| t.is_known()).unwrap_or(ElementType::I64);
                Tensor::zeros(element_type, placeholder_shape(&declared.shape))?
            }
        });
    }
    Ok(parameters)
}

/// The facts of the parameters in the first iteration.
pub(crate) fn first_facts(body: &dyn Body, ports: &BodyPorts, context: &InferContext<'_>) -> OpResult<Vec<ValueFacts>> {
    let mut facts: Vec<ValueFacts> = (0..ports.parameter_count).map(|i| body.parameter(i)).collect();
    for input in &ports.inputs {
        let (Ok(given), Some(slot)) = (context.input(input.external), facts.get_mut(input.parameter)) else {
            continue;
        };
        *slot = match &input.slicing {
            None => given.clone(),
            Some(slicing) => {
                let shape = sliced_shape(&given.shape, slicing, Blame::Input(input.external))?;
                ValueFacts::new(given.element_type, shape)
            }
        };
    }
    Ok(facts)
}

/// `tensor`, or where its elements share bytes a tensor of the same shape that gives each a byte of its own.
fn in_bytes(tensor: &Tensor) -> OpResult<Tensor> {
    if is_packed(tensor.element_type()) { spread_out(tensor) } else { Ok(tensor.clone()) }
}

/// Undoes [`in_bytes`].
fn in_type(tensor: Tensor, element_type: ElementType) -> OpResult<Tensor> {
    if is_packed(element_type) { pack(&tensor, element_type) } else { Ok(tensor) }
}

/// Puts iterations together, whatever their elements are.
fn gather_parts(parts: &[Tensor], slicing: &Slicing, port: usize) -> OpResult<Option<Tensor>> {
    let Some(element_type) = parts.first().map(Tensor::element_type).filter(|t| is_packed(*t)) else {
        return gather(parts, slicing, port);
    };
    let spread = parts.iter().map(spread_out).collect::<OpResult<Vec<_>>>()?;
    gather(&spread, slicing, port)?.map(|whole| pack(&whole, element_type)).transpose()
}

/// Whether the single element of a boolean tensor is true.
pub(crate) fn truth(tensor: &Tensor) -> bool {
    tensor.bytes().iter().any(|byte| *byte != 0)
}

fn forget_values(facts: &mut ValueFacts) {
    facts.constant = None;
    facts.bounds = None;
}

fn widen(parameter: &PartialShape, result: &PartialShape, round: usize) -> PartialShape {
    if parameter.includes(result) {
        return parameter.clone();
    }
    match (parameter.dims(), result.dims()) {
        (Some(a), Some(b)) if a.len() == b.len() && round < MAX_INFERENCE_ROUNDS => {
            PartialShape::from_dims(a.iter().zip(b).map(|(x, y)| if x.includes(*y) { *x } else { widen_dim(*x, *y) }))
        }
        _ => PartialShape::DYNAMIC,
    }
}

/// The end of the interval beyond which the size of the next iteration goes is given up; the other one stays.
fn widen_dim(parameter: Dim, result: Dim) -> Dim {
    let min = if result.min() < parameter.min() { 0 } else { parameter.min() };
    let max = if result.max() > parameter.max() { INFINITE } else { parameter.max() };
    Dim::interval(min, max)
}

fn result(results: &[Tensor], index: usize) -> OpResult<&Tensor> {
    results.get(index).ok_or_else(|| OpError::shape(Blame::Node, format!("the body has no result {index}")))
}

fn iteration_number(parameter: &Tensor, iteration: usize) -> OpResult<Tensor> {
    let number = iteration as i64;
    Ok(match parameter.element_type() {
        ElementType::I32 => {
            Tensor::from_slice(&[i32::try_from(number).unwrap_or(i32::MAX)], parameter.shape().clone())?
        }
        _ => Tensor::from_slice(&[number], parameter.shape().clone())?,
    })
}

/// One element where the shape leaves anything open: only the iteration number and sliced inputs get such a tensor, and
/// both are set before the body runs.
fn placeholder_shape(shape: &PartialShape) -> Shape {
    shape.to_shape().filter(|s| s.elements() <= 1 << 20).unwrap_or_default()
}

fn whole_bytes(element_type: ElementType) -> OpResult<usize> {
    element_type.byte_width().ok_or_else(|| super::elementwise::unsupported(element_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovir_tensor::packed;
    use pretty_assertions::assert_eq;

    fn cut(start: i64, end: i64, stride: i64, part_size: i64) -> Slicing {
        Slicing { axis: 1, start, end, stride, part_size }
    }

    fn slice(tensor: &Tensor, slicing: &Slicing, index: usize, port: usize) -> OpResult<Tensor> {
        Part::of(tensor, slicing, index, port)?.copy(tensor, &mut None)
    }

    #[test]
    fn parts_that_lie_one_behind_the_other_are_not_copied() {
        let tensor = Tensor::from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0], [1, 3, 2]).unwrap();
        for (slicing, order) in [(cut(0, -1, 1, 1), [0usize, 1, 2]), (cut(-1, 0, -1, 1), [2, 1, 0])] {
            let map = InputMap { external: 0, parameter: 0, slicing: Some(slicing) };
            let mut cut = Cut::new(&map, &slicing, &tensor).unwrap();
            let mut collected =
                Collected { slicing: &slicing, port: 0, limit: Some(3), joined: None, parts: Vec::new() };
            for (index, place) in order.into_iter().enumerate() {
                let part = cut.part(index).unwrap();
                assert_eq!(part.identity().0, tensor.identity().0 + 8 * place);
                assert_eq!(part, slice(&tensor, &slicing, index, 0).unwrap());
                collected.add(&part).unwrap();
            }
            assert_eq!(collected.whole().unwrap().unwrap(), tensor);
            assert!(cut.part(3).is_err());
        }
    }

    #[test]
    fn parts_that_differ_are_errors() {
        for part in [Tensor::zeros(ElementType::F32, [1, 1, 3]), Tensor::zeros(ElementType::F16, [1, 1, 2])] {
            let slicing = cut(0, -1, 1, 1);
            let mut collected = Collected { slicing: &slicing, port: 0, limit: None, joined: None, parts: Vec::new() };
            let first = Tensor::zeros(ElementType::F32, [1, 1, 2]).unwrap();
            let part = part.unwrap();
            collected.add(&first).unwrap();
            assert!(collected.add(&part).is_err());
            assert!(gather(&[first, part], &slicing, 0).is_err());
        }
    }

    #[test]
    fn cuts_forward_and_backward() {
        let tensor = Tensor::from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3]).unwrap();
        let forward = cut(0, -1, 1, 1);
        assert_eq!(forward.iterations(3, Blame::Node).unwrap(), 3);
        assert_eq!(slice(&tensor, &forward, 1, 0).unwrap().slice::<f32>().unwrap(), [1.0, 4.0]);
        let backward = cut(-1, 0, -1, 1);
        assert_eq!(backward.iterations(3, Blame::Node).unwrap(), 3);
        assert_eq!(slice(&tensor, &backward, 0, 0).unwrap().slice::<f32>().unwrap(), [2.0, 5.0]);
        let parts: Vec<Tensor> = (0..3).map(|i| slice(&tensor, &backward, i, 0).unwrap()).collect();
        assert_eq!(gather(&parts, &backward, 0).unwrap().unwrap(), tensor);
    }

    #[test]
    fn cuts_elements_that_share_bytes() {
        let codes: Vec<u8> = (0..10).collect();
        for element_type in [ElementType::I4, ElementType::U3, ElementType::Nf4, ElementType::U1] {
            let mask = (1u8 << element_type.bits()) - 1;
            let codes: Vec<u8> = codes.iter().map(|code| code & mask).collect();
            let mut whole = Tensor::zeros(element_type, [2, 5]).unwrap();
            packed::pack_codes(element_type, &codes, whole.bytes_mut().unwrap()).unwrap();
            let spread = in_bytes(&whole).unwrap();
            let part = |i| in_type(slice(&spread, &cut(0, -1, 1, 1), i, 0).unwrap(), element_type).unwrap();
            let parts: Vec<Tensor> = (0..5).map(part).collect();
            let mut column = [0; 2];
            packed::unpack_codes(element_type, parts[3].bytes(), &mut column).unwrap();
            assert_eq!(column, [codes[3], codes[8]], "{element_type}");
            assert_eq!(gather_parts(&parts, &cut(0, -1, 1, 1), 0).unwrap(), Some(whole), "{element_type}");
        }
    }

    #[test]
    fn sizes_that_grow_keep_their_lower_end() {
        let shape = |dims: [(i64, i64); 2]| PartialShape::from_dims(dims.map(|(min, max)| Dim::interval(min, max)));
        let grown = widen(&shape([(1, 1), (2, 3)]), &shape([(2, 2), (2, 2)]), 0);
        assert_eq!(grown, shape([(1, INFINITE), (2, 3)]));
        let shrunk = widen(&shape([(3, 5), (2, 2)]), &shape([(2, 4), (2, 2)]), 0);
        assert_eq!(shrunk, shape([(0, 5), (2, 2)]));
    }

    #[test]
    fn cuts_that_do_not_fit_are_errors() {
        assert!(cut(0, -1, 2, 2).iterations(3, Blame::Node).is_err());
        assert!(cut(0, 9, 1, 1).iterations(3, Blame::Node).is_err());
        assert!(cut(0, -1, 0, 1).iterations(3, Blame::Node).is_err());
        let tensor = Tensor::from_slice(&[0f32; 3], [1, 3]).unwrap();
        assert!(slice(&tensor, &cut(0, -1, 1, 1), 3, 0).is_err());
    }
}
