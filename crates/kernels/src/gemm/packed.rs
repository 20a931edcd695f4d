//! Operands in the form the micro-kernel reads.

use super::block::PanelSource;
use super::micro::{panel_width, tile_rows};
use crate::error::{KernelError, check_len, product, span};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::tile::{SIDE, for_each_line, transpose};
use half::{bf16, f16};

/// A value that packing widens to f32.
pub trait Value: Copy + Sync {
    /// The same value as f32.
    fn widen(self) -> f32;
    /// The slice itself where values are f32.
    fn as_f32(values: &[Self]) -> Option<&[f32]> {
        let _ = values;
        None
    }
}

impl Value for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    fn as_f32(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }
}

impl Value for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

impl Value for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

/// A constant right operand `B[k, n]`, packed for one tier.
///
/// Panels of [`panel_width`] columns follow each other; each holds its `k` rows one after the other, the last panel
/// filled up with zeros.
#[derive(Debug, Clone)]
pub struct PackedB {
    isa: Isa,
    k: usize,
    n: usize,
    values: Packed<f32>,
}

/// Packs columns that are contiguous, each `stride` after the one before.
fn fill_panel<T: Value, const WIDTH: usize>(isa: Isa, values: &[T], stride: usize, columns: usize, target: &mut [f32]) {
    let (lines, _) = target.as_chunks_mut::<WIDTH>();
    for_each_line(isa, values, stride, columns, lines.len(), |index, line| lines[index] = *line);
}

impl PackedB {
    /// Packs `B[k, n]` whose element `(row, column)` is `values[row * row_stride + column * column_stride]`: weights
    /// laid out `[K, N]` have the strides `(n, 1)`, weights `[N, K]` have `(1, k)`.
    ///
    /// # Errors
    /// The slice is shorter than the view needs, or sizes overflow.
    pub fn pack<T: Value>(
        isa: Isa,
        k: usize,
        n: usize,
        values: &[T],
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, KernelError> {
        check_len("values", values.len(), span("values", &[(k, row_stride), (n, column_stride)])?)?;
        let width = panel_width(isa);
        let panels = n.div_ceil(width);
        let mut packed = Packed::zeroed(product("values", &[panels, width, k])?);
        let nanoseconds = packed.len() as u64;
        crate::parallel::parallel_chunks_mut(&mut packed, (k * width).max(1), nanoseconds, |panel, target| {
            let first = panel * width;
            let columns = width.min(n - first);
            let values = &values[first * column_stride..];
            if row_stride == 1 {
                match width {
                    8 => fill_panel::<_, 8>(isa, values, column_stride, columns, target),
                    16 => fill_panel::<_, 16>(isa, values, column_stride, columns, target),
                    _ => fill_panel::<_, 32>(isa, values, column_stride, columns, target),
                }
                return;
            }
            for (row, line) in target.chunks_exact_mut(width).enumerate() {
                let from = &values[row * row_stride..];
                for (column, value) in line[..columns].iter_mut().enumerate() {
                    *value = from[column * column_stride].widen();
                }
            }
        });
        Ok(Self { isa, k, n, values: packed })
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
        self.values.len() * size_of::<f32>()
    }

    /// The packed values.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Fails when packed for another tier.
    pub(crate) fn check_isa(&self, isa: Isa) -> Result<(), KernelError> {
        if self.isa != isa {
            return Err(KernelError::invalid("b", "packed for another instruction set"));
        }
        Ok(())
    }
}

impl PanelSource for PackedB {
    #[inline]
    unsafe fn panel(&self, _isa: Isa, first: usize, _steps: usize, column: usize, _buffer: *mut f32) -> *const f32 {
        let width = panel_width(self.isa);
        debug_assert!(column.is_multiple_of(width));
        // SAFETY: the column begins a panel of the operand and the step lies in it.
        unsafe { self.values.as_ptr().add(column * self.k + first * width) }
    }

    #[inline]
    fn place(&self, first: usize, column: usize) -> Option<(*const f32, usize)> {
        let width = panel_width(self.isa);
        Some((self.values.get(column * self.k + first * width)?, width))
    }
}

/// A constant left operand `A[m, k]`, packed for one tier: tiles of about equally many rows follow each other, each
/// holding the values of its rows for one column after the other.
#[derive(Debug, Clone)]
pub struct PackedA {
    isa: Isa,
    m: usize,
    k: usize,
    values: Packed<f32>,
}

impl PackedA {
    /// Packs `A[m, k]` whose element `(row, column)` is `values[row * row_stride + column * column_stride]`.
    ///
    /// # Errors
    /// The slice is shorter than the view needs, or sizes overflow.
    pub fn pack<T: Value>(
        isa: Isa,
        m: usize,
        k: usize,
        values: &[T],
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, KernelError> {
        check_len("values", values.len(), span("values", &[(m, row_stride), (k, column_stride)])?)?;
        product("values", &[m + 32, k])?;
        let mut packed = Packed::zeroed(left_len(isa, m, k));
        pack_left(isa, values, m, k, row_stride, column_stride, &mut packed);
        Ok(Self { isa, m, k, values: packed })
    }

    /// Rows of the operand.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// Columns of the operand.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// The tier it was packed for.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.values.len() * size_of::<f32>()
    }

    /// The packed values.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }
}

/// Elements of the packed form of a left operand.
pub(crate) fn left_len(isa: Isa, m: usize, k: usize) -> usize {
    m.next_multiple_of(tile_rows(isa, m)).saturating_mul(k)
}

/// Steps of the left operand that are packed before the next ones: the lines of a tile stay in the first cache.
const GROUP: usize = 256;

/// Packs a left operand into `target`, which holds at least [`left_len`] elements.
pub(crate) fn pack_left<T: Value>(
    isa: Isa,
    values: &[T],
    m: usize,
    k: usize,
    row_stride: usize,
    column_stride: usize,
    target: &mut [f32],
) {
    let height = tile_rows(isa, m);
    let target = &mut target[..left_len(isa, m, k)];
    let nanoseconds = target.len() as u64;
    crate::parallel::parallel_chunks_mut(target, (height * k).max(1), nanoseconds, |tile, target| {
        let first = tile * height;
        let rows = height.min(m - first);
        // Steps are taken in groups so that both the source lines and the packed lines stay in cache.
        for start in (0..k).step_by(GROUP) {
            let end = k.min(start + GROUP);
            let mut begin = start;
            if let (Some(values), true) = (T::as_f32(values), column_stride == 1 && rows == height && rows >= SIDE) {
                // Two tiles that may overlap cover all rows.
                while begin + SIDE <= end {
                    for row in [0, height - SIDE] {
                        let from = &values[(first + row) * row_stride + begin..][..(SIDE - 1) * row_stride + SIDE];
                        let to = &mut target[begin * height + row..][..(SIDE - 1) * height + SIDE];
                        // SAFETY: eight rows of eight values lie in both slices.
                        unsafe { transpose(isa, from.as_ptr(), row_stride, to.as_mut_ptr(), height) };
                    }
                    begin += SIDE;
                }
            }
            if row_stride == 1 {
                for column in begin..end {
                    let from = &values[first + column * column_stride..][..rows];
                    for (value, from) in target[column * height..].iter_mut().zip(from) {
                        *value = from.widen();
                    }
                }
            } else {
                for row in 0..rows {
                    let from = (first + row) * row_stride;
                    for column in begin..end {
                        target[column * height + row] = values[from + column * column_stride].widen();
                    }
                }
            }
            for row in rows..height {
                for column in start..end {
                    target[column * height + row] = 0.0;
                }
            }
        }
    });
}
