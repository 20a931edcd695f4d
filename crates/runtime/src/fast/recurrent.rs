//! LSTM, GRU and plain recurrent sequences and cells with constant weights and the usual activations, f32.

use std::sync::Arc;

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_kernels::recurrent::{
    CellKind as PackedKind, PackedCell, SequenceGeometry, recurrent_sequences, recurrent_sequences_scratch_len,
};
use ovir_ops::common::recurrent::{Activation, Cell, CellKind, Direction};
use ovir_ops::sequence::{
    gru_cell::GruCell, gru_sequence::GruSequence, lstm_cell::LstmCell, lstm_sequence::LstmSequence, rnn_cell::RnnCell,
    rnn_sequence::RnnSequence,
};
use ovir_ops::{Blame, OpError, OpResult, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorView};

use super::parts::{floats, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct SequenceKernel {
    isa: Isa,
    direction: Direction,
    /// One for each direction.
    cells: Vec<PackedCell>,
    is_lstm: bool,
    hidden: usize,
    input: usize,
    length_type: ElementType,
}

/// Claims LSTMSequence, GRUSequence and RNNSequence.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let (cell, direction) = if let Some(sequence) = operation.downcast_ref::<LstmSequence>() {
        (&sequence.cell, sequence.attributes.direction)
    } else if let Some(sequence) = operation.downcast_ref::<GruSequence>() {
        (&sequence.cell, sequence.attributes.direction)
    } else {
        let sequence = operation.downcast_ref::<RnnSequence>()?;
        (&sequence.cell, sequence.attributes.direction)
    };
    let kind = packed_kind(cell)?;
    let is_lstm = kind == PackedKind::Lstm;
    let lengths_port = if is_lstm { 3 } else { 2 };
    let length_type = context.inputs.get(lengths_port)?.element_type;
    let is_f32 = |port: usize| context.inputs.get(port).is_some_and(|facts| facts.element_type == ElementType::F32);
    if !matches!(length_type, ElementType::I32 | ElementType::I64) || !(0..lengths_port).all(is_f32) {
        return None;
    }
    let ports = [lengths_port + 1, lengths_port + 2, lengths_port + 3];
    let isa = isa::detect();
    let (w, r, b) = ((context.constant)(ports[0])?, (context.constant)(ports[1])?, (context.constant)(ports[2])?);
    let [directions, _, input] = w.shape()[..] else { return None };
    let (w, r, b) = (floats(&w)?, floats(&r)?, floats(&b)?);
    if directions != direction.count() || w.is_empty() || r.is_empty() {
        return None;
    }
    let part = |values: &[f32], at: usize| {
        let length = values.len() / directions;
        values[at * length..][..length].to_vec()
    };
    let hidden = cell.hidden_size;
    let cells: Option<Vec<PackedCell>> = (0..directions)
        .map(|at| PackedCell::pack(isa, kind, input, hidden, &part(&w, at), &part(&r, at), &part(&b, at)).ok())
        .collect();
    let kernel = SequenceKernel { isa, direction, cells: cells?, is_lstm, hidden, input, length_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::from_slice(&ports) })
}

/// The kind as the kernels know it, if activations and bounds are the usual ones.
fn packed_kind(cell: &Cell) -> Option<PackedKind> {
    use Activation::{Relu, Sigmoid, Tanh};
    if cell.clip != 0.0 && cell.clip.is_finite() {
        return None;
    }
    match (cell.kind, &cell.activations[..]) {
        (kind, [Sigmoid, Tanh, Tanh]) if kind == CellKind::LSTM => Some(PackedKind::Lstm),
        (CellKind::Gru { linear_before_reset: false }, [Sigmoid, Tanh]) => Some(PackedKind::Gru),
        (CellKind::Gru { linear_before_reset: true }, [Sigmoid, Tanh]) => Some(PackedKind::GruLinearBeforeReset),
        (CellKind::Rnn, [Tanh]) => Some(PackedKind::Rnn),
        (CellKind::Rnn, [Relu]) => Some(PackedKind::RnnRelu),
        _ => None,
    }
}

/// One step of a cell.
struct CellKernel {
    isa: Isa,
    cell: Arc<PackedCell>,
    is_lstm: bool,
    hidden: usize,
    input: usize,
}

/// Claims LSTMCell, GRUCell and RNNCell.
pub(crate) fn claim_cell(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let lstm = operation.downcast_ref::<LstmCell>().map(|layer| &layer.cell);
    let gru = || operation.downcast_ref::<GruCell>().map(|layer| &layer.cell);
    let rnn = || operation.downcast_ref::<RnnCell>().map(|layer| &layer.cell);
    let cell = lstm.or_else(gru).or_else(rnn)?;
    let kind = packed_kind(cell)?;
    let is_lstm = kind == PackedKind::Lstm;
    let first = if is_lstm { 3 } else { 2 };
    let is_f32 = |facts: &&ValueFacts| facts.element_type == ElementType::F32;
    if context.inputs.len() != first + 3 || !context.inputs.iter().all(is_f32) {
        return None;
    }
    let ports = [first, first + 1, first + 2];
    let (w, r, b) = ((context.constant)(ports[0])?, (context.constant)(ports[1])?, (context.constant)(ports[2])?);
    let [_, input] = w.shape()[..] else { return None };
    let (isa, hidden) = (isa::detect(), cell.hidden_size);
    // Steps of an unrolled sequence share their weights.
    let key = context.key(ports[1], &r);
    let name = format!("cell {kind:?} {:?} {:?}", context.key(ports[0], &w), context.key(ports[2], &b));
    let (w, r, b) = (floats(&w)?, floats(&r)?, floats(&b)?);
    let cell = context.packed.get(key, name, || PackedCell::pack(isa, kind, input, hidden, &w, &r, &b).ok())?;
    let kernel = CellKernel { isa, cell, is_lstm, hidden, input };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::from_slice(&ports) })
}

impl CellKernel {
    fn geometry(&self, x: &Shape) -> Option<SequenceGeometry> {
        let [batch, input] = x[..] else { return None };
        (input == self.input && batch > 0).then_some(SequenceGeometry { batch, steps: 1, reverse: false })
    }
}

impl Kernel for CellKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let Some(geometry) = shapes.inputs.first().and_then(|x| self.geometry(x)) else { return false };
        let states = if self.is_lstm { 2 } else { 1 };
        let is_state = |shape: &&Shape| shape[..] == [geometry.batch, self.hidden];
        shapes.outputs.len() == states
            && shapes.outputs.iter().all(is_state)
            && shapes.inputs.get(1..1 + states).is_some_and(|inputs| inputs.iter().all(is_state))
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let Some(geometry) = shapes.inputs.first().and_then(|x| self.geometry(x)) else { return 0 };
        let len = recurrent_sequences_scratch_len(self.isa, &geometry, std::slice::from_ref(&*self.cell));
        4 * (len + geometry.batch * self.hidden)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let batch = shapes.inputs.first().and_then(|x| x.first()).copied().unwrap_or(0);
        nanoseconds_for_flops(8 * batch as u64 * (self.hidden * (self.hidden + self.input)) as u64)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Input(0), "the kernel does not fit the data");
        let x = io.inputs.first().ok_or_else(misfit)?;
        let geometry = self.geometry(x.shape()).ok_or_else(misfit)?;
        let (h, scratch) = scratch_f32(io.scratch).split_at_mut(geometry.batch * self.hidden);
        h.copy_from_slice(io.inputs[1].slice::<f32>()?);
        let (first, rest) = io.outputs.split_at_mut(1);
        let y = first[0].slice_mut::<f32>()?;
        let c: &mut [f32] = match rest {
            [state, ..] => {
                let state = state.slice_mut::<f32>()?;
                state.copy_from_slice(io.inputs[2].slice::<f32>()?);
                state
            }
            [] => &mut [],
        };
        let x = x.slice::<f32>()?;
        let cell = std::slice::from_ref(&*self.cell);
        recurrent_sequences(self.isa, &geometry, cell, x, None, y, h, c, scratch).map_err(kernel_error)
    }
}

impl SequenceKernel {
    fn geometry(&self, x: &Shape) -> Option<SequenceGeometry> {
        let [batch, steps, input] = x[..] else { return None };
        let reverse = self.direction.is_reverse(0);
        (input == self.input && batch > 0 && steps > 0).then_some(SequenceGeometry { batch, steps, reverse })
    }

    /// The elements of one state of all directions.
    fn state_len(&self, batch: usize) -> usize {
        self.cells.len() * batch * self.hidden
    }

    /// The lengths of the sequences; `None` where all are whole.
    fn lengths(&self, input: &TensorView<'_>, steps: usize) -> OpResult<Option<SmallVec<[usize; 16]>>> {
        let value = |length: i64| {
            usize::try_from(length).ok().filter(|length| *length <= steps).ok_or_else(|| {
                let message = format!("the length {length} is not in 0 to {steps}, the steps of input 0");
                OpError::value(Blame::Node, message)
            })
        };
        let lengths: SmallVec<[usize; 16]> = match self.length_type {
            ElementType::I32 => {
                input.slice::<i32>()?.iter().map(|length| value(i64::from(*length))).collect::<OpResult<_>>()?
            }
            _ => input.slice::<i64>()?.iter().map(|length| value(*length)).collect::<OpResult<_>>()?,
        };
        Ok((!lengths.iter().all(|length| *length == steps)).then_some(lengths))
    }
}

/// Exchanges the first two axes of states.
fn exchange(from: &[f32], [rows, columns, hidden]: [usize; 3], to: &mut [f32]) {
    for row in 0..rows {
        for column in 0..columns {
            let (source, target) = ((row * columns + column) * hidden, (column * rows + row) * hidden);
            to[target..target + hidden].copy_from_slice(&from[source..source + hidden]);
        }
    }
}

impl Kernel for SequenceKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let Some(x) = shapes.inputs.first() else { return false };
        let Some(geometry) = self.geometry(x) else { return false };
        let states = self.direction.count() * geometry.batch * self.hidden;
        let outputs = if self.is_lstm { 3 } else { 2 };
        shapes.outputs.len() == outputs
            && shapes.inputs[1..outputs].iter().all(|state| state.elements() == states)
            && shapes.inputs.get(outputs).is_some_and(|lengths| lengths.elements() == geometry.batch)
            && shapes.outputs[1..].iter().all(|state| state.elements() == states)
            && shapes.outputs[0].elements() == states * geometry.steps
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let Some(geometry) = shapes.inputs.first().and_then(|x| self.geometry(x)) else { return 0 };
        let len = recurrent_sequences_scratch_len(self.isa, &geometry, &self.cells);
        4 * (len + 2 * self.state_len(geometry.batch))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let Some(geometry) = shapes.inputs.first().and_then(|x| self.geometry(x)) else { return 0 };
        let weights = self.cells.len() * 4 * self.hidden * (self.hidden + self.input);
        nanoseconds_for_flops(2 * (geometry.batch * geometry.steps) as u64 * weights as u64)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let x = &io.inputs[0];
        let misfit = || OpError::shape(Blame::Input(0), "the kernel does not fit the data");
        let states = if self.is_lstm { 2 } else { 1 };
        let (first, last) = io.outputs.split_at_mut(1);
        let y = first[0].slice_mut::<f32>()?;
        let geometry = self.geometry(x.shape()).ok_or_else(misfit)?;
        let lengths = self.lengths(&io.inputs[1 + states], geometry.steps)?;
        let (batch, directions, len) = (geometry.batch, self.cells.len(), self.state_len(geometry.batch));
        let (h, rest) = scratch_f32(io.scratch).split_at_mut(len);
        let (c, scratch) = rest.split_at_mut(if self.is_lstm { len } else { 0 });
        for (initial, state) in io.inputs[1..].iter().zip([&mut *h, &mut *c]).take(states) {
            exchange(initial.slice::<f32>()?, [batch, directions, self.hidden], state);
        }
        let x = x.slice::<f32>()?;
        recurrent_sequences(self.isa, &geometry, &self.cells, x, lengths.as_deref(), y, h, c, scratch)
            .map_err(kernel_error)?;
        let finals: [&[f32]; 2] = [h, c];
        for (output, state) in last.iter_mut().zip(finals) {
            exchange(state, [directions, batch, self.hidden], output.slice_mut::<f32>()?);
        }
        Ok(())
    }
}
