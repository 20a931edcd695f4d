//! Products with few rows, which the speed of reading the right operand bounds. It is read once, in the order it lies.

use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::prefetch_near;

/// How many elements before their turn those of a column are asked for: a page.
const AHEAD: usize = 1024;

/// The most rows these loops take.
pub(crate) const MOST_ROWS: usize = 4;

/// A product `C += A * B` with few rows.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    /// Rows of A and C, at most [`MOST_ROWS`].
    pub(crate) m: usize,
    /// The shared axis.
    pub(crate) k: usize,
    /// Columns to compute.
    pub(crate) n: usize,
    /// The left operand.
    pub(crate) a: *const f32,
    /// Elements from one row of A to the next.
    pub(crate) a_row: usize,
    /// Elements from one column of A to the next; 1 where rows of B are not contiguous.
    pub(crate) a_column: usize,
    /// The right operand, from the first column on.
    pub(crate) b: *const f32,
    /// Elements from one row of B to the next; 1 where its columns are contiguous along the shared axis.
    pub(crate) b_row: usize,
    /// Elements from one column of B to the next; 1 where its rows are contiguous.
    pub(crate) b_column: usize,
    /// The result, from the first column on.
    pub(crate) c: *mut f32,
    /// Elements from one row of C to the next.
    pub(crate) c_row: usize,
}

impl Small {
    /// Whether a product of this shape is read fastest by these loops.
    pub(crate) fn suits(m: usize, a_column: usize, b_row: usize, b_column: usize) -> bool {
        m <= MOST_ROWS && (b_column == 1 || b_row == 1 && a_column == 1)
    }

    /// Adds the product to C.
    ///
    /// # Safety
    /// The operands and C cover the product, nobody else touches C, and rows of B are contiguous, or its columns and
    /// rows of A.
    pub(crate) unsafe fn run(self, isa: Isa) {
        match (self.b_column == 1, self.m) {
            (true, 1) => dispatch(isa, Stream::<1>(self)),
            (true, 2) => dispatch(isa, Stream::<2>(self)),
            (true, 3) => dispatch(isa, Stream::<3>(self)),
            (true, 4) => dispatch(isa, Stream::<4>(self)),
            (false, 1) => dispatch(isa, Dots::<1>(self)),
            (false, 2) => dispatch(isa, Dots::<2>(self)),
            (false, 3) => dispatch(isa, Dots::<3>(self)),
            (false, 4) => dispatch(isa, Dots::<4>(self)),
            _ => debug_assert!(self.m == 0),
        }
    }
}

/// Rows of B are contiguous: four of them are added to C at a time.
struct Stream<const ROWS: usize>(Small);

impl<const ROWS: usize> Kernel for Stream<ROWS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Small { k, n, a, a_row, a_column, b, b_row, c, c_row, .. } = self.0;
        if n <= S::LANES {
            self.narrow(s);
            return;
        }
        let mut step = 0;
        while step < k {
            let steps = (k - step).min(4);
            let mut left = [[s.splat(0.0); 4]; ROWS];
            let mut lines = [b; 4];
            for index in 0..4 {
                // Steps that are missing at the end repeat the last and are left out below.
                let index_in = step + index.min(steps - 1);
                lines[index] = b.wrapping_add(index_in * b_row);
                for row in 0..ROWS {
                    // SAFETY: the step lies in the row of A.
                    left[row][index] = s.splat(unsafe { *a.add(row * a_row + index_in * a_column) });
                }
            }
            let mut column = 0;
            while steps == 4 && column + S::LANES <= n {
                for row in 0..ROWS {
                    // SAFETY: a vector of columns from this one on lies in C and in every line of B.
                    unsafe {
                        let place = c.add(row * c_row + column);
                        let mut sum = s.load(place);
                        for index in 0..4 {
                            sum = s.fma(left[row][index], s.load(lines[index].add(column)), sum);
                        }
                        s.store(place, sum);
                    }
                }
                column += S::LANES;
            }
            while column < n {
                let count = (n - column).min(S::LANES);
                for row in 0..ROWS {
                    // SAFETY: `count` columns from this one on lie in C and in every line of B.
                    unsafe {
                        let place = c.add(row * c_row + column);
                        let mut sum = s.load_partial(place, count);
                        for index in 0..steps {
                            let right = s.load_partial(lines[index].add(column), count);
                            sum = s.fma(left[row][index], right, sum);
                        }
                        s.store_partial(place, sum, count);
                    }
                }
                column += count;
            }
            step += steps;
        }
    }
}

impl<const ROWS: usize> Stream<ROWS> {
    /// The columns that one vector holds: the sums stay in registers.
    #[inline(always)]
    fn narrow<S: Simd>(&self, s: S) {
        let Small { k, n, c, c_row, .. } = self.0;
        // Neighbouring steps have sums of their own, so that one does not wait for the other; many rows have enough of them.
        let chains = if ROWS <= 2 { 4 } else { 2 };
        let mut sums = [[s.splat(0.0); 4]; ROWS];
        let whole = k - k % chains;
        for step in (0..whole).step_by(chains) {
            for chain in 0..4 {
                if chain < chains {
                    // SAFETY: the step is one of the shared axis.
                    unsafe { self.add(s, step + chain, chain, &mut sums) };
                }
            }
        }
        for chain in 0..4 {
            if whole + chain < k {
                // SAFETY: as above.
                unsafe { self.add(s, whole + chain, chain, &mut sums) };
            }
        }
        for row in 0..ROWS {
            let [first, second, third, fourth] = sums[row];
            let sum = s.add(s.add(first, second), s.add(third, fourth));
            // SAFETY: the row of C has the columns.
            unsafe {
                let place = c.add(row * c_row);
                s.store_partial(place, s.add(s.load_partial(place, n), sum), n);
            }
        }
    }

    /// Adds the products of a step to the sums of a chain.
    ///
    /// # Safety
    /// The step is one of the shared axis, and a vector holds the columns.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, s: S, step: usize, chain: usize, sums: &mut [[S::F; 4]; ROWS]) {
        let Small { n, a, a_row, a_column, b, b_row, .. } = self.0;
        // SAFETY: the step lies in the rows of A and in B, whose rows have the columns.
        unsafe {
            let right = s.load_partial(b.add(step * b_row), n);
            for row in 0..ROWS {
                let left = s.splat(*a.add(row * a_row + step * a_column));
                sums[row][chain] = s.fma(left, right, sums[row][chain]);
            }
        }
    }
}

/// Columns of B are contiguous: each element of C is a dot product, some columns at a time.
struct Dots<const ROWS: usize>(Small);

impl<const ROWS: usize> Kernel for Dots<ROWS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Sums of four columns and more than two rows want many registers.
        let quarter = if ROWS <= 2 || S::LANES == 16 { self.0.n / 4 } else { 0 };
        // Each of four columns begins where the one before it ended: streams that never jump are read ahead of by the processor.
        for column in 0..quarter {
            let sums = self.columns::<S, 4>(s, [0, 1, 2, 3].map(|index| index * quarter + column));
            for row in 0..ROWS {
                let sums = s.reduce_add_four(sums[row]);
                for index in 0..4 {
                    // SAFETY: the row of C has the columns.
                    unsafe { *self.0.c.add(row * self.0.c_row + index * quarter + column) += sums[index] };
                }
            }
        }
        let mut column = 4 * quarter;
        while column < self.0.n {
            let columns = (self.0.n - column).min(2);
            let sums = self.columns::<S, 2>(s, [column, column + columns - 1]);
            for row in 0..ROWS {
                for index in 0..columns {
                    // SAFETY: the row of C has the columns.
                    unsafe { *self.0.c.add(row * self.0.c_row + column + index) += s.reduce_add(sums[row][index]) };
                }
            }
            column += columns;
        }
    }
}

impl<const ROWS: usize> Dots<ROWS> {
    /// The partial sums of some columns, which lie in B, with all rows.
    #[inline(always)]
    fn columns<S: Simd, const COLUMNS: usize>(&self, s: S, columns: [usize; COLUMNS]) -> [[S::F; COLUMNS]; ROWS] {
        let Small { k, a, a_row, b, b_column, .. } = self.0;
        let mut lines = [b; COLUMNS];
        for (line, column) in lines.iter_mut().zip(columns) {
            *line = b.wrapping_add(column * b_column);
        }
        let mut sums = [[s.splat(0.0); COLUMNS]; ROWS];
        let mut step = 0;
        // A mask for every vector would take longer than its products.
        macro_rules! vectors {
            ($load:ident $(, $count:expr)?) => {
                // SAFETY: so many steps from this one on lie in the rows of A and the columns of B.
                unsafe {
                    let mut right = [s.splat(0.0); COLUMNS];
                    for index in 0..COLUMNS {
                        prefetch_near(lines[index].wrapping_add(step + AHEAD));
                        right[index] = s.$load(lines[index].add(step) $(, $count)?);
                    }
                    for row in 0..ROWS {
                        let left = s.$load(a.add(row * a_row + step) $(, $count)?);
                        for index in 0..COLUMNS {
                            sums[row][index] = s.fma(left, right[index], sums[row][index]);
                        }
                    }
                }
            };
        }
        while step + S::LANES <= k {
            vectors!(load);
            step += S::LANES;
        }
        if step < k {
            vectors!(load_first, k - step);
        }
        sums
    }
}
