//! Matrix multiplication in f32.
//!
//! `C[m, n] = epilogue(A[m, k] * B[k, n])`. One register-blocked micro-kernel serves everything here and the
//! convolutions: it broadcasts values of A and multiplies them with vectors of B that lie in panels of
//! [`panel_width`] columns. Constant operands are packed into that form once; of others, whole panels of contiguous rows are read
//! where they lie, and what else there is is packed panel by panel into a buffer on the stack while it is used.

mod batch;
mod block;
mod compressed;
mod dots;
mod integers;
mod micro;
mod packed;
mod single;
mod small;
mod turned;

pub use batch::{matmul_packed_b, matmul_packed_b_scratch_len};
pub(crate) use block::{Block, Left, PanelSource, Unpacked, plan_tasks};
pub use compressed::{Codes, CompressedB, CompressedMatrix};
pub use integers::matmul_i32;
pub use micro::panel_width;
pub(crate) use micro::{MOST_TILE_ROWS, Tile, run as run_tile, tile_rows};
pub use packed::{PackedA, PackedB, Value};
pub(crate) use small::{MOST_ROWS, Small};

use crate::epilogue::{Channelwise, Epilogue};
use crate::error::{KernelError, check_len, product, span};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_chunks_mut, parallel_for};

/// A batch of equally shaped products `C[b] = A[b] * B[b]` with arbitrary strides, in elements.
///
/// A stride of zero repeats the operand along that axis (broadcast). `c` is written with contiguous columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatMulGeometry {
    /// Sizes of up to four batch axes; 1 where there is none.
    pub batch: [usize; 4],
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// Strides of A along the batch axes.
    pub a_batch: [usize; 4],
    /// Stride of A between rows.
    pub a_row: usize,
    /// Stride of A between columns; 1 for a plain matrix, the row length where A is transposed.
    pub a_column: usize,
    /// Strides of B along the batch axes.
    pub b_batch: [usize; 4],
    /// Stride of B between rows.
    pub b_row: usize,
    /// Stride of B between columns.
    pub b_column: usize,
    /// Strides of C along the batch axes; the products must not overlap.
    pub c_batch: [usize; 4],
    /// Stride of C between rows, at least `n`.
    pub c_row: usize,
}

impl MatMulGeometry {
    /// The geometry of dense row-major operands `A[m, k]` (or `[k, m]` where transposed) and `B[k, n]` (or `[n, k]`)
    /// repeated `batch` times. An operand whose `..._repeats` is false is shared by the whole batch.
    #[must_use]
    pub fn dense(
        batch: usize,
        m: usize,
        k: usize,
        n: usize,
        transpose_a: bool,
        transpose_b: bool,
        a_repeats: bool,
        b_repeats: bool,
    ) -> Self {
        let batch_strides = |stride: usize| [0, 0, 0, stride];
        Self {
            batch: [1, 1, 1, batch],
            m,
            n,
            k,
            a_batch: batch_strides(if a_repeats { m.saturating_mul(k) } else { 0 }),
            a_row: if transpose_a { 1 } else { k },
            a_column: if transpose_a { m } else { 1 },
            b_batch: batch_strides(if b_repeats { k.saturating_mul(n) } else { 0 }),
            b_row: if transpose_b { 1 } else { n },
            b_column: if transpose_b { k } else { 1 },
            c_batch: batch_strides(m.saturating_mul(n)),
            c_row: n,
        }
    }

    /// The product of both operands turned, whose result is that of this one turned; its rows are dense.
    fn turned(&self) -> Self {
        Self {
            m: self.n,
            n: self.m,
            a_batch: self.b_batch,
            a_row: self.b_column,
            a_column: self.b_row,
            b_batch: self.a_batch,
            b_row: self.a_column,
            b_column: self.a_row,
            c_row: self.m,
            ..*self
        }
    }

    /// Whether the loops for few rows take the product.
    fn has_few_rows(&self) -> bool {
        Small::suits(self.m, self.a_column, self.b_row, self.b_column)
    }

    fn check(&self, a: usize, b: usize, c: usize) -> Result<usize, KernelError> {
        let batches = product("batch", &self.batch)?;
        product("c", &[batches, self.m, self.n])?;
        product("a", &[batches, self.m, self.k])?;
        let axes = |strides: &[usize; 4], inner: [(usize, usize); 2]| {
            [
                (self.batch[0], strides[0]),
                (self.batch[1], strides[1]),
                (self.batch[2], strides[2]),
                (self.batch[3], strides[3]),
                inner[0],
                inner[1],
            ]
        };
        check_len("a", a, span("a", &axes(&self.a_batch, [(self.m, self.a_row), (self.k, self.a_column)]))?)?;
        check_len("b", b, span("b", &axes(&self.b_batch, [(self.k, self.b_row), (self.n, self.b_column)]))?)?;
        check_len("c", c, span("c", &axes(&self.c_batch, [(self.m, self.c_row), (self.n, 1)]))?)?;
        self.check_disjoint()?;
        Ok(batches)
    }

    /// Distinct elements of C must lie at distinct places, because several threads write them.
    fn check_disjoint(&self) -> Result<(), KernelError> {
        if self.batch.contains(&0) || self.m == 0 || self.n == 0 {
            return Ok(());
        }
        let mut axes: Vec4 = [(0, 0); 6];
        for axis in 0..4 {
            axes[axis] = (self.c_batch[axis], self.batch[axis]);
        }
        axes[4] = (self.c_row, self.m);
        axes[5] = (1, self.n);
        axes.sort_unstable();
        let mut end = 1usize;
        for (stride, count) in axes {
            if count <= 1 {
                continue;
            }
            if stride < end {
                return Err(KernelError::invalid("c_batch", "parts of the result overlap"));
            }
            end = stride.saturating_mul(count - 1).saturating_add(end);
        }
        Ok(())
    }

    fn offset(&self, strides: &[usize; 4], index: usize) -> usize {
        let mut rest = index;
        let mut offset = 0;
        for axis in (0..4).rev() {
            offset += rest % self.batch[axis] * strides[axis];
            rest /= self.batch[axis];
        }
        offset
    }
}

type Vec4 = [(usize, usize); 6];

/// Elements of scratch that [`gemm_packed_b`] needs.
#[must_use]
pub fn gemm_packed_b_scratch_len(isa: Isa, m: usize, k: usize, a_row_stride: usize) -> usize {
    if Left::reads_in_place(isa, m, k, a_row_stride, 1) { 0 } else { packed::left_len(isa, m, k) }
}

/// `C[m, n] = epilogue(A[m, k] * B[k, n])` with B packed before.
///
/// Rows of `a` begin `a_row_stride` elements apart and those of `c` `c_row_stride`; columns are contiguous.
///
/// # Errors
/// A slice is shorter than its rows need, `b` was packed for another tier, or the rows of `c` overlap.
pub fn gemm_packed_b(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_row_stride: usize,
    b: &PackedB,
    c: &mut [f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    b.check_isa(isa)?;
    let sizes = (b.k(), b.n());
    if m == 1
        && (1..=panel_width(isa)).contains(&sizes.1)
        && let (Some(a), Some(c)) = (a.get(..sizes.0), c.get_mut(..sizes.1))
        // SAFETY: the only panel of B has the lines of its shared axis, and C has its columns.
        && unsafe { single::single(isa, a, b.values(), c, epilogue) }
    {
        return Ok(());
    }
    if m > MOST_ROWS || m == 0 {
        return constant_right(isa, m, sizes, a, a_row_stride, b, c, c_row_stride, epilogue, scratch);
    }
    check_operands(m, sizes, a, a_row_stride, c, c_row_stride, epilogue)?;
    let panels = (b.k(), b.n(), b.values());
    compressed::few_rows_of_panels(isa, m, a, a_row_stride, panels, c, c_row_stride, epilogue);
    Ok(())
}

/// `C[m, n] = epilogue(A[m, k] * B[k, n])` with a B that stays in its stored form. Otherwise as [`gemm_packed_b`], whose
/// scratch it needs.
///
/// # Errors
/// A slice is shorter than its rows need, `b` was packed for another tier, or the rows of `c` overlap.
pub fn gemm_compressed_b(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_row_stride: usize,
    b: &CompressedB,
    c: &mut [f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    b.check_isa(isa)?;
    if m > MOST_ROWS {
        return constant_right(isa, m, (b.k(), b.n()), a, a_row_stride, b, c, c_row_stride, epilogue, scratch);
    }
    check_operands(m, (b.k(), b.n()), a, a_row_stride, c, c_row_stride, epilogue)?;
    if m > 0 {
        compressed::few_rows(isa, m, a, a_row_stride, b, c, c_row_stride, epilogue);
    }
    Ok(())
}

fn check_operands(
    m: usize,
    (k, n): (usize, usize),
    a: &[f32],
    a_row_stride: usize,
    c: &[f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
) -> Result<(), KernelError> {
    check_len("a", a.len(), span("a", &[(m, a_row_stride), (k, 1)])?)?;
    check_len("c", c.len(), span("c", &[(m, c_row_stride), (n, 1)])?)?;
    if m > 1 && c_row_stride < n {
        return Err(KernelError::invalid("c_row_stride", "rows of the result overlap"));
    }
    epilogue.check(m, n)
}

fn constant_right<P: PanelSource>(
    isa: Isa,
    m: usize,
    (k, n): (usize, usize),
    a: &[f32],
    a_row_stride: usize,
    b: &P,
    c: &mut [f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    check_operands(m, (k, n), a, a_row_stride, c, c_row_stride, epilogue)?;
    check_len("scratch", scratch.len(), gemm_packed_b_scratch_len(isa, m, k, a_row_stride))?;
    let left = Left::prepare(isa, a, m, k, a_row_stride, 1, scratch);
    let shared = SharedMut::new(c);
    let tasks = plan_tasks(isa, m, k, n, epilogue.picoseconds());
    parallel_for(tasks.count(), 1, product_nanoseconds(1, [m, k, n], epilogue), |range| {
        for task in range {
            let (rows, columns) = tasks.get(task);
            let block =
                Block { isa, k, left, right: b, c: shared.pointer(), c_row: c_row_stride, accumulate: false, epilogue };
            // SAFETY: lengths were checked above, and tasks are disjoint blocks of the result.
            unsafe { block.run(rows, columns) };
        }
    });
    Ok(())
}

/// Elements of scratch that [`matmul`] needs.
#[must_use]
pub fn matmul_scratch_len(isa: Isa, geometry: &MatMulGeometry) -> usize {
    if dots::suits(geometry) {
        return dots::scratch_len(geometry);
    }
    let left = if Left::reads_in_place(isa, geometry.m, geometry.k, geometry.a_row, geometry.a_column) {
        0
    } else {
        packed::left_len(isa, geometry.m, geometry.k)
    };
    let batches = geometry.batch.iter().fold(1usize, |total, &size| total.saturating_mul(size));
    left.saturating_mul(batches)
}

/// A batch of products of operands that are not packed. The epilogue's bias applies to every product; a residual is
/// laid out as `c` and its `row_stride` is ignored in favour of `c_row`.
///
/// # Errors
/// A slice is shorter than the geometry needs, or parts of the result overlap.
pub fn matmul(
    isa: Isa,
    geometry: &MatMulGeometry,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    epilogue: &Epilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let batches = geometry.check(a.len(), b.len(), c.len())?;
    Epilogue { residual: None, ..*epilogue }.check(geometry.m, geometry.n)?;
    if let Some(residual) = epilogue.residual {
        check_len("residual", residual.values.len(), c.len())?;
    }
    check_len("scratch", scratch.len(), matmul_scratch_len(isa, geometry))?;
    let MatMulGeometry { m, n, k, .. } = *geometry;
    if batches == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    if geometry.has_few_rows() {
        small_matmul(isa, geometry, batches, a, b, c, epilogue);
        return Ok(());
    }
    if dots::suits(geometry) {
        let (geometry, b) = dots::turn_right(isa, geometry, b, scratch);
        small_matmul(isa, &geometry, batches, a, b, c, epilogue);
        return Ok(());
    }
    let (turned, is_product_alone) = (geometry.turned(), *epilogue == Epilogue::default());
    // A column lies as the row does that the turned product has.
    if is_product_alone && n == 1 && geometry.c_row == 1 && turned.has_few_rows() {
        small_matmul(isa, &turned, batches, b, a, c, epilogue);
        return Ok(());
    }
    let nanoseconds = product_nanoseconds(batches, [m, k, n], epilogue);
    if is_product_alone && turned::suits(geometry) {
        turned::run(isa, geometry, batches, a, b, c, scratch, nanoseconds);
        return Ok(());
    }
    let lefts = Lefts::prepare(isa, geometry, batches, a, scratch, nanoseconds);
    let tasks = plan_tasks(isa, m, k, n, epilogue.picoseconds());
    let shared = SharedMut::new(c);
    parallel_for(batches * tasks.count(), 1, nanoseconds, |range| {
        for task in range {
            let batch = task / tasks.count();
            let (rows, columns) = tasks.get(task % tasks.count());
            let right = Unpacked {
                values: from(b, geometry.offset(&geometry.b_batch, batch)),
                columns: n,
                row_stride: geometry.b_row,
                column_stride: geometry.b_column,
            };
            let offset = geometry.offset(&geometry.c_batch, batch);
            let residual = epilogue.residual.map(|residual| crate::epilogue::Residual {
                values: &residual.values[offset..],
                row_stride: geometry.c_row,
            });
            let epilogue = Epilogue { residual, ..*epilogue };
            // SAFETY: the offset lies in the result, whose length was checked.
            let target = unsafe { shared.pointer().add(offset) };
            let block = Block {
                isa,
                k,
                left: lefts.of(batch),
                right: &right,
                c: target,
                c_row: geometry.c_row,
                accumulate: false,
                epilogue: &epilogue,
            };
            // SAFETY: lengths were checked above, and tasks are disjoint blocks of the result.
            unsafe { block.run(rows, columns) };
        }
    });
    Ok(())
}

/// The left operands of a batch.
struct Lefts<'a> {
    isa: Isa,
    geometry: &'a MatMulGeometry,
    values: &'a [f32],
    /// The packed ones, and the elements of each; none where they are read where they lie.
    packed: Option<(&'a [f32], usize)>,
}

impl<'a> Lefts<'a> {
    /// Packs the operands into the scratch, which has room for all, unless they are read where they lie.
    fn prepare(
        isa: Isa,
        geometry: &'a MatMulGeometry,
        batches: usize,
        values: &'a [f32],
        scratch: &'a mut [f32],
        nanoseconds: u64,
    ) -> Self {
        let MatMulGeometry { m, k, a_row, a_column, .. } = *geometry;
        if Left::reads_in_place(isa, m, k, a_row, a_column) {
            return Self { isa, geometry, values, packed: None };
        }
        let len = packed::left_len(isa, m, k);
        let scratch = &mut scratch[..len * batches];
        parallel_chunks_mut(scratch, len, nanoseconds, |index, part| {
            let values = from(values, geometry.offset(&geometry.a_batch, index));
            packed::pack_left(isa, values, m, k, a_row, a_column, part);
        });
        Self { isa, geometry, values, packed: Some((scratch, len)) }
    }

    fn of(&self, batch: usize) -> Left<'a> {
        let MatMulGeometry { m, a_row, ref a_batch, .. } = *self.geometry;
        match self.packed {
            Some((packed, len)) => Left::packed(self.isa, &packed[batch * len..], m),
            None => Left::in_place(self.isa, from(self.values, self.geometry.offset(a_batch, batch)), m, a_row),
        }
    }
}

/// Products with few rows, or of few sums of neighbouring products. The arguments were checked and nothing is empty but perhaps the
/// shared axis.
fn small_matmul(
    isa: Isa,
    geometry: &MatMulGeometry,
    batches: usize,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    epilogue: &Epilogue<'_>,
) {
    let MatMulGeometry { m, n, k, .. } = *geometry;
    let block = if geometry.b_column == 1 && n >= 8192 { 1024 } else { 256.max(65_536 / k.max(1)) };
    let blocks = n.div_ceil(block);
    // Reading the right operand once takes longer than computing, but for more rows.
    let work = match m {
        0..=MOST_ROWS => nanoseconds_for_bytes(batches.saturating_mul(k).saturating_mul(n).saturating_mul(4)),
        _ => product_nanoseconds(batches, [m, k, n], epilogue),
    };
    let shared = SharedMut::new(c);
    parallel_for(batches * blocks, 1, work, |range| {
        for task in range {
            let (batch, first) = (task / blocks, task % blocks * block);
            let columns = block.min(n - first);
            let target = geometry.offset(&geometry.c_batch, batch) + first;
            // SAFETY: the block lies in the result.
            let target = unsafe { shared.pointer().add(target) };
            for row in 0..m {
                // SAFETY: the row of the block lies in the result, and tasks own disjoint blocks.
                let line = unsafe { std::slice::from_raw_parts_mut(target.add(row * geometry.c_row), columns) };
                match epilogue.bias {
                    Channelwise::None => line.fill(0.0),
                    Channelwise::PerRow(bias) => line.fill(bias[row]),
                    Channelwise::PerColumn(bias) => line.copy_from_slice(&bias[first..first + columns]),
                }
                if let Some(residual) = epilogue.residual {
                    let place = geometry.offset(&geometry.c_batch, batch) + row * geometry.c_row + first;
                    line.iter_mut().zip(&residual.values[place..]).for_each(|(sum, value)| *sum += value);
                }
            }
            let a = from(a, geometry.offset(&geometry.a_batch, batch)).as_ptr();
            for row in (0..m).step_by(MOST_ROWS) {
                let product = Small {
                    m: MOST_ROWS.min(m - row),
                    k,
                    n: columns,
                    a: a.wrapping_add(row * geometry.a_row),
                    a_row: geometry.a_row,
                    a_column: geometry.a_column,
                    b: from(b, geometry.offset(&geometry.b_batch, batch) + first * geometry.b_column).as_ptr(),
                    b_row: geometry.b_row,
                    b_column: geometry.b_column,
                    c: target.wrapping_add(row * geometry.c_row),
                    c_row: geometry.c_row,
                };
                // SAFETY: the operands and the block of the result were checked, and the strides are those that are taken.
                unsafe { product.run(isa) };
            }
            // SAFETY: the block lies in the result.
            unsafe { epilogue.pass(isa, target, geometry.c_row, 0, first, m, columns) };
        }
    });
}

/// `C[m, n] = A[m, k] * B[k, n]` in f64 through the `gemm` crate, with strides in elements (row, column).
///
/// # Errors
/// A slice is shorter than its view needs.
pub fn gemm_f64(
    m: usize,
    k: usize,
    n: usize,
    a: &[f64],
    a_strides: (usize, usize),
    b: &[f64],
    b_strides: (usize, usize),
    c: &mut [f64],
) -> Result<(), KernelError> {
    check_len("a", a.len(), span("a", &[(m, a_strides.0), (k, a_strides.1)])?)?;
    check_len("b", b.len(), span("b", &[(k, b_strides.0), (n, b_strides.1)])?)?;
    check_len("c", c.len(), product("c", &[m, n])?)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    if k == 0 {
        c[..m * n].fill(0.0);
        return Ok(());
    }
    // SAFETY: the three views were checked to lie in their slices; `isize` holds every stride that `span` accepts.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            a_strides.1 as isize,
            a_strides.0 as isize,
            b.as_ptr(),
            b_strides.1 as isize,
            b_strides.0 as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
    Ok(())
}

/// The slice from an offset on; empty where an operand without elements has strides nevertheless.
fn from(values: &[f32], offset: usize) -> &[f32] {
    values.get(offset..).unwrap_or(&[])
}

/// The estimated time of a batch of products `[m, k] * [k, n]` on one thread, in nanoseconds, their stores and epilogues
/// included.
#[must_use]
pub fn product_nanoseconds(batches: usize, [m, k, n]: [usize; 3], epilogue: &Epilogue<'_>) -> u64 {
    let values = flops(batches, m, 1, n) / 2;
    // Few columns take the time of a vector of them, but a single one is a sum along the rows.
    let columns = if n == 1 { 1 } else { n.max(FEW_COLUMNS) };
    nanoseconds_for_flops(flops(batches, m, k, columns))
        .saturating_add(values.saturating_mul(epilogue.picoseconds()) / 1000)
}

/// Products of fewer columns than a vector has take as long as those of so many.
const FEW_COLUMNS: usize = 16;

/// Multiplications and additions of a batch of products.
pub(crate) fn flops(batches: usize, m: usize, k: usize, n: usize) -> u64 {
    [m, k, n].iter().fold(2 * batches as u64, |total, &size| total.saturating_mul(size as u64))
}

/// The pointer and whether it advances along rows or columns, as the micro-kernel wants a bias.
pub(crate) fn bias_pointers(bias: Channelwise<'_>) -> (*const f32, *const f32) {
    match bias {
        Channelwise::None => (std::ptr::null(), std::ptr::null()),
        Channelwise::PerRow(values) => (values.as_ptr(), std::ptr::null()),
        Channelwise::PerColumn(values) => (std::ptr::null(), values.as_ptr()),
    }
}

#[cfg(test)]
mod tests;
