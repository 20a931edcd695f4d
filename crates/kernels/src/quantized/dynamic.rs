//! Products whose left operand is quantised as it comes: OpenVINO's dynamic quantisation.
//!
//! Rows are cut into groups of neighbouring values, and each group becomes signed bytes and a scale. The right operand is
//! stored in four or eight bits, with a scale and a zero point for each column and group of steps. The codes of a group are
//! multiplied and summed as integers; these sums are scaled and added in f32, always in the same order.

use super::dots::{self, DotKernel, Dots, lowered_by};
use super::{BLOCK, MOST_TERMS, QUAD};
use crate::blocked::lanes_from;
use crate::epilogue::{Channelwise, Epilogue};
use crate::error::{KernelError, check_exact, product};
use crate::gemm::CompressedMatrix;
use crate::isa::{Isa, Tier};
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// What is added to a signed code so that it becomes an unsigned byte.
const MIDDLE: i32 = 128;

/// The largest code of a value.
const MOST: f32 = 127.0;

/// The fewest values of a group: fewer are not worth a scale.
const FEWEST: usize = 16;

/// Bytes of left codes that stay in a cache while all columns go by.
const CACHED_BYTES: usize = 1 << 19;

/// Values that a parallel chunk quantises at least.
const CHUNK: usize = 1 << 13;

/// The right operand of dynamically quantised products, packed once for every tier.
#[derive(Debug, Clone)]
pub struct DynamicWeights {
    k: usize,
    n: usize,
    /// Values of a left group.
    group: usize,
    /// Left groups whose steps share a scale and a zero point.
    shared: usize,
    is_narrow: bool,
    /// `[block of columns, quad of steps, 16 columns, 4 steps]`; of four bits, an even quad lies in the low bits of the
    /// bytes and the next one in the high bits.
    values: Packed<i8>,
    /// What the sums of a group begin with where left codes are higher than what they stand for, `[block of columns, group,
    /// 16 columns]`.
    starts: Vec<i32>,
    /// Scales and zero points, `[block of columns, shared groups, 2, 16 columns]`.
    parameters: Vec<f32>,
}

/// A left operand of quantised rows.
#[derive(Debug, Clone, Copy)]
pub struct DynamicRows<'a> {
    /// The codes, higher by 128, `[rows, k]`.
    pub codes: &'a [u8],
    /// The scale and the sum of the codes of each group, `[rows, k / group, 2]`.
    pub parameters: &'a [f32],
}

impl DynamicWeights {
    /// The values of a group of a left operand with `k` columns, if at most `group` are wanted and `shared` steps of the right
    /// operand, a divisor of `k`, have the same parameters; `None` where such groups are not computed.
    #[must_use]
    pub fn group(k: usize, group: usize, shared: usize) -> Option<usize> {
        let (mut a, mut b) = (group.min(shared), shared);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        let divides = k > 0 && group > 0 && k.is_multiple_of(shared) && a.is_multiple_of(FEWEST);
        (divides && (FEWEST..=MOST_TERMS).contains(&a)).then_some(a)
    }

    /// Packs a stored matrix of codes of four or eight bits for groups of at most `group` values.
    ///
    /// # Errors
    /// A slice is shorter than the matrix needs, the codes are of another kind, or there are no such groups.
    pub fn pack(matrix: &CompressedMatrix<'_>, group: usize) -> Result<Self, KernelError> {
        matrix.check()?;
        let CompressedMatrix { k, n, .. } = *matrix;
        let integers = matrix.codes.integers();
        let (bits, middle) = integers.ok_or(KernelError::invalid("codes", "are no integers of four or eight bits"))?;
        let group = Self::group(k, group, matrix.group);
        let group = group.ok_or(KernelError::invalid("group", "does not divide the shared axis well"))?;
        let (blocks, groups, is_narrow) = (n.div_ceil(BLOCK), k / group, bits == 4);
        let block_bytes = block_bytes(k, is_narrow);
        let mut values = Packed::zeroed(product("codes", &[blocks, block_bytes])?);
        let mut starts = vec![0; product("codes", &[blocks, groups, BLOCK])?];
        let columns = |block: usize| BLOCK.min(n - block * BLOCK);
        // A packed code is less than the unsigned one by this.
        let lower = if is_narrow { 0 } else { MIDDLE };
        let (bytes, flip) = (matrix.codes.bytes(), matrix.codes.flip());
        let (packed, sums) = (SharedMut::new(&mut values), SharedMut::new(&mut starts));
        parallel_for(blocks, 1, nanoseconds_for_bytes(k * n * 8), |range| {
            for block in range {
                // SAFETY: blocks lie one behind the other, and each is in one range.
                let (target, sums) = unsafe {
                    (
                        packed.slice(block * block_bytes..(block + 1) * block_bytes),
                        sums.slice(block * groups * BLOCK..(block + 1) * groups * BLOCK),
                    )
                };
                for lane in 0..columns(block) {
                    let first = (block * BLOCK + lane) * matrix.column_stride;
                    for number in 0..groups {
                        let mut sum = 0;
                        for row in number * group..(number + 1) * group {
                            let stored = first + row * matrix.row_stride;
                            let quad = row / QUAD;
                            let place = |quad: usize| (quad * BLOCK + lane) * QUAD + row % QUAD;
                            let code = if is_narrow {
                                let code = ((bytes[stored / 2] >> (stored % 2 * 4)) & 15) ^ flip;
                                target[place(quad / 2)] |= (code << (quad % 2 * 4)).cast_signed();
                                code
                            } else {
                                let code = bytes[stored] ^ flip;
                                // Unsigned bytes become signed ones.
                                target[place(quad)] = (code ^ 128).cast_signed();
                                code
                            };
                            sum += i32::from(code) - lower;
                        }
                        sums[number * BLOCK + lane] = -MIDDLE * sum;
                    }
                }
            }
        });
        let parameters_of = |block: usize, number: usize| {
            let at = |values: Option<&[f32]>, lane: usize, absent: f32| {
                values.map_or(absent, |values| values[number * n + block * BLOCK + lane])
            };
            let mut line = [0.0; 2 * BLOCK];
            for lane in 0..columns(block) {
                line[lane] = at(matrix.scales, lane, 1.0);
                line[BLOCK + lane] = at(matrix.zeros, lane, 0.0) + (middle - lower) as f32;
            }
            line
        };
        let all = (0..blocks).flat_map(|block| (0..k / matrix.group).map(move |number| (block, number)));
        let parameters = all.flat_map(|(block, number)| parameters_of(block, number)).collect();
        Ok(Self { k, n, group, shared: matrix.group / group, is_narrow, values, starts, parameters })
    }

    /// Rows of the operand.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns of the operand.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.values.len() + 4 * (self.starts.len() + self.parameters.len())
    }

    /// Groups of a row.
    fn groups(&self) -> usize {
        self.k / self.group
    }

    /// The numbers of codes and of parameters of so many quantised rows.
    #[must_use]
    pub fn rows_len(&self, rows: usize) -> (usize, usize) {
        (rows.saturating_mul(self.k), rows.saturating_mul(self.groups() * 2))
    }

    /// The work of a product of so many rows, in nanoseconds of one core.
    #[must_use]
    pub fn nanoseconds(&self, rows: usize) -> u64 {
        let flops = (self.k as u64).saturating_mul(self.n as u64).saturating_mul(rows as u64).saturating_mul(2);
        (nanoseconds_for_flops(flops) / 3).max(nanoseconds_for_bytes(self.values.len()))
    }

    /// Quantises rows: the largest value of a group by magnitude has the code 127 or -127. A group with a value that is not
    /// finite has the scale NaN.
    ///
    /// # Errors
    /// A slice has the wrong length.
    pub fn quantize(
        &self,
        isa: Isa,
        input: &[f32],
        codes: &mut [u8],
        parameters: &mut [f32],
    ) -> Result<(), KernelError> {
        let rows = input.len() / self.k;
        check_exact("input", input.len(), product("input", &[rows, self.k])?)?;
        let (codes_len, parameters_len) = self.rows_len(rows);
        check_exact("codes", codes.len(), codes_len)?;
        check_exact("parameters", parameters.len(), parameters_len)?;
        let (codes, parameters) = (SharedMut::new(codes), SharedMut::new(parameters));
        let groups = rows * self.groups();
        let work = nanoseconds_for_bytes(input.len().saturating_mul(8));
        parallel_for(groups, CHUNK.div_ceil(self.group), work, |range| {
            let values = range.start * self.group..range.end * self.group;
            // SAFETY: ranges of groups are disjoint, and lengths were checked.
            let (codes, parameters) =
                unsafe { (codes.slice(values.clone()), parameters.slice(2 * range.start..2 * range.end)) };
            dispatch(isa, QuantizeGroups { group: self.group, input: &input[values], codes, parameters });
        });
        Ok(())
    }
}

/// Bytes of the packed codes of a block of columns with `k` rows.
fn block_bytes(k: usize, is_narrow: bool) -> usize {
    if is_narrow { k * BLOCK / 2 } else { k * BLOCK }
}

/// Quantises groups that lie one behind the other.
struct QuantizeGroups<'a> {
    group: usize,
    input: &'a [f32],
    codes: &'a mut [u8],
    parameters: &'a mut [f32],
}

impl Kernel for QuantizeGroups<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let groups = self.input.chunks_exact(self.group).zip(self.codes.chunks_exact_mut(self.group));
        for ((values, codes), parameters) in groups.zip(self.parameters.chunks_exact_mut(2)) {
            // Zero, but NaN once a value is not finite.
            let (mut most, mut nothing) = (s.splat(0.0), s.splat(0.0));
            for line in values.chunks_exact(S::LANES) {
                // SAFETY: the line has a value for each lane.
                let value = unsafe { s.load(line.as_ptr()) };
                most = s.max(most, s.abs(value));
                nothing = s.fma(value, s.splat(0.0), nothing);
            }
            let nothing = s.reduce_add(nothing);
            let most = if nothing.is_nan() { 0.0 } else { s.reduce_max(most) };
            let scale = most / MOST;
            // The scale of numbers near the smallest may be zero.
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let (inverse, limit) = (s.splat(inverse.min(f32::MAX)), s.splat(MOST));
            let mut sum = s.splat_i(0);
            for (line, codes) in values.chunks_exact(S::LANES).zip(codes.chunks_exact_mut(S::LANES)) {
                // SAFETY: the line has a value, and the codes have a byte, for each lane.
                unsafe {
                    let value = s.round(s.mul(s.load(line.as_ptr()), inverse));
                    // What is not a number has the code of zero on every tier; the group's scale tells of it.
                    let value = s.select(s.is_nan(value), s.splat(0.0), value);
                    let code = s.to_i(s.min(limit, s.max(s.neg(limit), value)));
                    sum = s.add_i(sum, code);
                    s.store_u8(codes.as_mut_ptr(), s.add_i(code, s.splat_i(MIDDLE)));
                }
            }
            parameters[0] = scale + nothing;
            // Such sums are small enough to be exact.
            parameters[1] = s.reduce_add(s.from_i(sum));
        }
    }
}

/// Multiplies quantised rows with packed weights into `[rows, n]`.
///
/// # Errors
/// A slice has the wrong length, or the epilogue does not fit.
pub fn dynamic_product(
    isa: Isa,
    rows: usize,
    a: &DynamicRows<'_>,
    b: &DynamicWeights,
    c: &mut [f32],
    epilogue: &Epilogue<'_>,
) -> Result<(), KernelError> {
    let (codes, parameters) = b.rows_len(rows);
    check_exact("codes", a.codes.len(), codes)?;
    check_exact("parameters", a.parameters.len(), parameters)?;
    check_exact("c", c.len(), product("c", &[rows, b.n])?)?;
    epilogue.check(rows, b.n)?;
    if rows == 0 || b.n == 0 {
        return Ok(());
    }
    let (most, together) = tile_size(isa);
    let blocks = b.n.div_ceil(BLOCK);
    let pairs = blocks.div_ceil(together);
    let tile = rows.div_ceil(rows.div_ceil(most));
    // Rows whose codes stay in a cache while the columns go by, in whole tiles.
    let cached = (CACHED_BYTES / (b.k * tile)).max(1) * tile;
    let runs = rows.div_ceil(cached);
    let (shared, is_lowered) = (SharedMut::new(c), lowered_by(isa) == MIDDLE);
    // About 20 microseconds a task.
    let grain = (1 << 19) / (together * block_bytes(b.k, b.is_narrow) * (1 + rows.min(cached) / 4)).max(1);
    parallel_for(runs * pairs, grain.max(1), b.nanoseconds(rows), |range| {
        for task in range {
            let (run, pair) = (task / pairs, task % pairs);
            let (first, count) = (pair * together, together.min(blocks - pair * together));
            for row in (run * cached..rows.min((run + 1) * cached)).step_by(tile) {
                let rows = tile.min(rows - row);
                let columns = (count * BLOCK).min(b.n - first * BLOCK);
                let c = shared.pointer().wrapping_add(row * b.n + first * BLOCK);
                // SAFETY: the tile's rows and columns lie in the operands and in the result, and no other task has them.
                unsafe {
                    dispatch_tile(
                        isa,
                        rows,
                        count,
                        &Tile { a, b, c, epilogue, row, block: first, is_lowered, columns },
                    );
                    if epilogue.needs_pass() {
                        epilogue.pass(isa, c, b.n, row, first * BLOCK, rows, columns);
                    }
                }
            }
        }
    });
    Ok(())
}

/// Rows of a tile, and the blocks of columns that it computes together.
fn tile_size(isa: Isa) -> (usize, usize) {
    match isa.tier() {
        Tier::Avx512 if isa.has_vnni() => (6, 2),
        Tier::Avx2 if isa.has_vnni() => (4, 1),
        _ => (2, 1),
    }
}

/// Runs a tile of so many rows and blocks.
///
/// # Safety
/// The tile lies in the operands and in the result.
unsafe fn dispatch_tile(isa: Isa, rows: usize, blocks: usize, tile: &Tile<'_>) {
    macro_rules! call {
        ($run:path, $vectors:literal: $($rows:literal)*) => {
            match rows {
                // SAFETY: the caller's promise, and the tier's instructions were checked.
                $($rows => unsafe { $run(Fixed::<$rows, $vectors>(tile)) },)*
                _ => debug_assert!(false, "no tile of {rows} rows"),
            }
        };
    }
    match (isa.tier(), blocks) {
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, 2) if isa.has_vnni() => call!(dots::x86::run_vnni, 2: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, _) if isa.has_vnni() => call!(dots::x86::run_vnni, 1: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx2, _) if isa.has_vnni() => call!(dots::x86::run_avx_vnni, 2: 1 2 3 4),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512 | Tier::Avx2, _) => call!(dots::x86::run_avx2, 2: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if dots::has_mixed_dot_products() => call!(dots::neon::run_mixed, 4: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if dots::has_dot_products() => call!(dots::neon::run_signed, 4: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) => call!(dots::neon::run_widened, 4: 1 2),
        _ => call!(dots::portable::run, 4: 1 2),
    }
}

/// Everything one tile needs.
struct Tile<'a> {
    a: &'a DynamicRows<'a>,
    b: &'a DynamicWeights,
    /// Where the result goes.
    c: *mut f32,
    epilogue: &'a Epilogue<'a>,
    row: usize,
    block: usize,
    /// Whether the tier takes left codes for what they stand for.
    is_lowered: bool,
    /// Columns that are stored.
    columns: usize,
}

/// A tile with its number of rows and of vectors known to the compiler.
struct Fixed<'t, 'a, const ROWS: usize, const VECTORS: usize>(&'t Tile<'a>);

impl<const ROWS: usize, const VECTORS: usize> DotKernel for Fixed<'_, '_, ROWS, VECTORS> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        // SAFETY: the caller's promise.
        unsafe {
            let totals = if self.0.b.is_narrow { self.totals::<D, true>(d) } else { self.totals::<D, false>(d) };
            self.store(d.simd(), totals);
        }
    }
}

/// The sums of a tile on a tier.
type Totals<D, const ROWS: usize, const VECTORS: usize> = [[<<D as Dots>::S as Simd>::F; VECTORS]; ROWS];

impl<const ROWS: usize, const VECTORS: usize> Fixed<'_, '_, ROWS, VECTORS> {
    /// The sums of all products.
    ///
    /// # Safety
    /// The tile lies in the operands.
    #[inline(always)]
    unsafe fn totals<D: Dots, const NARROW: bool>(&self, d: D) -> Totals<D, ROWS, VECTORS> {
        let (tile, s) = (self.0, d.simd());
        let b = tile.b;
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        let (groups, block_bytes) = (b.groups(), block_bytes(b.k, b.is_narrow));
        let quads_at_once = if NARROW { 2 } else { 1 };
        let mut values = b.values.as_ptr().wrapping_add(tile.block * block_bytes);
        let codes = tile.a.codes.as_ptr().wrapping_add(tile.row * b.k);
        let left_parameters = tile.a.parameters.as_ptr().wrapping_add(tile.row * groups * 2);
        let starts = b.starts.as_ptr().wrapping_add(tile.block * groups * BLOCK);
        let shared_groups = groups / b.shared;
        let parameters = b.parameters.as_ptr().wrapping_add(tile.block * shared_groups * 2 * BLOCK);
        let mut totals = [[s.splat(0.0); VECTORS]; ROWS];
        let mut step = 0;
        for group in 0..groups {
            let mut sums = [[s.splat_i(0); VECTORS]; ROWS];
            for vector in 0..VECTORS {
                let place = (vector / per_block * groups + group) * BLOCK + vector % per_block * lanes;
                if !tile.is_lowered {
                    // SAFETY: there is a start for each column of the tile's blocks.
                    let start = s.bits(unsafe { s.load(starts.add(place).cast()) });
                    for row in 0..ROWS {
                        sums[row][vector] = start;
                    }
                }
            }
            for _ in 0..b.group / (QUAD * quads_at_once) {
                // SAFETY: the steps lie in the panels of the tile's blocks and in its rows.
                unsafe {
                    let mut right = [[d.right(values); 2]; VECTORS];
                    for vector in 0..VECTORS {
                        let place = vector / per_block * block_bytes + vector % per_block * lanes * QUAD;
                        right[vector] = match NARROW {
                            true => d.nibbles(values.add(place)),
                            false => [d.right(values.add(place)); 2],
                        };
                    }
                    for quad in 0..quads_at_once {
                        for row in 0..ROWS {
                            let left = d.left(codes.add(row * b.k + step + quad * QUAD));
                            for vector in 0..VECTORS {
                                sums[row][vector] = d.dot(sums[row][vector], left, right[vector][quad]);
                            }
                        }
                    }
                    values = values.add(BLOCK * QUAD);
                }
                step += QUAD * quads_at_once;
            }
            for vector in 0..VECTORS {
                let (block, lane) = (vector / per_block, vector % per_block * lanes);
                // SAFETY: there are parameters for each column of the tile's blocks, and for each group of its rows.
                unsafe {
                    let place = (block * shared_groups + group / b.shared) * 2 * BLOCK + lane;
                    let scale = s.load(parameters.add(place));
                    let zero = s.load(parameters.add(place + BLOCK));
                    for row in 0..ROWS {
                        let left = left_parameters.add((row * groups + group) * 2);
                        let sum = s.fma(s.neg(zero), s.splat(*left.add(1)), d.value(sums[row][vector]));
                        totals[row][vector] = s.fma(sum, s.mul(scale, s.splat(*left)), totals[row][vector]);
                    }
                }
            }
        }
        totals
    }

    /// Adds bias and residual, applies limits and stores.
    ///
    /// # Safety
    /// The tile lies in the result, and the epilogue was checked for it.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, totals: [[S::F; VECTORS]; ROWS]) {
        let tile = self.0;
        let (low, high) = tile.epilogue.limits();
        let first = tile.block * BLOCK;
        let bias = match tile.epilogue.bias {
            Channelwise::PerColumn(bias) => lanes_from(bias, first),
            _ => [0.0; 2 * BLOCK],
        };
        for vector in 0..VECTORS {
            let lane = vector * S::LANES;
            let count = tile.columns.saturating_sub(lane).min(S::LANES);
            if count == 0 {
                continue;
            }
            for row in 0..ROWS {
                // SAFETY: so many columns from this one on lie in the result and in what is added.
                unsafe {
                    let mut sum = s.add(totals[row][vector], s.load(bias.as_ptr().add(lane)));
                    if let Channelwise::PerRow(bias) = tile.epilogue.bias {
                        sum = s.add(sum, s.splat(bias[tile.row + row]));
                    }
                    if let Some(residual) = tile.epilogue.residual {
                        let from = (tile.row + row) * residual.row_stride + first + lane;
                        sum = s.add(sum, s.load_partial(residual.values.as_ptr().add(from), count));
                    }
                    sum = s.min(s.splat(high), s.max(s.splat(low), sum));
                    s.store_partial(tile.c.add(row * tile.b.n + lane), sum, count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::{Activation, Residual};
    use crate::gemm::Codes;
    use crate::testing::{Random, in_pool};
    use crate::unary::UnaryOp;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    /// Nibbles by twos.
    fn nibbles(codes: &[u8]) -> Vec<u8> {
        codes.chunks(2).map(|pair| (pair[0] & 15) | pair.get(1).map_or(0, |code| code << 4)).collect()
    }

    /// What a row stands for once its groups are quantised.
    fn rounded(row: &[f32], group: usize) -> Vec<f64> {
        let of_group = |values: &[f32]| {
            let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            let scale = most / 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let value =
                |value: &f32| f64::from((value * inverse).round_ties_even().clamp(-127.0, 127.0)) * f64::from(scale);
            values.iter().map(value).collect::<Vec<f64>>()
        };
        row.chunks(group).flat_map(of_group).collect()
    }

    /// Quantises and multiplies.
    fn run(isa: Isa, input: &[f32], weights: &DynamicWeights, epilogue: &Epilogue<'_>) -> Vec<f32> {
        let rows = input.len() / weights.k();
        let (codes, parameters) = weights.rows_len(rows);
        let (mut codes, mut parameters) = (vec![3; codes], vec![3.0; parameters]);
        weights.quantize(isa, input, &mut codes, &mut parameters).unwrap();
        let a = DynamicRows { codes: &codes, parameters: &parameters };
        let mut c = vec![7.0; rows * weights.n()];
        dynamic_product(isa, rows, &a, weights, &mut c, epilogue).unwrap();
        c
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]
        #[test]
        fn products_are_those_of_quantised_rows(seed: u64) {
            let mut random = Random::new(seed);
            let shared = 16 * random.between(1, 6);
            let k = shared * random.between(1, 3);
            let (rows, n) = (random.between(1, 30), random.between(1, 70));
            let wanted = [16, 32, 48, 1000][random.between(0, 3)];
            let Some(group) = DynamicWeights::group(k, wanted, shared) else { return Ok(()) };
            prop_assert!(group <= wanted && shared.is_multiple_of(group));
            let kind = random.between(0, 3);
            let raw: Vec<u8> = (0..k * n).map(|_| random.next() as u8 & if kind < 2 { 15 } else { 255 }).collect();
            let bytes = if kind < 2 { nibbles(&raw) } else { raw.clone() };
            let stored = |code: u8| match kind {
                0 | 2 => f64::from(code),
                1 => f64::from(((code << 4).cast_signed()) >> 4),
                _ => f64::from(code.cast_signed()),
            };
            let codes = [Codes::U4(&bytes), Codes::I4(&bytes), Codes::U8(&bytes), Codes::I8(&bytes)][kind];
            let is_transposed = random.between(0, 1) == 1;
            let (row_stride, column_stride) = if is_transposed { (1, k) } else { (n, 1) };
            let (scales, zeros) = (random.values(k / shared * n), random.values(k / shared * n));
            let has = random.between(0, 3);
            let matrix = CompressedMatrix {
                k, n, codes, row_stride, column_stride, group: shared,
                scales: (has & 1 > 0).then_some(&scales[..]),
                zeros: (has & 2 > 0).then_some(&zeros[..]),
            };
            let weights = DynamicWeights::pack(&matrix, wanted).unwrap();
            let mut input = random.values(rows * k);
            input[..group].fill(0.0);
            let (bias, residual) = (random.values(n), random.values(rows * n));
            let epilogue = Epilogue {
                bias: Channelwise::PerColumn(&bias),
                residual: Some(Residual { values: &residual, row_stride: n }),
                activation: Activation::Unary(UnaryOp::Relu),
            };
            let weight = |row: usize, column: usize| {
                let place = row / shared * n + column;
                let zero = if has & 2 > 0 { f64::from(zeros[place]) } else { 0.0 };
                let scale = if has & 1 > 0 { f64::from(scales[place]) } else { 1.0 };
                (stored(raw[row * row_stride + column * column_stride]) - zero) * scale
            };
            let expected: Vec<f64> = input.chunks(k).enumerate().flat_map(|(row, values)| {
                let values = rounded(values, group);
                let (bias, residual, weight) = (&bias, &residual, &weight);
                (0..n).map(move |column| {
                    let sum: f64 = values.iter().enumerate().map(|(step, value)| value * weight(step, column)).sum();
                    (sum + f64::from(bias[column]) + f64::from(residual[row * n + column])).max(0.0)
                }).collect::<Vec<f64>>()
            }).collect();
            let size = if kind < 2 { 16.0 } else { 256.0 };
            for isa in Isa::available_without_vnni_too() {
                let result = run(isa, &input, &weights, &epilogue);
                for (a, b) in result.iter().zip(&expected) {
                    let close = (f64::from(*a) - b).abs() <= 3e-6 * size * k as f64;
                    prop_assert!(close, "{isa}: {a} should be {b} (k {k}, n {n}, group {group}, kind {kind})");
                }
                let parallel = in_pool(3, || run(isa, &input, &weights, &epilogue));
                prop_assert_eq!(&result, &parallel);
            }
        }
    }

    #[test]
    fn groups_divide_both_sides() {
        let cases = [
            ((128, 32, 128), Some(32)),
            ((128, 1000, 128), Some(128)),
            ((96, 64, 96), Some(32)),
            ((256, 128, 32), Some(32)),
            ((40, 32, 40), None),
            ((64, 8, 64), None),
            ((64, 32, 48), None),
        ];
        for ((k, wanted, shared), group) in cases {
            assert_eq!(DynamicWeights::group(k, wanted, shared), group, "{k} {wanted} {shared}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_reach_all_columns_of_their_row() {
        let codes = vec![1u8; 32 * 5];
        let matrix = CompressedMatrix {
            k: 32,
            n: 5,
            codes: Codes::I8(&codes),
            row_stride: 5,
            column_stride: 1,
            group: 32,
            scales: None,
            zeros: None,
        };
        let weights = DynamicWeights::pack(&matrix, 16).unwrap();
        for isa in Isa::available_without_vnni_too() {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut input = vec![127.0; 3 * 32];
                input[40] = value;
                let result = run(isa, &input, &weights, &Epilogue::default());
                assert!(result[5..10].iter().all(|value| value.is_nan()), "{isa}: {result:?}");
                assert!(
                    result[..5].iter().chain(&result[10..]).all(|value| *value == 32.0 * 127.0),
                    "{isa}: {result:?}"
                );
            }
            // The smallest numbers have no scale, or one whose reciprocal is no number.
            for value in [1e-45, 1e-40, 1e-38] {
                let result = run(isa, &[value; 32], &weights, &Epilogue::default());
                assert!(result.iter().all(|value| value.is_finite() && value.abs() < 1e-36), "{isa}: {result:?}");
            }
        }
    }

    #[test]
    fn wrong_arguments_are_errors() {
        let codes = [0u8; 64];
        let matrix = CompressedMatrix {
            k: 32,
            n: 2,
            codes: Codes::U8(&codes),
            row_stride: 2,
            column_stride: 1,
            group: 32,
            scales: None,
            zeros: None,
        };
        let weights = DynamicWeights::pack(&matrix, 32).unwrap();
        assert!(DynamicWeights::pack(&CompressedMatrix { codes: Codes::F16(&[0; 128]), ..matrix }, 32).is_err());
        assert!(DynamicWeights::pack(&matrix, 0).is_err());
        assert!(DynamicWeights::pack(&CompressedMatrix { n: 3, row_stride: 3, ..matrix }, 32).is_err());
        let isa = Isa::portable();
        assert!(weights.quantize(isa, &[0.0; 33], &mut [0; 32], &mut [0.0; 2]).is_err());
        assert!(weights.quantize(isa, &[0.0; 32], &mut [0; 31], &mut [0.0; 2]).is_err());
        assert!(weights.quantize(isa, &[0.0; 32], &mut [0; 32], &mut [0.0; 1]).is_err());
        let rows = DynamicRows { codes: &[0; 32], parameters: &[0.0; 2] };
        assert!(dynamic_product(isa, 1, &rows, &weights, &mut [0.0; 3], &Epilogue::default()).is_err());
        assert!(dynamic_product(isa, 2, &rows, &weights, &mut [0.0; 4], &Epilogue::default()).is_err());
    }
}
