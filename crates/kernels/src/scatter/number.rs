//! The arithmetic of scatter: how elements lie in memory, and what meets at one place.
//!
//! Elements are arrays of bytes, so that slices need no alignment. A [`Leaf`] is the loop that applies a list of updates
//! to a piece of the output; there is one for each element type and reduction.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::{Combine, Element};
use crate::isa::detect;
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::{LINE_BYTES, prefetch_far, prefetch_near, prefetch_span};

/// A u32 in scratch memory.
pub(super) type Number32 = [u8; 4];

/// Accumulators of one tile of a row.
const TILE: usize = 128;

/// The rows that are fetched ahead.
const AHEAD: usize = 8;

/// The bytes of such a row that are asked for; what follows them the processor fetches by itself.
const BYTES_AHEAD: usize = 256;

/// The first updates of a tile whose places tell whether neighbours meet.
const SAMPLED: usize = 16;

/// The updates of elements far away after which the next lines of what follows them are asked for.
const FOLLOWED: usize = 16;

/// So many times [`FOLLOWED`] elements are fetched ahead, into the second cache.
const BLOCKS_AHEAD: usize = 8;

/// Updates for a piece of the output that begins at row `base`: update `i` goes to row `places[i]`.
pub(super) struct Points<'a, const N: usize> {
    /// The piece.
    pub target: &'a mut [[u8; N]],
    /// The row at which the piece begins.
    pub base: u32,
    /// Rows.
    pub places: &'a [Number32],
    /// One value for each update.
    pub values: &'a [[u8; N]],
    /// What is read after these, if the piece is so large that its elements are fetched ahead.
    pub far: Option<Following>,
}

/// Where updates and their indices go on behind some of them. Processors fetch ahead what is read in order, but hardly while they
/// wait for elements everywhere; therefore it is asked for at the same time. Where elements are near, that would only take time.
#[derive(Clone, Copy)]
pub(super) struct Following {
    /// The first bytes of each kind.
    from: [*const u8; 2],
    /// The bytes of each kind that [`FOLLOWED`] updates read.
    bytes: [usize; 2],
}

impl Following {
    /// Nothing is asked for.
    pub const NONE: Following = Following { from: [std::ptr::null(); 2], bytes: [0; 2] };

    /// What begins at addresses, which need not be there, and has so many bytes for each update.
    pub fn new(from: [*const u8; 2], bytes: [usize; 2]) -> Self {
        Self { from, bytes: bytes.map(|bytes| bytes * FOLLOWED) }
    }

    /// Asks for what the `block`-th [`FOLLOWED`] updates read.
    #[inline(always)]
    fn ask(&self, block: usize) {
        for (from, bytes) in self.from.iter().zip(self.bytes) {
            let first = from.wrapping_add(block * bytes);
            for line in (0..bytes).step_by(LINE_BYTES) {
                prefetch_near(first.wrapping_add(line));
            }
        }
    }
}

/// Updates of whole rows for a piece of the output that begins at row `base`.
pub(super) struct Rows<'a, const N: usize> {
    /// The piece.
    pub target: &'a mut [[u8; N]],
    /// The row at which the piece begins.
    pub base: u32,
    /// The elements of a row.
    pub inner: usize,
    /// Rows of the output.
    pub places: &'a [Number32],
    /// Rows of the updates.
    pub sources: &'a [Number32],
    /// All updates.
    pub updates: &'a [[u8; N]],
}

/// How updates are applied.
#[derive(Clone, Copy)]
pub(super) struct Leaf<const N: usize> {
    /// Applies single elements.
    pub points: fn(Points<'_, N>, bool),
    /// Applies rows.
    pub rows: fn(Rows<'_, N>, bool),
    /// Whether the updates must come sorted by place (those of one place in the order of the updates), because
    /// all that meet at a place are combined before the result is stored.
    pub sorted: bool,
    /// The value that leaves every update as it is, where updates may be combined among themselves before they meet what is
    /// there.
    pub neutral: Option<[u8; N]>,
}

/// The leaf for elements of `N` bytes; `None` where there is none.
pub(super) fn leaf<const N: usize>(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<N>>
where
    Width<N>: Leaves<N>,
{
    if combine == Combine::Replace {
        return Some(Leaf { points: replace_points::<N>, rows: replace_rows::<N>, sorted: false, neutral: None });
    }
    <Width<N> as Leaves<N>>::of(element, combine, use_init)
}

/// A number of bytes.
pub(super) struct Width<const N: usize>;

/// The reductions of elements of `N` bytes.
pub(super) trait Leaves<const N: usize> {
    /// The leaf of an element type.
    fn of(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<N>>;
}

impl Leaves<1> for Width<1> {
    fn of(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<1>> {
        match element {
            Element::Boolean if combine == Combine::Mean => None,
            Element::Boolean => Some(of_type::<1, Plain<bool>>(combine, use_init)),
            Element::U8 => Some(of_type::<1, Plain<u8>>(combine, use_init)),
            Element::I8 => Some(of_type::<1, Plain<i8>>(combine, use_init)),
            _ => None,
        }
    }
}

impl Leaves<2> for Width<2> {
    fn of(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<2>> {
        match element {
            Element::U16 => Some(of_type::<2, Plain<u16>>(combine, use_init)),
            Element::I16 => Some(of_type::<2, Plain<i16>>(combine, use_init)),
            Element::F16 => Some(of_type::<2, Wide<f16>>(combine, use_init)),
            Element::Bf16 => Some(of_type::<2, Wide<bf16>>(combine, use_init)),
            _ => None,
        }
    }
}

impl Leaves<4> for Width<4> {
    fn of(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<4>> {
        match element {
            Element::U32 => Some(of_type::<4, Plain<u32>>(combine, use_init)),
            Element::I32 => Some(of_type::<4, Plain<i32>>(combine, use_init)),
            Element::F32 => Some(of_type::<4, Plain<f32>>(combine, use_init)),
            _ => None,
        }
    }
}

impl Leaves<8> for Width<8> {
    fn of(element: Element, combine: Combine, use_init: bool) -> Option<Leaf<8>> {
        match element {
            Element::U64 => Some(of_type::<8, Plain<u64>>(combine, use_init)),
            Element::I64 => Some(of_type::<8, Plain<i64>>(combine, use_init)),
            Element::F64 => Some(of_type::<8, Plain<f64>>(combine, use_init)),
            _ => None,
        }
    }
}

fn of_type<const N: usize, S: Stored<N>>(combine: Combine, use_init: bool) -> Leaf<N> {
    match combine {
        Combine::Sum | Combine::Mean | Combine::Replace => of_operation::<N, S, Sum>(combine, use_init),
        Combine::Sub => of_operation::<N, S, Sub>(combine, use_init),
        Combine::Prod => of_operation::<N, S, Prod>(combine, use_init),
        Combine::Min => of_operation::<N, S, Min>(combine, use_init),
        Combine::Max => of_operation::<N, S, Max>(combine, use_init),
    }
}

fn of_operation<const N: usize, S: Stored<N>, F: Function>(combine: Combine, use_init: bool) -> Leaf<N> {
    if combine == Combine::Mean {
        let (points, rows) = (fold_points::<N, S, F, true>, fold_rows::<N, S, F, true>);
        return Leaf { points, rows, sorted: true, neutral: None };
    }
    // Smaller and larger values are never rounded, so that they may be stored between two updates.
    let rounds = S::ROUNDS && !matches!(combine, Combine::Min | Combine::Max);
    if !use_init || rounds {
        let (points, rows) = (fold_points::<N, S, F, false>, fold_rows::<N, S, F, false>);
        return Leaf { points, rows, sorted: true, neutral: None };
    }
    let neutral = (combine == Combine::Sum).then(|| S::store(S::Value::ZERO));
    Leaf { points: apply_points::<N, S, F>, rows: apply_rows::<N, S, F>, sorted: false, neutral }
}

/// An element as it lies in memory, and the accumulator in which it is computed.
trait Stored<const N: usize>: 'static {
    /// The accumulator.
    type Value: Arithmetic;
    /// Whether storing an accumulator rounds it.
    const ROUNDS: bool = false;

    fn load(bytes: [u8; N]) -> Self::Value;

    fn store(value: Self::Value) -> [u8; N];

    #[inline(always)]
    fn load_all<V: Simd>(_: V, bytes: &[[u8; N]], values: &mut [Self::Value]) {
        for (value, bytes) in values.iter_mut().zip(bytes) {
            *value = Self::load(*bytes);
        }
    }

    #[inline(always)]
    fn store_all<V: Simd>(_: V, values: &[Self::Value], bytes: &mut [[u8; N]]) {
        for (value, bytes) in values.iter().zip(bytes) {
            *bytes = Self::store(*value);
        }
    }
}

/// What can be added, multiplied and compared.
trait Arithmetic: Copy + Default + 'static {
    /// What changes no other value when it is added; of floats the negative zero, as the other one changes that.
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The smaller one, the first if they are equal, NaN if either is.
    fn smaller(self, other: Self) -> Self;
    /// The larger one, the first if they are equal, NaN if either is.
    fn larger(self, other: Self) -> Self;
    /// The mean of `count` values whose sum this is; integers are rounded down.
    fn mean(self, count: u64) -> Self;
}

/// What an update does to the value that is there.
trait Function: 'static {
    fn combine<A: Arithmetic>(value: A, update: A) -> A;
}

struct Sum;
struct Sub;
struct Prod;
struct Min;
struct Max;

impl Function for Sum {
    #[inline(always)]
    fn combine<A: Arithmetic>(value: A, update: A) -> A {
        value.plus(update)
    }
}

impl Function for Sub {
    #[inline(always)]
    fn combine<A: Arithmetic>(value: A, update: A) -> A {
        value.minus(update)
    }
}

impl Function for Prod {
    #[inline(always)]
    fn combine<A: Arithmetic>(value: A, update: A) -> A {
        value.times(update)
    }
}

impl Function for Min {
    #[inline(always)]
    fn combine<A: Arithmetic>(value: A, update: A) -> A {
        value.smaller(update)
    }
}

impl Function for Max {
    #[inline(always)]
    fn combine<A: Arithmetic>(value: A, update: A) -> A {
        value.larger(update)
    }
}

/// Elements that are computed as they are.
struct Plain<T>(PhantomData<T>);

/// Halves, computed in f32 and rounded once.
struct Wide<T>(PhantomData<T>);

macro_rules! integers {
    ($($rust:ty),*) => {
        $(impl Arithmetic for $rust {
            const ZERO: Self = 0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { self.min(other) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { self.max(other) }
            fn mean(self, count: u64) -> Self {
                i128::from(self).div_euclid(i128::from(count.max(1))) as $rust
            }
        }

        impl Stored<{ size_of::<$rust>() }> for Plain<$rust> {
            type Value = $rust;
            #[inline(always)]
            fn load(bytes: [u8; size_of::<$rust>()]) -> $rust { <$rust>::from_le_bytes(bytes) }
            #[inline(always)]
            fn store(value: $rust) -> [u8; size_of::<$rust>()] { value.to_le_bytes() }
        })*
    };
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($rust:ty),*) => {
        $(impl Arithmetic for $rust {
            const ZERO: Self = -0.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { if self.is_nan() || self <= other { self } else { other } }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { if self.is_nan() || self >= other { self } else { other } }
            #[inline(always)]
            fn mean(self, count: u64) -> Self { self / count as $rust }
        }

        impl Stored<{ size_of::<$rust>() }> for Plain<$rust> {
            type Value = $rust;
            #[inline(always)]
            fn load(bytes: [u8; size_of::<$rust>()]) -> $rust { <$rust>::from_le_bytes(bytes) }
            #[inline(always)]
            fn store(value: $rust) -> [u8; size_of::<$rust>()] { value.to_le_bytes() }
        })*
    };
}
floats!(f32, f64);

impl Arithmetic for bool {
    const ZERO: Self = false;
    fn plus(self, other: Self) -> Self {
        self | other
    }
    fn minus(self, other: Self) -> Self {
        self ^ other
    }
    fn times(self, other: Self) -> Self {
        self & other
    }
    fn smaller(self, other: Self) -> Self {
        self & other
    }
    fn larger(self, other: Self) -> Self {
        self | other
    }
    fn mean(self, _count: u64) -> Self {
        self
    }
}

impl Stored<1> for Plain<bool> {
    type Value = bool;
    #[inline(always)]
    fn load(bytes: [u8; 1]) -> bool {
        bytes != [0]
    }
    #[inline(always)]
    fn store(value: bool) -> [u8; 1] {
        [u8::from(value)]
    }
}

impl Stored<2> for Wide<f16> {
    type Value = f32;
    const ROUNDS: bool = true;

    #[inline(always)]
    fn load(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32()
    }

    #[inline(always)]
    fn store(value: f32) -> [u8; 2] {
        f16::from_f32(value).to_le_bytes()
    }

    #[inline(always)]
    fn load_all<V: Simd>(simd: V, bytes: &[[u8; 2]], values: &mut [f32]) {
        let count = bytes.len().min(values.len());
        let whole = count / V::LANES * V::LANES;
        for start in (0..whole).step_by(V::LANES) {
            // SAFETY: `start + LANES` is at most the length of both slices.
            unsafe {
                let value = simd.load_f16(bytes.as_ptr().add(start).cast());
                simd.store(values.as_mut_ptr().add(start), value);
            }
        }
        for (value, bytes) in values[whole..count].iter_mut().zip(&bytes[whole..]) {
            *value = Self::load(*bytes);
        }
    }

    #[inline(always)]
    fn store_all<V: Simd>(simd: V, values: &[f32], bytes: &mut [[u8; 2]]) {
        let count = bytes.len().min(values.len());
        let whole = count / V::LANES * V::LANES;
        for start in (0..whole).step_by(V::LANES) {
            // SAFETY: `start + LANES` is at most the length of both slices.
            unsafe {
                let value = simd.load(values.as_ptr().add(start));
                simd.store_f16(bytes.as_mut_ptr().add(start).cast(), value);
            }
        }
        for (value, bytes) in values[whole..count].iter().zip(&mut bytes[whole..]) {
            *bytes = Self::store(*value);
        }
    }
}

impl Stored<2> for Wide<bf16> {
    type Value = f32;
    const ROUNDS: bool = true;

    #[inline(always)]
    fn load(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }

    // Without branches, so that loops over it can be vectorised.
    #[inline(always)]
    fn store(value: f32) -> [u8; 2] {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        let kept = if value.is_nan() { bits | 0x40_0000 } else { rounded };
        ((kept >> 16) as u16).to_le_bytes()
    }
}

fn replace_points<const N: usize>(points: Points<'_, N>, _use_init: bool) {
    for_each_cell(points, |cell, value| *cell = value);
}

/// Calls `body` with the cell of each update and its value, in the order of the updates.
#[inline(always)]
fn for_each_cell<const N: usize>(points: Points<'_, N>, mut body: impl FnMut(&mut [u8; N], [u8; N])) {
    let Points { target, base, places, values, far } = points;
    let row = |place: &Number32| (u32::from_ne_bytes(*place) - base) as usize;
    let ask = |target: &[[u8; N]], place: &Number32| prefetch_far(target.as_ptr().wrapping_add(row(place)));
    let (mut places, mut values) = (places, values);
    if let Some(following) = far {
        let (blocks, values_of_blocks);
        ((blocks, places), (values_of_blocks, values)) =
            (places.as_chunks::<FOLLOWED>(), values.as_chunks::<FOLLOWED>());
        for place in blocks.iter().take(BLOCKS_AHEAD).flatten().chain(places) {
            ask(target, place);
        }
        for (number, (block, values)) in blocks.iter().zip(values_of_blocks).enumerate() {
            following.ask(number);
            let ahead = blocks.get(number + BLOCKS_AHEAD);
            for (at, (place, value)) in block.iter().zip(values).enumerate() {
                if let Some(ahead) = ahead {
                    ask(target, &ahead[at]);
                }
                body(&mut target[row(place)], *value);
            }
        }
    }
    for (place, value) in places.iter().zip(values) {
        body(&mut target[row(place)], *value);
    }
}

fn replace_rows<const N: usize>(rows: Rows<'_, N>, _use_init: bool) {
    let inner = rows.inner;
    for (at, (place, source)) in rows.places.iter().zip(rows.sources).enumerate() {
        if let (Some(place), Some(source)) = (rows.places.get(at + AHEAD), rows.sources.get(at + AHEAD)) {
            fetch_row(rows.target, (u32::from_ne_bytes(*place) - rows.base) as usize, inner);
            fetch_row(rows.updates, u32::from_ne_bytes(*source) as usize, inner);
        }
        let to = (u32::from_ne_bytes(*place) - rows.base) as usize * inner;
        let from = u32::from_ne_bytes(*source) as usize * inner;
        rows.target[to..to + inner].copy_from_slice(&rows.updates[from..from + inner]);
    }
}

fn apply_points<const N: usize, S: Stored<N>, F: Function>(points: Points<'_, N>, _use_init: bool) {
    let equal = points.places.windows(2).take(SAMPLED).filter(|pair| pair[0] == pair[1]).count();
    if 2 * equal > SAMPLED {
        return apply_runs::<N, S, F>(points);
    }
    for_each_cell(points, |cell, value| *cell = S::store(F::combine(S::load(*cell), S::load(value))));
}

/// The same where neighbouring updates meet at one place, whose value does not pass through memory between them.
fn apply_runs<const N: usize, S: Stored<N>, F: Function>(points: Points<'_, N>) {
    let mut start = 0;
    while start < points.places.len() {
        let end = run_end(points.places, start);
        let cell = &mut points.target[(u32::from_ne_bytes(points.places[start]) - points.base) as usize];
        let sum = |sum, update: &[u8; N]| F::combine(sum, S::load(*update));
        *cell = S::store(points.values[start..end].iter().fold(S::load(*cell), sum));
        start = end;
    }
}

fn apply_rows<const N: usize, S: Stored<N>, F: Function>(rows: Rows<'_, N>, _use_init: bool) {
    dispatch(detect(), ApplyRows::<N, S, F>(rows, PhantomData));
}

struct ApplyRows<'a, const N: usize, S, F>(Rows<'a, N>, PhantomData<(S, F)>);

impl<const N: usize, S: Stored<N>, F: Function> Kernel for ApplyRows<'_, N, S, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _: V) {
        let Rows { target, base, inner, places, sources, updates } = self.0;
        for (at, (place, source)) in places.iter().zip(sources).enumerate() {
            if let (Some(place), Some(source)) = (places.get(at + AHEAD), sources.get(at + AHEAD)) {
                fetch_row(target, (u32::from_ne_bytes(*place) - base) as usize, inner);
                fetch_row(updates, u32::from_ne_bytes(*source) as usize, inner);
            }
            let to = (u32::from_ne_bytes(*place) - base) as usize * inner;
            let from = u32::from_ne_bytes(*source) as usize * inner;
            for (cell, update) in target[to..to + inner].iter_mut().zip(&updates[from..from + inner]) {
                *cell = S::store(F::combine(S::load(*cell), S::load(*update)));
            }
        }
    }
}

/// Begins to fetch a row that will be read soon.
#[inline(always)]
fn fetch_row<const N: usize>(values: &[[u8; N]], row: usize, inner: usize) {
    prefetch_span(values.as_ptr().wrapping_add(row * inner), inner.min(BYTES_AHEAD / N));
}

/// The end of the run of equal places that begins at `start`.
fn run_end(places: &[Number32], start: usize) -> usize {
    let place = places[start];
    places[start..].iter().position(|other| *other != place).map_or(places.len(), |length| start + length)
}

fn fold_points<const N: usize, S: Stored<N>, F: Function, const MEAN: bool>(points: Points<'_, N>, use_init: bool) {
    let mut start = 0;
    while start < points.places.len() {
        let end = run_end(points.places, start);
        let cell = &mut points.target[(u32::from_ne_bytes(points.places[start]) - points.base) as usize];
        let mut value = S::load(points.values[start]);
        if use_init {
            value = F::combine(S::load(*cell), value);
        }
        for update in &points.values[start + 1..end] {
            value = F::combine(value, S::load(*update));
        }
        if MEAN {
            value = value.mean((end - start) as u64 + u64::from(use_init));
        }
        *cell = S::store(value);
        start = end;
    }
}

fn fold_rows<const N: usize, S: Stored<N>, F: Function, const MEAN: bool>(rows: Rows<'_, N>, use_init: bool) {
    dispatch(detect(), FoldRows::<N, S, F, MEAN> { rows, use_init, kind: PhantomData });
}

struct FoldRows<'a, const N: usize, S, F, const MEAN: bool> {
    rows: Rows<'a, N>,
    use_init: bool,
    kind: PhantomData<(S, F)>,
}

impl<const N: usize, S: Stored<N>, F: Function, const MEAN: bool> Kernel for FoldRows<'_, N, S, F, MEAN> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, simd: V) {
        let Rows { target, base, inner, places, sources, updates } = self.rows;
        let tile = FoldTile::<N, S, F, MEAN> { inner, updates, use_init: self.use_init, kind: PhantomData };
        let mut start = 0;
        while start < places.len() {
            let end = run_end(places, start);
            let ahead = (start + AHEAD).min(places.len())..(end + AHEAD).min(places.len());
            for (place, source) in places[ahead.clone()].iter().zip(&sources[ahead]) {
                fetch_row(target, (u32::from_ne_bytes(*place) - base) as usize, inner);
                fetch_row(updates, u32::from_ne_bytes(*source) as usize, inner);
            }
            let to = (u32::from_ne_bytes(places[start]) - base) as usize * inner;
            for (index, target) in target[to..to + inner].chunks_mut(TILE).enumerate() {
                tile.run(simd, target, index * TILE, &sources[start..end]);
            }
            start = end;
        }
    }
}

/// Combines the rows that meet at one place.
struct FoldTile<'a, const N: usize, S, F, const MEAN: bool> {
    inner: usize,
    updates: &'a [[u8; N]],
    use_init: bool,
    kind: PhantomData<(S, F)>,
}

impl<const N: usize, S: Stored<N>, F: Function, const MEAN: bool> FoldTile<'_, N, S, F, MEAN> {
    /// Combines the columns from `column` on.
    #[inline(always)]
    fn run<V: Simd>(&self, simd: V, target: &mut [[u8; N]], column: usize, sources: &[Number32]) {
        let width = target.len();
        let (mut values, mut loaded) = ([S::Value::default(); TILE], [S::Value::default(); TILE]);
        let (values, loaded) = (&mut values[..width], &mut loaded[..width]);
        let row =
            |source: &Number32| &self.updates[u32::from_ne_bytes(*source) as usize * self.inner + column..][..width];
        let rest = match (sources.split_first(), self.use_init) {
            (Some((first, rest)), false) => {
                S::load_all(simd, row(first), values);
                rest
            }
            _ => {
                S::load_all(simd, target, values);
                sources
            }
        };
        for source in rest {
            S::load_all(simd, row(source), loaded);
            for (value, update) in values.iter_mut().zip(&*loaded) {
                *value = F::combine(*value, *update);
            }
        }
        if MEAN {
            let count = sources.len() as u64 + u64::from(self.use_init);
            for value in values.iter_mut() {
                *value = value.mean(count);
            }
        }
        S::store_all(simd, values, target);
    }
}
