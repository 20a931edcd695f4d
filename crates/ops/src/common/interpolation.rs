//! Interpolation along one axis: which elements a coordinate of the output takes, and how much of each.
//!
//! Every mode of Interpolate is a product of one-dimensional rules, so an axis at a time suffices. Coordinates are
//! computed in f32, as OpenVINO does: at the borders between two elements the rounding decides which is the nearest.

use crate::common::memory::filled;
use crate::{Blame, OpError, OpResult};

crate::attribute_enum! {
    /// How values between elements are found.
    pub enum InterpolateMode {
        /// The nearest element.
        #[default]
        Nearest = "nearest",
        /// A tent over the neighbours, which antialiasing widens; the weights are normalised.
        Linear = "linear",
        /// The line between the two neighbours; coordinates are kept inside of the data.
        LinearOnnx = "linear_onnx",
        /// Cubic convolution over four neighbours.
        Cubic = "cubic",
        /// The triangle filter of Pillow, always antialiased.
        BilinearPillow = "bilinear_pillow",
        /// The cubic filter of Pillow, always antialiased.
        BicubicPillow = "bicubic_pillow",
        /// The mean of an area; named by version 1 only.
        Area = "area",
    }
}

crate::attribute_enum! {
    /// How a coordinate of the output becomes one of the input.
    pub enum CoordinateTransformationMode {
        /// `(x + 0.5) / scale - 0.5`.
        #[default]
        HalfPixel = "half_pixel",
        /// As `half_pixel`, but 0 where the output has one element.
        PytorchHalfPixel = "pytorch_half_pixel",
        /// `x / scale`.
        Asymmetric = "asymmetric",
        /// `(x + 0.5) / scale`.
        TfHalfPixelForNn = "tf_half_pixel_for_nn",
        /// The first and last elements meet.
        AlignCorners = "align_corners",
    }
}

crate::attribute_enum! {
    /// Which element is the nearest.
    pub enum NearestMode {
        /// Halves go down.
        #[default]
        RoundPreferFloor = "round_prefer_floor",
        /// Halves go up.
        RoundPreferCeil = "round_prefer_ceil",
        /// Always down.
        Floor = "floor",
        /// Always up.
        Ceil = "ceil",
        /// Up where the axis shrinks, down otherwise.
        Simple = "simple",
    }
}

/// The rule of one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisRule {
    /// How values between elements are found.
    pub mode: InterpolateMode,
    /// How a coordinate of the output becomes one of the input.
    pub transformation: CoordinateTransformationMode,
    /// Which element is the nearest.
    pub nearest_mode: NearestMode,
    /// The factor by which a shrinking axis widens the tent of `Linear`; 1 without antialiasing.
    pub antialias: f32,
    /// The parameter of the cubic filters.
    pub cube_coefficient: f64,
}

/// The sizes of one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisSizes {
    /// The elements of the data along the axis.
    pub data: usize,
    /// The zeros before them.
    pub pad_begin: usize,
    /// The zeros after them.
    pub pad_end: usize,
    /// The elements of the output along the axis.
    pub output: usize,
    /// The factor from padded data to output.
    pub scale: f32,
}

/// For each coordinate of the output along an axis, the elements of the data that it takes and their weights. What a
/// coordinate takes from the padding is left out, because it is zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AxisTaps {
    /// Where the taps of each coordinate end.
    ends: Vec<usize>,
    /// The elements.
    indices: Vec<usize>,
    /// The weights.
    weights: Vec<f64>,
}

impl AxisTaps {
    /// The taps of an axis.
    ///
    /// # Errors
    /// When there is nothing to take from, or memory cannot be had.
    pub fn new(rule: &AxisRule, sizes: &AxisSizes) -> OpResult<AxisTaps> {
        let padded = sizes.data.saturating_add(sizes.pad_begin).saturating_add(sizes.pad_end);
        if padded == 0 && sizes.output > 0 {
            let message = format!("{} elements cannot be interpolated from none", sizes.output);
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let mut taps = AxisTaps { ends: filled(sizes.output)?, ..AxisTaps::default() };
        for x in 0..sizes.output {
            taps.add(rule, sizes, padded, x);
            taps.ends[x] = taps.indices.len();
        }
        Ok(taps)
    }

    /// The number of coordinates.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no coordinates.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The elements and weights of coordinate `x`.
    pub fn of(&self, x: usize) -> (&[usize], &[f64]) {
        let start = if x == 0 { 0 } else { self.ends[x - 1] };
        (&self.indices[start..self.ends[x]], &self.weights[start..self.ends[x]])
    }

    /// Whether the output along the axis is the data along it.
    pub fn is_identity(&self, data: usize) -> bool {
        data == self.len() && (0..data).all(|x| self.of(x) == (&[x][..], &[1.0][..]))
    }

    fn push(&mut self, sizes: &AxisSizes, position: i64, weight: f64) {
        let Ok(index) = usize::try_from(position - sizes.pad_begin as i64) else { return };
        if index >= sizes.data || weight == 0.0 {
            return;
        }
        self.indices.push(index);
        self.weights.push(weight);
    }

    fn add(&mut self, rule: &AxisRule, sizes: &AxisSizes, padded: usize, x: usize) {
        let last = padded as i64 - 1;
        match rule.mode {
            InterpolateMode::Nearest => {
                let nearest = rule.nearest(rule.source(x, sizes, padded), sizes.scale < 1.0);
                self.push(sizes, nearest.clamp(0, last), 1.0);
            }
            InterpolateMode::Linear => self.add_tent(rule, sizes, padded, x),
            InterpolateMode::LinearOnnx => {
                let source = rule.source(x, sizes, padded).min(last as f32).max(0.0);
                let first = (source as i64).min(last);
                let second = (first + 1).min(last);
                let fraction = if first == second { 0.0 } else { source - first as f32 };
                self.push(sizes, first, f64::from(1.0 - fraction));
                self.push(sizes, second, f64::from(fraction));
            }
            InterpolateMode::Cubic => {
                let source = rule.source(x, sizes, padded);
                let first = source.floor();
                let weights = cubic_weights(f64::from(source - first), rule.cube_coefficient);
                for (i, weight) in weights.into_iter().enumerate() {
                    let position = (first as i64).saturating_add(i as i64 - 1);
                    self.push(sizes, position.clamp(0, last), weight);
                }
            }
            InterpolateMode::BilinearPillow => self.add_pillow(sizes, padded, x, 1.0, triangle),
            InterpolateMode::BicubicPillow => {
                let coefficient = rule.cube_coefficient;
                self.add_pillow(sizes, padded, x, 2.0, |d| cubic_filter(d, coefficient));
            }
            InterpolateMode::Area => {}
        }
    }

    /// A tent around the source coordinate; elements outside of the padded data do not count.
    fn add_tent(&mut self, rule: &AxisRule, sizes: &AxisSizes, padded: usize, x: usize) {
        let source = rule.source(x, sizes, padded);
        let reach = if sizes.scale > 1.0 { 2 } else { (2.0 / rule.antialias).ceil() as i64 };
        let center = source.round() as i64;
        let from = center.saturating_sub(reach).max(0);
        let to = center.saturating_add(reach).min(padded as i64 - 1);
        let weight = |position: i64| triangle(f64::from(rule.antialias * (source - position as f32)));
        let sum: f64 = (from..=to).map(weight).sum();
        if sum > 0.0 {
            (from..=to).for_each(|position| self.push(sizes, position, weight(position) / sum));
        }
    }

    fn add_pillow(&mut self, sizes: &AxisSizes, padded: usize, x: usize, support: f64, filter: impl Fn(f64) -> f64) {
        let scale = padded as f64 / sizes.output as f64;
        let filter_scale = scale.max(1.0);
        let (center, support) = ((x as f64 + 0.5) * scale, support * filter_scale);
        let from = ((center - support + 0.5) as i64).max(0);
        let to = ((center + support + 0.5) as i64).min(padded as i64);
        let weight = |position: i64| filter((position as f64 - center + 0.5) / filter_scale);
        let sum: f64 = (from..to).map(weight).sum();
        let divisor = if sum == 0.0 { 1.0 } else { sum };
        (from..to).for_each(|position| self.push(sizes, position, weight(position) / divisor));
    }
}

impl AxisRule {
    /// The coordinate in the padded data that coordinate `x` of the output means.
    fn source(&self, x: usize, sizes: &AxisSizes, padded: usize) -> f32 {
        let (x, scale) = (x as f32, sizes.scale);
        if scale == 1.0 || padded == sizes.output {
            return x;
        }
        match self.transformation {
            CoordinateTransformationMode::HalfPixel => (x + 0.5) / scale - 0.5,
            CoordinateTransformationMode::PytorchHalfPixel if sizes.output > 1 => (x + 0.5) / scale - 0.5,
            CoordinateTransformationMode::PytorchHalfPixel => 0.0,
            CoordinateTransformationMode::Asymmetric => x / scale,
            CoordinateTransformationMode::TfHalfPixelForNn => (x + 0.5) / scale,
            CoordinateTransformationMode::AlignCorners if sizes.output == 1 => 0.0,
            CoordinateTransformationMode::AlignCorners => x * (padded as f32 - 1.0) / (sizes.output as f32 - 1.0),
        }
    }

    fn nearest(&self, source: f32, shrinks: bool) -> i64 {
        match self.nearest_mode {
            NearestMode::RoundPreferFloor if source == source.trunc() + 0.5 => source.floor() as i64,
            NearestMode::RoundPreferFloor | NearestMode::RoundPreferCeil => source.round() as i64,
            NearestMode::Floor => source.floor() as i64,
            NearestMode::Ceil => source.ceil() as i64,
            NearestMode::Simple if shrinks => source.ceil() as i64,
            NearestMode::Simple => source as i64,
        }
    }
}

fn triangle(distance: f64) -> f64 {
    (1.0 - distance.abs()).max(0.0)
}

/// The weights of the four neighbours of a coordinate with fraction `s`.
pub(crate) fn cubic_weights(s: f64, a: f64) -> [f64; 4] {
    [cubic_filter(1.0 + s, a), cubic_filter(s, a), cubic_filter(1.0 - s, a), cubic_filter(2.0 - s, a)]
}

/// Keys' cubic convolution filter with parameter `a`.
fn cubic_filter(distance: f64, a: f64) -> f64 {
    let x = distance.abs();
    if x < 1.0 {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    }
    if x < 2.0 { (((x - 5.0) * x + 8.0) * x - 4.0) * a } else { 0.0 }
}
