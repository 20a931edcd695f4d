//! Scatter: a copy of data in which elements or rows are replaced by updates or combined with them.
//!
//! Updates are applied in their row-major order, so that the last one wins and sums have the same bits for any number of
//! threads. In place, all indices are checked before anything is written. There are four ways:
//!
//! * *few updates*, and single elements: the data are copied by all threads, then the updates are applied one after the
//!   other. Elements of a large output are fetched ahead, and each thread takes from all updates those that go to its part;
//! * *blocks*: updates and data fall apart into small blocks in the same order (a scatter along one of the last
//!   axes); each piece of the output is copied and updated while it is in the cache, and that of a large output is stored
//!   past the caches only then;
//! * *bins*: the output falls apart into pieces of the size of a cache, and the updates are sorted into the pieces first
//!   (stably, by counting), so that random rows cost no trip to memory and threads never meet at one place;
//! * *tables*: many sums at few places, as of a histogram, are taken chunk by chunk of the updates into a table of the places
//!   for each chunk, and the tables are added to the data in their order.
//!
//! Reductions that need more than the stored value (means, sums of halves, those that leave the data out) sort the
//! updates of a piece by place and combine all that meet at one place before the result is stored, once.

mod bins;
mod gather;
mod number;
mod source;
#[cfg(test)]
mod tests;

pub use gather::Gather;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::detect;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_chunks_mut, parallel_for, sharers};
use crate::simd::dispatch;
use crate::stream::{self, STREAM_BYTES};
use bins::{Bins, Piece, Units, by_bins};
use number::{Following, Leaf, Leaves, Number32, Points, Rows as RowUpdates, Width, leaf};
use source::{AreRows, Axes, Elements, IndexWord, Resolved, Rows, Signed, Source, Tuples, index_width};

/// Updates that are looked at together.
const TILE: usize = 512;

/// Random elements of so many bytes of output are found as fast without being fetched ahead.
const NEAR_BYTES: usize = 1 << 21;

/// Of larger outputs no cache holds enough that it would pay to copy the data through it.
const CACHED_BYTES: usize = if cfg!(test) { 1 << 21 } else { 1 << 25 };

/// The same for one thread: copies of 16 MB are faster through the caches, and those of 26 MB past them.
const CACHED_BY_ONE: usize = CACHED_BYTES / 4 * 3;

/// The most parts of the output each of which looks at all updates.
const MOST_PARTS: usize = 16;

/// Fewer threads do not share the updates of single elements of an output of less than [`SHARED_BYTES`]: that each of them looks at
/// all updates takes longer than they gain.
const FEWEST_SHARERS: usize = 3;
const SHARED_BYTES: usize = if cfg!(test) { 1 << 22 } else { 1 << 23 };

/// Updates of elements far away that are looked at together: many, as the first of them wait for their elements.
const FAR_TILE: usize = 1 << 12;

/// The bytes of output that a bin covers at least: with its data, half of a second-level cache.
const BIN_BYTES: usize = 1 << 18;

/// The indices that are checked together.
const CHECKED: usize = 1 << 14;

/// The updates from which on their places are kept instead of being found twice.
const RESOLVED: usize = 1 << 12;

/// Bytes of updates below which they are applied one after the other.
const FEW_BYTES: usize = 1 << 17;

/// The bytes of output that are copied past the caches before updates are applied to them.
const STREAMED_BYTES: usize = 1 << 19;

/// The updates that are added up in a table of all places, at least.
const TABLE_UPDATES: usize = if cfg!(test) { 1 << 12 } else { 1 << 16 };

/// The most such tables.
const MOST_TABLES: usize = 16;

/// The updates for each place of a table, at least: below, the tables themselves take too much of the time.
const UPDATES_OF_PLACE: usize = 8;

/// The most bytes of a table, which is to stay in a second-level cache beside what passes through it.
const TABLE_BYTES: usize = 1 << 18;

/// The bytes of output that are put together in the first cache before they are stored past the caches: little, because what
/// comes next is fetched meanwhile.
const PIECE_BYTES: usize = 1 << 11;

/// Blocks of output up to this size are copied and updated while they are in the cache.
const BLOCK_BYTES: usize = 1 << 19;

/// The most axes that tuples of coordinates address.
const MOST_COORDINATES: usize = 8;

/// How an update meets the value that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Combine {
    /// It replaces it.
    Replace,
    /// Sum; OR of booleans. Integers wrap.
    Sum,
    /// The value less the update; XOR of booleans.
    Sub,
    /// Product; AND of booleans.
    Prod,
    /// The smaller one, NaN if either is; AND of booleans.
    Min,
    /// The larger one, NaN if either is; OR of booleans.
    Max,
    /// The mean of all that meet, rounded down for integers; not for booleans.
    Mean,
}

/// The type of the elements of data and updates. Where updates only replace, any type of the same width does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Element {
    Boolean,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The type of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IndexType {
    I32,
    I64,
}

/// How updates are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The function.
    pub combine: Combine,
    /// Whether the value of the data takes part; without it the first update replaces it. Places without updates keep
    /// the data either way.
    pub use_init: bool,
}

/// Where updates go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Slices { outer: usize, size: usize, inner: usize, count: usize, wraps: bool },
    Tuples { sizes: [u32; MOST_COORDINATES], depth: usize, rows: usize, inner: usize, count: usize },
    Elements { axes: Axes, data: usize },
    Broadcast { outer: usize, size: usize, count: usize, inner: usize },
}

impl Places {
    /// Whole slices along an axis: data `[outer, size, inner]`, indices `[count]`, updates `[outer, count, inner]`.
    /// Negative indices count from the end if `wraps`, else they address nothing.
    ///
    /// # Errors
    /// Sizes beyond what the kernel counts with (2^32 rows).
    pub fn slices(outer: usize, size: usize, inner: usize, count: usize, wraps: bool) -> Result<Places, KernelError> {
        Self::new(Kind::Slices { outer, size, inner, count, wraps })
    }

    /// Blocks that tuples of coordinates address: data `[sizes..., inner]`, indices `[count, sizes.len()]`, updates
    /// `[count, inner]`. Negative coordinates count from the end.
    ///
    /// # Errors
    /// More than eight coordinates, or sizes beyond what the kernel counts with.
    pub fn tuples(sizes: &[usize], inner: usize, count: usize) -> Result<Places, KernelError> {
        let mut kept = [1; MOST_COORDINATES];
        if sizes.len() > MOST_COORDINATES {
            return Err(KernelError::invalid("sizes", "more than eight coordinates"));
        }
        for (kept, size) in kept.iter_mut().zip(sizes) {
            *kept = u32::try_from(*size).map_err(|_| KernelError::invalid("sizes", "an axis is too long"))?;
        }
        let rows = product("sizes", sizes)?;
        Self::new(Kind::Tuples { sizes: kept, depth: sizes.len(), rows, inner, count })
    }

    /// Single elements along one axis: data of shape `data`, indices and updates of shape `indices`, which is not larger
    /// than `data` off the axis. Negative indices count from the end.
    ///
    /// # Errors
    /// Shapes that do not fit, or beyond what the kernel counts with.
    pub fn elements(data: &[usize], indices: &[usize], axis: usize) -> Result<Places, KernelError> {
        if data.len() != indices.len() || axis >= data.len() {
            return Err(KernelError::invalid("axis", "the ranks differ or the axis lies outside"));
        }
        if data.iter().zip(indices).enumerate().any(|(i, (size, index))| i != axis && index > size) {
            return Err(KernelError::invalid("indices", "off the axis they are larger than the data"));
        }
        let elements = product("data", data)?;
        product("indices", indices)?;
        let axes = Axes::new(data, indices, axis).ok_or(KernelError::invalid("data", "too many axes"))?;
        Self::new(Kind::Elements { axes, data: elements })
    }

    /// Single elements along one axis where all updates of a row have one index: data `[outer, size, inner]`, updates
    /// `[outer, count, inner]` and indices `[count]` that stand for `[outer, count, inner]`. Negative indices count from
    /// the end.
    ///
    /// # Errors
    /// As [`Places::slices`].
    pub fn broadcast(outer: usize, size: usize, inner: usize, count: usize) -> Result<Places, KernelError> {
        Self::new(Kind::Broadcast { outer, size, count, inner })
    }

    fn new(kind: Kind) -> Result<Places, KernelError> {
        let places = Places(kind);
        let limit = u32::MAX as usize;
        let data = match kind {
            Kind::Slices { outer, size, inner, .. } | Kind::Broadcast { outer, size, inner, .. } => {
                product("data", &[outer, size, inner])?
            }
            Kind::Tuples { rows, inner, .. } => product("data", &[rows, inner])?,
            Kind::Elements { data, .. } => data,
        };
        let updates = match kind {
            Kind::Slices { outer, count, inner, .. } | Kind::Broadcast { outer, count, inner, .. } => {
                product("updates", &[outer, count, inner])?
            }
            Kind::Tuples { count, inner, depth, .. } => {
                product("indices", &[count, depth])?;
                product("updates", &[count, inner])?
            }
            Kind::Elements { axes, .. } => axes.count(),
        };
        if data > limit || updates > limit {
            return Err(KernelError::invalid("data", "more elements than the kernel counts with"));
        }
        Ok(places)
    }

    /// The elements of the data.
    #[must_use]
    pub fn data_elements(&self) -> usize {
        match self.0 {
            Kind::Slices { outer, size, inner, .. } | Kind::Broadcast { outer, size, inner, .. } => {
                outer * size * inner
            }
            Kind::Tuples { rows, inner, .. } => rows * inner,
            Kind::Elements { data, .. } => data,
        }
    }

    /// The elements of the updates.
    #[must_use]
    pub fn update_elements(&self) -> usize {
        match self.0 {
            Kind::Slices { outer, count, inner, .. } | Kind::Broadcast { outer, count, inner, .. } => {
                outer * count * inner
            }
            Kind::Tuples { count, inner, .. } => count * inner,
            Kind::Elements { axes, .. } => axes.count(),
        }
    }

    /// The number of indices.
    #[must_use]
    pub fn indices(&self) -> usize {
        match self.0 {
            Kind::Slices { count, .. } | Kind::Broadcast { count, .. } => count,
            Kind::Tuples { count, depth, .. } => count * depth,
            Kind::Elements { axes, .. } => axes.count(),
        }
    }
}

/// A scatter of known shapes and types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scatter {
    /// Where updates go.
    pub places: Places,
    /// How they are combined.
    pub reduction: Reduction,
    /// The type of data and updates.
    pub element: Element,
    /// The type of the indices.
    pub index_type: IndexType,
}

impl Element {
    /// The bytes of an element.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            Element::Boolean | Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }
}

impl Scatter {
    /// The bytes of scratch that [`Scatter::run`] needs.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        let width = self.element.width();
        let (sorted, adds_up) = match width {
            1 => self.ways::<1>(),
            2 => self.ways::<2>(),
            4 => self.ways::<4>(),
            _ => self.ways::<8>(),
        };
        // Elements may turn out to be rows when the indices are seen, and their bins may be finer or coarser.
        let units = self.units();
        let most = units.iter().map(|units| {
            let resolved = if units.count < RESOLVED { 0 } else { 4 * units.count };
            let tables = Tables::new(units, width).filter(|_| adds_up);
            let tables = tables.map_or(0, |tables| tables.count * units.rows * width);
            resolved.max(tables).max(Bins::new(units, width, sorted).scratch_len())
        });
        self.firsts_len() + most.max().unwrap_or(0)
    }

    /// The bytes of one index for each row that elements may turn out to be.
    fn firsts_len(&self) -> usize {
        match (self.places.0, self.units()) {
            (Kind::Elements { .. }, [_, rows]) if rows.inner > 1 => rows.count * index_width(self.index_type),
            _ => 0,
        }
    }

    /// An estimate of the time it takes on one thread, in nanoseconds. `in_place` tells that the output holds the data
    /// already.
    #[must_use]
    pub fn work_nanoseconds(&self, in_place: bool) -> u64 {
        let width = self.element.width();
        let copy = if in_place { 0 } else { stream::copy_nanoseconds(self.places.data_elements() * width) };
        let updates = self.places.update_elements();
        let per_update = match self.places.0 {
            Kind::Elements { .. } => 4 * updates as u64,
            _ => self.places.indices() as u64 * 4,
        };
        copy + nanoseconds_for_bytes(updates * width * 3) + per_update
    }

    /// Writes `output`: `data` with the updates. Without `data` the output holds the data already.
    ///
    /// # Errors
    /// A slice that does not fit, a reduction that the type does not have, or an index that addresses nothing
    /// (argument `indices`). Without `data` nothing is written then, with it the output holds anything.
    pub fn run(
        &self,
        data: Option<&[u8]>,
        indices: &[u8],
        updates: &[u8],
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let width = self.element.width();
        let bytes = self.places.data_elements() * width;
        if let Some(data) = data {
            check_exact("data", data.len(), bytes)?;
        }
        check_exact("output", output.len(), bytes)?;
        check_exact("updates", updates.len(), self.places.update_elements() * width)?;
        check_exact("indices", indices.len(), self.places.indices() * index_width(self.index_type))?;
        check_len("scratch", scratch.len(), self.scratch_len())?;
        match width {
            1 => self.run_width::<1>(data, indices, updates, output, scratch),
            2 => self.run_width::<2>(data, indices, updates, output, scratch),
            4 => self.run_width::<4>(data, indices, updates, output, scratch),
            _ => self.run_width::<8>(data, indices, updates, output, scratch),
        }
    }

    /// Whether the updates of a piece are sorted by place, and whether they may be added up in tables.
    fn ways<const N: usize>(&self) -> (bool, bool)
    where
        Width<N>: Leaves<N>,
    {
        let leaf = leaf::<N>(self.element, self.reduction.combine, self.reduction.use_init);
        leaf.map_or((false, false), |leaf| (leaf.sorted, leaf.neutral.is_some()))
    }

    /// The units that move: elements or rows, in the ways that the indices may turn out to ask for.
    fn units(&self) -> [Units; 2] {
        let whole = match self.places.0 {
            Kind::Slices { outer, size, inner, count, .. } | Kind::Broadcast { outer, size, inner, count } => {
                Units { rows: outer * size, inner, count: outer * count }
            }
            Kind::Tuples { rows, inner, count, .. } => Units { rows, inner, count },
            Kind::Elements { axes, data } => Units { rows: data, inner: 1, count: axes.count() },
        };
        let Kind::Elements { axes, data } = self.places.0 else { return [whole; 2] };
        match axes.inner {
            Some(inner) if inner > 1 && axes.is_blockwise => {
                [whole, Units { rows: data / inner, inner, count: axes.count() / inner }]
            }
            _ => [whole; 2],
        }
    }

    fn run_width<const N: usize>(
        &self,
        data: Option<&[u8]>,
        indices: &[u8],
        updates: &[u8],
        output: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), KernelError>
    where
        Width<N>: Leaves<N>,
    {
        let Reduction { combine, use_init } = self.reduction;
        let leaf = leaf::<N>(self.element, combine, use_init)
            .ok_or(KernelError::invalid("reduction", "the element type does not have it"))?;
        let job = Job::<N> {
            data: data.map(|data| data.as_chunks().0),
            updates: updates.as_chunks().0,
            leaf,
            use_init,
            units: self.units()[0],
        };
        let output = output.as_chunks_mut().0;
        match self.index_type {
            IndexType::I32 => self.run_indices::<N, 4>(job, indices.as_chunks().0, output, scratch),
            IndexType::I64 => self.run_indices::<N, 8>(job, indices.as_chunks().0, output, scratch),
        }
    }

    fn run_indices<const N: usize, const M: usize>(
        &self,
        mut job: Job<'_, N>,
        indices: &[[u8; M]],
        output: &mut [[u8; N]],
        scratch: &mut [u8],
    ) -> Result<(), KernelError>
    where
        Width<N>: Leaves<N>,
        Signed: IndexWord<M>,
    {
        match self.places.0 {
            Kind::Slices { outer, size, count, wraps, inner } => {
                let rows = Rows { indices, count, size: size as u32, wraps };
                if outer > 1 && self.reduction.combine == Combine::Replace {
                    check_all(&rows, count)?;
                    job.slices(&rows, [outer, size, inner, count], output);
                    return Ok(());
                }
                job.run(&Repeated { rows, count }, output, scratch)
            }
            Kind::Broadcast { size, count, .. } => {
                let rows = Rows { indices, count, size: size as u32, wraps: true };
                job.run(&Repeated { rows, count }, output, scratch)
            }
            Kind::Tuples { sizes, depth, .. } => job.run(&Tuples { indices, sizes: &sizes[..depth] }, output, scratch),
            Kind::Elements { axes, .. } => {
                let [_, rows] = self.units();
                let (firsts, scratch) = scratch.split_at_mut(self.firsts_len());
                if rows.inner > 1 && are_rows(indices, rows.inner, firsts.as_chunks_mut().0) {
                    job.units = rows;
                    let count = axes.updates / rows.inner;
                    let source = Rows { indices: firsts.as_chunks().0, count, size: axes.size, wraps: true };
                    return job.run(&source, output, scratch);
                }
                let source = Elements { indices, axes };
                let is_small = axes.block * N <= BLOCK_BYTES && axes.block < job.units.rows;
                if is_small && axes.is_blockwise && !job.leaf.sorted {
                    return job.resolving(&source, scratch, |source| job.blocks(source, &axes, output));
                }
                job.run(&source, output, scratch)
            }
        }
    }
}

/// The rows of one block, again for every block.
struct Repeated<'a, const M: usize> {
    rows: Rows<'a, M>,
    count: usize,
}

impl<const M: usize> Source for Repeated<'_, M>
where
    Signed: IndexWord<M>,
{
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        let (mut at, mut done, mut fit) = (start, 0, true);
        while done < places.len() {
            let (block, k) = (at / self.count, at % self.count);
            let run = (self.count - k).min(places.len() - done);
            let part = &mut places[done..done + run];
            fit &= self.rows.fill(k, part);
            for place in part {
                *place = (u32::from_ne_bytes(*place) + block as u32 * self.rows.size).to_ne_bytes();
            }
            (at, done) = (at + run, done + run);
        }
        fit
    }
}

/// How many sums at few places are divided into tables of the places.
#[derive(Debug, Clone, Copy)]
struct Tables {
    /// The tables.
    count: usize,
    /// The updates that go to each but the last one.
    updates: usize,
}

impl Tables {
    /// The tables for updates of elements of `width` bytes; `None` where one would do, or where they are too large.
    fn new(units: &Units, width: usize) -> Option<Tables> {
        let Units { rows, inner, count } = *units;
        let updates = TABLE_UPDATES.max(rows.saturating_mul(UPDATES_OF_PLACE)).max(count.div_ceil(MOST_TABLES));
        let tables = count.div_ceil(updates);
        (inner == 1 && tables > 1 && rows * width <= TABLE_BYTES).then_some(Tables { count: tables, updates })
    }
}

/// A piece of the output, on lines of the cache.
#[repr(align(64))]
struct Near([u8; PIECE_BYTES]);

/// What every way needs.
struct Job<'a, const N: usize> {
    data: Option<&'a [[u8; N]]>,
    updates: &'a [[u8; N]],
    leaf: Leaf<N>,
    use_init: bool,
    units: Units,
}

impl<const N: usize> Job<'_, N> {
    fn run(&self, source: &dyn Source, output: &mut [[u8; N]], scratch: &mut [u8]) -> Result<(), KernelError> {
        let Units { rows, inner, count } = self.units;
        let bins = Bins::new(&self.units, N, self.leaf.sorted);
        let is_empty = count == 0 || inner == 0;
        if let (Some(tables), Some(neutral), true) = (Tables::new(&self.units, N), self.leaf.neutral, rows > 0) {
            return self.by_tables(tables, neutral, source, output, scratch);
        }
        if !is_empty && !self.leaf.sorted && inner == 1 && count * N >= FEW_BYTES && rows * N > NEAR_BYTES {
            return self.elements_far_away(source, output, scratch);
        }
        if is_empty || !bins.pays_here() {
            return self.resolving(source, scratch, |source| {
                self.copy(output);
                is_empty || self.apply(source, 0..count, 0, output)
            });
        }
        if inner == 1 {
            return by_bins(&bins, source, self.data, output, scratch, &Values(self));
        }
        // Where most rows stay as they are, the copy is best made past the caches, and first.
        let copies_first = self.streams() && 4 * count <= self.units.rows;
        if copies_first {
            self.copy(output);
        }
        by_bins(&bins, source, self.data.filter(|_| !copies_first), output, scratch, &Sources(self))
    }

    /// Calls `then` with the places of the updates. What it writes in place it cannot take back, therefore all indices
    /// are checked first in that case, and their places are kept in scratch memory where they are many. `then` tells
    /// whether all indices fit.
    fn resolving(
        &self,
        source: &dyn Source,
        scratch: &mut [u8],
        then: impl FnOnce(&dyn Source) -> bool,
    ) -> Result<(), KernelError> {
        let Units { rows, inner, count } = self.units;
        // An index that addresses nothing is taken for row 0 of its block, which is there unless the data are empty.
        if self.data.is_some() && rows * inner > 0 {
            return if then(source) { Ok(()) } else { Err(out_of_range()) };
        }
        if count < RESOLVED {
            check_all(source, count)?;
            then(source);
            return Ok(());
        }
        then(&Resolved(resolve_all(source, &mut scratch.as_chunks_mut().0[..count])?.0));
        Ok(())
    }

    /// Whether the copy of the data is too large to stay in the caches.
    fn streams(&self) -> bool {
        self.data.is_some_and(|data| data.len() * N >= STREAM_BYTES)
    }

    /// Copies all data.
    fn copy(&self, output: &mut [[u8; N]]) {
        if let Some(data) = self.data {
            stream::copy(data.as_flattened(), output.as_flattened_mut());
        }
    }

    /// The same on this thread for a part of the output, for updates everywhere: what is left of the copy in the caches is there
    /// for them, if the last of them has room for much of the output, which has at most so many bytes then.
    fn copy_near(&self, part: Range<usize>, most_cached: usize, output: &mut [[u8; N]]) {
        match self.data {
            Some(data) if data.len() * N > most_cached => {
                stream::past_caches(data[part].as_flattened(), output.as_flattened_mut());
            }
            Some(data) => output.copy_from_slice(&data[part]),
            None => {}
        }
    }

    /// Copies a part of the data, which begins at a block, to its place `target` in the output, and lets `update` change it: all
    /// of it at once, or, where the output does not stay in the caches, some blocks after the other before they are stored.
    fn pieces(
        &self,
        part: Range<usize>,
        block: usize,
        target: &mut [[u8; N]],
        mut update: impl FnMut(Range<usize>, &mut [[u8; N]]),
    ) {
        let Some(data) = self.data else { return update(part, target) };
        let data = &data[part.clone()];
        if !self.streams() {
            target.copy_from_slice(data);
            return update(part, target);
        }
        if block * N > PIECE_BYTES {
            stream::past_caches(data.as_flattened(), target.as_flattened_mut());
            return update(part, target);
        }
        let mut near = Near([0; PIECE_BYTES]);
        let near = near.0.as_chunks_mut().0;
        let length = near.len() / block * block;
        let past_caches = stream::PastCaches::begin();
        for (index, (data, target)) in data.chunks(length).zip(target.chunks_mut(length)).enumerate() {
            let (start, near) = (part.start + index * length, &mut near[..data.len()]);
            near.copy_from_slice(data);
            update(start..start + near.len(), near);
            past_caches.copy_while(near.as_flattened(), data.as_ptr().cast(), target.as_flattened_mut());
        }
    }

    /// Applies updates, one after the other, to the piece of the output that begins at row `base`, and tells whether
    /// all their indices fit.
    fn apply(&self, source: &dyn Source, updates: Range<usize>, base: u32, target: &mut [[u8; N]]) -> bool {
        if self.units.inner == 1 {
            return match target.len() * N > NEAR_BYTES {
                true => self.apply_tiles::<FAR_TILE>(source, updates, base, target, true),
                false => self.apply_tiles::<TILE>(source, updates, base, target, false),
            };
        }
        let (mut places, mut sources, mut fit) = ([[0; 4]; TILE], [[0; 4]; TILE], true);
        for tile in tiles(updates, TILE) {
            let (places, sources) = (&mut places[..tile.len()], &mut sources[..tile.len()]);
            fit &= source.fill(tile.start, places);
            for (source, update) in sources.iter_mut().zip(tile) {
                *source = (update as u32).to_ne_bytes();
            }
            self.apply_rows(target, base, places, sources);
        }
        fit
    }

    /// The same for single elements, so many of which are looked at together.
    fn apply_tiles<const LENGTH: usize>(
        &self,
        source: &dyn Source,
        updates: Range<usize>,
        base: u32,
        target: &mut [[u8; N]],
        is_far: bool,
    ) -> bool {
        let (mut places, mut fit) = ([[0; 4]; LENGTH], true);
        for tile in tiles(updates, LENGTH) {
            let places = &mut places[..tile.len()];
            fit &= source.fill(tile.start, places);
            let (words, bytes) = source.words(tile.end);
            let values = self.updates.as_ptr().wrapping_add(tile.end).cast();
            let far = is_far.then(|| Following::new([words, values], [bytes, N]));
            self.apply_elements(target, base, places, &self.updates[tile], far);
        }
        fit
    }

    fn apply_elements(
        &self,
        target: &mut [[u8; N]],
        base: u32,
        places: &[Number32],
        values: &[[u8; N]],
        far: Option<Following>,
    ) {
        (self.leaf.points)(Points { target, base, places, values, far }, self.use_init);
    }

    /// Sums at few places: those of so many updates at a time are taken in a table of their own, and the tables are added to
    /// the data.
    fn by_tables(
        &self,
        tables: Tables,
        neutral: [u8; N],
        source: &dyn Source,
        output: &mut [[u8; N]],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let Units { rows, count, .. } = self.units;
        let sums = &mut scratch.as_chunks_mut().0[..tables.count * rows];
        let misfit = AtomicBool::new(false);
        parallel_chunks_mut(sums, rows, self.elements_nanoseconds(), |table, sums| {
            sums.fill(neutral);
            let updates = table * tables.updates..count.min((table + 1) * tables.updates);
            if !self.apply(source, updates, 0, sums) {
                misfit.store(true, Ordering::Relaxed);
            }
        });
        if misfit.into_inner() {
            return Err(out_of_range());
        }
        self.copy(output);
        let mut sources = [[0; 4]; MOST_TABLES];
        for (source, table) in sources.iter_mut().zip(0u32..) {
            *source = table.to_ne_bytes();
        }
        let (places, sources) = (&[[0; 4]; MOST_TABLES][..tables.count], &sources[..tables.count]);
        let rows = RowUpdates { target: output, base: 0, inner: rows, places, sources, updates: sums };
        (self.leaf.rows)(rows, self.use_init);
        Ok(())
    }

    /// Single elements of an output that no near cache holds: where their places ascend, they are applied to one piece of it
    /// after the other; otherwise as they come, by each thread to its part.
    fn elements_far_away(
        &self,
        source: &dyn Source,
        output: &mut [[u8; N]],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (count, sharers) = (self.units.count, sharers().min(MOST_PARTS));
        let parts = if sharers < FEWEST_SHARERS && output.len() * N < SHARED_BYTES { 1 } else { sharers };
        // One thread need not keep the places of updates whose first ones are out of order.
        if parts == 1 && !begins_ascending(source, count) {
            return self.resolving(source, scratch, |source| {
                self.copy_near(0..output.len(), CACHED_BY_ONE, output);
                self.apply(source, 0..count, 0, output)
            });
        }
        let (places, ascend) = resolve_all(source, &mut scratch.as_chunks_mut().0[..count])?;
        if ascend {
            self.by_pieces(places, output);
        } else if parts > 1 {
            self.by_parts(places, parts, output);
        } else {
            self.copy_near(0..output.len(), CACHED_BY_ONE, output);
            self.apply(&Resolved(places), 0..count, 0, output);
        }
        Ok(())
    }

    /// What copying the data and updating single elements takes.
    fn elements_nanoseconds(&self) -> u64 {
        let copied = if self.data.is_some() { self.units.rows } else { 0 };
        nanoseconds_for_bytes(2 * copied * N) + 3 * self.units.count as u64
    }

    /// Copies the data and applies single elements in the order of the output, piece by piece, each while it is in the
    /// cache.
    fn by_pieces(&self, places: &[Number32], output: &mut [[u8; N]]) {
        let shared = SharedMut::new(output);
        parallel_for(shared.len(), (BIN_BYTES / N).max(1), self.elements_nanoseconds(), |range| {
            // SAFETY: parallel_for's ranges are disjoint and lie in the output.
            let target = unsafe { shared.slice(range.clone()) };
            let place = |update: &Number32| u32::from_ne_bytes(*update) as usize;
            let mut next = places.partition_point(|update| place(update) < range.start);
            self.pieces(range, 1, target, |piece, target| {
                let count = places[next..].iter().take_while(|update| place(update) < piece.end).count();
                let updates = next..next + count;
                let values = &self.updates[updates.clone()];
                self.apply_elements(target, piece.start as u32, &places[updates], values, None);
                next += count;
            });
        });
    }

    /// Copies the data and applies single elements, by so many parts of the output: each takes from all updates those that
    /// go to its rows.
    fn by_parts(&self, places: &[Number32], parts: usize, output: &mut [[u8; N]]) {
        let rows = output.len().div_ceil(parts).max(1);
        let shared = SharedMut::new(output);
        parallel_for(shared.len(), rows, self.elements_nanoseconds(), |range| {
            // SAFETY: parallel_for's ranges are disjoint and lie in the output.
            let target = unsafe { shared.slice(range.clone()) };
            self.copy_near(range.clone(), CACHED_BYTES, target);
            let (base, length) = (range.start as u32, range.len() as u32);
            let (mut kept, mut values, mut count) = ([[0; 4]; FAR_TILE], [[0; N]; FAR_TILE], 0);
            for (places, updates) in places.chunks(TILE).zip(self.updates.chunks(TILE)) {
                let (kept_now, values_now) = (kept[count..].first_chunk_mut(), values[count..].first_chunk_mut());
                if let (Some(kept), Some(values)) = (kept_now, values_now) {
                    count += select(places, updates, base, length, kept, values);
                }
                if count + TILE > FAR_TILE {
                    self.apply_elements(target, base, &kept[..count], &values[..count], Some(Following::NONE));
                    count = 0;
                }
            }
            self.apply_elements(target, base, &kept[..count], &values[..count], Some(Following::NONE));
        });
    }

    fn apply_rows(&self, target: &mut [[u8; N]], base: u32, places: &[Number32], sources: &[Number32]) {
        let rows = RowUpdates { target, base, inner: self.units.inner, places, sources, updates: self.updates };
        (self.leaf.rows)(rows, self.use_init);
    }

    /// Slices along an axis that is not the first one: every block of the data gets a block of updates.
    fn slices<const M: usize>(
        &self,
        source: &Rows<'_, M>,
        [outer, size, inner, count]: [usize; 4],
        output: &mut [[u8; N]],
    ) where
        Signed: IndexWord<M>,
    {
        let (block, updates) = (size * inner, count * inner);
        let moved = if self.data.is_some() { 2 * output.len() } else { 2 * updates * outer };
        let grain = (BIN_BYTES / N).div_ceil(block.max(1));
        let streams = self.streams() && 4 * count <= size;
        let shared = SharedMut::new(output);
        parallel_for(outer, grain, nanoseconds_for_bytes(moved * N), |blocks| {
            let range = blocks.start * block..blocks.end * block;
            // SAFETY: parallel_for's ranges of blocks are disjoint, and all blocks lie in the output.
            let target = unsafe { shared.slice(range.clone()) };
            match self.data {
                Some(data) if streams => stream::past_caches(data[range].as_flattened(), target.as_flattened_mut()),
                Some(data) => target.copy_from_slice(&data[range]),
                None => {}
            }
            let mut places = [[0; 4]; TILE];
            for (at, target) in blocks.zip(target.chunks_exact_mut(block.max(1))) {
                let updates = &self.updates[at * updates..(at + 1) * updates];
                for start in (0..count).step_by(TILE) {
                    let places = &mut places[..TILE.min(count - start)];
                    source.fill(start, places);
                    for (k, place) in places.iter().enumerate() {
                        let to = u32::from_ne_bytes(*place) as usize * inner;
                        target[to..to + inner].copy_from_slice(&updates[(start + k) * inner..(start + k + 1) * inner]);
                    }
                }
            }
        });
    }

    /// Elements whose blocks of updates belong to blocks of the data in the same order. Tells whether all indices fit.
    fn blocks(&self, source: &dyn Source, axes: &Axes, output: &mut [[u8; N]]) -> bool {
        let block = axes.block.max(1);
        let moved = nanoseconds_for_bytes(2 * N * output.len()) + 2 * self.units.count as u64;
        let grain = (if self.streams() { STREAMED_BYTES } else { BIN_BYTES } / N).div_ceil(block);
        let misfit = AtomicBool::new(false);
        let shared = SharedMut::new(output);
        parallel_for(shared.len() / block, grain, moved, |blocks| {
            let range = blocks.start * block..blocks.end * block;
            // SAFETY: parallel_for's ranges of blocks are disjoint, and all blocks lie in the output.
            let target = unsafe { shared.slice(range.clone()) };
            self.pieces(range, block, target, |piece, target| {
                let updates = piece.start / block * axes.updates..piece.end / block * axes.updates;
                if !self.apply(source, updates, piece.start as u32, target) {
                    misfit.store(true, Ordering::Relaxed);
                }
            });
        });
        !misfit.into_inner()
    }
}

/// Sorts the elements themselves.
struct Values<'a, 'b, const N: usize>(&'a Job<'b, N>);

impl<const N: usize> Piece<N, N> for Values<'_, '_, N> {
    fn value(&self, update: usize) -> [u8; N] {
        self.0.updates[update]
    }

    fn apply(&self, target: &mut [[u8; N]], base: u32, places: &[Number32], values: &[[u8; N]]) {
        self.0.apply_elements(target, base, places, values, None);
    }

    fn apply_range(&self, target: &mut [[u8; N]], base: u32, source: &Resolved<'_>, updates: Range<usize>) {
        self.0.apply(source, updates, base, target);
    }
}

/// Sorts the numbers of rows.
struct Sources<'a, 'b, const N: usize>(&'a Job<'b, N>);

impl<const N: usize> Piece<N, 4> for Sources<'_, '_, N> {
    fn value(&self, update: usize) -> Number32 {
        (update as u32).to_ne_bytes()
    }

    fn apply(&self, target: &mut [[u8; N]], base: u32, places: &[Number32], sources: &[Number32]) {
        self.0.apply_rows(target, base, places, sources);
    }

    fn apply_range(&self, target: &mut [[u8; N]], base: u32, source: &Resolved<'_>, updates: Range<usize>) {
        self.0.apply(source, updates, base, target);
    }
}

/// Keeps the updates that go to so many rows from one on, and tells their number.
fn select<const N: usize>(
    places: &[Number32],
    updates: &[[u8; N]],
    base: u32,
    rows: u32,
    kept: &mut [Number32; TILE],
    values: &mut [[u8; N]; TILE],
) -> usize {
    let mut count = 0;
    let (kept, values) = (kept.as_mut_ptr(), values.as_mut_ptr());
    for (place, update) in places.iter().zip(updates).take(TILE) {
        // SAFETY: fewer updates were kept before than there is room for.
        unsafe {
            *kept.add(count) = *place;
            *values.add(count) = *update;
        }
        // Without a branch, which random places would mispredict.
        count += usize::from(u32::from_ne_bytes(*place).wrapping_sub(base) < rows);
    }
    count
}

/// Finds the places of all updates, and tells whether they ascend.
fn resolve_all<'a>(source: &dyn Source, places: &'a mut [Number32]) -> Result<(&'a [Number32], bool), KernelError> {
    let (misfit, descends, count) = (AtomicBool::new(false), AtomicBool::new(false), places.len());
    parallel_chunks_mut(places, CHECKED, 2 * count as u64, |chunk, places| {
        if !source.fill(chunk * CHECKED, places) {
            misfit.store(true, Ordering::Relaxed);
        }
        if !descends.load(Ordering::Relaxed) && !ascend(places) {
            descends.store(true, Ordering::Relaxed);
        }
    });
    if misfit.into_inner() {
        return Err(out_of_range());
    }
    let mut borders = (CHECKED..count).step_by(CHECKED).map(|start| [places[start - 1], places[start]]);
    let all_ascend = !descends.into_inner() && borders.all(|border| ascend(&border));
    Ok((places, all_ascend))
}

/// The parts of a range that have so many elements, but for the last one.
fn tiles(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(length).map(move |start| start..end.min(start + length))
}

/// Whether the places of the first of so many updates ascend.
fn begins_ascending(source: &dyn Source, count: usize) -> bool {
    let mut places = [[0; 4]; TILE];
    let places = &mut places[..TILE.min(count)];
    source.fill(0, places);
    ascend(places)
}

/// Whether no place lies before the one in front of it.
fn ascend(places: &[Number32]) -> bool {
    // Without an end before the end, so that the loop can be vectorised.
    places.windows(2).fold(true, |ascend, pair| ascend & (u32::from_ne_bytes(pair[0]) <= u32::from_ne_bytes(pair[1])))
}

/// Checks the indices of all updates.
fn check_all(source: &dyn Source, count: usize) -> Result<(), KernelError> {
    let misfit = AtomicBool::new(false);
    parallel_for(count, CHECKED, 2 * count as u64, |range| {
        let mut places = [[0; 4]; TILE];
        for start in range.clone().step_by(TILE) {
            let count = TILE.min(range.end - start);
            if !source.fill(start, &mut places[..count]) {
                misfit.store(true, Ordering::Relaxed);
            }
        }
    });
    if misfit.into_inner() { Err(out_of_range()) } else { Ok(()) }
}

/// Whether all indices of each row of `inner` are equal; if so, `firsts` gets that of each row.
fn are_rows<const M: usize>(indices: &[[u8; M]], inner: usize, firsts: &mut [[u8; M]]) -> bool
where
    Signed: IndexWord<M>,
{
    let differs = AtomicBool::new(false);
    let firsts = SharedMut::new(firsts);
    parallel_for(firsts.len(), CHECKED.div_ceil(inner), (indices.len() * M / 10) as u64, |range| {
        if differs.load(Ordering::Relaxed) {
            return;
        }
        let indices = &indices[range.start * inner..range.end * inner];
        // SAFETY: parallel_for's ranges are disjoint and lie in the slice.
        let firsts = unsafe { firsts.slice(range) };
        if !dispatch(detect(), AreRows { indices, inner, firsts }) {
            differs.store(true, Ordering::Relaxed);
        }
    });
    !differs.into_inner()
}

fn out_of_range() -> KernelError {
    KernelError::invalid("indices", "an index addresses no element")
}
