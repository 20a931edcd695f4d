//! LSTM, GRU and plain recurrent sequences in f32 with the usual activations (sigmoid for gates, tanh for candidates, no
//! clip).
//!
//! The products of all inputs are one matrix multiplication; each step then multiplies the hidden state and combines
//! the gates in one pass.

use crate::epilogue::{Channelwise, Epilogue};
use crate::error::{KernelError, check_exact, check_len, product, span};
use crate::gemm::{PackedB, Value, gemm_packed_b, gemm_packed_b_scratch_len};
use crate::isa::Isa;
use crate::math::{sigmoid, tanh};
use crate::simd::{Kernel, Simd, dispatch};

/// The kind of cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Gates in the order forget, input, cell, output.
    Lstm,
    /// Gates in the order update, reset, hidden; the reset gate acts on the hidden state.
    Gru,
    /// Gates in the order update, reset, hidden; the reset gate acts on the state's product (`linear_before_reset`).
    /// The bias has a fourth part, that of the state's product.
    GruLinearBeforeReset,
    /// One gate, whose tanh is the state.
    Rnn,
    /// One gate, whose ReLU is the state.
    RnnRelu,
}

impl CellKind {
    fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru | Self::GruLinearBeforeReset => 3,
            Self::Rnn | Self::RnnRelu => 1,
        }
    }

    fn biases(self) -> usize {
        if self == Self::GruLinearBeforeReset { 4 } else { self.gates() }
    }
}

/// Weights of one direction, packed for one tier.
#[derive(Debug, Clone)]
pub struct PackedCell {
    kind: CellKind,
    input: usize,
    hidden: usize,
    w: PackedB,
    /// The gates that act on the state as it is.
    r: PackedB,
    /// The hidden gate of a plain GRU, which acts on the reset state.
    r_hidden: Option<PackedB>,
    bias: Vec<f32>,
}

impl PackedCell {
    /// Packs `w` `[gates * hidden, input]`, `r` `[gates * hidden, hidden]` and `bias` `[gates * hidden]` (a GRU linear
    /// before reset has `[4 * hidden]`).
    ///
    /// # Errors
    /// A slice has the wrong length.
    pub fn pack<T: Value>(
        isa: Isa,
        kind: CellKind,
        input: usize,
        hidden: usize,
        w: &[T],
        r: &[T],
        bias: &[T],
    ) -> Result<Self, KernelError> {
        let rows = product("r", &[kind.gates(), hidden])?;
        check_exact("w", w.len(), product("w", &[rows, input])?)?;
        check_exact("r", r.len(), product("r", &[rows, hidden])?)?;
        check_exact("bias", bias.len(), product("bias", &[kind.biases(), hidden])?)?;
        let (r, r_hidden) = if kind == CellKind::Gru {
            let (gates, rest) = r.split_at(2 * hidden * hidden);
            let rest = PackedB::pack(isa, hidden, hidden, rest, 1, hidden)?;
            (PackedB::pack(isa, hidden, 2 * hidden, gates, 1, hidden)?, Some(rest))
        } else {
            (PackedB::pack(isa, hidden, rows, r, 1, hidden)?, None)
        };
        let w = PackedB::pack(isa, input, rows, w, 1, input)?;
        Ok(Self { kind, input, hidden, w, r, r_hidden, bias: bias.iter().map(|value| value.widen()).collect() })
    }
}

/// The sizes of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceGeometry {
    /// Sequences.
    pub batch: usize,
    /// Steps of the longest.
    pub steps: usize,
    /// Elements from one sequence of `x` to the next; a step's values follow each other.
    pub x_batch: usize,
    /// Elements from one sequence of `y` to the next; a step's values follow each other.
    pub y_batch: usize,
    /// Whether steps run from each sequence's last to its first.
    pub reverse: bool,
}

/// Elements of scratch that [`recurrent_sequence`] needs.
#[must_use]
pub fn recurrent_sequence_scratch_len(isa: Isa, geometry: &SequenceGeometry, cell: &PackedCell) -> usize {
    let rows = cell.kind.gates().saturating_mul(cell.hidden);
    let products = geometry.batch.saturating_mul(geometry.steps).saturating_mul(rows);
    let step = geometry.batch.saturating_mul(rows).saturating_add(geometry.batch.saturating_mul(2 * cell.hidden));
    let packing = gemm_packed_b_scratch_len(isa, geometry.steps, cell.input, cell.input)
        .max(gemm_packed_b_scratch_len(isa, geometry.batch, cell.hidden, cell.hidden));
    products.saturating_add(step).saturating_add(packing)
}

/// Runs a cell over sequences `x` (each `[steps, input]`), writing every hidden state to `y` (each `[steps, hidden]`,
/// zero beyond a sequence's end). `h` and `c` `[batch, hidden]` hold the initial states and receive the last; `c` is
/// empty for all but LSTM. `lengths` has the number of steps of each sequence; all of them where it is `None`.
///
/// # Errors
/// A slice does not fit, or a length exceeds the steps.
pub fn recurrent_sequence(
    isa: Isa,
    geometry: &SequenceGeometry,
    cell: &PackedCell,
    x: &[f32],
    lengths: Option<&[usize]>,
    y: &mut [f32],
    h: &mut [f32],
    c: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let SequenceGeometry { batch, steps, x_batch, y_batch, .. } = *geometry;
    let (input, hidden) = (cell.input, cell.hidden);
    let rows = cell.kind.gates() * hidden;
    check_len("x", x.len(), span("x", &[(batch, x_batch), (steps, input), (input, 1)])?)?;
    check_len("y", y.len(), span("y", &[(batch, y_batch), (steps, hidden), (hidden, 1)])?)?;
    check_exact("h", h.len(), product("h", &[batch, hidden])?)?;
    check_exact("c", c.len(), if cell.kind == CellKind::Lstm { batch * hidden } else { 0 })?;
    product("scratch", &[batch, steps, rows])?;
    check_len("scratch", scratch.len(), recurrent_sequence_scratch_len(isa, geometry, cell))?;
    if batch > 1 && y_batch < steps * hidden {
        return Err(KernelError::invalid("y_batch", "sequences of the result overlap"));
    }
    if let Some(lengths) = lengths {
        check_exact("lengths", lengths.len(), batch)?;
        if lengths.iter().any(|&length| length > steps) {
            return Err(KernelError::invalid("lengths", "exceeds the steps"));
        }
    }
    if batch == 0 || steps == 0 || hidden == 0 {
        return Ok(());
    }
    let (products, rest) = scratch.split_at_mut(batch * steps * rows);
    let (states, rest) = rest.split_at_mut(batch * rows);
    let (reset, packing) = rest.split_at_mut(batch * 2 * hidden);
    let bias = Epilogue { bias: Channelwise::PerColumn(&cell.bias[..rows]), ..Epilogue::default() };
    for sequence in 0..batch {
        let from = x.get(sequence * x_batch..).unwrap_or(&[]);
        let to = &mut products[sequence * steps * rows..];
        gemm_packed_b(isa, steps, from, input, &cell.w, to, rows, &bias, packing)?;
    }
    let length = |sequence: usize| lengths.map_or(steps, |lengths| lengths[sequence]);
    for sequence in 0..batch {
        let start = sequence * y_batch;
        y[start + length(sequence) * hidden..start + steps * hidden].fill(0.0);
    }
    let longest = (0..batch).map(length).max().unwrap_or(0);
    for step in 0..longest {
        let (columns, plain) = (cell.r.n(), Epilogue::default());
        gemm_packed_b(isa, batch, h, hidden, &cell.r, states, columns, &plain, packing)?;
        let place = |sequence: usize| {
            let length = length(sequence);
            (step < length).then(|| if geometry.reverse { length - 1 - step } else { step })
        };
        if let Some(r_hidden) = &cell.r_hidden {
            let (resets, hiddens) = reset.split_at_mut(batch * hidden);
            for sequence in 0..batch {
                let Some(at) = place(sequence) else { continue };
                let inputs = &products[(sequence * steps + at) * rows..][..rows];
                let call = Reset {
                    input: &inputs[hidden..2 * hidden],
                    state: &states[sequence * 2 * hidden + hidden..][..hidden],
                    h: &h[sequence * hidden..][..hidden],
                    output: &mut resets[sequence * hidden..][..hidden],
                };
                dispatch(isa, call);
            }
            gemm_packed_b(isa, batch, resets, hidden, r_hidden, hiddens, hidden, &plain, packing)?;
        }
        for sequence in 0..batch {
            let Some(at) = place(sequence) else { continue };
            let range = sequence * hidden..(sequence + 1) * hidden;
            let call = Combine {
                kind: cell.kind,
                hidden,
                inputs: &products[(sequence * steps + at) * rows..][..rows],
                states: &states[sequence * columns..][..columns],
                candidates: match cell.kind {
                    CellKind::Lstm | CellKind::Rnn | CellKind::RnnRelu => &[],
                    CellKind::Gru => &reset[(batch + sequence) * hidden..][..hidden],
                    CellKind::GruLinearBeforeReset => &cell.bias[rows..],
                },
                y: &mut y[sequence * y_batch + at * hidden..][..hidden],
                h: &mut h[range.clone()],
                c: c.get_mut(range).unwrap_or(&mut []),
            };
            dispatch(isa, call);
        }
    }
    Ok(())
}

/// The reset state of a plain GRU.
struct Reset<'a> {
    input: &'a [f32],
    state: &'a [f32],
    h: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Reset<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.output.len();
        let mut index = 0;
        while index < len {
            let count = (len - index).min(S::LANES);
            // SAFETY: `count` values from the index on lie in all four slices, which are equally long.
            unsafe {
                let load = |values: &[f32]| s.load_partial(values.as_ptr().add(index), count);
                let gate = sigmoid(s, s.add(load(self.input), load(self.state)));
                s.store_partial(self.output.as_mut_ptr().add(index), s.mul(gate, load(self.h)), count);
            }
            index += count;
        }
    }
}

/// The gates of one step of one sequence.
struct Combine<'a> {
    kind: CellKind,
    hidden: usize,
    inputs: &'a [f32],
    states: &'a [f32],
    candidates: &'a [f32],
    y: &'a mut [f32],
    h: &'a mut [f32],
    c: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let hidden = self.hidden;
        let mut index = 0;
        while index < hidden {
            let count = (hidden - index).min(S::LANES);
            // SAFETY: every slice has `hidden` values for each gate it is asked for.
            unsafe {
                let load =
                    |values: &[f32], gate: usize| s.load_partial(values.as_ptr().add(gate * hidden + index), count);
                let gate = |gate: usize| s.add(load(self.inputs, gate), load(self.states, gate));
                let h = match self.kind {
                    CellKind::Lstm => {
                        let forget = s.mul(sigmoid(s, gate(0)), load(self.c, 0));
                        let cell = s.fma(sigmoid(s, gate(1)), tanh(s, gate(2)), forget);
                        s.store_partial(self.c.as_mut_ptr().add(index), cell, count);
                        s.mul(sigmoid(s, gate(3)), tanh(s, cell))
                    }
                    CellKind::Gru => {
                        let candidate = tanh(s, s.add(load(self.inputs, 2), load(self.candidates, 0)));
                        mix(s, sigmoid(s, gate(0)), candidate, load(self.h, 0))
                    }
                    CellKind::GruLinearBeforeReset => {
                        let state = s.add(load(self.states, 2), load(self.candidates, 0));
                        let candidate = tanh(s, s.fma(sigmoid(s, gate(1)), state, load(self.inputs, 2)));
                        mix(s, sigmoid(s, gate(0)), candidate, load(self.h, 0))
                    }
                    CellKind::Rnn => tanh(s, gate(0)),
                    CellKind::RnnRelu => s.max(s.splat(0.0), gate(0)),
                };
                s.store_partial(self.h.as_mut_ptr().add(index), h, count);
                s.store_partial(self.y.as_mut_ptr().add(index), h, count);
            }
            index += count;
        }
    }
}

/// `(1 - update) * candidate + update * state`.
#[inline(always)]
fn mix<S: Simd>(s: S, update: S::F, candidate: S::F, state: S::F) -> S::F {
    s.fma(update, state, s.mul(s.sub(s.splat(1.0), update), candidate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close};

    fn check(kind: CellKind, batch: usize, steps: usize, input: usize, hidden: usize, reverse: bool) {
        let mut random = Random::new((batch * 7 + steps) as u64);
        let gates = kind.gates();
        let (w, r) = (random.values(gates * hidden * input), random.values(gates * hidden * hidden));
        let (bias, x) = (random.values(kind.biases() * hidden), random.values(batch * steps * input));
        let (h0, c0) = (random.values(batch * hidden), random.values(batch * hidden));
        let lengths: Vec<usize> = (0..batch).map(|sequence| steps.saturating_sub(sequence)).collect();
        let (mut y, mut h_last, mut c_last) = (vec![0.0f64; batch * steps * hidden], vec![], vec![]);
        for b in 0..batch {
            let mut h: Vec<f64> = h0[b * hidden..][..hidden].iter().map(|&x| f64::from(x)).collect();
            let mut c: Vec<f64> = c0[b * hidden..][..hidden].iter().map(|&x| f64::from(x)).collect();
            for step in 0..lengths[b] {
                let t = if reverse { lengths[b] - 1 - step } else { step };
                let dot = |m: &[f32], row: usize, v: &dyn Fn(usize) -> f64, n: usize| -> f64 {
                    (0..n).map(|i| f64::from(m[row * n + i]) * v(i)).sum()
                };
                let wx = |row: usize| {
                    dot(&w, row, &|i| f64::from(x[(b * steps + t) * input + i]), input) + f64::from(bias[row])
                };
                let rh = |row: usize| dot(&r, row, &|i| h[i], hidden);
                let sg = |x: f64| 1.0 / (1.0 + (-x).exp());
                let mut next = vec![0.0; hidden];
                let resets = if gates == 1 { 0 } else { hidden };
                let reset: Vec<f64> = (0..resets).map(|j| sg(wx(hidden + j) + rh(hidden + j))).collect();
                for j in 0..hidden {
                    let update = sg(wx(j) + rh(j));
                    next[j] = match kind {
                        CellKind::Lstm => {
                            let g = |k: usize| wx(k * hidden + j) + rh(k * hidden + j);
                            c[j] = sg(g(0)) * c[j] + sg(g(1)) * g(2).tanh();
                            sg(g(3)) * c[j].tanh()
                        }
                        CellKind::Gru => {
                            let state = dot(&r, 2 * hidden + j, &|i| reset[i] * h[i], hidden);
                            (1.0 - update) * (wx(2 * hidden + j) + state).tanh() + update * h[j]
                        }
                        CellKind::GruLinearBeforeReset => {
                            let state = reset[j] * (rh(2 * hidden + j) + f64::from(bias[3 * hidden + j]));
                            (1.0 - update) * (wx(2 * hidden + j) + state).tanh() + update * h[j]
                        }
                        CellKind::Rnn => (wx(j) + rh(j)).tanh(),
                        CellKind::RnnRelu => (wx(j) + rh(j)).max(0.0),
                    };
                }
                h = next;
                y[(b * steps + t) * hidden..][..hidden].copy_from_slice(&h);
            }
            h_last.extend(h);
            c_last.extend(c);
        }
        for isa in Isa::available() {
            let cell = PackedCell::pack(isa, kind, input, hidden, &w, &r, &bias).unwrap();
            let geometry = SequenceGeometry { batch, steps, x_batch: steps * input, y_batch: steps * hidden, reverse };
            let mut result = vec![f32::NAN; y.len()];
            let (mut h, mut c) = (h0.clone(), if kind == CellKind::Lstm { c0.clone() } else { vec![] });
            let mut scratch = vec![f32::NAN; recurrent_sequence_scratch_len(isa, &geometry, &cell)];
            recurrent_sequence(isa, &geometry, &cell, &x, Some(&lengths), &mut result, &mut h, &mut c, &mut scratch)
                .unwrap();
            assert_close(&result, &y, 20, "y");
            assert_close(&h, &h_last, 20, "h");
            if kind == CellKind::Lstm {
                assert_close(&c, &c_last, 20, "c");
            }
        }
    }

    #[test]
    fn cells_agree_with_their_definitions() {
        for kind in [CellKind::Lstm, CellKind::Gru, CellKind::GruLinearBeforeReset, CellKind::Rnn, CellKind::RnnRelu] {
            check(kind, 1, 5, 3, 4, false);
            check(kind, 3, 6, 10, 21, true);
            check(kind, 2, 1, 1, 1, false);
            check(kind, 0, 2, 3, 3, false);
            check(kind, 2, 0, 3, 3, false);
        }
    }
}
