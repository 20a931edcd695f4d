//! Constant right operands that stay in the form in which they are stored.
//!
//! A weight is `(code - zero) * scale`, with a zero point and a scale for each column and group of steps, or a half
//! precision number. The codes are put into panels once, at their own width. A product with few rows multiplies them
//! straight from there, so that it reads an eighth to a half of the memory of f32 weights; one with more rows widens
//! panel by panel into a buffer that stays in the cache.

use super::block::PanelSource;
use super::micro::panel_width;
use super::small::MOST_ROWS;
use crate::epilogue::{Channelwise, Epilogue};
use crate::error::{KernelError, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_chunks_mut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Steps that packing takes at a time: codes of a cache line, where they lie along the shared axis.
const PACK_STEPS: usize = 64;

/// Stored codes.
#[derive(Debug, Clone, Copy)]
pub enum Codes<'a> {
    /// Unsigned, two to a byte, the first in the low bits.
    U4(&'a [u8]),
    /// Two's complement, two to a byte, the first in the low bits.
    I4(&'a [u8]),
    /// Places in a table, two to a byte, the first in the low bits.
    Table(&'a [u8], &'a [f32; 16]),
    /// Unsigned bytes.
    U8(&'a [u8]),
    /// Two's complement bytes.
    I8(&'a [u8]),
    /// Half precision numbers, little-endian.
    F16(&'a [u8]),
    /// The upper halves of f32 numbers, little-endian.
    Bf16(&'a [u8]),
}

/// A stored matrix `B[k, n]`.
#[derive(Debug, Clone, Copy)]
pub struct CompressedMatrix<'a> {
    /// Rows: the shared axis of the product.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// The code of the element `(row, column)` has the number `row * row_stride + column * column_stride`.
    pub codes: Codes<'a>,
    /// Codes from one row to the next.
    pub row_stride: usize,
    /// Codes from one column to the next.
    pub column_stride: usize,
    /// Rows that share a scale and a zero point; a divisor of `k`.
    pub group: usize,
    /// Scales, `[k / group, n]`.
    pub scales: Option<&'a [f32]>,
    /// Zero points, `[k / group, n]`.
    pub zeros: Option<&'a [f32]>,
}

/// How a code becomes a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Format {
    /// Four bits, less a number.
    Four(i32),
    /// Four bits that name an entry.
    Table([f32; 16]),
    /// Eight bits, less a number.
    Eight(i32),
    F16,
    Bf16,
}

/// A stored right operand, packed for one tier.
///
/// Panels of [`panel_width`] columns follow each other, each with one line of codes a step. A line of four-bit codes
/// has the first half of its columns in the low bits of its bytes and the second half in the high bits.
#[derive(Debug, Clone)]
pub struct CompressedB {
    isa: Isa,
    k: usize,
    n: usize,
    format: Format,
    group: usize,
    codes: Vec<u8>,
    /// For each panel and group one value a column.
    scales: Vec<f32>,
    zeros: Vec<f32>,
}

impl Codes<'_> {
    fn format(&self) -> Format {
        match self {
            Codes::U4(_) => Format::Four(0),
            Codes::I4(_) => Format::Four(8),
            Codes::Table(_, table) => Format::Table(**table),
            Codes::U8(_) => Format::Eight(0),
            Codes::I8(_) => Format::Eight(128),
            Codes::F16(_) => Format::F16,
            Codes::Bf16(_) => Format::Bf16,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Codes::U4(bytes) | Codes::I4(bytes) | Codes::Table(bytes, _) => bytes,
            Codes::U8(bytes) | Codes::I8(bytes) | Codes::F16(bytes) | Codes::Bf16(bytes) => bytes,
        }
    }

    pub(crate) fn bits(&self) -> usize {
        match self {
            Codes::U4(_) | Codes::I4(_) | Codes::Table(..) => 4,
            Codes::U8(_) | Codes::I8(_) => 8,
            Codes::F16(_) | Codes::Bf16(_) => 16,
        }
    }

    /// The bits of integer codes, and how much less than the unsigned ones they stand for; `None` of other codes.
    pub(crate) fn integers(&self) -> Option<(usize, i32)> {
        match self.format() {
            Format::Four(middle) => Some((4, middle)),
            Format::Eight(middle) => Some((8, middle)),
            _ => None,
        }
    }

    /// What turns a stored code into an unsigned one.
    pub(crate) fn flip(&self) -> u8 {
        match self {
            Codes::I4(_) => 8,
            Codes::I8(_) => 128,
            _ => 0,
        }
    }
}

impl CompressedMatrix<'_> {
    pub(crate) fn check(&self) -> Result<(), KernelError> {
        let last = |size: usize, stride: usize| size.saturating_sub(1).saturating_mul(stride);
        let elements = if self.k == 0 || self.n == 0 {
            0
        } else {
            last(self.k, self.row_stride).saturating_add(last(self.n, self.column_stride)).saturating_add(1)
        };
        check_len("codes", self.codes.bytes().len(), elements.saturating_mul(self.codes.bits()).div_ceil(8))?;
        if self.group == 0 || !self.k.is_multiple_of(self.group) {
            return Err(KernelError::invalid("group", "groups do not divide the shared axis"));
        }
        let parameters = product("scales", &[self.k / self.group, self.n])?;
        for (name, values) in [("scales", self.scales), ("zeros", self.zeros)] {
            if let Some(values) = values {
                check_len(name, values.len(), parameters)?;
            }
        }
        Ok(())
    }
}

impl CompressedB {
    /// Packs a stored matrix.
    ///
    /// # Errors
    /// A slice is shorter than the matrix needs, groups do not divide the shared axis, or sizes overflow.
    pub fn pack(isa: Isa, matrix: &CompressedMatrix<'_>) -> Result<Self, KernelError> {
        matrix.check()?;
        let CompressedMatrix { k, n, .. } = *matrix;
        let width = panel_width(isa);
        let line = width * matrix.codes.bits() / 8;
        let panels = n.div_ceil(width);
        let mut codes = vec![0; product("codes", &[panels, k, line])?];
        let work = codes.len() as u64;
        parallel_chunks_mut(&mut codes, (k * line).max(1), work, |panel, target| {
            pack_panel(matrix, panel * width, width, line, target);
        });
        let parameters =
            |values: Option<&[f32]>| values.map_or(Vec::new(), |values| by_panel(values, k / matrix.group, n, width));
        let (scales, zeros) = (parameters(matrix.scales), parameters(matrix.zeros));
        Ok(Self { isa, k, n, format: matrix.codes.format(), group: matrix.group, codes, scales, zeros })
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
        self.codes.len() + 4 * (self.scales.len() + self.zeros.len())
    }

    pub(crate) fn check_isa(&self, isa: Isa) -> Result<(), KernelError> {
        if self.isa != isa {
            return Err(KernelError::invalid("b", "packed for another instruction set"));
        }
        Ok(())
    }

    /// Bytes of one line of a panel.
    fn line(&self) -> usize {
        panel_width(self.isa)
            * match self.format {
                Format::Four(_) | Format::Table(_) => 4,
                Format::Eight(_) => 8,
                Format::F16 | Format::Bf16 => 16,
            }
            / 8
    }

    /// The work of reading the operand once, in nanoseconds.
    #[must_use]
    pub fn read_nanoseconds(&self) -> u64 {
        // Widening a code takes about as long as reading a byte from memory.
        nanoseconds_for_bytes(self.codes.len().max(self.k.saturating_mul(self.n)))
    }
}

fn pack_panel(matrix: &CompressedMatrix<'_>, first: usize, width: usize, line: usize, target: &mut [u8]) {
    let (bytes, bits, flip) = (matrix.codes.bytes(), matrix.codes.bits(), matrix.codes.flip());
    let columns = width.min(matrix.n - first);
    // Blocks of steps, so that a cache line of codes laid out [N, K] is read once and not once for each step.
    for start in (0..matrix.k).step_by(PACK_STEPS) {
        let steps = start..matrix.k.min(start + PACK_STEPS);
        for column in 0..columns {
            let from = (first + column) * matrix.column_stride;
            for step in steps.clone() {
                let number = from + step * matrix.row_stride;
                let place = step * line;
                match bits {
                    4 => {
                        let code = ((bytes[number / 2] >> (number % 2 * 4)) ^ flip) & 15;
                        let (byte, shift) = if column < width / 2 { (column, 0) } else { (column - width / 2, 4) };
                        target[place + byte] |= code << shift;
                    }
                    8 => target[place + column] = bytes[number] ^ flip,
                    _ => target[place + 2 * column..][..2].copy_from_slice(&bytes[2 * number..][..2]),
                }
            }
        }
    }
}

/// Values `[groups, n]` in the order in which panels are read, filled up with zeros.
fn by_panel(values: &[f32], groups: usize, n: usize, width: usize) -> Vec<f32> {
    let mut panels = vec![0.0; n.div_ceil(width) * groups * width];
    for (index, line) in panels.chunks_mut(width).enumerate() {
        let (panel, group) = (index / groups, index % groups);
        let columns = width.min(n - panel * width);
        line[..columns].copy_from_slice(&values[group * n + panel * width..][..columns]);
    }
    panels
}

/// How one line of codes becomes two vectors of numbers.
trait Decoder: Copy + Sync {
    /// Whether each vector of numbers is read on its own, so that the second one need not be.
    const IS_PLAIN: bool = false;
    /// # Safety
    /// A line of codes is readable.
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2];
}

#[derive(Clone, Copy)]
struct Four(i32);
#[derive(Clone, Copy)]
struct Table<'a>(&'a [f32; 16]);
#[derive(Clone, Copy)]
struct Eight(i32);
#[derive(Clone, Copy)]
struct Half;
#[derive(Clone, Copy)]
struct Brain;
/// Numbers as they are.
#[derive(Clone, Copy)]
struct Single;

impl Decoder for Four {
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        // SAFETY: a line of four-bit codes has one byte a lane.
        let pairs = unsafe { s.load_u8(codes) };
        let offset = s.splat_i(self.0);
        let (low, high) = (s.and_i(pairs, s.splat_i(15)), s.shr::<4>(pairs));
        // A closure would be compiled without the tier's instructions wherever it is not inlined.
        [s.from_i(s.sub_i(low, offset)), s.from_i(s.sub_i(high, offset))]
    }
}

impl Decoder for Table<'_> {
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        // SAFETY: a line of four-bit codes has one byte a lane.
        let pairs = unsafe { s.load_u8(codes) };
        [s.lookup(self.0, pairs), s.lookup(self.0, s.shr::<4>(pairs))]
    }
}

impl Decoder for Eight {
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        let offset = s.splat_i(self.0);
        // SAFETY: a line has two bytes a lane.
        let (low, high) = unsafe { (s.load_u8(codes), s.load_u8(codes.add(S::LANES))) };
        [s.from_i(s.sub_i(low, offset)), s.from_i(s.sub_i(high, offset))]
    }
}

impl Decoder for Half {
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        // SAFETY: a line has four bytes a lane.
        unsafe { [s.load_f16(codes), s.load_f16(codes.add(2 * S::LANES))] }
    }
}

impl Decoder for Brain {
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        // SAFETY: a line has four bytes a lane.
        let (low, high) = unsafe { (s.load_u16(codes), s.load_u16(codes.add(2 * S::LANES))) };
        [s.from_bits(s.shl::<16>(low)), s.from_bits(s.shl::<16>(high))]
    }
}

impl Decoder for Single {
    const IS_PLAIN: bool = true;

    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, codes: *const u8) -> [S::F; 2] {
        // SAFETY: a line has eight bytes a lane; loads need no alignment.
        unsafe { [s.load(codes.cast()), s.load(codes.cast::<f32>().add(S::LANES))] }
    }
}

/// Calls `$run` with the decoder of a format.
macro_rules! with_decoder {
    ($format:expr, |$decoder:ident| $run:expr) => {
        match $format {
            Format::Four(offset) => {
                let $decoder = Four(*offset);
                $run
            }
            Format::Table(table) => {
                let $decoder = Table(table);
                $run
            }
            Format::Eight(offset) => {
                let $decoder = Eight(*offset);
                $run
            }
            Format::F16 => {
                let $decoder = Half;
                $run
            }
            Format::Bf16 => {
                let $decoder = Brain;
                $run
            }
        }
    };
}

/// A packed operand as lines of codes.
#[derive(Clone, Copy)]
struct Lines<'a> {
    k: usize,
    n: usize,
    group: usize,
    /// Bytes of a line.
    line: usize,
    codes: *const u8,
    scales: &'a [f32],
    zeros: &'a [f32],
}

// SAFETY: the codes are read only, and live as long as the borrow of the operand they were taken from.
unsafe impl Sync for Lines<'_> {}

impl CompressedB {
    fn lines(&self) -> Lines<'_> {
        Lines {
            k: self.k,
            n: self.n,
            group: self.group,
            line: self.line(),
            codes: self.codes.as_ptr(),
            scales: &self.scales,
            zeros: &self.zeros,
        }
    }
}

/// Widens steps of a panel into a buffer.
struct Widen<'a, D> {
    operand: Lines<'a>,
    decoder: D,
    panel: usize,
    first: usize,
    steps: usize,
    buffer: *mut f32,
}

impl<D: Decoder> Kernel for Widen<'_, D> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (operand, line) = (self.operand, self.operand.line);
        let mut step = self.first;
        let end = self.first + self.steps;
        while step < end {
            let group = step / operand.group;
            let last = end.min((group + 1) * operand.group);
            let parameters = Parameters::of(s, &operand, self.panel, group);
            while step < last {
                // SAFETY: the step lies in the panel, and its line in the buffer.
                unsafe {
                    let codes = operand.codes.add((self.panel * operand.k + step) * line);
                    let values = self.decoder.line(s, codes);
                    let target = self.buffer.add((step - self.first) * 2 * S::LANES);
                    for half in 0..2 {
                        let value = s.mul(s.sub(values[half], parameters.zero[half]), parameters.scale[half]);
                        s.store(target.add(half * S::LANES), value);
                    }
                }
                step += 1;
            }
        }
    }
}

/// Scales and zero points of the columns of a panel.
#[derive(Clone, Copy)]
struct Parameters<S: Simd> {
    scale: [S::F; 2],
    zero: [S::F; 2],
}

impl<S: Simd> Parameters<S> {
    #[inline(always)]
    fn of(s: S, operand: &Lines<'_>, panel: usize, group: usize) -> Self {
        let place = (panel * (operand.k / operand.group.max(1)) + group) * 2 * S::LANES;
        let read = |values: &[f32], absent: f32| match values.get(place..place + 2 * S::LANES) {
            // SAFETY: the slice has two vectors.
            Some(line) => unsafe { [s.load(line.as_ptr()), s.load(line.as_ptr().add(S::LANES))] },
            None => [s.splat(absent); 2],
        };
        Parameters { scale: read(operand.scales, 1.0), zero: read(operand.zeros, 0.0) }
    }
}

impl PanelSource for CompressedB {
    unsafe fn panel(&self, isa: Isa, first: usize, steps: usize, column: usize, buffer: *mut f32) -> *const f32 {
        let panel = column / panel_width(isa);
        with_decoder!(&self.format, |decoder| dispatch(
            isa,
            Widen { operand: self.lines(), decoder, panel, first, steps, buffer }
        ));
        buffer
    }

    fn place(&self, first: usize, column: usize) -> Option<(*const f32, usize)> {
        let (panel, line) = (column / panel_width(self.isa), self.line());
        let code = self.codes.get((panel * self.k + first) * line)?;
        Some((std::ptr::from_ref(code).cast(), line / size_of::<f32>()))
    }
}

/// Products of few rows with one panel.
struct Few<'a, D, const ROWS: usize, const CHAINS: usize> {
    operand: Lines<'a>,
    decoder: D,
    panel: usize,
    a: *const f32,
    a_row: usize,
    c: *mut f32,
    c_row: usize,
    epilogue: &'a Epilogue<'a>,
}

impl<D: Decoder, const ROWS: usize, const CHAINS: usize> Kernel for Few<'_, D, ROWS, CHAINS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Small matrices take as long as reading them does.
        match D::IS_PLAIN && self.operand.n <= S::LANES {
            true => self.halves::<S, 1>(s),
            false => self.halves::<S, 2>(s),
        }
    }
}

impl<D: Decoder, const ROWS: usize, const CHAINS: usize> Few<'_, D, ROWS, CHAINS> {
    /// Computes one or both vectors of the panel's columns.
    #[inline(always)]
    fn halves<S: Simd, const HALVES: usize>(&self, s: S) {
        let Lines { k, group, line, codes, .. } = self.operand;
        let mut sums = [[s.splat(0.0); 2]; ROWS];
        let panel = codes.wrapping_add(self.panel * k * line);
        for index in 0..k.checked_div(group).unwrap_or(0) {
            let parameters = Parameters::of(s, &self.operand, self.panel, index);
            let zeros = (!self.operand.zeros.is_empty()).then_some(parameters.zero);
            // Neighbouring steps have sums of their own, so that one does not wait for the other.
            let mut parts = [[[s.splat(0.0); 2]; CHAINS]; ROWS];
            let first = index * group;
            let whole = first + group / CHAINS * CHAINS;
            for step in (first..whole).step_by(CHAINS) {
                for chain in 0..CHAINS {
                    // SAFETY: the step lies in the panel and in the rows of A.
                    unsafe { self.add::<S, HALVES>(s, panel, step + chain, zeros, chain, &mut parts) };
                }
            }
            // A loop whose length is not known would keep the sums in memory instead of registers.
            for chain in 0..CHAINS {
                if whole + chain < first + group {
                    // SAFETY: as above.
                    unsafe { self.add::<S, HALVES>(s, panel, whole + chain, zeros, chain, &mut parts) };
                }
            }
            for row in 0..ROWS {
                for half in 0..2 {
                    let mut part = parts[row][0][half];
                    for chain in 1..CHAINS {
                        part = s.add(part, parts[row][chain][half]);
                    }
                    sums[row][half] = s.fma(part, parameters.scale[half], sums[row][half]);
                }
            }
        }
        // SAFETY: the columns of the panel lie in C and in what the epilogue adds.
        unsafe { self.store(s, sums) };
    }

    /// Adds the products of one step to the sums of a chain.
    ///
    /// # Safety
    /// The step lies in the panel and in the rows of A.
    #[inline(always)]
    unsafe fn add<S: Simd, const HALVES: usize>(
        &self,
        s: S,
        panel: *const u8,
        step: usize,
        zeros: Option<[S::F; 2]>,
        chain: usize,
        parts: &mut [[[S::F; 2]; CHAINS]; ROWS],
    ) {
        // SAFETY: this function's own contract.
        unsafe {
            let mut values = self.decoder.line(s, panel.add(step * self.operand.line));
            if let Some(zeros) = zeros {
                values = [s.sub(values[0], zeros[0]), s.sub(values[1], zeros[1])];
            }
            for row in 0..ROWS {
                let left = s.splat(*self.a.add(row * self.a_row + step));
                for half in 0..HALVES {
                    parts[row][chain][half] = s.fma(left, values[half], parts[row][chain][half]);
                }
            }
        }
    }

    /// # Safety
    /// The columns of the panel lie in C and in what the epilogue adds.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, sums: [[S::F; 2]; ROWS]) {
        let (low, high) = self.epilogue.limits();
        for row in 0..ROWS {
            for half in 0..2 {
                let column = self.panel * 2 * S::LANES + half * S::LANES;
                let count = self.operand.n.saturating_sub(column).min(S::LANES);
                if count == 0 {
                    continue;
                }
                let mut sum = sums[row][half];
                // SAFETY: `count` columns from this one on lie in the bias, the residual and C.
                unsafe {
                    match self.epilogue.bias {
                        Channelwise::None => {}
                        Channelwise::PerRow(bias) => sum = s.add(sum, s.splat(bias[row])),
                        Channelwise::PerColumn(bias) => {
                            sum = s.add(sum, s.load_partial(bias.as_ptr().add(column), count));
                        }
                    }
                    if let Some(residual) = self.epilogue.residual {
                        let from = residual.values.as_ptr().add(row * residual.row_stride + column);
                        sum = s.add(sum, s.load_partial(from, count));
                    }
                    sum = s.min(s.splat(high), s.max(s.splat(low), sum));
                    s.store_partial(self.c.add(row * self.c_row + column), sum, count);
                }
            }
        }
    }
}

/// A product with at most [`MOST_ROWS`] rows. The arguments were checked.
pub(super) fn few_rows(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_row: usize,
    b: &CompressedB,
    c: &mut [f32],
    c_row: usize,
    epilogue: &Epilogue<'_>,
) {
    let job = FewRows { isa, m, a, a_row, lines: b.lines(), work: b.read_nanoseconds(), c_row, epilogue };
    with_decoder!(&b.format, |decoder| job.run(decoder, c));
}

/// As [`few_rows`], with panels of f32.
pub(super) fn few_rows_of_panels(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_row: usize,
    (k, n, panels): (usize, usize, &[f32]),
    c: &mut [f32],
    c_row: usize,
    epilogue: &Epilogue<'_>,
) {
    let line = panel_width(isa) * size_of::<f32>();
    let codes = panels.as_ptr().cast();
    let lines = Lines { k, n, group: k, line, codes, scales: &[], zeros: &[] };
    let work = nanoseconds_for_bytes(size_of_val(panels));
    FewRows { isa, m, a, a_row, lines, work, c_row, epilogue }.run(Single, c);
}

/// A product with few rows, but for its result.
struct FewRows<'a> {
    isa: Isa,
    m: usize,
    a: &'a [f32],
    a_row: usize,
    lines: Lines<'a>,
    /// Nanoseconds of one core.
    work: u64,
    c_row: usize,
    epilogue: &'a Epilogue<'a>,
}

impl FewRows<'_> {
    fn run<D: Decoder>(&self, decoder: D, c: &mut [f32]) {
        let FewRows { isa, m, a, a_row, lines, c_row, epilogue, .. } = *self;
        debug_assert!(m <= MOST_ROWS);
        let width = panel_width(isa);
        let panels = lines.n.div_ceil(width);
        // A task decodes about 20 microseconds of codes and reads at most 256 KB of them, so that a megabyte of plain
        // values is several tasks.
        let grain = ((1 << 18) / (lines.k * width.max(lines.line)).max(1)).max(1);
        let shared = SharedMut::new(c);
        parallel_for(panels, grain, self.work, |range| {
            let first = range.start * width;
            let columns = (range.len() * width).min(lines.n - first);
            for panel in range {
                let (operand, a, c) = (lines, a.as_ptr(), shared.pointer());
                macro_rules! run {
                    ($($rows:literal: $chains:literal,)*) => {
                        match m {
                            $($rows => dispatch(
                                isa,
                                Few::<_, $rows, $chains> { operand, decoder, panel, a, a_row, c, c_row, epilogue }
                            ),)*
                            _ => {}
                        }
                    };
                }
                run!(1: 4, 2: 4, 3: 2, 4: 2,);
            }
            if epilogue.needs_pass() {
                // SAFETY: tasks own disjoint columns of the result, and the epilogue was checked for it.
                unsafe { epilogue.pass(isa, shared.pointer().add(first), c_row, 0, first, m, columns) };
            }
        });
    }
}
