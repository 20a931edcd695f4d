//! Recurrent cells: the mathematics of LSTM, GRU and RNN, one step or a whole sequence.

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, PartialShape, Shape, SmallVec};

use super::memory::{filled, widened_view, write_rounded};
use super::window::MAX_WINDOW_NUMBER;
use crate::{AttributeReader, Blame, EvaluateContext, InferContext, OpError, OpResult};

crate::attribute_enum! {
    /// The order in which a sequence is walked.
    pub enum Direction {
        /// From the first step to the last.
        #[default]
        Forward = "forward",
        /// From the last step to the first.
        Reverse = "reverse",
        /// Both ways, each with weights of its own.
        Bidirectional = "bidirectional",
    }
}

impl Direction {
    /// The number of directions: 1 or 2.
    pub fn count(self) -> usize {
        if self == Direction::Bidirectional { 2 } else { 1 }
    }

    /// Whether direction `index` walks from the last step to the first.
    pub fn is_reverse(self, index: usize) -> bool {
        self == Direction::Reverse || index == 1
    }
}

/// A function of a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `max(0, x)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `min(1, max(0, alpha * x + beta))`.
    HardSigmoid {
        /// The slope.
        alpha: f32,
        /// The value at 0.
        beta: f32,
    },
}

impl Activation {
    /// The value of the function.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Activation::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Tanh => x.tanh(),
            Activation::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        }
    }
}

/// What distinguishes the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Long short-term memory: activations f, g, h.
    Lstm {
        /// Where the gates f, i, c, o stand in weights and biases.
        order: [usize; 4],
        /// Whether the input gate is `1 - f`.
        input_forget: bool,
    },
    /// Gated recurrent unit: gates z, r, h; activations f, g.
    Gru {
        /// Whether the reset gate is applied after the recurrence weights.
        linear_before_reset: bool,
    },
    /// The plain cell: activation f.
    Rnn,
}

impl CellKind {
    /// LSTM in the order of the specification.
    pub const LSTM: CellKind = CellKind::Lstm { order: [0, 1, 2, 3], input_forget: false };

    /// The number of gates in the weights.
    pub fn gates(self) -> usize {
        match self {
            CellKind::Lstm { .. } => 4,
            CellKind::Gru { .. } => 3,
            CellKind::Rnn => 1,
        }
    }

    /// The number of gates in the biases.
    pub fn bias_gates(self) -> usize {
        if self == (CellKind::Gru { linear_before_reset: true }) { 4 } else { self.gates() }
    }

    /// The number of states: hidden, and cell.
    pub fn states(self) -> usize {
        if matches!(self, CellKind::Lstm { .. }) { 2 } else { 1 }
    }

    /// The number of activations.
    pub fn activations(self) -> usize {
        match self {
            CellKind::Lstm { .. } => 3,
            CellKind::Gru { .. } => 2,
            CellKind::Rnn => 1,
        }
    }
}

/// A cell with its attributes read.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Which cell.
    pub kind: CellKind,
    /// The size of the states.
    pub hidden_size: usize,
    /// The functions of the gates.
    pub activations: SmallVec<[Activation; 3]>,
    /// The bound of what activations take; 0 means none.
    pub clip: f32,
}

/// The attributes that all cells have, as they were read.
pub(crate) struct CellAttributes<'a> {
    pub hidden_size: i64,
    pub activations: &'a [String],
    pub alpha: &'a [f32],
    pub beta: &'a [f32],
    pub clip: f32,
}

/// Weights and biases of one direction.
#[derive(Clone, Copy)]
struct Weights<'a> {
    input: &'a [f64],
    recurrence: &'a [f64],
    bias: &'a [f64],
}

impl Cell {
    /// A cell; attributes out of range are reported.
    pub(crate) fn new(kind: CellKind, given: &CellAttributes<'_>, reader: &mut AttributeReader<'_>) -> Cell {
        if !(1..=MAX_WINDOW_NUMBER).contains(&given.hidden_size) {
            let message = format!("`hidden_size` {} is out of range [1, {MAX_WINDOW_NUMBER}]", given.hidden_size);
            reader.report(OpError::attribute("hidden_size", message));
        }
        if given.clip.is_nan() || given.clip < 0.0 {
            let message = format!("`clip` {} must be a positive number, or 0 for none", given.clip);
            reader.report(OpError::attribute("clip", message));
        }
        let mut activations = read_activations(given, reader);
        // Converters write what ONNX lists for both directions; the same for each means what one list means.
        let count = kind.activations();
        let is_repeated = activations.len() == 2 * count && activations[..count] == activations[count..];
        if activations.len() != count && !is_repeated {
            let message = format!("{} activations are given, the cell has {count}", activations.len());
            reader.report(OpError::attribute("activations", message));
        }
        activations.resize(count, Activation::Tanh);
        let hidden_size = given.hidden_size.clamp(1, MAX_WINDOW_NUMBER) as usize;
        Cell { kind, hidden_size, activations, clip: given.clip }
    }

    fn activate(&self, index: usize, x: f64) -> f64 {
        let clip = f64::from(self.clip);
        let bounded = if clip > 0.0 { x.clamp(-clip, clip) } else { x };
        self.activations[index].apply(bounded)
    }

    /// One step: `hidden` and `cell` become the new states. `scratch` holds the gates.
    fn step(&self, weights: Weights<'_>, x: &[f64], hidden: &mut [f64], cell: &mut [f64], scratch: &mut [f64]) {
        match self.kind {
            CellKind::Lstm { order, input_forget } => {
                add_products(scratch, weights.bias, weights.input, x, weights.recurrence, hidden);
                self.step_lstm(order, input_forget, hidden, cell, scratch);
            }
            CellKind::Gru { linear_before_reset } => self.step_gru(linear_before_reset, weights, x, hidden, scratch),
            CellKind::Rnn => {
                add_products(scratch, weights.bias, weights.input, x, weights.recurrence, hidden);
                for (h, gate) in hidden.iter_mut().zip(scratch) {
                    *h = self.activate(0, *gate);
                }
            }
        }
    }

    fn step_lstm(&self, order: [usize; 4], couple: bool, hidden: &mut [f64], cell: &mut [f64], gates: &[f64]) {
        let size = hidden.len();
        for j in 0..size {
            let gate = |index: usize| gates[order[index] * size + j];
            let forget = self.activate(0, gate(0));
            let input = if couple { 1.0 - forget } else { self.activate(0, gate(1)) };
            cell[j] = forget * cell[j] + input * self.activate(1, gate(2));
            hidden[j] = self.activate(0, gate(3)) * self.activations[2].apply(cell[j]);
        }
    }

    fn step_gru(&self, linear: bool, weights: Weights<'_>, x: &[f64], hidden: &mut [f64], scratch: &mut [f64]) {
        let size = hidden.len();
        let (gates, rest) = scratch.split_at_mut(2 * size);
        let (reset_hidden, candidate) = rest.split_at_mut(size);
        let (w, r, b) = (weights.input, weights.recurrence, weights.bias);
        let (w_split, r_split) = (2 * size * x.len(), 2 * size * size);
        add_products(gates, &b[..2 * size], &w[..w_split], x, &r[..r_split], hidden);
        gates.iter_mut().for_each(|gate| *gate = self.activate(0, *gate));
        let (update, reset) = gates.split_at(size);
        for j in 0..size {
            reset_hidden[j] = if linear { hidden[j] } else { reset[j] * hidden[j] };
        }
        for j in 0..size {
            let row = &r[r_split + j * size..][..size];
            let input = dot(&w[w_split + j * x.len()..][..x.len()], x) + b[2 * size + j];
            let recurrent = dot(row, reset_hidden);
            let sum = if linear { input + reset[j] * (recurrent + b[3 * size + j]) } else { input + recurrent };
            candidate[j] = self.activate(1, sum);
        }
        for j in 0..size {
            hidden[j] = (1.0 - update[j]) * candidate[j] + update[j] * hidden[j];
        }
    }

    /// The elements of scratch memory of a step.
    fn scratch_size(&self) -> usize {
        self.hidden_size.saturating_mul(4)
    }

    /// Infers a cell: `X`, states, `W`, `R`, `B`.
    pub(crate) fn infer_cell(&self, context: &mut InferContext<'_>) -> OpResult {
        let states = self.kind.states();
        let ports: SmallVec<[usize; 8]> = (0..states + 4).collect();
        let element_type = require_floats(context, &ports)?;
        for port in 0..states + 3 {
            context.require_rank(port, 2..=2)?;
        }
        context.require_rank(states + 3, 1..=1)?;
        let (hidden, gates) = (self.hidden_size as i64, self.kind.gates() as i64);
        let mut batch = context.shape(0).dim(0);
        let mut input = context.shape(0).dim(1);
        for port in 1..=states {
            batch = agree(context, port, 0, batch, "the batch of input 0")?;
            agree(context, port, 1, fixed(hidden), "`hidden_size`")?;
        }
        agree(context, states + 1, 0, fixed(hidden * gates), "gates times `hidden_size`")?;
        input = agree(context, states + 1, 1, input, "the input size of input 0")?;
        agree(context, states + 2, 0, fixed(hidden * gates), "gates times `hidden_size`")?;
        agree(context, states + 2, 1, fixed(hidden), "`hidden_size`")?;
        let biases = fixed(hidden * self.kind.bias_gates() as i64);
        agree(context, states + 3, 0, biases, "bias gates times `hidden_size`")?;
        let _ = input;
        for port in 0..states {
            context.set_output(port, element_type, PartialShape::from_dims([batch, fixed(hidden)]));
        }
        Ok(())
    }

    /// Infers a sequence: `X`, states, `sequence_lengths`, `W`, `R`, `B`.
    pub(crate) fn infer_sequence(&self, context: &mut InferContext<'_>, direction: Direction) -> OpResult {
        let states = self.kind.states();
        let mut ports: SmallVec<[usize; 8]> = (0..=states).collect();
        ports.extend(states + 2..states + 5);
        let element_type = require_floats(context, &ports)?;
        context.require_class(states + 1, ElementClass::Integer)?;
        for port in (0..=states).chain([states + 2, states + 3]) {
            context.require_rank(port, 3..=3)?;
        }
        context.require_rank(states + 1, 1..=1)?;
        context.require_rank(states + 4, 2..=2)?;
        let (hidden, gates) = (self.hidden_size as i64, self.kind.gates() as i64);
        let directions = Dim::fixed(direction.count());
        let (mut batch, length) = (context.shape(0).dim(0), context.shape(0).dim(1));
        for port in 1..=states {
            batch = agree(context, port, 0, batch, "the batch of input 0")?;
            agree(context, port, 1, directions, "the number of directions")?;
            agree(context, port, 2, fixed(hidden), "`hidden_size`")?;
        }
        batch = agree(context, states + 1, 0, batch, "the batch of input 0")?;
        for (port, last) in [(states + 2, context.shape(0).dim(2)), (states + 3, fixed(hidden))] {
            agree(context, port, 0, directions, "the number of directions")?;
            agree(context, port, 1, fixed(hidden * gates), "gates times `hidden_size`")?;
            agree(
                context,
                port,
                2,
                last,
                if port == states + 2 { "the input size of input 0" } else { "`hidden_size`" },
            )?;
        }
        agree(context, states + 4, 0, directions, "the number of directions")?;
        let biases = fixed(hidden * self.kind.bias_gates() as i64);
        agree(context, states + 4, 1, biases, "bias gates times `hidden_size`")?;
        let all = PartialShape::from_dims([batch, directions, length, fixed(hidden)]);
        context.set_output(0, element_type, all);
        for port in 1..=states {
            context.set_output(port, element_type, PartialShape::from_dims([batch, directions, fixed(hidden)]));
        }
        Ok(())
    }

    /// Evaluates a cell.
    pub(crate) fn evaluate_cell(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let states = self.kind.states();
        let x_shape = context.input(0)?.shape();
        let (batch, input) = (x_shape[0], x_shape[1]);
        let x = widened_view(context.input(0)?)?;
        let mut hidden = widened_view(context.input(1)?)?;
        let mut cell = if states > 1 { widened_view(context.input(2)?)? } else { Vec::new() };
        let (w, r, b) = self.weights(context, states + 1)?;
        let weights = Weights { input: &w, recurrence: &r, bias: &b };
        let size = self.hidden_size;
        let mut scratch = filled(self.scratch_size())?;
        for n in 0..batch {
            let h = &mut hidden[n * size..][..size];
            let c = if states > 1 { &mut cell[n * size..][..size] } else { &mut [][..] };
            self.step(weights, &x[n * input..][..input], h, c, self.gates_of(&mut scratch));
        }
        let shape = Shape::from([batch, size]);
        write_rounded(context.output(0, &shape)?, &hidden)?;
        if states > 1 && context.output_count() > 1 {
            write_rounded(context.output(1, &shape)?, &cell)?;
        }
        Ok(())
    }

    /// Evaluates a sequence. Steps at or after an element's sequence length are zero in the output, and leave the
    /// states alone; a reverse direction starts at the last step before the length.
    pub(crate) fn evaluate_sequence(&self, context: &mut EvaluateContext<'_>, direction: Direction) -> OpResult {
        let states = self.kind.states();
        let x_shape = context.input(0)?.shape();
        let (batch, length, input) = (x_shape[0], x_shape[1], x_shape[2]);
        let lengths = sequence_lengths(context, states + 1, length)?;
        let x = widened_view(context.input(0)?)?;
        let mut hidden = widened_view(context.input(1)?)?;
        let mut cell = if states > 1 { widened_view(context.input(2)?)? } else { Vec::new() };
        let (w, r, b) = self.weights(context, states + 2)?;
        let (directions, size) = (direction.count(), self.hidden_size);
        let shape = Shape::from([batch, directions, length, size]);
        context.output(0, &shape)?;
        let mut all = filled::<f64>(shape.elements())?;
        let mut scratch = filled(self.scratch_size())?;
        for d in 0..directions {
            let part = |values: &'_ [f64]| d * (values.len() / directions)..(d + 1) * (values.len() / directions);
            let weights = Weights { input: &w[part(&w)], recurrence: &r[part(&r)], bias: &b[part(&b)] };
            for n in 0..batch {
                let state = (n * directions + d) * size;
                let h = &mut hidden[state..][..size];
                let c = if states > 1 { &mut cell[state..][..size] } else { &mut [][..] };
                for step in 0..lengths[n] {
                    let t = if direction.is_reverse(d) { lengths[n] - 1 - step } else { step };
                    let now = &x[(n * length + t) * input..][..input];
                    self.step(weights, now, h, c, self.gates_of(&mut scratch));
                    all[((n * directions + d) * length + t) * size..][..size].copy_from_slice(h);
                }
            }
        }
        write_rounded(context.output(0, &shape)?, &all)?;
        let shape = Shape::from([batch, directions, size]);
        for (port, state) in [&hidden, &cell].into_iter().enumerate().take(states) {
            if context.output_count() > port + 1 {
                write_rounded(context.output(port + 1, &shape)?, state)?;
            }
        }
        Ok(())
    }

    fn gates_of<'s>(&self, scratch: &'s mut [f64]) -> &'s mut [f64] {
        let gates = if matches!(self.kind, CellKind::Gru { .. }) { 4 } else { self.kind.gates() };
        &mut scratch[..gates * self.hidden_size]
    }

    fn weights(&self, context: &EvaluateContext<'_>, port: usize) -> OpResult<(Vec<f64>, Vec<f64>, Vec<f64>)> {
        let read = |port: usize| widened_view(context.input(port)?);
        Ok((read(port)?, read(port + 1)?, read(port + 2)?))
    }
}

/// `target = bias + input * x + recurrence * hidden`, one row an element.
fn add_products(target: &mut [f64], bias: &[f64], input: &[f64], x: &[f64], recurrence: &[f64], hidden: &[f64]) {
    for (j, gate) in target.iter_mut().enumerate() {
        let from_input = dot(&input[j * x.len()..][..x.len()], x);
        let from_hidden = dot(&recurrence[j * hidden.len()..][..hidden.len()], hidden);
        *gate = from_input + from_hidden + bias[j];
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn fixed(size: i64) -> Dim {
    Dim::interval(size, size.min(INFINITE - 1))
}

fn require_floats(context: &mut InferContext<'_>, ports: &[usize]) -> OpResult<ElementType> {
    for port in ports {
        context.require_class(*port, ElementClass::Float)?;
    }
    context.require_same_type(ports)
}

/// Checks that a dimension of an input can be `expected`, and returns what both allow.
fn agree(context: &InferContext<'_>, port: usize, axis: usize, expected: Dim, meaning: &str) -> OpResult<Dim> {
    let shape = context.shape(port);
    let actual = shape.dim(axis);
    expected.merge(actual).ok_or_else(|| {
        let message = format!("dimension {actual} at axis {axis} of shape {shape} must be {expected}: {meaning}");
        OpError::shape(Blame::Input(port), message)
    })
}

/// The sequence lengths, each in `0..=length`.
fn sequence_lengths(context: &EvaluateContext<'_>, port: usize, length: usize) -> OpResult<SmallVec<[usize; 8]>> {
    let given = context.integers(port)?;
    let check = |(i, value): (usize, &i64)| {
        usize::try_from(*value).ok().filter(|v| *v <= length).ok_or_else(|| {
            let message = format!("sequence length {value} at position {i} is out of range [0, {length}]");
            OpError::value(Blame::Input(port), message)
        })
    };
    given.iter().enumerate().map(check).collect()
}

fn read_activations(given: &CellAttributes<'_>, reader: &mut AttributeReader<'_>) -> SmallVec<[Activation; 3]> {
    let number = |list: &[f32], index: usize, default: f32| list.get(index).copied().unwrap_or(default);
    let mut read = SmallVec::new();
    for (i, name) in given.activations.iter().enumerate() {
        read.push(match name.trim().to_ascii_lowercase().as_str() {
            "relu" => Activation::Relu,
            "sigmoid" => Activation::Sigmoid,
            "tanh" => Activation::Tanh,
            "hardsigmoid" => {
                Activation::HardSigmoid { alpha: number(given.alpha, i, 0.2), beta: number(given.beta, i, 0.5) }
            }
            other => {
                let message = format!("activation `{other}` must be one of relu, sigmoid, tanh, hardsigmoid");
                reader.report(OpError::attribute("activations", message));
                Activation::Tanh
            }
        });
    }
    read
}
