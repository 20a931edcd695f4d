//! Sums and means of rows of a table, gathered into bags.

use std::ops::Range;

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::prefetch_near;

/// Elements of the table that a parallel chunk reads, on average.
const CHUNK: usize = 1 << 14;

/// Bytes of rows that are asked for before they are added: what the time of a trip to memory takes to add.
const AHEAD: usize = 1 << 12;

/// The most rows ahead that are asked for.
const MOST_AHEAD: usize = 32;

/// Numbers that are checked together.
const CHECKED: usize = 256;

/// Which positions of the indices belong to a bag. Those of a bag lie side by side, and bags follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bags<'a, I> {
    /// So many in each bag.
    Even(usize),
    /// The first position of each bag, none below the one before it. The last bag ends with the indices.
    Offsets(&'a [I]),
    /// The bag of each position, none below the one before it.
    Segments(&'a [I]),
}

/// Bags of rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct Embedding<'a, I> {
    /// The rows of the table.
    pub rows: usize,
    /// The columns of the table.
    pub columns: usize,
    /// The number of bags.
    pub count: usize,
    /// What is in them.
    pub bags: Bags<'a, I>,
    /// The row at each position.
    pub indices: &'a [I],
    /// A factor for the row at each position.
    pub weights: Option<&'a [f32]>,
    /// Whether the sum of a bag is divided by the number of its rows.
    pub mean: bool,
    /// The row of empty bags, which are zero without one.
    pub default_row: Option<usize>,
}

impl<I: Copy + Sync + Into<i64>> Embedding<'_, I> {
    /// Writes a row of `output`, `[count, columns]`, for each bag of rows of `table`, `[rows, columns]`. Sums are made in
    /// f64 in the order of the positions, and rounded once.
    ///
    /// # Errors
    /// A slice does not fit, an index names no row, or the bags are not what [`Bags`] says of them.
    pub fn run(&self, isa: Isa, table: &[f32], output: &mut [f32]) -> Result<(), KernelError> {
        let Embedding { rows, columns, count, indices, .. } = *self;
        check_exact("table", table.len(), product("table", &[rows, columns])?)?;
        check_exact("output", output.len(), product("output", &[count, columns])?)?;
        self.check()?;
        if output.is_empty() {
            return Ok(());
        }
        let read = indices.len().saturating_mul(columns);
        let work = nanoseconds_for_bytes(read.saturating_add(output.len()).saturating_mul(size_of::<f32>()));
        let bags_of_chunk = CHUNK / (read / count).max(columns).max(1);
        let shared = SharedMut::new(output);
        parallel_for(count, bags_of_chunk, work, |bags| {
            // SAFETY: chunks have bags of their own.
            let target = unsafe { shared.slice(bags.start * columns..bags.end * columns) };
            dispatch(isa, Chunk { embedding: self, table, first: bags.start, target });
        });
        Ok(())
    }

    fn check(&self) -> Result<(), KernelError> {
        let positions = self.indices.len();
        if let Some(weights) = self.weights {
            check_exact("weights", weights.len(), positions)?;
        }
        let fits = match self.bags {
            Bags::Even(each) => self.count.checked_mul(each) == Some(positions),
            Bags::Offsets(offsets) => offsets.len() == self.count && is_rising(offsets, positions),
            Bags::Segments(segments) => {
                segments.len() == positions
                    && self.count.checked_sub(1).map_or(positions == 0, |last| is_rising(segments, last))
            }
        };
        if !fits {
            return Err(KernelError::invalid("bags", "positions do not fit the bags"));
        }
        // A negative index is beyond all rows as a number without sign.
        let is_outside = |index: &I| (*index).into() as u64 >= self.rows as u64;
        let is_any = |indices: &[I]| indices.iter().fold(false, |any, index| any | is_outside(index));
        let default_fits = self.default_row.is_none_or(|row| row < self.rows);
        if !default_fits || self.indices.chunks(CHECKED).any(is_any) {
            return Err(KernelError::invalid("indices", "an index names no row of the table"));
        }
        Ok(())
    }

    /// The position at which a bag begins.
    fn begin(&self, bag: usize) -> usize {
        match self.bags {
            Bags::Even(each) => bag * each,
            Bags::Offsets(offsets) => offsets.get(bag).map_or(self.indices.len(), |offset| (*offset).into() as usize),
            Bags::Segments(segments) => segments.partition_point(|segment| (*segment).into() < bag as i64),
        }
    }

    /// The position at which a bag ends that begins at `begin`.
    #[inline(always)]
    fn end(&self, bag: usize, begin: usize) -> usize {
        match self.bags {
            Bags::Segments(segments) => {
                let rest = segments.get(begin..).unwrap_or_default();
                begin + rest.iter().take_while(|segment| (**segment).into() == bag as i64).count()
            }
            _ => self.begin(bag + 1),
        }
    }
}

/// Whether numbers lie between 0 and `most`, none below the one before it.
fn is_rising<I: Copy + Into<i64>>(numbers: &[I], most: usize) -> bool {
    let is_within = |end: Option<&I>| end.is_none_or(|end| (0..=most as i64).contains(&(*end).into()));
    let after = numbers.get(1..).unwrap_or_default();
    let is_falling = numbers.iter().zip(after).fold(false, |any, (a, b)| any | ((*b).into() < (*a).into()));
    is_within(numbers.first()) && is_within(numbers.last()) && !is_falling
}

/// Some bags.
struct Chunk<'a, 'b, I> {
    embedding: &'a Embedding<'b, I>,
    table: &'a [f32],
    first: usize,
    target: &'a mut [f32],
}

impl<I: Copy + Sync + Into<i64>> Kernel for Chunk<'_, '_, I> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Chunk { embedding, table, first, target } = self;
        let columns = embedding.columns;
        let mut begin = embedding.begin(first);
        for (bag, target) in target.chunks_exact_mut(columns).enumerate() {
            let range = begin..embedding.end(first + bag, begin);
            begin = range.end;
            if range.is_empty() {
                match embedding.default_row {
                    Some(row) => target.copy_from_slice(&table[row * columns..][..columns]),
                    None => target.fill(0.0),
                }
                continue;
            }
            let sums = Sums { embedding, table, range };
            let mut column = 0;
            while column < columns {
                let run = &mut target[column..];
                // Of sixteen registers, as AVX2 has them, eight hold sums.
                column += match run.len() / S::LANES {
                    8.. if S::LANES != 8 => sums.run::<S, 8>(s, column, run),
                    4.. => sums.run::<S, 4>(s, column, run),
                    2.. => sums.run::<S, 2>(s, column, run),
                    _ => sums.run::<S, 1>(s, column, run),
                };
            }
        }
    }
}

/// One bag that is not empty.
struct Sums<'a, 'b, I> {
    embedding: &'a Embedding<'b, I>,
    table: &'a [f32],
    range: Range<usize>,
}

impl<I: Copy + Sync + Into<i64>> Sums<'_, '_, I> {
    /// The columns from `column` on, as many as some vectors take; of a single vector, those that there are. Tells how many.
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(&self, s: S, column: usize, target: &mut [f32]) -> usize {
        let Embedding { columns, indices, weights, mean, .. } = *self.embedding;
        let width = target.len().min(VECTORS * S::LANES);
        let ahead = (AHEAD / (width * size_of::<f32>())).clamp(2, MOST_AHEAD);
        let place = |index: I| index.into() as usize * columns + column;
        let mut sums = [s.splat_d(0.0); VECTORS];
        for position in self.range.clone() {
            if let Some(index) = indices.get(position + ahead) {
                let row = self.table.as_ptr().wrapping_add(place(*index));
                for line in (0..width).step_by(LINE) {
                    prefetch_near(row.wrapping_add(line));
                }
            }
            let row = &self.table[place(indices[position])..][..width];
            // SAFETY: the row has values for all vectors, or for the first lanes of a single one.
            let load = |vector: usize| unsafe {
                if VECTORS == 1 {
                    s.load_first(row.as_ptr(), width)
                } else {
                    s.load(row.as_ptr().add(vector * S::LANES))
                }
            };
            match weights {
                Some(weights) => {
                    let weight = s.splat_d(f64::from(weights[position]));
                    for vector in 0..VECTORS {
                        sums[vector] = s.add_d(sums[vector], s.mul_d(s.widen(load(vector)), weight));
                    }
                }
                None => {
                    for vector in 0..VECTORS {
                        sums[vector] = s.add_d(sums[vector], s.widen(load(vector)));
                    }
                }
            }
        }
        let count = s.splat_d(self.range.len() as f64);
        // One vector after the other: as a whole, the sums would lie in memory all the time.
        for vector in 0..VECTORS {
            let sum = s.narrow(if mean { s.div_d(sums[vector], count) } else { sums[vector] });
            // SAFETY: as for the row.
            unsafe {
                if VECTORS == 1 {
                    s.store_first(target.as_mut_ptr(), sum, width);
                } else {
                    s.store(target.as_mut_ptr().add(vector * S::LANES), sum);
                }
            }
        }
        width
    }
}

/// Elements of a cache line.
const LINE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    type Plain<'a> = &'a dyn Fn(usize) -> Range<usize>;

    /// The definition.
    fn expected<I: Copy + Sync + Into<i64>>(e: &Embedding<'_, I>, range: Plain<'_>, table: &[f32]) -> Vec<u32> {
        let mut result = Vec::new();
        for bag in 0..e.count {
            let range = range(bag);
            for column in 0..e.columns {
                let value = |row: usize| table[row * e.columns + column];
                let sum = range.clone().fold(0.0f64, |sum, position| {
                    let weight = e.weights.map_or(1.0, |weights| weights[position]);
                    sum + f64::from(value(e.indices[position].into() as usize)) * f64::from(weight)
                });
                result.push(match (e.default_row, e.mean) {
                    (None, _) if range.is_empty() => 0.0,
                    (Some(row), _) if range.is_empty() => value(row),
                    (_, true) => (sum / range.len() as f64) as f32,
                    (_, false) => sum as f32,
                });
            }
        }
        bits(&result)
    }

    /// The bits, all NaN being one.
    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
    }

    fn check<I: Copy + Sync + Into<i64>>(random: &mut Random, make: fn(usize) -> I) {
        for columns in [1, 3, 7, 8, 16, 21, 32, 64, 100, 128, 200, 300, 1024] {
            let (rows, count, each) = (random.between(1, 50), random.between(1, 60), random.between(0, 9));
            let mut table = random.values(rows * columns);
            for special in [f32::NAN, f32::INFINITY, -0.0, 1e-45, f32::MAX] {
                let place = random.between(0, table.len() - 1);
                table[place] = special;
            }
            let positions = count * each;
            let indices: Vec<I> = (0..positions).map(|_| make(random.between(0, rows - 1))).collect();
            let weights = random.values(positions);
            let mut offsets: Vec<usize> = (0..count).map(|_| random.between(0, positions)).collect();
            offsets.sort_unstable();
            let mut segments: Vec<usize> = (0..positions).map(|_| random.between(0, count - 1)).collect();
            segments.sort_unstable();
            let begin = |bag: usize| offsets.get(bag).copied().unwrap_or(positions);
            let first = |bag: usize| segments.partition_point(|segment| *segment < bag);
            let offsets_given: Vec<I> = offsets.iter().map(|offset| make(*offset)).collect();
            let segments_given: Vec<I> = segments.iter().map(|segment| make(*segment)).collect();
            let kinds: [(Bags<'_, I>, Plain<'_>); 3] = [
                (Bags::Even(each), &|bag| bag * each..(bag + 1) * each),
                (Bags::Offsets(&offsets_given), &|bag| begin(bag)..begin(bag + 1)),
                (Bags::Segments(&segments_given), &|bag| first(bag)..first(bag + 1)),
            ];
            for (number, (bags, range)) in kinds.into_iter().enumerate() {
                let embedding = Embedding {
                    rows,
                    columns,
                    count,
                    bags,
                    indices: &indices,
                    weights: (random.between(0, 1) == 0).then_some(&weights[..]),
                    mean: random.between(0, 1) == 0,
                    default_row: (random.between(0, 1) == 0).then_some(rows - 1),
                };
                let expected = expected(&embedding, range, &table);
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![5.0; count * columns];
                        embedding.run(isa, &table, &mut output).unwrap();
                        bits(&output)
                    };
                    assert_eq!(run(), expected, "{isa} {columns} columns, bags {number}");
                    assert_eq!(in_pool(2, run), expected);
                }
            }
        }
    }

    #[test]
    fn bags_are_sums_of_rows() {
        let mut random = Random::new(17);
        check(&mut random, |x| x as i32);
        check(&mut random, |x| x as i64);
    }

    #[test]
    fn many_bags_share_the_work() {
        let (rows, columns, count, each) = (500, 40, 3000, 3);
        let mut random = Random::new(18);
        let table = random.values(rows * columns);
        let indices: Vec<i64> = (0..count * each).map(|_| random.between(0, rows - 1) as i64).collect();
        let segments: Vec<i64> = (0..count * each).map(|position| (position / each) as i64).collect();
        let even = Bags::Even(each);
        let embedding = Embedding {
            rows,
            columns,
            count,
            bags: even,
            indices: &indices,
            weights: None,
            mean: false,
            default_row: None,
        };
        let expected = expected(&embedding, &|bag| bag * each..(bag + 1) * each, &table);
        for bags in [even, Bags::Segments(&segments)] {
            for isa in Isa::available() {
                for threads in 1..4 {
                    let mut output = vec![0.0; count * columns];
                    in_pool(threads, || Embedding { bags, ..embedding }.run(isa, &table, &mut output)).unwrap();
                    assert_eq!(bits(&output), expected);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let indices = [0i64, 2, 1];
        let good = Embedding {
            rows: 3,
            columns: 2,
            count: 3,
            bags: Bags::Even(1),
            indices: &indices,
            weights: None,
            mean: false,
            default_row: None,
        };
        let fails = |embedding: Embedding<'_, i64>| {
            let mut output = vec![7.0; embedding.count * 2];
            let failed = embedding.run(Isa::portable(), &[0.0; 6], &mut output).is_err();
            assert!(!failed || output.iter().all(|value| *value == 7.0));
            failed
        };
        assert!(!fails(good));
        assert!(!fails(Embedding { bags: Bags::Offsets(&[0, 0, 3]), ..good }));
        assert!(!fails(Embedding { bags: Bags::Segments(&[0, 2, 2]), ..good }));
        for bags in [
            Bags::Even(2),
            Bags::Offsets(&[0, 1]),
            Bags::Offsets(&[-1, 1, 2]),
            Bags::Offsets(&[0, 2, 1]),
            Bags::Offsets(&[0, 1, 4]),
            Bags::Segments(&[0, 1]),
            Bags::Segments(&[0, 1, 3]),
            Bags::Segments(&[-1, 1, 2]),
            Bags::Segments(&[1, 0, 2]),
        ] {
            assert!(fails(Embedding { bags, ..good }), "{bags:?}");
        }
        assert!(fails(Embedding { indices: &[0, 3, 1], ..good }));
        assert!(fails(Embedding { indices: &[0, -1, 1], ..good }));
        assert!(fails(Embedding { weights: Some(&[1.0]), ..good }));
        assert!(fails(Embedding { default_row: Some(3), ..good }));
        assert!(fails(Embedding { count: 0, bags: Bags::Segments(&[0, 0, 0]), ..good }));
        assert!(!fails(Embedding { count: 0, indices: &[], bags: Bags::Segments(&[]), ..good }));
    }
}
