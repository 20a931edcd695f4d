//! Gather: the inverse of a scatter, with the same ways to name places.

use std::sync::atomic::{AtomicBool, Ordering};

use super::number::Number32;
use super::source::{Elements, IndexWord, Signed, Source, Tuples, add, for_each_line, index_width};
use super::{IndexType, Kind, Places, TILE, out_of_range};
use crate::error::{KernelError, check_exact, product};
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};

/// The bytes of output that one chunk of a parallel gather covers at least.
const CHUNK: usize = 1 << 16;

/// A gather of elements or of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    places: Places,
    /// The blocks of data that have tuples of their own.
    batches: usize,
    /// The bytes of an element.
    width: usize,
    index_type: IndexType,
}

impl Gather {
    /// Single elements along one axis: the output has the shape of the indices, which is that of the data but for the
    /// axis. Elements have `width` bytes. Negative indices count from the end.
    ///
    /// # Errors
    /// Shapes that do not fit, or beyond what the kernel counts with (2^32 elements).
    pub fn elements(
        data: &[usize],
        indices: &[usize],
        axis: usize,
        width: usize,
        index_type: IndexType,
    ) -> Result<Gather, KernelError> {
        Ok(Gather { places: Places::elements(data, indices, axis)?, batches: 1, width, index_type })
    }

    /// Blocks that tuples of coordinates address: data `[batches, sizes..., inner]`, indices
    /// `[batches, count, sizes.len()]`, output `[batches, count, inner]`. Elements have `width` bytes. Negative
    /// coordinates count from the end.
    ///
    /// # Errors
    /// More than eight coordinates, or sizes beyond what the kernel counts with.
    pub fn tuples(
        batches: usize,
        sizes: &[usize],
        inner: usize,
        count: usize,
        width: usize,
        index_type: IndexType,
    ) -> Result<Gather, KernelError> {
        let gather = Gather { places: Places::tuples(sizes, inner, count)?, batches, width, index_type };
        let places = gather.places;
        let most = places.data_elements().max(places.update_elements()).max(places.indices());
        match product("data", &[batches, most])? {
            elements if elements <= u32::MAX as usize => Ok(gather),
            _ => Err(KernelError::invalid("data", "more elements than the kernel counts with")),
        }
    }

    /// An estimate of the time it takes on one thread, in nanoseconds.
    #[must_use]
    pub fn work_nanoseconds(&self) -> u64 {
        let (rows, bytes) = self.rows();
        nanoseconds_for_bytes(2 * rows * bytes) + 2 * rows as u64
    }

    /// Writes the elements that the indices name to `output`.
    ///
    /// # Errors
    /// A slice that does not fit, or an index that addresses nothing (argument `indices`); the output holds anything
    /// then.
    pub fn run(&self, data: &[u8], indices: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
        let Gather { places, batches, width, index_type } = *self;
        check_exact("data", data.len(), batches * places.data_elements() * width)?;
        check_exact("output", output.len(), batches * places.update_elements() * width)?;
        check_exact("indices", indices.len(), batches * places.indices() * index_width(index_type))?;
        match index_type {
            IndexType::I32 => self.run_indices::<4>(data, indices.as_chunks().0, output),
            IndexType::I64 => self.run_indices::<8>(data, indices.as_chunks().0, output),
        }
    }

    fn run_indices<const M: usize>(
        &self,
        data: &[u8],
        indices: &[[u8; M]],
        output: &mut [u8],
    ) -> Result<(), KernelError>
    where
        Signed: IndexWord<M>,
    {
        match self.places.0 {
            Kind::Elements { axes, .. } => self.run_source(&Elements { indices, axes }, data, output),
            Kind::Tuples { sizes, depth, rows, count, .. } => {
                let tuples = Tuples { indices, sizes: &sizes[..depth] };
                self.run_source(&Batched { tuples, rows: rows as u32, count }, data, output)
            }
            Kind::Slices { .. } | Kind::Broadcast { .. } => Err(KernelError::invalid("places", "not of a gather")),
        }
    }

    /// The rows of the output and the bytes of each.
    fn rows(&self) -> (usize, usize) {
        match self.places.0 {
            Kind::Tuples { count, inner, .. } => (self.batches * count, inner * self.width),
            _ => (self.places.update_elements(), self.width),
        }
    }

    fn run_source(&self, source: &dyn Source, data: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
        let (rows, bytes) = self.rows();
        if rows == 0 {
            return Ok(());
        }
        let is_empty = data.is_empty();
        let misfit = AtomicBool::new(false);
        let shared = SharedMut::new(output);
        parallel_for(rows, CHUNK.div_ceil(bytes.max(1)).next_multiple_of(TILE), self.work_nanoseconds(), |range| {
            let mut places = [[0; 4]; TILE];
            for start in range.clone().step_by(TILE) {
                let places = &mut places[..TILE.min(range.end - start)];
                // A place is one of the data wherever its index fits, and row 0 else.
                if !source.fill(start, places) || is_empty && bytes > 0 {
                    misfit.store(true, Ordering::Relaxed);
                    return;
                }
                // SAFETY: parallel_for's ranges of rows are disjoint, and the output has so many.
                let target = unsafe { shared.slice(start * bytes..(start + places.len()) * bytes) };
                match bytes {
                    0 => {}
                    1 => pick::<1>(data, places, target),
                    2 => pick::<2>(data, places, target),
                    4 => pick::<4>(data, places, target),
                    8 => pick::<8>(data, places, target),
                    _ => {
                        for (place, target) in places.iter().zip(target.chunks_exact_mut(bytes)) {
                            target.copy_from_slice(&data[u32::from_ne_bytes(*place) as usize * bytes..][..bytes]);
                        }
                    }
                }
            }
        });
        if misfit.into_inner() { Err(out_of_range()) } else { Ok(()) }
    }
}

/// Tuples that address a block of the data of their own.
struct Batched<'a, const M: usize> {
    tuples: Tuples<'a, M>,
    /// The rows of a block.
    rows: u32,
    /// The tuples of a block.
    count: usize,
}

impl<const M: usize> Source for Batched<'_, M>
where
    Signed: IndexWord<M>,
{
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        let fit = self.tuples.fill(start, places);
        for_each_line(start, self.count, places, |batch, _, places| add(places, batch as u32 * self.rows));
        fit
    }
}

fn pick<const N: usize>(data: &[u8], places: &[Number32], target: &mut [u8]) {
    let data = data.as_chunks::<N>().0;
    for (place, target) in places.iter().zip(target.as_chunks_mut::<N>().0) {
        *target = data[u32::from_ne_bytes(*place) as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn words(indices: &[i64], index_type: IndexType) -> Vec<u8> {
        match index_type {
            IndexType::I32 => indices.iter().flat_map(|i| (*i as i32).to_le_bytes()).collect(),
            IndexType::I64 => indices.iter().flat_map(|i| i.to_le_bytes()).collect(),
        }
    }

    /// Runs a gather of values that name their own place, alone and in a pool.
    fn run(gather: Gather, elements: usize, indices: &[i64]) -> Vec<u64> {
        let number = |i: usize| (i as u64).to_le_bytes()[..gather.width].to_vec();
        let data: Vec<u8> = (0..elements).flat_map(number).collect();
        let mut output = vec![0xee; gather.rows().0 * gather.rows().1];
        let indices = words(indices, gather.index_type);
        gather.run(&data, &indices, &mut output).unwrap();
        let mut again = vec![0xee; output.len()];
        in_pool(3, || gather.run(&data, &indices, &mut again)).unwrap();
        assert_eq!(output, again);
        let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        output.chunks(gather.width).map(value).collect()
    }

    #[test]
    fn elements_of_every_width() {
        let mut random = Random::new(3);
        for round in 0..60 {
            let (outer, size, inner, picked) =
                (random.between(1, 3), random.between(1, 5), random.between(1, 4), random.between(0, 2000));
            let indices: Vec<i64> =
                (0..outer * picked * inner).map(|_| random.between(0, 2 * size - 1) as i64 - size as i64).collect();
            let width = [1, 2, 4, 8][round % 4];
            let index_type = [IndexType::I32, IndexType::I64][round / 4 % 2];
            let gather =
                Gather::elements(&[outer, size, inner], &[outer, picked, inner], 1, width, index_type).unwrap();
            let expected: Vec<u64> = indices
                .iter()
                .enumerate()
                .map(|(at, index)| {
                    let block = at / (picked * inner).max(1);
                    let index = index.rem_euclid(size as i64) as usize;
                    ((block * size + index) * inner + at % inner) as u64
                })
                .collect();
            assert_eq!(run(gather, outer * size * inner, &indices), expected);
        }
    }

    #[test]
    fn tuples_in_batches() {
        let gather = Gather::tuples(2, &[2, 3], 2, 2, 2, IndexType::I64).unwrap();
        let indices = [1, 0, -1, -1, 0, 2, 0, -3];
        assert_eq!(run(gather, 24, &indices), [6, 7, 10, 11, 16, 17, 12, 13]);
        let whole = Gather::tuples(1, &[], 3, 2, 4, IndexType::I32).unwrap();
        assert_eq!(run(whole, 3, &[]), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn misfits_are_errors() {
        for index in [3, -4, i64::MIN, i64::MAX, (1 << 32) + 1] {
            let gather = Gather::elements(&[3], &[2], 0, 4, IndexType::I64).unwrap();
            assert!(gather.run(&[0; 12], &words(&[0, index], IndexType::I64), &mut [0; 8]).is_err());
            let gather = Gather::tuples(2, &[3], 1, 1, 1, IndexType::I64).unwrap();
            assert!(gather.run(&[0; 6], &words(&[0, index], IndexType::I64), &mut [0; 2]).is_err());
        }
        let empty = Gather::tuples(1, &[0], 1, 1, 1, IndexType::I32).unwrap();
        assert!(empty.run(&[], &words(&[0], IndexType::I32), &mut [0]).is_err());
        let empty = Gather::tuples(1, &[4], 0, 1, 1, IndexType::I32).unwrap();
        assert!(empty.run(&[], &words(&[3], IndexType::I32), &mut []).is_ok());
        assert!(empty.run(&[], &words(&[4], IndexType::I32), &mut []).is_err());
        assert!(Gather::tuples(1 << 20, &[1 << 20], 1, 1, 1, IndexType::I32).is_err());
    }
}
