//! Samples of images at the points of a grid: of blocks, and of few plain channels.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::tile::{SIDE, transpose};

/// Points whose places are found at a time.
const TILE: usize = 64;

/// The longest axis all of whose places are numbers of f32.
const EXACT: usize = 1 << 24;

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
    if rule.is_nearest(height, width) {
        return each_tile_of_nearest(isa, rule, shape, points, grid, output, |image, first, nearest, found, output| {
            for block in 0..blocks {
                let values = &input[(image * blocks + block) * plane..][..plane];
                dispatch(isa, SampleNearest { values, nearest, found });
                let lanes = BLOCK.min(channels - block * BLOCK);
                let target = (image * channels + block * BLOCK) * points + first;
                // SAFETY: these points of these channels are no other task's.
                unsafe { store(isa, found, nearest.places.len(), lanes, output.pointer().add(target), points) };
            }
        });
    }
    each_tile(rule, shape, points, grid, output, |image, first, places, found, output| {
        for block in 0..blocks {
            let values = &input[(image * blocks + block) * plane..][..plane];
            dispatch(isa, Sample { values, width, places, found });
            let lanes = BLOCK.min(channels - block * BLOCK);
            let target = (image * channels + block * BLOCK) * points + first;
            // SAFETY: these points of these channels are no other task's.
            unsafe { store(isa, found, places.len(), lanes, output.pointer().add(target), points) };
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
    if rule.is_nearest(height, width) {
        return each_tile_of_nearest(isa, rule, shape, points, grid, output, |image, first, nearest, _, output| {
            for plane in image * channels..(image + 1) * channels {
                let start = plane * points + first;
                // SAFETY: these points of this channel are no other task's.
                let output = unsafe { output.slice(start..start + nearest.places.len()) };
                nearest.sample(&input[plane * height * width..][..height * width], output);
            }
        });
    }
    let is_exact = height.max(width) <= EXACT;
    if rule.mode == GridMode::Bilinear && rule.padding != GridPadding::Reflection && is_exact {
        return bilinear(isa, rule, shape, points, input, grid, output);
    }
    each_tile(rule, shape, points, grid, output, |image, first, places, _, output| {
        for plane in image * channels..(image + 1) * channels {
            let values = &input[plane * height * width..][..height * width];
            let start = plane * points + first;
            // SAFETY: these points of this channel are no other task's.
            let output = unsafe { output.slice(start..start + places.len()) };
            for (target, place) in output.iter_mut().zip(places) {
                *target = place.sample(values, width);
            }
        }
    })
}

/// Bilinear samples of a plain input, where what lies outside is zero or the outermost element.
fn bilinear(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    input: &[f32],
    grid: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [batch, channels, height, width] = shape;
    check_points(shape, points, grid, output)?;
    if output.is_empty() {
        return Ok(());
    }
    let plane = height * width;
    let tiles = points.div_ceil(TILE);
    let work = (output.len() as u64).max(4 * (batch * points) as u64);
    let shared = SharedMut::new(output);
    parallel_for(batch * tiles, 4, work, |range| {
        let mut lines = Lines::default();
        for index in range {
            let (image, first) = (index / tiles, index % tiles * TILE);
            let count = TILE.min(points - first);
            let grid = &grid[(image * points + first) * 2..][..count * 2];
            dispatch(isa, FindLines { rule, sizes: [width, height], grid, lines: &mut lines });
            for channel in image * channels..(image + 1) * channels {
                let values = &input[channel * plane..][..plane];
                let start = channel * points + first;
                // SAFETY: these points of this channel are no other task's.
                let target = unsafe { shared.slice(start..start + count) };
                lines.sample(values, width, target);
            }
        }
    });
    Ok(())
}

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

/// The two elements along each axis, columns and then rows, between which each point of a tile lies. Those outside of the image
/// have a place inside, and a mask without bits if they count as zero.
struct Lines {
    places: [[[i32; TILE]; 2]; 2],
    masks: [[[u32; TILE]; 2]; 2],
    weights: [[[f32; TILE]; 2]; 2],
}

impl Default for Lines {
    fn default() -> Self {
        let (places, weights) = ([[[0; TILE]; 2]; 2], [[[0.0; TILE]; 2]; 2]);
        Self { places, masks: [[[0; TILE]; 2]; 2], weights }
    }
}

impl Lines {
    /// The values of the first points in a plane with lines of `width`.
    #[inline]
    fn sample(&self, values: &[f32], width: usize, target: &mut [f32]) {
        for (point, target) in target.iter_mut().enumerate() {
            let mut sum = 0.0;
            for row in 0..2 {
                let (line, mask) = (self.places[1][row][point] as usize * width, self.masks[1][row][point]);
                let value = |column: usize| {
                    let bits = values[line + self.places[0][column][point] as usize].to_bits();
                    // What counts as zero does so even where it is no number.
                    f32::from_bits(bits & mask & self.masks[0][column][point]) * self.weights[0][column][point]
                };
                sum += (value(0) + value(1)) * self.weights[1][row][point];
            }
            *target = sum;
        }
    }
}

/// Finds the nearest element of each of some points of an image at a time, where what lies outside is zero or the
/// outermost element. The body gets the image, the first point and room for their values in a block.
fn each_tile_of_nearest(
    isa: Isa,
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    grid: &[f32],
    output: &mut [f32],
    body: impl Fn(usize, usize, Nearest<'_>, &mut [f32; TILE * BLOCK], &SharedMut<'_, f32>) + Sync,
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
    found: &'a mut [f32; TILE * BLOCK],
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
        for first in (0..TILE).step_by(S::LANES) {
            let (mut element, mut mask) = (s.splat_i(0), all);
            // Rows come first, which lie a width apart.
            for axis in [1, 0] {
                let last = s.splat((sizes[axis] - 1) as f32);
                // SAFETY: the lanes from the first one on lie in the array.
                let x = rule.position(s, unsafe { s.load(values[axis].as_ptr().add(first)) }, sizes[axis]);
                // What is no number stands at the first element.
                let at = s.select(s.is_nan(x), zero, s.round(x));
                let place = s.min(s.max(at, zero), last);
                if rule.padding == GridPadding::Zeros {
                    mask = s.select(s.eq(place, at), mask, zero);
                }
                element = s.add_i(s.mul_i(element, s.splat_i(sizes[axis] as i32)), s.to_i(place));
            }
            // SAFETY: as above, for both arrays.
            unsafe {
                s.store(places.as_mut_ptr().add(first).cast(), s.from_bits(element));
                s.store(masks.as_mut_ptr().add(first).cast(), mask);
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
        let FindLines { rule, sizes, grid, lines } = self;
        let values = coordinates(grid);
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        for axis in 0..2 {
            let last = s.splat((sizes[axis] - 1) as f32);
            for first in (0..TILE).step_by(S::LANES) {
                // SAFETY: the lanes from the first one on lie in all arrays.
                let x = rule.position(s, unsafe { s.load(values[axis].as_ptr().add(first)) }, sizes[axis]);
                let lower = s.floor(x);
                let fraction = s.sub(x, lower);
                for (element, at, weight) in [(0, lower, s.sub(one, fraction)), (1, s.add(lower, one), fraction)] {
                    let place = s.min(s.max(at, zero), last);
                    // Infinities are inside of nothing, and so take no part; what is no number spreads by its weight.
                    let is_inside = s.eq(place, at);
                    let (mask, weight) = match rule.padding {
                        GridPadding::Zeros => {
                            let weight = s.select(s.is_nan(x), weight, s.select(is_inside, weight, zero));
                            (s.select(is_inside, s.from_bits(s.splat_i(-1)), zero), weight)
                        }
                        _ => (s.from_bits(s.splat_i(-1)), weight),
                    };
                    // No number would stand anywhere.
                    let place = s.to_i(s.select(s.is_nan(place), zero, place));
                    // SAFETY: as above.
                    unsafe {
                        s.store(lines.places[axis][element].as_mut_ptr().add(first).cast(), s.from_bits(place));
                        s.store(lines.masks[axis][element].as_mut_ptr().add(first).cast(), mask);
                        s.store(lines.weights[axis][element].as_mut_ptr().add(first), weight);
                    }
                }
            }
        }
    }
}

/// Finds the places of some points of an image at a time, which the body gets with the image, the first point and room for
/// their values in a block.
fn each_tile(
    rule: GridRule,
    shape: [usize; 4],
    points: usize,
    grid: &[f32],
    output: &mut [f32],
    body: impl Fn(usize, usize, &[Place], &mut [f32; TILE * BLOCK], &SharedMut<'_, f32>) + Sync,
) -> Result<(), KernelError> {
    check_points(shape, points, grid, output)?;
    if output.is_empty() {
        return Ok(());
    }
    let [batch, _, height, width] = shape;
    let tiles = points.div_ceil(TILE);
    let work = (output.len() as u64).max(8 * (batch * points) as u64);
    let shared = SharedMut::new(output);
    parallel_for(batch * tiles, 4, work, |range| {
        let (mut places, mut found) = ([Place::default(); TILE], [0.0; TILE * BLOCK]);
        for index in range {
            let (image, first) = (index / tiles, index % tiles * TILE);
            let count = TILE.min(points - first);
            let grid = &grid[(image * points + first) * 2..][..count * 2];
            for (place, point) in places.iter_mut().zip(grid.as_chunks::<2>().0) {
                *place = Place { columns: rule.taps(point[0], width), rows: rule.taps(point[1], height) };
            }
            body(image, first, &places[..count], &mut found, &shared);
        }
    });
    Ok(())
}

/// The elements of one axis that a point takes.
#[derive(Debug, Clone, Copy, Default)]
struct Taps {
    count: usize,
    positions: [u32; 4],
    weights: [f32; 4],
}

/// Where a point reads.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    columns: Taps,
    rows: Taps,
}

impl Place {
    /// The value of the point in a plane with lines of `width`.
    #[inline]
    fn sample(&self, values: &[f32], width: usize) -> f32 {
        if self.rows.count == 2 && self.columns.count == 2 {
            let [left, right] = [self.columns.positions[0] as usize, self.columns.positions[1] as usize];
            let ([near, far, ..], [above, below, ..]) = (self.columns.weights, self.rows.weights);
            let line = |row: u32| &values[row as usize * width..][..width];
            let (upper, lower) = (line(self.rows.positions[0]), line(self.rows.positions[1]));
            return (upper[left] * near + upper[right] * far) * above
                + (lower[left] * near + lower[right] * far) * below;
        }
        let mut sum = 0.0;
        if self.rows.count == 4 && self.columns.count == 4 {
            let (columns, [a, b, c, d]) = (self.columns.positions.map(|column| column as usize), self.columns.weights);
            for (row, weight) in self.rows.positions.iter().zip(&self.rows.weights) {
                let line = &values[*row as usize * width..][..width];
                let [first, second, third, fourth] = columns.map(|column| line[column]);
                sum += (first * a + second * b + third * c + fourth * d) * weight;
            }
            return sum;
        }
        for (row, weight) in self.rows.taken() {
            let line = &values[row * width..][..width];
            let mixed: f32 = self.columns.taken().map(|(column, weight)| line[column] * weight).sum();
            sum += mixed * weight;
        }
        sum
    }
}

impl Taps {
    /// The elements and their weights.
    fn taken(&self) -> impl Iterator<Item = (usize, f32)> {
        let weights = self.weights.iter().take(self.count);
        self.positions.iter().zip(weights).map(|(position, weight)| (*position as usize, *weight))
    }
}

impl GridRule {
    /// Whether vectors find the nearest elements.
    fn is_nearest(&self, height: usize, width: usize) -> bool {
        self.mode == GridMode::Nearest && self.padding != GridPadding::Reflection && height.max(width) <= EXACT
    }

    /// Where coordinates stand between the elements of an axis of `size`.
    #[inline(always)]
    fn position<S: Simd>(&self, s: S, coordinate: S::F, size: usize) -> S::F {
        let (one, value) = (s.splat(1.0), s.add(coordinate, s.splat(1.0)));
        // A half is exact, as dividing by two is.
        let half = s.splat(0.5);
        match self.align_corners {
            true => s.mul(s.mul(value, s.splat((size - 1) as f32)), half),
            false => s.mul(s.sub(s.mul(value, s.splat(size as f32)), one), half),
        }
    }

    /// The elements of an axis of `size` that a coordinate takes; those outside are left out.
    #[inline]
    fn taps(&self, value: f32, size: usize) -> Taps {
        let length = size as f32;
        let x = match self.align_corners {
            true => (value + 1.0) * (length - 1.0) / 2.0,
            false => ((value + 1.0) * length - 1.0) / 2.0,
        };
        if self.mode == GridMode::Nearest {
            let position = self.element(nearest(x), size as i64);
            let count = usize::from(position.is_some());
            return Taps { count, positions: [position.unwrap_or(0), 0, 0, 0], weights: [1.0, 0.0, 0.0, 0.0] };
        }
        let first = floor(x);
        let fraction = x - first;
        let lower = first as i64;
        // What is no number would become zero.
        if self.mode == GridMode::Bilinear && first >= 0.0 && (0..size as i64 - 1).contains(&lower) {
            let start = lower as u32;
            return Taps {
                count: 2,
                positions: [start, start + 1, 0, 0],
                weights: [1.0 - fraction, fraction, 0.0, 0.0],
            };
        }
        if self.mode == GridMode::Bicubic && first >= 1.0 && (1..size as i64 - 2).contains(&lower) {
            let start = lower as u32 - 1;
            return Taps { count: 4, positions: [start, start + 1, start + 2, start + 3], weights: cubic(fraction) };
        }
        let (start, weights): (i64, &[f32]) = match self.mode {
            GridMode::Bicubic => ((first as i64).saturating_sub(1), &cubic(fraction)),
            _ => (first as i64, &[1.0 - fraction, fraction]),
        };
        let mut taps = Taps::default();
        for (at, weight) in (0i64..).zip(weights) {
            if let Some(position) = self.element(start.saturating_add(at), size as i64) {
                (taps.positions[taps.count], taps.weights[taps.count]) = (position, *weight);
                taps.count += 1;
            }
        }
        taps
    }

    /// The element that stands at a position inside or outside of an axis.
    fn element(&self, position: i64, size: i64) -> Option<u32> {
        if (0..size).contains(&position) {
            return Some(position as u32);
        }
        match self.padding {
            GridPadding::Zeros => None,
            GridPadding::Border => Some(position.clamp(0, size - 1) as u32),
            GridPadding::Reflection if self.align_corners => {
                let period = (2 * (size - 1)).max(1);
                let phase = position.rem_euclid(period);
                Some(if phase >= size { period - phase } else { phase } as u32)
            }
            GridPadding::Reflection => {
                let phase = position.rem_euclid(2 * size);
                Some(if phase >= size { 2 * size - 1 - phase } else { phase } as u32)
            }
        }
    }
}

/// The largest integer that is not above a value, without a call of the library function, which targets without the
/// instruction need for each coordinate.
#[inline]
fn floor(value: f32) -> f32 {
    // From here on all values are integers.
    if value.abs() < 8_388_608.0 {
        let whole = value as i32 as f32;
        if whole > value { whole - 1.0 } else { whole }
    } else {
        value
    }
}

/// The nearest integer, halves to even, without a call of the library function either.
#[inline]
fn nearest(value: f32) -> i64 {
    // Sums with this have no digits behind the point, as long as values are less than a third of it.
    const INTEGERS: f32 = 12_582_912.0;
    if value.abs() < 4_194_304.0 { (value + INTEGERS - INTEGERS) as i64 } else { value.round_ties_even() as i64 }
}

/// The weights of cubic convolution for a place between the second and the third element.
fn cubic(fraction: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(fraction + 1.0), near(fraction), near(1.0 - fraction), far(2.0 - fraction)]
}

/// The values of some points in one block of channels.
struct Sample<'a> {
    values: &'a [f32],
    width: usize,
    places: &'a [Place],
    found: &'a mut [f32; TILE * BLOCK],
}

impl Kernel for Sample<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (place, target) in self.places.iter().zip(self.found.as_chunks_mut::<BLOCK>().0) {
            for lane in (0..BLOCK).step_by(S::LANES) {
                let mut sum = s.splat(0.0);
                for row in 0..place.rows.count {
                    let line = place.rows.positions[row] as usize * self.width;
                    let mut mixed = s.splat(0.0);
                    for column in 0..place.columns.count {
                        let at = (line + place.columns.positions[column] as usize) * BLOCK + lane;
                        // SAFETY: positions lie inside their axes, and the block has all elements of the image.
                        let value = unsafe { s.load(self.values.as_ptr().add(at)) };
                        mixed = s.fma(value, s.splat(place.columns.weights[column]), mixed);
                    }
                    sum = s.fma(mixed, s.splat(place.rows.weights[row]), sum);
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
unsafe fn store(isa: Isa, found: &[f32; TILE * BLOCK], count: usize, lanes: usize, target: *mut f32, stride: usize) {
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

    #[test]
    fn nearest_integers() {
        let mut random = Random::new(2);
        let special =
            [0.5, 1.5, 2.5, -0.5, -1.5, 0.499_999_97, -0.499_999_97, 4_194_303.5, 4_194_304.0, 1e20, f32::NAN];
        for value in special.into_iter().chain((0..1000).map(|_| random.value() * 50.0)) {
            for value in [value, -value, (value * 2.0).trunc() / 2.0] {
                assert_eq!(nearest(value), value.round_ties_even() as i64, "{value}");
            }
        }
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
                        let mut sum = 0.0;
                        for (row, down) in reference_taps(rule, grid[point * 2 + 1], height) {
                            for (column, across) in reference_taps(rule, grid[point * 2], width) {
                                if let (Some(row), Some(column)) = (row, column) {
                                    let value = plain[(plane * height + row) * width + column];
                                    sum += f64::from(value) * down * across;
                                }
                            }
                        }
                        expected.push(sum);
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
