//! LSTM, GRU and plain recurrent sequences in f32 with the usual activations (sigmoid for gates, tanh for candidates, no
//! clip).
//!
//! The products of all inputs are one matrix multiplication for each direction; each step then multiplies the hidden states and
//! combines the gates in one pass. Directions, and groups of many sequences, are shared among threads.

use crate::epilogue::{Channelwise, Epilogue};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::gemm::{PackedB, Value, gemm_packed_b, gemm_packed_b_scratch_len};
use crate::isa::Isa;
use crate::math::{sigmoid, tanh};
use crate::parallel::{SharedMut, nanoseconds_for_flops, sharers, try_parallel_for};
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

/// The sizes of sequences of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceGeometry {
    /// Sequences.
    pub batch: usize,
    /// Steps of the longest.
    pub steps: usize,
    /// Whether the first direction goes from each sequence's last step to its first. A second one always does.
    pub reverse: bool,
}

/// The fewest sequences that go through their steps together: the rows of a tile of the products.
const GROUP: usize = 14;

/// The work of one step, in nanoseconds of one core, from which on many threads share its products rather than sequences.
const LONG_STEP_NANOSECONDS: u64 = 40_000;

/// How sequences are grouped. Groups and directions do not depend on each other.
struct Groups {
    /// Directions.
    directions: usize,
    /// Groups of sequences.
    count: usize,
    /// Sequences of a group; the last one may have fewer.
    rows: usize,
}

impl Groups {
    fn new(batch: usize, directions: usize) -> Self {
        let rows = batch.div_ceil((batch / GROUP).max(1)).max(1);
        Self { directions, count: batch.div_ceil(rows), rows }
    }

    fn units(&self) -> usize {
        self.directions * self.count
    }
}

/// Elements of scratch that the steps of a group need.
fn group_scratch_len(isa: Isa, rows: usize, cell: &PackedCell) -> usize {
    let states = rows.saturating_mul(cell.kind.gates().saturating_add(2).saturating_mul(cell.hidden));
    states.saturating_add(gemm_packed_b_scratch_len(isa, rows, cell.hidden, cell.hidden))
}

/// Elements of scratch that [`recurrent_sequences`] needs.
#[must_use]
pub fn recurrent_sequences_scratch_len(isa: Isa, geometry: &SequenceGeometry, cells: &[PackedCell]) -> usize {
    let Some(cell) = cells.first() else { return 0 };
    let groups = Groups::new(geometry.batch, cells.len());
    let all = geometry.batch.saturating_mul(geometry.steps);
    let products = all.saturating_mul(cell.kind.gates().saturating_mul(cell.hidden)).saturating_mul(cells.len());
    let packing = gemm_packed_b_scratch_len(isa, all, cell.input, cell.input);
    products.saturating_add(packing.max(groups.units().saturating_mul(group_scratch_len(isa, groups.rows, cell))))
}

/// Runs cells over sequences `x` `[batch, steps, input]`, one cell for each direction, writing every hidden state to `y`
/// `[batch, directions, steps, hidden]` (zero beyond a sequence's end). `h` and `c` `[directions, batch, hidden]` hold the
/// initial states and receive the last; `c` is empty for all but LSTM. `lengths` has the number of steps of each sequence;
/// all of them where it is `None`.
///
/// # Errors
/// A slice does not fit, cells of several kinds or sizes, or a length that exceeds the steps.
pub fn recurrent_sequences(
    isa: Isa,
    geometry: &SequenceGeometry,
    cells: &[PackedCell],
    x: &[f32],
    lengths: Option<&[usize]>,
    y: &mut [f32],
    h: &mut [f32],
    c: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let SequenceGeometry { batch, steps, reverse } = *geometry;
    let (Some(cell), directions) = (cells.first(), cells.len()) else {
        return Err(KernelError::invalid("cells", "at least one is needed"));
    };
    let (input, hidden, rows) = (cell.input, cell.hidden, cell.kind.gates() * cell.hidden);
    if cells.iter().any(|other| (other.kind, other.input, other.hidden) != (cell.kind, input, hidden)) {
        return Err(KernelError::invalid("cells", "their kinds or sizes differ"));
    }
    check_exact("x", x.len(), product("x", &[batch, steps, input])?)?;
    check_exact("y", y.len(), product("y", &[batch, directions, steps, hidden])?)?;
    let states = product("h", &[directions, batch, hidden])?;
    check_exact("h", h.len(), states)?;
    check_exact("c", c.len(), if cell.kind == CellKind::Lstm { states } else { 0 })?;
    let all = product("scratch", &[batch, steps, rows])?;
    check_len("scratch", scratch.len(), recurrent_sequences_scratch_len(isa, geometry, cells))?;
    if let Some(lengths) = lengths {
        check_exact("lengths", lengths.len(), batch)?;
        if lengths.iter().any(|&length| length > steps) {
            return Err(KernelError::invalid("lengths", "exceeds the steps"));
        }
    }
    if batch == 0 || steps == 0 || hidden == 0 {
        return Ok(());
    }
    let (products, rest) = scratch.split_at_mut(all * directions);
    for (cell, products) in cells.iter().zip(products.chunks_exact_mut(all)) {
        let bias = Epilogue { bias: Channelwise::PerColumn(&cell.bias[..rows]), ..Epilogue::default() };
        gemm_packed_b(isa, batch * steps, x, input, &cell.w, products, rows, &bias, rest)?;
    }
    let groups = Groups::new(batch, directions);
    let scratch_len = group_scratch_len(isa, groups.rows, cell);
    let [y, h, c, rest] = [y, h, c, rest].map(SharedMut::new);
    let run = |unit: usize| {
        let (direction, group) = (unit / groups.count, unit % groups.count);
        let sequences = group * groups.rows..batch.min((group + 1) * groups.rows);
        let held = (direction * batch + sequences.start) * hidden..(direction * batch + sequences.end) * hidden;
        let call = Group {
            isa,
            cell: &cells[direction],
            steps,
            reverse: reverse || direction == 1,
            products: &products[direction * all..][sequences.start * steps * rows..sequences.end * steps * rows],
            lengths: lengths.map(|lengths| &lengths[sequences.clone()]),
            y: &y,
            y_first: (sequences.start * directions + direction) * steps * hidden,
            y_sequence: directions * steps * hidden,
            // SAFETY: units differ in their direction or in their sequences, so that their states and their scratch memory
            // are disjoint; the lengths of both were checked above.
            h: unsafe { h.slice(held.clone()) },
            // SAFETY: as above; there are no such states but for LSTM.
            c: if c.len() == 0 { &mut [] } else { unsafe { c.slice(held) } },
            // SAFETY: as above.
            scratch: unsafe { rest.slice(unit * scratch_len..(unit + 1) * scratch_len) },
        };
        call.run()
    };
    let step = nanoseconds_for_flops(2 * (groups.rows * hidden * rows) as u64);
    if groups.units() < sharers() && step >= LONG_STEP_NANOSECONDS {
        return (0..groups.units()).try_for_each(run);
    }
    let work = step.saturating_mul((groups.units() * steps) as u64);
    try_parallel_for(groups.units(), 1, work, |mut units| units.try_for_each(&run))
}

/// Sequences of one direction that go through their steps together.
struct Group<'a> {
    isa: Isa,
    cell: &'a PackedCell,
    steps: usize,
    reverse: bool,
    /// The products of the inputs, `[sequences, steps, gates * hidden]`.
    products: &'a [f32],
    lengths: Option<&'a [usize]>,
    /// All hidden states.
    y: &'a SharedMut<'a, f32>,
    /// Where those of the first sequence begin.
    y_first: usize,
    /// Elements from one sequence's to the next one's.
    y_sequence: usize,
    h: &'a mut [f32],
    c: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Group<'_> {
    fn run(self) -> Result<(), KernelError> {
        let Group { isa, cell, steps, reverse, products, lengths, y, y_first, y_sequence, h, c, scratch } = self;
        let hidden = cell.hidden;
        let (rows, batch) = (cell.kind.gates() * hidden, h.len() / hidden);
        let (states, rest) = scratch.split_at_mut(batch * rows);
        let (reset, packing) = rest.split_at_mut(batch * 2 * hidden);
        let length = |sequence: usize| lengths.map_or(steps, |lengths| lengths[sequence]);
        for sequence in 0..batch {
            let first = y_first + sequence * y_sequence;
            // SAFETY: the steps lie in those of the sequence, which this group alone writes.
            unsafe { y.slice(first + length(sequence) * hidden..first + steps * hidden) }.fill(0.0);
        }
        let longest = (0..batch).map(length).max().unwrap_or(0);
        for step in 0..longest {
            let (columns, plain) = (cell.r.n(), Epilogue::default());
            gemm_packed_b(isa, batch, h, hidden, &cell.r, states, columns, &plain, packing)?;
            let places = Places { step, steps, reverse, products, rows, lengths };
            if let Some(r_hidden) = &cell.r_hidden {
                let (resets, hiddens) = reset.split_at_mut(batch * hidden);
                dispatch(isa, Reset { places, hidden, states, h, output: resets });
                gemm_packed_b(isa, batch, resets, hidden, r_hidden, hiddens, hidden, &plain, packing)?;
            }
            let hiddens = &reset[batch * hidden..];
            dispatch(isa, Combine { places, cell, states, hiddens, y, y_first, y_sequence, h, c });
        }
        Ok(())
    }
}

/// Where the sequences of a group are at one of its steps.
#[derive(Clone, Copy)]
struct Places<'a> {
    step: usize,
    steps: usize,
    reverse: bool,
    products: &'a [f32],
    rows: usize,
    lengths: Option<&'a [usize]>,
}

impl<'a> Places<'a> {
    /// The place of a sequence and the products of its input there; `None` behind its end.
    #[inline(always)]
    fn of(&self, sequence: usize) -> Option<(usize, &'a [f32])> {
        let length = self.lengths.map_or(self.steps, |lengths| lengths[sequence]);
        if self.step >= length {
            return None;
        }
        let at = if self.reverse { length - 1 - self.step } else { self.step };
        Some((at, &self.products[(sequence * self.steps + at) * self.rows..][..self.rows]))
    }
}

/// The reset states of a plain GRU.
struct Reset<'a> {
    places: Places<'a>,
    hidden: usize,
    states: &'a [f32],
    h: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Reset<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Reset { places, hidden, states, h, output } = self;
        let rows = h.chunks_exact(hidden).zip(output.chunks_exact_mut(hidden)).zip(states.chunks_exact(2 * hidden));
        for (sequence, ((h, output), states)) in rows.enumerate() {
            let Some((_, inputs)) = places.of(sequence) else { continue };
            let (input, state) = (&inputs[hidden..2 * hidden], &states[hidden..]);
            let mut index = 0;
            while index < hidden {
                let count = (hidden - index).min(S::LANES);
                // SAFETY: `count` values from the index on lie in all four slices, each of which has those of a state.
                unsafe {
                    let load = |values: &[f32]| s.load_partial(values.as_ptr().add(index), count);
                    let gate = sigmoid(s, s.add(load(input), load(state)));
                    s.store_partial(output.as_mut_ptr().add(index), s.mul(gate, load(h)), count);
                }
                index += count;
            }
        }
    }
}

/// The gates of one step of a group.
struct Combine<'a> {
    places: Places<'a>,
    cell: &'a PackedCell,
    states: &'a [f32],
    /// The products of the reset states of a plain GRU.
    hiddens: &'a [f32],
    y: &'a SharedMut<'a, f32>,
    y_first: usize,
    y_sequence: usize,
    h: &'a mut [f32],
    c: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Combine { places, cell, states, hiddens, y, y_first, y_sequence, h, c } = self;
        let (hidden, columns) = (cell.hidden, cell.r.n());
        for (sequence, h) in h.chunks_exact_mut(hidden).enumerate() {
            let Some((at, inputs)) = places.of(sequence) else { continue };
            let range = sequence * hidden..(sequence + 1) * hidden;
            let start = y_first + sequence * y_sequence + at * hidden;
            let gates = Gates {
                kind: cell.kind,
                inputs,
                states: &states[sequence * columns..][..columns],
                candidates: match cell.kind {
                    CellKind::Lstm | CellKind::Rnn | CellKind::RnnRelu => &[],
                    CellKind::Gru => &hiddens[range.clone()],
                    CellKind::GruLinearBeforeReset => &cell.bias[3 * hidden..],
                },
                // SAFETY: the step lies in those of the sequence, which this group alone writes, one at a time.
                y: unsafe { y.slice(start..start + hidden) },
                h,
                c: c.get_mut(range).unwrap_or(&mut []),
            };
            gates.combine(s);
        }
    }
}

/// The gates of one step of one sequence.
struct Gates<'a> {
    kind: CellKind,
    inputs: &'a [f32],
    states: &'a [f32],
    candidates: &'a [f32],
    y: &'a mut [f32],
    h: &'a mut [f32],
    c: &'a mut [f32],
}

impl Gates<'_> {
    #[inline(always)]
    fn combine<S: Simd>(self, s: S) {
        let hidden = self.h.len();
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
    use crate::testing::{Random, assert_close, in_pool};

    /// Hidden states of one direction, then its last states, by the definition.
    fn defined(
        (kind, input, hidden): (CellKind, usize, usize),
        [w, r, bias, x, h0, c0]: [&[f32]; 6],
        (steps, lengths, reverse): (usize, &[usize], bool),
    ) -> [Vec<f64>; 3] {
        let gates = kind.gates();
        let (mut y, mut h_last, mut c_last) = (vec![0.0f64; lengths.len() * steps * hidden], vec![], vec![]);
        for b in 0..lengths.len() {
            let mut h: Vec<f64> = h0[b * hidden..][..hidden].iter().map(|&x| f64::from(x)).collect();
            let mut c: Vec<f64> = c0[b * hidden..][..hidden].iter().map(|&x| f64::from(x)).collect();
            for step in 0..lengths[b] {
                let t = if reverse { lengths[b] - 1 - step } else { step };
                let dot = |m: &[f32], row: usize, v: &dyn Fn(usize) -> f64, n: usize| -> f64 {
                    (0..n).map(|i| f64::from(m[row * n + i]) * v(i)).sum()
                };
                let wx = |row: usize| {
                    dot(w, row, &|i| f64::from(x[(b * steps + t) * input + i]), input) + f64::from(bias[row])
                };
                let rh = |row: usize| dot(r, row, &|i| h[i], hidden);
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
                            let state = dot(r, 2 * hidden + j, &|i| reset[i] * h[i], hidden);
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
        [y, h_last, c_last]
    }

    /// `directions` tells of each whether it is reversed.
    fn check(kind: CellKind, batch: usize, steps: usize, input: usize, hidden: usize, directions: &[bool]) {
        let mut random = Random::new((batch * 7 + steps) as u64);
        let gates = kind.gates();
        let x = random.values(batch * steps * input);
        let lengths: Vec<usize> = (0..batch).map(|sequence| steps.saturating_sub(sequence % 5)).collect();
        let weights: Vec<[Vec<f32>; 3]> = directions
            .iter()
            .map(|_| {
                let w = random.values(gates * hidden * input);
                [w, random.values(gates * hidden * hidden), random.values(kind.biases() * hidden)]
            })
            .collect();
        let states = directions.len() * batch * hidden;
        let (h0, c0) = (random.values(states), random.values(states));
        let mut y = vec![0.0; batch * directions.len() * steps * hidden];
        let (mut h_last, mut c_last) = (vec![], vec![]);
        for (at, ([w, r, bias], reverse)) in weights.iter().zip(directions).enumerate() {
            let held = at * batch * hidden..(at + 1) * batch * hidden;
            let values = [w, r, bias, &x, &h0[held.clone()], &c0[held]];
            let [one, h, c] = defined((kind, input, hidden), values, (steps, &lengths, *reverse));
            let len = (steps * hidden).max(1);
            for (sequence, values) in one.chunks(len).enumerate() {
                y[(sequence * directions.len() + at) * len..][..values.len()].copy_from_slice(values);
            }
            h_last.extend(h);
            c_last.extend(c);
        }
        for isa in Isa::available() {
            let pack = |[w, r, bias]: &[Vec<f32>; 3]| PackedCell::pack(isa, kind, input, hidden, w, r, bias).unwrap();
            let cells: Vec<PackedCell> = weights.iter().map(pack).collect();
            let geometry = SequenceGeometry { batch, steps, reverse: directions[0] };
            let run = || {
                let mut result = vec![f32::NAN; y.len()];
                let (mut h, mut c) = (h0.clone(), if kind == CellKind::Lstm { c0.clone() } else { vec![] });
                let mut scratch = vec![f32::NAN; recurrent_sequences_scratch_len(isa, &geometry, &cells)];
                let lengths = Some(&lengths[..]);
                recurrent_sequences(isa, &geometry, &cells, &x, lengths, &mut result, &mut h, &mut c, &mut scratch)
                    .unwrap();
                [result, h, c]
            };
            let results = run();
            assert_close(&results[0], &y, 20, "y");
            assert_close(&results[1], &h_last, 20, "h");
            if kind == CellKind::Lstm {
                assert_close(&results[2], &c_last, 20, "c");
            }
            let bits = |values: &Vec<f32>| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert_eq!(in_pool(3, run).each_ref().map(bits), results.each_ref().map(bits), "bits of three threads");
        }
    }

    #[test]
    fn cells_agree_with_their_definitions() {
        for kind in [CellKind::Lstm, CellKind::Gru, CellKind::GruLinearBeforeReset, CellKind::Rnn, CellKind::RnnRelu] {
            check(kind, 1, 5, 3, 4, &[false]);
            check(kind, 3, 6, 10, 21, &[true]);
            check(kind, 2, 1, 1, 1, &[false, true]);
            check(kind, 0, 2, 3, 3, &[false]);
            check(kind, 2, 0, 3, 3, &[false, true]);
        }
    }

    #[test]
    fn directions_and_groups_of_sequences_are_shared() {
        for kind in [CellKind::Lstm, CellKind::Gru, CellKind::GruLinearBeforeReset] {
            check(kind, 2 * GROUP + 1, 7, 9, 40, &[false, true]);
            check(kind, 3 * GROUP - 1, 3, 5, 70, &[true]);
            check(kind, 1, 8, 20, 64, &[false, true]);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let isa = Isa::available().next().unwrap();
        let cell = |hidden: usize| {
            let ones = vec![1.0; 4 * hidden * 2.max(hidden)];
            let (w, r, bias) = (&ones[..8 * hidden], &ones[..4 * hidden * hidden], &ones[..4 * hidden]);
            PackedCell::pack(isa, CellKind::Lstm, 2, hidden, w, r, bias).unwrap()
        };
        let geometry = SequenceGeometry { batch: 1, steps: 2, reverse: false };
        let run = |cells: &[PackedCell], lengths: &[usize], y: usize| {
            let mut scratch = vec![0.0; recurrent_sequences_scratch_len(isa, &geometry, cells)];
            let (mut y, mut h, mut c) = (vec![0.0; y], vec![0.0; 3 * cells.len()], vec![0.0; 3 * cells.len()]);
            recurrent_sequences(isa, &geometry, cells, &[0.0; 4], Some(lengths), &mut y, &mut h, &mut c, &mut scratch)
                .map_err(|error| error.argument)
        };
        assert_eq!(run(&[cell(3)], &[2], 6), Ok(()));
        assert_eq!(run(&[], &[2], 6), Err("cells"));
        assert_eq!(run(&[cell(3), cell(2)], &[2], 12), Err("cells"));
        assert_eq!(run(&[cell(3)], &[3], 6), Err("lengths"));
        assert_eq!(run(&[cell(3), cell(3)], &[2], 6), Err("y"));
    }
}
