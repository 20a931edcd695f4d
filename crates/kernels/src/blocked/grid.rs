//! Samples of images at the points of a grid: of blocks, and of few plain channels.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::tile::{SIDE, transpose};

/// Points whose places are found at a time.
const TILE: usize = 64;

/// The most elements of an axis that a point takes.
const MOST_TAPS: usize = 4;

/// Places below this, on axes that are no longer, are found in vectors: there f32 counts without rounding.
const NEAR: usize = 1 << 22;

/// How values between elements are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridMode {
    /// The nearest element, halves to even.
    Nearest,
    /// The line between neighbours.
    Bilinear,
    /// Cubic convolution over four neighbours, with the coefficient -0.75.
    Bicubic,
}

/// What lies outside of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridPadding {
    /// Zeros.
    Zeros,
    /// The outermost elements.
    Border,
    /// The image mirrored.
    Reflection,
}

/// How a grid is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridRule {
    /// How values between elements are found.
    pub mode: GridMode,
    /// What lies outside of the image.
    pub padding: GridPadding,
    /// Whether -1 and 1 are the centres of the outermost elements, not their outer borders.
    pub align_corners: bool,
}

/// Writes the plain `[batch, channels, points]` that a `grid` `[batch, points, 2]` of x and y finds in the blocked
/// `input`, which is `[batch, channels, height, width]`.
///
/// # Errors
/// A slice has the wrong length, or there are points but no elements.
pub fn blocked_grid_sample(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    input: &[f32],
    grid: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [batch, channels, height, width] = shape;
    let plane = product("input", &[height, width, BLOCK])?;
    check_exact("input", input.len(), blocked_len(batch, channels, plane / BLOCK))?;
    let blocks = channels.div_ceil(BLOCK);
    // The values of a tile's points in a block become lines of the plain result.
    let store_block = |image: usize, block: usize, first: usize, count: usize, found: &Found, output: &Output<'_>| {
        let lanes = BLOCK.min(channels - block * BLOCK);
        let target = (image * channels + block * BLOCK) * points + first;
        // SAFETY: these points of these channels are no other task's.
        unsafe { store(isa, found, count, lanes, output.pointer().add(target), points) };
    };
    if rule.mode == GridMode::Nearest {
        return each_tile_of_nearest(isa, rule, shape, points, grid, output, |image, first, nearest, found, output| {
            for block in 0..blocks {
                let values = &input[(image * blocks + block) * plane..][..plane];
                dispatch(isa, SampleNearest { values, nearest, found });
                store_block(image, block, first, nearest.places.len(), found, output);
            }
        });
    }
    each_tile(isa, rule, shape, points, grid, output, |image, first, count, lines, found, output| {
        for block in 0..blocks {
            let values = &input[(image * blocks + block) * plane..][..plane];
            dispatch(isa, Sample { values, width, lines, count, found });
            store_block(image, block, first, count, found, output);
        }
    })
}

/// As [`blocked_grid_sample`], of a plain `input`. Blocks of few channels would be far larger than their values.
///
/// # Errors
/// A slice has the wrong length, or there are points but no elements.
pub fn grid_sample(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    input: &[f32],
    grid: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [_, channels, height, width] = shape;
    check_exact("input", input.len(), product("input", &shape)?)?;
    if rule.mode == GridMode::Nearest {
        return each_tile_of_nearest(isa, rule, shape, points, grid, output, |image, first, nearest, _, output| {
            for plane in image * channels..(image + 1) * channels {
                let start = plane * points + first;
                // SAFETY: these points of this channel are no other task's.
                let output = unsafe { output.slice(start..start + nearest.places.len()) };
                nearest.sample(&input[plane * height * width..][..height * width], output);
            }
        });
    }
    each_tile(isa, rule, shape, points, grid, output, |image, first, count, lines, _, output| {
        for plane in image * channels..(image + 1) * channels {
            let values = &input[plane * height * width..][..height * width];
            let start = plane * points + first;
            // SAFETY: these points of this channel are no other task's.
            let output = unsafe { output.slice(start..start + count) };
            match (lines.taps, lines.has_outside) {
                (2, false) => lines.sample::<2, false>(values, width, output),
                (2, true) => lines.sample::<2, true>(values, width, output),
                (_, false) => lines.sample::<4, false>(values, width, output),
                (_, true) => lines.sample::<4, true>(values, width, output),
            }
        }
    })
}

/// The values of a tile's points in a block of channels.
type Found = [f32; TILE * BLOCK];

/// The result, parts of which are one task's.
type Output<'a> = SharedMut<'a, f32>;

/// An error if the slices of points have the wrong length, or there are points but no elements, or too many of these.
fn check_points(
    [batch, channels, height, width]: [usize; 4],
    points: usize,
    grid: &[f32],
    output: &[f32],
) -> Result<(), KernelError> {
    check_exact("grid", grid.len(), product("grid", &[batch, points, 2])?)?;
    check_exact("output", output.len(), product("output", &[batch, channels, points])?)?;
    let elements = height.saturating_mul(width);
    if !output.is_empty() && (elements == 0 || i32::try_from(elements.saturating_mul(BLOCK)).is_err()) {
        return Err(KernelError::invalid("input", "has no elements, or too many"));
    }
    Ok(())
}

/// The elements along each axis, columns and then rows, that each point of a tile takes. Those outside of the image have a place
/// inside, and a mask without bits if they count as zero.
struct Lines {
    /// Elements of each axis that a point takes: two or four.
    taps: usize,
    /// Whether some elements of some points count as zero.
    has_outside: bool,
    places: [[[i32; TILE]; MOST_TAPS]; 2],
    masks: [[[u32; TILE]; MOST_TAPS]; 2],
    weights: [[[f32; TILE]; MOST_TAPS]; 2],
}

impl Lines {
    fn new() -> Self {
        let (places, weights) = ([[[0; TILE]; MOST_TAPS]; 2], [[[0.0; TILE]; MOST_TAPS]; 2]);
        Self { taps: 2, has_outside: false, places, masks: [[[0; TILE]; MOST_TAPS]; 2], weights }
    }

    /// The values of the first points in a plane with lines of `width`; none counts as zero if not `MASKED`.
    #[inline]
    fn sample<const TAPS: usize, const MASKED: bool>(&self, values: &[f32], width: usize, target: &mut [f32]) {
        for (point, target) in target.iter_mut().enumerate().take(TILE) {
            let mut sum = 0.0;
            for row in 0..TAPS {
                let (line, mask) = (self.places[1][row][point] as usize * width, self.masks[1][row][point]);
                // A sum with this begins with its first number as it is.
                let mut mixed = -0.0;
                for column in 0..TAPS {
                    let mut value = values[line + self.places[0][column][point] as usize];
                    if MASKED {
                        // What counts as zero does so even where it is no number.
                        value = f32::from_bits(value.to_bits() & mask & self.masks[0][column][point]);
                    }
                    mixed += value * self.weights[0][column][point];
                }
                sum += mixed * self.weights[1][row][point];
            }
            *target = sum;
        }
    }
}

/// Finds the nearest element of each of some points of an image at a time. The body gets the image, the first point and room
/// for their values in a block.
fn each_tile_of_nearest(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    grid: &[f32],
    output: &mut [f32],
    body: impl Fn(usize, usize, Nearest<'_>, &mut Found, &Output<'_>) + Sync,
) -> Result<(), KernelError> {
    check_points(shape, points, grid, output)?;
    if output.is_empty() {
        return Ok(());
    }
    let [batch, _, height, width] = shape;
    let tiles = points.div_ceil(TILE);
    let work = (output.len() as u64 / 2).max(2 * (batch * points) as u64);
    let shared = SharedMut::new(output);
    parallel_for(batch * tiles, 4, work, |range| {
        let (mut places, mut masks, mut found) = ([0; TILE], [0; TILE], [0.0; TILE * BLOCK]);
        for index in range {
            let (image, first) = (index / tiles, index % tiles * TILE);
            let count = TILE.min(points - first);
            let grid = &grid[(image * points + first) * 2..][..count * 2];
            let (places, masks) = (&mut places, &mut masks);
            dispatch(isa, FindNearest { rule, sizes: [width, height], grid, places, masks });
            body(image, first, Nearest { places: &places[..count], masks: &masks[..count] }, &mut found, &shared);
        }
    });
    Ok(())
}

/// The one element of a plane that each point takes, and a mask without bits where it counts as zero.
#[derive(Clone, Copy)]
struct Nearest<'a> {
    places: &'a [i32],
    masks: &'a [u32],
}

impl Nearest<'_> {
    /// The values of the points in a plane. A sum begins with zero, which is why no zero is negative.
    #[inline]
    fn sample(&self, values: &[f32], target: &mut [f32]) {
        for (target, (place, mask)) in target.iter_mut().zip(self.places.iter().zip(self.masks)) {
            *target = 0.0 + f32::from_bits(values[*place as usize].to_bits() & mask);
        }
    }
}

/// The nearest elements of some points in one block of channels.
struct SampleNearest<'a> {
    values: &'a [f32],
    nearest: Nearest<'a>,
    found: &'a mut Found,
}

impl Kernel for SampleNearest<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SampleNearest { values, nearest: Nearest { places, masks }, found } = self;
        let positions = values.as_chunks::<BLOCK>().0;
        for ((place, mask), target) in places.iter().zip(masks).zip(found.as_chunks_mut::<BLOCK>().0) {
            let (position, mask) = (&positions[*place as usize], s.splat_i(*mask as i32));
            for lane in (0..BLOCK).step_by(S::LANES) {
                // SAFETY: the lanes lie in the position, and in the target.
                unsafe {
                    let bits = s.and_i(s.bits(s.load(position.as_ptr().add(lane))), mask);
                    // A sum begins with zero, as in planes.
                    s.store(target.as_mut_ptr().add(lane), s.add(s.splat(0.0), s.from_bits(bits)));
                }
            }
        }
    }
}

/// Finds the nearest elements of some points.
struct FindNearest<'a> {
    rule: GridRule,
    /// The sizes of the axes of columns and of rows.
    sizes: [usize; 2],
    /// x and y of each point, of at most [`TILE`].
    grid: &'a [f32],
    places: &'a mut [i32; TILE],
    masks: &'a mut [u32; TILE],
}

impl Kernel for FindNearest<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FindNearest { rule, sizes, grid, places, masks } = self;
        let values = coordinates(grid);
        let (zero, all) = (s.splat(0.0), s.from_bits(s.splat_i(-1)));
        let axes = sizes.map(|size| Axis::new(rule, size));
        let mut has_far = false;
        for first in (0..TILE).step_by(S::LANES) {
            let (mut element, mut mask) = (s.splat_i(0), all);
            // Rows come first, which lie a width apart.
            for axis in [1, 0] {
                // SAFETY: the lanes from the first one on lie in the array.
                let x = axes[axis].position(s, unsafe { s.load(values[axis].as_ptr().add(first)) });
                has_far |= axes[axis].has_far(s, x);
                let (place, is_inside) = axes[axis].place(s, s.round(x));
                mask = s.select(is_inside, mask, zero);
                element = s.add_i(s.mul_i(element, s.splat_i(sizes[axis] as i32)), s.to_i(place));
            }
            // SAFETY: as above, for both arrays.
            unsafe {
                s.store(places.as_mut_ptr().add(first).cast(), s.from_bits(element));
                s.store(masks.as_mut_ptr().add(first).cast(), mask);
            }
        }
        if has_far {
            for (point, (place, mask)) in places.iter_mut().zip(masks).enumerate() {
                let position = |axis: usize| {
                    let x = axes[axis].position_of(values[axis][point]);
                    axes[axis].element(x.round_ties_even() as i64)
                };
                let found = position(1).zip(position(0));
                *mask = if found.is_some() { u32::MAX } else { 0 };
                *place = found.map_or(0, |(row, column)| row * sizes[0] as i32 + column);
            }
        }
    }
}

/// The coordinates along each axis of some points, of at most [`TILE`].
#[inline(always)]
fn coordinates(grid: &[f32]) -> [[f32; TILE]; 2] {
    let mut values = [[0.0; TILE]; 2];
    for (point, place) in grid.as_chunks::<2>().0.iter().take(TILE).enumerate() {
        (values[0][point], values[1][point]) = (place[0], place[1]);
    }
    values
}

/// Finds the lines of some points.
struct FindLines<'a> {
    rule: GridRule,
    /// The sizes of the axes of columns and of rows.
    sizes: [usize; 2],
    /// x and y of each point, of at most [`TILE`].
    grid: &'a [f32],
    lines: &'a mut Lines,
}

impl Kernel for FindLines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.rule.mode {
            GridMode::Bicubic => self.find::<S, 4>(s),
            _ => self.find::<S, 2>(s),
        }
    }
}

impl FindLines<'_> {
    #[inline(always)]
    fn find<S: Simd, const TAPS: usize>(self, s: S) {
        let FindLines { rule, sizes, grid, lines } = self;
        let values = coordinates(grid);
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        let all = s.from_bits(s.splat_i(-1));
        (lines.taps, lines.has_outside) = (TAPS, false);
        for (number, values) in values.iter().enumerate() {
            let axis = Axis::new(rule, sizes[number]);
            let mut has_far = false;
            for first in (0..TILE).step_by(S::LANES) {
                // SAFETY: the lanes from the first one on lie in the array.
                let x = axis.position(s, unsafe { s.load(values.as_ptr().add(first)) });
                has_far |= axis.has_far(s, x);
                let lower = s.floor(x);
                let mut fraction = s.sub(x, lower);
                if rule.padding == GridPadding::Zeros {
                    // Infinities are inside of nothing, and so take no part.
                    fraction = s.select(s.eq(s.abs(x), s.splat(f32::INFINITY)), zero, fraction);
                }
                let weights: [S::F; TAPS] = weights(s, fraction);
                let mut at = if TAPS == 4 { s.sub(lower, one) } else { lower };
                for tap in 0..TAPS {
                    let (place, is_inside) = axis.place(s, at);
                    let mask = s.bits(s.select(is_inside, all, zero));
                    lines.has_outside |= s.any(s.eq_i(mask, s.splat_i(0)));
                    // SAFETY: as above, for these arrays.
                    unsafe {
                        s.store(lines.places[number][tap].as_mut_ptr().add(first).cast(), s.from_bits(s.to_i(place)));
                        s.store(lines.masks[number][tap].as_mut_ptr().add(first).cast(), s.from_bits(mask));
                        s.store(lines.weights[number][tap].as_mut_ptr().add(first), weights[tap]);
                    }
                    at = s.add(at, one);
                }
            }
            if has_far {
                for (point, value) in values.iter().enumerate() {
                    let x = axis.position_of(*value);
                    let start = (x.floor() as i64).saturating_sub(if TAPS == 4 { 1 } else { 0 });
                    for tap in 0..TAPS {
                        let place = axis.element(start.saturating_add(tap as i64));
                        lines.places[number][tap][point] = place.unwrap_or(0);
                        lines.masks[number][tap][point] = if place.is_some() { u32::MAX } else { 0 };
                        lines.has_outside |= place.is_none();
                    }
                }
            }
        }
    }
}

/// The coefficient of cubic convolution.
const CUBIC: f32 = -0.75;

/// The weight of an element at a distance of at most one.
#[inline(always)]
fn cubic_inside<S: Simd>(s: S, x: S::F) -> S::F {
    let inner = s.sub(s.mul(s.splat(CUBIC + 2.0), x), s.splat(CUBIC + 3.0));
    s.add(s.mul(s.mul(inner, x), x), s.splat(1.0))
}

/// The weight of an element at a distance of one to two.
#[inline(always)]
fn cubic_outside<S: Simd>(s: S, x: S::F) -> S::F {
    let outer = s.sub(s.mul(s.splat(CUBIC), x), s.splat(5.0 * CUBIC));
    let inner = s.add(s.mul(outer, x), s.splat(8.0 * CUBIC));
    s.sub(s.mul(inner, x), s.splat(4.0 * CUBIC))
}

/// The weights of two elements, behind the first of which a point stands by a fraction, or of four, behind the second of which.
#[inline(always)]
fn weights<S: Simd, const TAPS: usize>(s: S, fraction: S::F) -> [S::F; TAPS] {
    let (one, two) = (s.splat(1.0), s.splat(2.0));
    let rest = s.sub(one, fraction);
    let found = match TAPS {
        2 => [rest, fraction, fraction, fraction],
        _ => [
            cubic_outside(s, s.add(fraction, one)),
            cubic_inside(s, fraction),
            cubic_inside(s, rest),
            cubic_outside(s, s.sub(two, fraction)),
        ],
    };
    let mut weights = [fraction; TAPS];
    weights.copy_from_slice(&found[..TAPS]);
    weights
}

/// Finds the elements that some points of an image at a time take. The body gets the image, the first point, how many there are,
/// and room for their values in a block.
fn each_tile(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    grid: &[f32],
    output: &mut [f32],
    body: impl Fn(usize, usize, usize, &Lines, &mut Found, &Output<'_>) + Sync,
) -> Result<(), KernelError> {
    check_points(shape, points, grid, output)?;
    if output.is_empty() {
        return Ok(());
    }
    let [batch, _, height, width] = shape;
    let tiles = points.div_ceil(TILE);
    let work = (output.len() as u64).max(4 * (batch * points) as u64);
    let shared = SharedMut::new(output);
    parallel_for(batch * tiles, 4, work, |range| {
        let (mut lines, mut found) = (Lines::new(), [0.0; TILE * BLOCK]);
        for index in range {
            let (image, first) = (index / tiles, index % tiles * TILE);
            let count = TILE.min(points - first);
            let grid = &grid[(image * points + first) * 2..][..count * 2];
            dispatch(isa, FindLines { rule, sizes: [width, height], grid, lines: &mut lines });
            body(image, first, count, &lines, &mut found, &shared);
        }
    });
    Ok(())
}

/// How places along an axis are found.
#[derive(Clone, Copy)]
struct Axis {
    rule: GridRule,
    size: usize,
    /// Places from here on, with either sign, are found one by one.
    far: f32,
}

impl Axis {
    fn new(rule: GridRule, size: usize) -> Self {
        let far = match rule.padding {
            _ if size > NEAR => 0.0,
            GridPadding::Reflection => NEAR as f32,
            // All that is far away is outside.
            GridPadding::Zeros | GridPadding::Border => f32::INFINITY,
        };
        Self { rule, size, far }
    }

    /// Where coordinates stand between the elements.
    #[inline(always)]
    fn position<S: Simd>(&self, s: S, coordinate: S::F) -> S::F {
        let (one, value) = (s.splat(1.0), s.add(coordinate, s.splat(1.0)));
        // A half is exact, as dividing by two is.
        let half = s.splat(0.5);
        match self.rule.align_corners {
            true => s.mul(s.mul(value, s.splat((self.size - 1) as f32)), half),
            false => s.mul(s.sub(s.mul(value, s.splat(self.size as f32)), one), half),
        }
    }

    /// The same of one coordinate, with the same roundings.
    fn position_of(&self, coordinate: f32) -> f32 {
        match self.rule.align_corners {
            true => (coordinate + 1.0) * (self.size - 1) as f32 * 0.5,
            false => ((coordinate + 1.0) * self.size as f32 - 1.0) * 0.5,
        }
    }

    /// Whether some places are to be found one by one: those far away, and what is no number.
    #[inline(always)]
    fn has_far<S: Simd>(&self, s: S, x: S::F) -> bool {
        s.any(s.le(s.splat(self.far), s.abs(x))) || s.any(s.is_nan(x))
    }

    /// The elements that stand at integers inside or outside of the axis, and which of them do not count as zero.
    #[inline(always)]
    fn place<S: Simd>(&self, s: S, at: S::F) -> (S::F, S::M) {
        let (zero, last) = (s.splat(0.0), s.splat((self.size - 1) as f32));
        if self.rule.padding == GridPadding::Reflection {
            // The image and its mirror repeat.
            let (period, overlap) = match self.rule.align_corners {
                true => ((2 * (self.size - 1)).max(1), 0.0),
                false => (2 * self.size, 1.0),
            };
            let period = s.splat(period as f32);
            let phase = s.sub(at, s.mul(period, s.floor(s.div(at, period))));
            let mirrored = s.sub(s.sub(period, s.splat(overlap)), phase);
            let place = s.min(s.max(s.min(phase, mirrored), zero), last);
            return (s.select(s.is_nan(place), zero, place), s.eq(zero, zero));
        }
        let place = s.min(s.max(at, zero), last);
        let is_inside = match self.rule.padding {
            GridPadding::Zeros => s.eq(place, at),
            _ => s.eq(zero, zero),
        };
        (s.select(s.is_nan(place), zero, place), is_inside)
    }

    /// The element that stands at a position inside or outside of the axis; none where it counts as zero.
    fn element(&self, position: i64) -> Option<i32> {
        let size = self.size as i64;
        let element = match self.rule.padding {
            _ if (0..size).contains(&position) => position,
            GridPadding::Zeros => return None,
            GridPadding::Border => position.clamp(0, size - 1),
            GridPadding::Reflection if self.rule.align_corners => {
                let period = (2 * (size - 1)).max(1);
                let phase = position.rem_euclid(period);
                phase.min(period - phase)
            }
            GridPadding::Reflection => {
                let phase = position.rem_euclid(2 * size);
                phase.min(2 * size - 1 - phase)
            }
        };
        Some(element as i32)
    }
}

/// The values of some points in one block of channels.
struct Sample<'a> {
    values: &'a [f32],
    width: usize,
    lines: &'a Lines,
    /// How many points there are, at most [`TILE`].
    count: usize,
    found: &'a mut Found,
}

impl Kernel for Sample<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.lines.taps, self.lines.has_outside) {
            (2, false) => self.sample::<S, 2, false>(s),
            (2, true) => self.sample::<S, 2, true>(s),
            (_, false) => self.sample::<S, 4, false>(s),
            (_, true) => self.sample::<S, 4, true>(s),
        }
    }
}

impl Sample<'_> {
    #[inline(always)]
    fn sample<S: Simd, const TAPS: usize, const MASKED: bool>(self, s: S) {
        let Sample { values, width, lines, count, found } = self;
        let positions = values.as_chunks::<BLOCK>().0;
        for (point, target) in found.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate().take(count) {
            for lane in (0..BLOCK).step_by(S::LANES) {
                let mut sum = s.splat(0.0);
                for row in 0..TAPS {
                    if MASKED && lines.masks[1][row][point] == 0 {
                        continue;
                    }
                    let line = lines.places[1][row][point] as usize * width;
                    let mut mixed = s.splat(0.0);
                    for column in 0..TAPS {
                        if MASKED && lines.masks[0][column][point] == 0 {
                            continue;
                        }
                        let position = &positions[line + lines.places[0][column][point] as usize];
                        // SAFETY: the lanes lie in the position.
                        let value = unsafe { s.load(position.as_ptr().add(lane)) };
                        mixed = s.fma(value, s.splat(lines.weights[0][column][point]), mixed);
                    }
                    sum = s.fma(mixed, s.splat(lines.weights[1][row][point]), sum);
                }
                // SAFETY: the lanes of a point lie in the chunk.
                unsafe { s.store(target.as_mut_ptr().add(lane), sum) };
            }
        }
    }
}

/// Writes the lanes of points as lines of the plain result, `stride` apart.
///
/// # Safety
/// `count` places from the target on can be written in each of so many lines.
unsafe fn store(isa: Isa, found: &Found, count: usize, lanes: usize, target: *mut f32, stride: usize) {
    let (whole_points, whole_lanes) = (count - count % SIDE, lanes - lanes % SIDE);
    for lane in (0..whole_lanes).step_by(SIDE) {
        for point in (0..whole_points).step_by(SIDE) {
            // SAFETY: the tile lies in the array and, by the caller's promise, in the result.
            unsafe {
                let from = found.as_ptr().add(point * BLOCK + lane);
                transpose(isa, from, BLOCK, target.add(lane * stride + point), stride);
            }
        }
    }
    for lane in 0..lanes {
        let first = if lane < whole_lanes { whole_points } else { 0 };
        for point in first..count {
            // SAFETY: the caller's promise.
            unsafe { *target.add(lane * stride + point) = found[point * BLOCK + lane] };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::from_plain;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    const SHAPE: [usize; 4] = [2, 21, 4, 5];

    /// The taps of an axis, one after the other, outside elements as `None`.
    fn reference_taps(rule: GridRule, value: f32, size: usize) -> Vec<(Option<usize>, f64)> {
        let (size, length) = (size as i64, size as f32);
        let x = if rule.align_corners {
            (value + 1.0) * (length - 1.0) / 2.0
        } else {
            ((value + 1.0) * length - 1.0) / 2.0
        };
        let (first, fraction) = (x.floor() as i64, f64::from(x - x.floor()));
        let weights: Vec<(i64, f64)> = match rule.mode {
            GridMode::Nearest => vec![(x.round_ties_even() as i64, 1.0)],
            GridMode::Bilinear => vec![(first, 1.0 - fraction), (first + 1, fraction)],
            GridMode::Bicubic => (-1..3)
                .map(|at| {
                    let (x, a) = ((at as f64 - fraction).abs(), -0.75);
                    let near = (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0;
                    let far = a * x.powi(3) - 5.0 * a * x.powi(2) + 8.0 * a * x - 4.0 * a;
                    (first + at, if x <= 1.0 { near } else { far })
                })
                .collect(),
        };
        let mirror = |mut at: i64| {
            let (low, high) = if rule.align_corners { (0, 2 * (size - 1)) } else { (-1, 2 * size - 1) };
            while size > 1 && !(0..size).contains(&at) {
                at = if at < 0 { low - at } else { high - at };
            }
            if size == 1 { 0 } else { at }
        };
        let inside = |at: i64| match rule.padding {
            GridPadding::Zeros => usize::try_from(at).ok().filter(|at| *at < size as usize),
            GridPadding::Border => Some(at.clamp(0, size - 1) as usize),
            GridPadding::Reflection => Some(mirror(at) as usize),
        };
        weights.into_iter().map(|(at, weight)| (inside(at), weight)).collect()
    }

    /// What a point, x and y, finds in a plane.
    fn reference(rule: GridRule, values: &[f32], [height, width]: [usize; 2], [x, y]: [f32; 2]) -> f64 {
        let columns = reference_taps(rule, x, width);
        let mut sum = 0.0;
        for (row, down) in reference_taps(rule, y, height) {
            for (column, across) in &columns {
                if let (Some(row), Some(column)) = (row, column) {
                    sum += f64::from(values[row * width + column]) * down * across;
                }
            }
        }
        sum
    }

    #[test]
    fn samples_are_those_of_planes() {
        let [batch, channels, height, width] = SHAPE;
        let points = 150;
        let mut random = Random::new(9);
        let plain = random.values(SHAPE.iter().product());
        let grid: Vec<f32> = random.values(batch * points * 2).iter().map(|value| value * 1.6).collect();
        let mut blocked = vec![f32::NAN; blocked_len(batch, channels, height * width)];
        from_plain(batch, channels, height * width, &plain, &mut blocked).unwrap();
        for mode in [GridMode::Nearest, GridMode::Bilinear, GridMode::Bicubic] {
            for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
                for align_corners in [false, true] {
                    let rule = GridRule { mode, padding, align_corners };
                    let mut expected = Vec::new();
                    for index in 0..batch * channels * points {
                        let (plane, point) = (index / points, index / points / channels * points + index % points);
                        let values = &plain[plane * height * width..][..height * width];
                        expected.push(reference(rule, values, [height, width], [grid[point * 2], grid[point * 2 + 1]]));
                    }
                    for isa in Isa::available() {
                        let run = || {
                            let mut output = vec![f32::NAN; expected.len()];
                            blocked_grid_sample(isa, rule, SHAPE, points, &blocked, &grid, &mut output).unwrap();
                            output
                        };
                        assert_close(&run(), &expected, 30, &format!("{isa} {rule:?}"));
                        assert_eq!(run(), in_pool(2, run));
                    }
                    for isa in Isa::available() {
                        let run = || {
                            let mut output = vec![f32::NAN; expected.len()];
                            grid_sample(isa, rule, SHAPE, points, &plain, &grid, &mut output).unwrap();
                            output
                        };
                        assert_close(&run(), &expected, 30, &format!("plain {isa} {rule:?}"));
                        assert_eq!(run(), in_pool(2, run));
                    }
                }
            }
        }
    }

    #[test]
    fn mirrors_repeat_far_away() {
        let (height, width) = (7, 10);
        let plain = Random::new(4).values(height * width);
        let mut random = Random::new(5);
        // From about four million elements on, places are found one by one.
        let scales = [3.0, 100.0, 1e5, 6e5, 3e6];
        let grid: Vec<f32> =
            scales.iter().flat_map(|scale| random.values(18).into_iter().map(move |value| value * scale)).collect();
        let points = grid.len() / 2;
        for mode in [GridMode::Nearest, GridMode::Bilinear, GridMode::Bicubic] {
            for align_corners in [false, true] {
                let rule = GridRule { mode, padding: GridPadding::Reflection, align_corners };
                let place = |point: &[f32; 2]| reference(rule, &plain, [height, width], *point);
                let expected: Vec<f64> = grid.as_chunks().0.iter().map(place).collect();
                for isa in Isa::available() {
                    let mut output = vec![f32::NAN; points];
                    grid_sample(isa, rule, [1, 1, height, width], points, &plain, &grid, &mut output).unwrap();
                    assert_close(&output, &expected, 30, &format!("{isa} {rule:?}"));
                }
            }
        }
    }

    #[test]
    fn axes_longer_than_vectors_count_on() {
        let width = NEAR + 3;
        let values: Vec<f32> = (0..width).map(|at| (at % 1000) as f32).collect();
        let xs = [-1.0, 1.0, 0.999_999_9, 0.3, 1.25, -1.25, -3.1];
        let grid: Vec<f32> = xs.iter().flat_map(|x| [*x, 0.0]).collect();
        for mode in [GridMode::Nearest, GridMode::Bilinear, GridMode::Bicubic] {
            for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
                let rule = GridRule { mode, padding, align_corners: true };
                for isa in Isa::available() {
                    let mut found = vec![f32::NAN; xs.len()];
                    grid_sample(isa, rule, [1, 1, 1, width], xs.len(), &values, &grid, &mut found).unwrap();
                    for (x, found) in xs.iter().zip(found) {
                        let expected = reference(rule, &values, [1, width], [*x, 0.0]);
                        assert!((f64::from(found) - expected).abs() < 1e-2, "{isa} {rule:?} {x}: {found} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn strange_points_and_misfits() {
        let rule = GridRule { mode: GridMode::Bilinear, padding: GridPadding::Reflection, align_corners: true };
        let run = |rule, shape: [usize; 4], grid: &[f32]| {
            let points = grid.len() / 2;
            let input = vec![1.0; blocked_len(shape[0], shape[1], shape[2] * shape[3])];
            let mut output = vec![0.0; shape[1] * points];
            blocked_grid_sample(Isa::portable(), rule, shape, points, &input, grid, &mut output).map(|()| output)
        };
        let grid = [f32::INFINITY, 0.0, f32::NAN, 0.0, -1e30, 1e30, 0.0, 0.0];
        for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
            let found = run(GridRule { padding, ..rule }, [1, 1, 3, 1], &grid).unwrap();
            assert_eq!(found[3], 1.0);
        }
        assert!(run(rule, [1, 1, 0, 1], &grid).is_err());
        assert!(run(rule, [2, 1, 3, 1], &grid).is_err());
        let cases = [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection];
        for (isa, padding) in Isa::available().flat_map(|isa| cases.map(|padding| (isa, padding))) {
            let mut found = [f32::NAN; 4];
            let rule = GridRule { padding, ..rule };
            grid_sample(isa, rule, [1, 1, 3, 1], 4, &[1.0; 3], &grid, &mut found).unwrap();
            assert_eq!(found[3], 1.0);
            if padding == GridPadding::Zeros {
                assert_eq!(found[2], 0.0);
                assert!(found[1].is_nan());
            }
            assert!(grid_sample(isa, rule, [1, 1, 0, 1], 4, &[], &grid, &mut found).is_err());
            assert!(grid_sample(isa, rule, [1, 1, 3, 1], 4, &[1.0; 2], &grid, &mut found).is_err());
            assert!(grid_sample(isa, rule, [1, 1, 3, 1], 3, &[1.0; 3], &grid, &mut found).is_err());
        }
        // The nearest element is taken as it is, and zero is not negative.
        let rule = GridRule { padding: GridPadding::Zeros, align_corners: true, mode: GridMode::Nearest };
        for isa in Isa::available() {
            let mut found = [1.0; 5];
            let grid = [-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.1, 0.0, -3.0, 0.0];
            grid_sample(isa, rule, [1, 1, 1, 3], 5, &[-0.0, f32::INFINITY, f32::NAN], &grid, &mut found).unwrap();
            assert_eq!((found[0].to_bits(), found[1]), (0, f32::INFINITY));
            assert!(found[2].is_nan());
            assert_eq!(found[3..], [0.0, 0.0]);
            // What is no number stands at the first element.
            for padding in [GridPadding::Zeros, GridPadding::Border] {
                let (rule, grid) = (GridRule { padding, ..rule }, [f32::NAN, f32::NAN]);
                let mut found = [0.0; 2];
                grid_sample(isa, rule, [1, 2, 1, 2], 1, &[5.0, 6.0, 7.0, 8.0], &grid, &mut found).unwrap();
                assert_eq!(found, [5.0, 7.0]);
                let mut blocked = [0.0; 2 * BLOCK];
                (blocked[0], blocked[1]) = (5.0, 7.0);
                blocked_grid_sample(isa, rule, [1, 2, 1, 2], 1, &blocked, &grid, &mut found).unwrap();
                assert_eq!(found, [5.0, 7.0]);
            }
        }
        // What lies outside is zero, also beside what is no number.
        let rule = GridRule { padding: GridPadding::Zeros, align_corners: true, mode: GridMode::Bilinear };
        let values = [f32::INFINITY, 2.0, 4.0];
        for isa in Isa::available() {
            let mut found = [f32::NAN; 3];
            let grid = [1.5, 0.0, 3.0, 0.0, f32::INFINITY, 0.0];
            grid_sample(isa, rule, [1, 1, 1, 3], 3, &values, &grid, &mut found).unwrap();
            assert_eq!(found, [2.0, 0.0, 0.0]);
        }
    }
}
