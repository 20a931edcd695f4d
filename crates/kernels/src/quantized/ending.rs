//! How the sums of tiles become what is stored.

use super::dots::{Dots, MOST_POSITIONS};
use super::finish::{
    Added, AddingLanes, AddingVector, BUFFERED_TILES, Buffer, Decoding, DirectLanes, DirectVector, Encoding,
    GatedLanes, GatedVector, MOST_VALUES, StoreBuffer, Stored, load_codes, load_lanes,
};
use super::{QuantizedEpilogue, QuantizedResidual, Scaling, Target, TargetLanes, store_codes};
use crate::blocked::{BLOCK, lanes_from, slopes_from};
use crate::isa::Isa;
use crate::simd::{Simd, dispatch};
use crate::stream::{prefetch_span, prefetch_tile};
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;

/// What is done to the sums of one or two neighbouring blocks of output channels.
pub(super) struct Ending<'a> {
    isa: Isa,
    residual: QuantizedResidual<'a>,
    scales: [f32; 2 * BLOCK],
    bias: [f32; 2 * BLOCK],
    inner: Option<(Encoding, Decoding)>,
    decoding: Decoding,
    slopes: Option<[f32; 2 * BLOCK]>,
    limits: (f32, f32),
    function: Option<UnaryOp>,
    target: TargetLanes<{ 2 * BLOCK }>,
    /// All of this together, where codes of sums are stored to which nothing is added, or codes.
    direct: Option<DirectLanes<{ 2 * BLOCK }>>,
    adding: Option<AddingLanes<{ 2 * BLOCK }>>,
    /// The same, where the codes are those of an HSwish.
    gated: Option<GatedLanes<{ 2 * BLOCK }>>,
    /// Where a function is applied to values before they become codes.
    buffer: Option<Buffer>,
    /// Values of the buffer from one position to the next.
    row: usize,
    /// Channels that are stored.
    channels: usize,
    /// Elements of the output from one position to the next and from one block to the next.
    strides: [usize; 2],
}

impl<'a> Ending<'a> {
    /// That of so many blocks from a channel on, of whose channels so many are stored, so many elements apart from one
    /// position to the next and from one block to the next.
    pub(super) fn new(
        isa: Isa,
        (scaling, epilogue, output): (&Scaling<'_>, &QuantizedEpilogue<'a>, &Target<'_>),
        channel: usize,
        [blocks, channels]: [usize; 2],
        strides: [usize; 2],
    ) -> Self {
        let scales = lanes_from(scaling.scales, channel);
        let bias = epilogue.bias.map_or([0.0; 2 * BLOCK], |bias| lanes_from(bias, channel));
        let slopes = slopes_from(epilogue.activation, channel);
        let (mut function, limits) = (epilogue.activation.function(), epilogue.activation.limits());
        let target = output.lanes(channel);
        let decoding = match &epilogue.residual {
            QuantizedResidual::Codes(_, dequantizer) => Decoding::new(dequantizer),
            _ => Decoding::default(),
        };
        let inner = epilogue.inner.as_ref().map(|(from, to)| (Encoding::new(from), Decoding::new(to)));
        let are_values = matches!(epilogue.residual, QuantizedResidual::Values(_));
        let is_linear = function.is_none() && slopes.is_none() && !are_values;
        let is_direct = inner.is_none() && matches!(epilogue.residual, QuantizedResidual::None);
        let gated = match &target {
            TargetLanes::Codes(_, encoding) if is_direct && function == Some(UnaryOp::HSwish) => {
                function = None;
                Some(encoding.gated(&scales, &bias))
            }
            _ => None,
        };
        let (direct, adding) = match &target {
            TargetLanes::Codes(..) if gated.is_some() => (None, None),
            TargetLanes::Codes(_, encoding) if is_linear && is_direct => {
                (Some(encoding.direct(&scales, &bias, limits)), None)
            }
            TargetLanes::Codes(_, encoding) if is_linear => {
                (None, Some(encoding.adding(&scales, &bias, inner.as_ref(), &decoding, limits)))
            }
            _ => (None, None),
        };
        let is_buffered = function.is_some() && matches!(target, TargetLanes::Codes(..));
        let buffer = if is_buffered { Some(Buffer([0.0; BUFFERED_TILES * MOST_VALUES])) } else { None };
        Self {
            isa,
            residual: epilogue.residual,
            scales,
            bias,
            inner,
            decoding,
            slopes,
            limits,
            function,
            target,
            direct,
            adding,
            gated,
            buffer,
            row: blocks * BLOCK,
            channels,
            strides,
        }
    }

    /// The most tiles that end together: a function is applied to a few at a time, which are in a near cache then.
    pub(super) fn most_tiles(&self) -> usize {
        if self.function.is_none() { usize::MAX } else { BUFFERED_TILES }
    }

    /// That of tiles whose first value is an element of the output.
    pub(super) fn at(&mut self, offset: usize) -> End<'_> {
        let (stored, stored_strides) = match (&self.target, &mut self.buffer) {
            (TargetLanes::Values(output), _) => (Stored::Values(output.wrapping_add(offset)), self.strides),
            (TargetLanes::Codes(..), Some(buffer)) => (Stored::Values(buffer.0.as_mut_ptr()), [self.row, BLOCK]),
            (TargetLanes::Codes(output, encoding), None) => {
                let output = output.wrapping_add(offset);
                let stored = match (&self.direct, &self.gated) {
                    (Some(direct), _) => Stored::Direct(output, direct),
                    (None, Some(gated)) => Stored::Gated(output, gated),
                    (None, None) => Stored::Codes(output, encoding),
                };
                (stored, self.strides)
            }
        };
        let added = match self.residual {
            QuantizedResidual::None => Added::Nothing,
            QuantizedResidual::Values(values) => Added::Values(values[offset..].as_ptr()),
            QuantizedResidual::Codes(codes, _) => Added::Codes(codes[offset..].as_ptr(), self.decoding),
        };
        End {
            scales: &self.scales,
            bias: &self.bias,
            inner: self.inner,
            added,
            adding: self.adding.as_ref(),
            slopes: self.slopes.as_ref(),
            limits: self.limits,
            stored,
            strides: self.strides,
            stored_strides,
            channels: self.channels,
        }
    }

    /// Applies the function, if there is one, to so many positions that were stored by [`Self::at`] of this element: in the
    /// buffer, from where their codes go to the output, or in the output.
    ///
    /// # Safety
    /// The positions lie in the output, and nobody else touches them.
    pub(super) unsafe fn apply(&mut self, positions: usize, offset: usize) {
        let Some(op) = self.function else { return };
        let (channels, [position_stride, block_stride]) = (self.channels.min(self.row), self.strides);
        match (&self.target, &mut self.buffer) {
            (TargetLanes::Values(output), _) => {
                for (block, place) in (0..channels.div_ceil(BLOCK)).flat_map(|b| (0..positions).map(move |p| (b, p))) {
                    let line = offset + block * block_stride + place * position_stride;
                    let (line, count) = (output.wrapping_add(line), BLOCK.min(channels - block * BLOCK));
                    // SAFETY: the caller's promise.
                    unsafe { unary::apply(self.isa, op, line, line, count) };
                }
            }
            (TargetLanes::Codes(..), None) => {}
            (TargetLanes::Codes(output, encoding), Some(buffer)) => {
                let line = &mut buffer.0[..self.row * positions];
                let (values, count) = (line.as_mut_ptr(), line.len());
                // SAFETY: the values lie in the buffer.
                unsafe { unary::apply(self.isa, op, values, values, count) };
                let store = StoreBuffer {
                    buffer,
                    positions,
                    row: self.row,
                    channels,
                    encoding,
                    output: output.wrapping_add(offset),
                    strides: self.strides,
                };
                dispatch(self.isa, store);
            }
        }
    }
}

/// What tiles one after the other need to store their values.
pub(super) struct End<'a> {
    scales: &'a [f32; 2 * BLOCK],
    bias: &'a [f32; 2 * BLOCK],
    inner: Option<(Encoding, Decoding)>,
    added: Added,
    /// All of this together, where codes of sums are stored to which codes are added.
    adding: Option<&'a AddingLanes<{ 2 * BLOCK }>>,
    slopes: Option<&'a [f32; 2 * BLOCK]>,
    limits: (f32, f32),
    stored: Stored<'a, { 2 * BLOCK }>,
    /// Elements from one position to the next and from one block to the next, of what is added.
    strides: [usize; 2],
    /// The same of where results go.
    stored_strides: [usize; 2],
    /// Channels that are stored, from the tile's first on.
    channels: usize,
}

/// What is stored for whole vectors of sums, out of registers.
trait Whole {
    /// What the lanes of a vector have in common at all positions.
    type Parameters<S: Simd>;

    /// Those of the lanes from one on.
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> Self::Parameters<S>;

    /// Stores what becomes of a vector: `from` counts elements of what is added, `to` elements of what is stored.
    ///
    /// # Safety
    /// A vector from each of these elements on lies in what the end was made for.
    unsafe fn store<S: Simd>(&self, s: S, parameters: &Self::Parameters<S>, sum: S::F, from: usize, to: usize);
}

/// Codes of sums to which nothing is added.
struct Direct<'a> {
    codes: *mut u8,
    lanes: &'a DirectLanes<{ 2 * BLOCK }>,
}

impl Whole for Direct<'_> {
    type Parameters<S: Simd> = DirectVector<S>;

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> DirectVector<S> {
        self.lanes.at(s, lane)
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, parameters: &DirectVector<S>, sum: S::F, _from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.store_u8(self.codes.wrapping_add(to), parameters.codes(s, sum)) };
    }
}

/// Codes of what an HSwish makes of sums.
struct Gated<'a> {
    codes: *mut u8,
    lanes: &'a GatedLanes<{ 2 * BLOCK }>,
}

impl Whole for Gated<'_> {
    type Parameters<S: Simd> = GatedVector<S>;

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> GatedVector<S> {
        self.lanes.at(s, lane)
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, parameters: &GatedVector<S>, sum: S::F, _from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.store_u8(self.codes.wrapping_add(to), parameters.codes(s, sum)) };
    }
}

/// Codes of sums to which the values of codes are added, perhaps by codes in between.
struct Adding<'a, I> {
    added: *const u8,
    codes: *mut u8,
    lanes: &'a AddingLanes<{ 2 * BLOCK }>,
    inner: I,
}

/// The codes between sums and what is added to them.
trait Inner {
    /// What the lanes of a vector have in common at all positions.
    type Parameters<S: Simd>;

    /// Those of the lanes from one on.
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> Self::Parameters<S>;

    /// What sums become.
    fn numbers<S: Simd>(s: S, parameters: &Self::Parameters<S>, sum: S::F) -> S::F;
}

impl Inner for () {
    type Parameters<S: Simd> = ();

    #[inline(always)]
    fn parameters<S: Simd>(&self, _s: S, _lane: usize) {}

    #[inline(always)]
    fn numbers<S: Simd>(_s: S, (): &(), sum: S::F) -> S::F {
        sum
    }
}

impl Inner for &DirectLanes<{ 2 * BLOCK }> {
    type Parameters<S: Simd> = DirectVector<S>;

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> DirectVector<S> {
        self.at(s, lane)
    }

    #[inline(always)]
    fn numbers<S: Simd>(s: S, parameters: &DirectVector<S>, sum: S::F) -> S::F {
        parameters.numbers(s, sum)
    }
}

impl<I: Inner> Whole for Adding<'_, I> {
    type Parameters<S: Simd> = (I::Parameters<S>, AddingVector<S>);

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> Self::Parameters<S> {
        (self.inner.parameters(s, lane), self.lanes.at(s, lane))
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, parameters: &Self::Parameters<S>, sum: S::F, from: usize, to: usize) {
        let (inner, outer) = parameters;
        let sum = I::numbers(s, inner, sum);
        // SAFETY: the caller's promise.
        unsafe {
            let added = s.from_i(s.load_u8(self.added.wrapping_add(from)));
            s.store_u8(self.codes.wrapping_add(to), outer.codes(s, sum, added));
        }
    }
}

/// Values of sums that are scaled, shifted and limited, and nothing else.
struct Plain<'t, 'a> {
    end: &'t End<'a>,
    values: *mut f32,
}

impl Whole for Plain<'_, '_> {
    /// Scale, bias and limits.
    type Parameters<S: Simd> = [S::F; 4];

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> [S::F; 4] {
        let (end, (low, high)) = (self.end, self.end.limits);
        [load_lanes(s, end.scales, lane), load_lanes(s, end.bias, lane), s.splat(low), s.splat(high)]
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, parameters: &[S::F; 4], sum: S::F, _from: usize, to: usize) {
        let [scale, bias, low, high] = *parameters;
        let value = s.min(high, s.max(low, s.fma(sum, scale, bias)));
        // SAFETY: the caller's promise.
        unsafe { s.store(self.values.wrapping_add(to), value) };
    }
}

/// The values of a tile's sums in memory.
#[repr(align(64))]
struct Kept(MaybeUninit<[f32; MOST_VALUES]>);

/// The vector of integers of a tier.
pub(super) type Sums<D, const POSITIONS: usize, const VECTORS: usize> =
    [[<<D as Dots>::S as Simd>::I; VECTORS]; POSITIONS];

/// Where a tile's values go, and where what is added to them is.
pub(super) struct Ended<'a> {
    added: Added,
    stored: Stored<'a, { 2 * BLOCK }>,
}

/// The end of tiles with their number of positions and of vectors known to the compiler.
pub(super) struct Ends<'t, 'a, const POSITIONS: usize, const VECTORS: usize>(pub &'t End<'a>);

impl<const POSITIONS: usize, const VECTORS: usize> Ends<'_, '_, POSITIONS, VECTORS> {
    /// Asks for what the tile from a position on reads and writes, and tells where that is.
    #[inline(always)]
    pub(super) fn begin<D: Dots>(&self, position: usize) -> Ended<'_> {
        let end = self.0;
        let blocks = (VECTORS * <D::S as Simd>::LANES).div_ceil(BLOCK);
        let added = end.added.moved(position * end.strides[0]);
        let stored = end.stored.moved(position * end.stored_strides[0]);
        match stored {
            Stored::Values(values) => prefetch_blocks::<_, POSITIONS>(values, end.stored_strides, blocks),
            Stored::Codes(codes, _) | Stored::Direct(codes, _) | Stored::Gated(codes, _) => {
                prefetch_blocks::<_, POSITIONS>(codes, end.stored_strides, blocks);
            }
        }
        match added {
            Added::Nothing => {}
            Added::Values(values) => prefetch_blocks::<_, POSITIONS>(values, end.strides, blocks),
            Added::Codes(codes, _) => prefetch_blocks::<_, POSITIONS>(codes, end.strides, blocks),
        }
        Ended { added, stored }
    }

    /// Stores what becomes of the sums of a tile.
    ///
    /// # Safety
    /// The tile lies inside what the end was made for.
    #[inline(always)]
    pub(super) unsafe fn store<D: Dots>(
        &self,
        d: D,
        Ended { added, stored }: Ended<'_>,
        sums: &Sums<D, POSITIONS, VECTORS>,
    ) {
        let end = self.0;
        let is_whole = end.channels >= VECTORS * <D::S as Simd>::LANES;
        // Sums are scaled, shifted and limited, and nothing else.
        let is_plain = end.inner.is_none() && end.slopes.is_none() && matches!(end.added, Added::Nothing);
        // SAFETY: the caller's promise.
        unsafe {
            match (stored, end.adding) {
                (Stored::Direct(codes, lanes), _) if is_whole => self.finish_whole(d, sums, &Direct { codes, lanes }),
                (Stored::Gated(codes, lanes), _) if is_whole => self.finish_whole(d, sums, &Gated { codes, lanes }),
                (Stored::Codes(codes, _), Some(lanes)) => {
                    let added = match added {
                        Added::Codes(codes, _) => codes,
                        _ => std::ptr::null(),
                    };
                    if is_whole && !added.is_null() {
                        return match lanes.inner() {
                            Some(inner) => self.finish_whole(d, sums, &Adding { added, codes, lanes, inner }),
                            None => self.finish_whole(d, sums, &Adding { added, codes, lanes, inner: () }),
                        };
                    }
                    self.finish_added(d, &self.values(d, sums), added, codes, lanes);
                }
                (Stored::Values(values), _) if is_plain && is_whole => {
                    self.finish_whole(d, sums, &Plain { end, values });
                }
                _ => self.finish(d, &self.values(d, sums), &added, &stored),
            }
        }
    }

    /// Stores what becomes of sums of whole vectors.
    ///
    /// # Safety
    /// What is stored for every vector of every position lies in what the end was made for.
    #[inline(always)]
    unsafe fn finish_whole<D: Dots, W: Whole>(&self, d: D, sums: &Sums<D, POSITIONS, VECTORS>, whole: &W) {
        const { assert!(matches!(VECTORS, 1 | 2 | 4), "a tile has so many vectors") };
        // Vectors that the compiler knows stay in registers, those of a loop do not.
        // SAFETY: the caller's promise.
        unsafe {
            self.finish_vector::<D, W, 0>(d, sums, whole);
            if VECTORS > 1 {
                self.finish_vector::<D, W, 1>(d, sums, whole);
            }
            if VECTORS > 2 {
                self.finish_vector::<D, W, 2>(d, sums, whole);
                self.finish_vector::<D, W, 3>(d, sums, whole);
            }
        }
    }

    /// Stores what becomes of one vector of all positions.
    ///
    /// # Safety
    /// As [`Self::finish_whole`], and there is such a vector.
    #[inline(always)]
    unsafe fn finish_vector<D: Dots, W: Whole, const VECTOR: usize>(
        &self,
        d: D,
        sums: &Sums<D, POSITIONS, VECTORS>,
        whole: &W,
    ) {
        let (end, s) = (self.0, d.simd());
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        let parameters = whole.parameters(s, VECTOR * lanes);
        let place = |strides: [usize; 2]| VECTOR / per_block * strides[1] + VECTOR % per_block * lanes;
        let (from, to) = (place(end.strides), place(end.stored_strides));
        for (position, sums) in sums.iter().enumerate() {
            let (from, to) = (from + position * end.strides[0], to + position * end.stored_strides[0]);
            // SAFETY: the caller's promise.
            unsafe { whole.store(s, &parameters, d.value(sums[VECTOR]), from, to) };
        }
    }

    /// The values of the sums, one vector after the other.
    #[inline(always)]
    fn values<D: Dots>(&self, d: D, sums: &Sums<D, POSITIONS, VECTORS>) -> Kept {
        const { assert!(POSITIONS <= MOST_POSITIONS, "there is room for so many positions") };
        let lanes = <D::S as Simd>::LANES;
        let mut kept = Kept(MaybeUninit::uninit());
        let values = kept.0.as_mut_ptr().cast::<f32>();
        for (position, sums) in sums.iter().enumerate() {
            for (vector, sums) in sums.iter().enumerate() {
                // SAFETY: there is room for a vector of each position in each block of a end.
                unsafe { d.simd().store(values.add((vector * POSITIONS + position) * lanes), d.value(*sums)) };
            }
        }
        kept
    }

    /// Stores the codes of sums that were kept, to which those of `added` are added, if there are such.
    ///
    /// # Safety
    /// Both pointers lead to what the end was made for, and a vector of each position was kept.
    #[inline(always)]
    unsafe fn finish_added<D: Dots>(
        &self,
        d: D,
        sums: &Kept,
        added: *const u8,
        codes: *mut u8,
        parameters: &AddingLanes<{ 2 * BLOCK }>,
    ) {
        let (end, s) = (self.0, d.simd());
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        for vector in 0..VECTORS {
            let count = end.channels.saturating_sub(vector * lanes).min(lanes);
            let outer = parameters.at(s, vector * lanes);
            let mut inner = None;
            if let Some(lanes_of_inner) = parameters.inner() {
                inner = Some(lanes_of_inner.at(s, vector * lanes));
            }
            let sums = sums.0.as_ptr().cast::<f32>().wrapping_add(vector * POSITIONS * lanes);
            let place = |strides: [usize; 2]| vector / per_block * strides[1] + vector % per_block * lanes;
            let (from, to) = (added.wrapping_add(place(end.strides)), codes.wrapping_add(place(end.stored_strides)));
            let is_whole = count == lanes;
            for position in 0..POSITIONS {
                let from = from.wrapping_add(position * end.strides[0]);
                let to = to.wrapping_add(position * end.stored_strides[0]);
                // SAFETY: the caller's promise.
                unsafe {
                    let added = match (added.is_null(), is_whole) {
                        (true, _) => s.splat(0.0),
                        (_, true) => s.from_i(s.load_u8(from)),
                        _ => s.from_i(load_codes(s, from, count)),
                    };
                    let mut sum = s.load(sums.add(position * lanes));
                    if let Some(inner) = &inner {
                        sum = inner.numbers(s, sum);
                    }
                    let code = outer.codes(s, sum, added);
                    match is_whole {
                        true => s.store_u8(to, code),
                        false => store_codes(s, to, code, count),
                    }
                }
            }
        }
    }

    /// Scales sums that were kept, adds bias and residual, applies slopes or limits and stores.
    ///
    /// # Safety
    /// The end's pointers lead to what it was made for, and a vector of each position was kept.
    #[inline(always)]
    unsafe fn finish<D: Dots>(&self, d: D, sums: &Kept, added: &Added, stored: &Stored<'_, { 2 * BLOCK }>) {
        let (end, s) = (self.0, d.simd());
        let sums = sums.0.as_ptr().cast::<f32>();
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        let limits = (s.splat(end.limits.0), s.splat(end.limits.1));
        for vector in 0..VECTORS {
            let count = end.channels.saturating_sub(vector * lanes).min(lanes);
            let is_whole = count == lanes;
            let place = |position: usize, strides: [usize; 2]| {
                vector / per_block * strides[1] + position * strides[0] + vector % per_block * lanes
            };
            // SAFETY: the parameters have a value for each lane of two blocks, and the rest is the caller's promise.
            unsafe {
                let scale = s.load(end.scales.as_ptr().add(vector * lanes));
                let bias = s.load(end.bias.as_ptr().add(vector * lanes));
                let encoding = match stored {
                    Stored::Codes(_, encoding) => Some(encoding.at(s, vector * lanes)),
                    _ => None,
                };
                let direct = match stored {
                    Stored::Direct(_, direct) => Some(direct.at(s, vector * lanes)),
                    _ => None,
                };
                let gated = match stored {
                    Stored::Gated(_, gated) => Some(gated.at(s, vector * lanes)),
                    _ => None,
                };
                // What lies beyond the limits of the codes has the code of the limit.
                let (low, high) = match &encoding {
                    Some(encoding) => (encoding.limit(s, limits.0), encoding.limit(s, limits.1)),
                    None => limits,
                };
                for position in 0..POSITIONS {
                    let sum = s.load(sums.add((vector * POSITIONS + position) * lanes));
                    let to = place(position, end.stored_strides);
                    if let (Stored::Direct(codes, _), Some(direct)) = (stored, &direct) {
                        store_codes(s, codes.wrapping_add(to), direct.codes(s, sum), count);
                        continue;
                    }
                    if let (Stored::Gated(codes, _), Some(gated)) = (stored, &gated) {
                        store_codes(s, codes.wrapping_add(to), gated.codes(s, sum), count);
                        continue;
                    }
                    let mut sum = s.fma(sum, scale, bias);
                    if let Some((from, to)) = &end.inner {
                        sum = to.values(s, from.codes(s, sum));
                    }
                    let from = place(position, end.strides);
                    match added {
                        Added::Nothing => {}
                        Added::Values(values) if is_whole => sum = s.add(sum, s.load(values.wrapping_add(from))),
                        Added::Values(values) => sum = s.add(sum, s.load_partial(values.wrapping_add(from), count)),
                        Added::Codes(codes, decoding) => {
                            let codes = s.from_i(load_codes(s, codes.wrapping_add(from), count));
                            sum = s.add(sum, decoding.values(s, codes));
                        }
                    }
                    if let Some(slopes) = end.slopes {
                        let scaled = s.mul(sum, s.load(slopes.as_ptr().add(vector * lanes)));
                        sum = s.select(s.lt(sum, s.splat(0.0)), scaled, sum);
                    }
                    match (stored, &encoding) {
                        (Stored::Values(values), _) => {
                            let value = s.min(high, s.max(low, sum));
                            match is_whole {
                                true => s.store(values.wrapping_add(to), value),
                                false => s.store_partial(values.wrapping_add(to), value, count),
                            }
                        }
                        (Stored::Codes(codes, _), Some(encoding)) => {
                            // The order makes the lower limit of NaN.
                            let value = s.min(high, s.max(sum, low));
                            store_codes(s, codes.wrapping_add(to), encoding.codes(s, value), count);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Asks for the lines of a tile's blocks.
#[inline(always)]
fn prefetch_blocks<T, const POSITIONS: usize>(values: *const T, strides: [usize; 2], blocks: usize) {
    if strides[0] > BLOCK {
        // The row of a product may begin in the middle of a line, so that its last channels lie in another.
        let line =
            |index: usize| if index < blocks { index * strides[1] } else { (blocks - 1) * strides[1] + BLOCK - 1 };
        prefetch_tile::<_, POSITIONS>(values, strides[0], blocks + 1, line);
        return;
    }
    // Positions lie side by side.
    for block in 0..blocks {
        prefetch_span(values.wrapping_add(block * strides[1]), POSITIONS * BLOCK);
    }
}
