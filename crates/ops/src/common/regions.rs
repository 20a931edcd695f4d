//! Samples of regions of feature maps: places between elements, taken by bilinear interpolation.

use ovir_tensor::Shape;

use super::number::Number;
use crate::{Blame, EvaluateContext, OpError, OpResult};

/// The most samples along one axis of a region. Larger regions than any feature map would only repeat zeros.
const MAX_SAMPLES: usize = 1 << 22;

/// The most samples of one element of the output: all elements of the largest maps there are.
const MAX_GRID: usize = 1 << 26;

/// Two elements along an axis and the weight of the second.
pub type Tap = (usize, usize, f64);

/// The samples of a region along one axis, bin by bin.
pub struct Samples {
    /// `None` where a sample lies outside of the map.
    pub taps: Vec<Option<Tap>>,
    /// The samples of a bin.
    pub per_bin: usize,
}

impl Samples {
    /// The samples of a region that begins at `first` and extends over `extent` elements of an axis of `size`.
    /// A `ratio` of 0 takes as many samples as a bin has elements.
    ///
    /// # Errors
    /// When there are too many.
    pub fn new(first: f32, extent: f32, bins: usize, ratio: i64, size: usize) -> OpResult<Samples> {
        let bin = extent / bins as f32;
        let per_bin = samples_of_bin(bin, ratio);
        let count = checked_samples(per_bin, bins, extent)?;
        let distance = bin / per_bin as f32;
        let place = |i: usize| {
            let (b, s) = (i / per_bin, i % per_bin);
            first + b as f32 * bin + distance * (s as f32 + 0.5)
        };
        Ok(Samples { taps: (0..count).map(|i| tap(place(i), size)).collect(), per_bin })
    }

    /// The samples of one bin.
    pub fn of_bin(&self, bin: usize) -> &[Option<Tap>] {
        &self.taps[bin * self.per_bin..][..self.per_bin]
    }
}

/// Checks that a bin has not more samples within the map than can be computed.
///
/// # Errors
/// When it has.
pub fn check_grid(rows: &Samples, columns: &Samples) -> OpResult {
    let inside = |samples: &Samples| {
        let in_bin = |bin: &[Option<Tap>]| bin.iter().flatten().count();
        samples.taps.chunks(samples.per_bin.max(1)).map(in_bin).max().unwrap_or(0)
    };
    let count = inside(rows).saturating_mul(inside(columns));
    if count <= MAX_GRID {
        return Ok(());
    }
    let message = format!("a region needs {count} samples of one element of the output");
    Err(OpError::value(Blame::Input(1), message).note(format!("the limit is {MAX_GRID}")))
}

/// The samples along one axis of a bin of `extent` elements.
pub(crate) fn samples_of_bin(extent: f32, ratio: i64) -> usize {
    match ratio {
        0 => extent.ceil().max(0.0) as usize,
        ratio => usize::try_from(ratio).unwrap_or(1),
    }
}

/// The number of samples of a region of `extent` elements along one axis.
///
/// # Errors
/// When there are too many.
pub(crate) fn checked_samples(per_bin: usize, bins: usize, extent: f32) -> OpResult<usize> {
    let count = per_bin.saturating_mul(bins);
    if count <= MAX_SAMPLES {
        return Ok(count);
    }
    let message = format!("a region over {extent} elements needs {count} samples along one axis");
    Err(OpError::value(Blame::Input(1), message).note(format!("the limit is {MAX_SAMPLES}")))
}

/// The elements around a place on an axis of `size`; none if it lies more than one element outside.
pub(crate) fn tap(place: f32, size: usize) -> Option<Tap> {
    // NaN lies nowhere.
    if size == 0 || !(place >= -1.0 && place <= size as f32) {
        return None;
    }
    let place = place.max(0.0);
    let low = (place as usize).min(size - 1);
    if low + 1 >= size { Some((low, low, 0.0)) } else { Some((low, low + 1, f64::from(place - low as f32))) }
}

/// The value between four elements of a plane; 0 outside of it.
pub(crate) fn sample<T: Number>(plane: &[T], width: usize, row: Option<Tap>, column: Option<Tap>) -> f64 {
    let (Some((top, bottom, down)), Some((left, right, across))) = (row, column) else { return 0.0 };
    let line =
        |y: usize| plane[y * width + left].to_f64() * (1.0 - across) + plane[y * width + right].to_f64() * across;
    line(top) * (1.0 - down) + line(bottom) * down
}

/// The image that a region belongs to.
///
/// # Errors
/// When there is no such image.
pub fn image_of(index: i64, region: usize, batch: usize, port: usize) -> OpResult<usize> {
    usize::try_from(index).ok().filter(|i| *i < batch).ok_or_else(|| {
        let message = format!("batch index {index} of region {region} is out of range [0, {}]", batch as i64 - 1);
        OpError::index(Blame::Input(port), message)
    })
}

/// Checks that feature maps have elements if there is something to pool.
///
/// # Errors
/// When they have none.
pub(crate) fn check_map(context: &EvaluateContext<'_>, port: usize, output: &Shape) -> OpResult {
    let shape = context.input(port)?.shape();
    if shape[2] * shape[3] == 0 && output.elements() > 0 {
        return Err(OpError::shape(Blame::Input(port), "a feature map without elements cannot be pooled"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn places_at_the_borders() {
        assert_eq!(tap(-1.5, 4), None);
        assert_eq!(tap(-0.5, 4), Some((0, 1, 0.0)));
        assert_eq!(tap(1.25, 4), Some((1, 2, 0.25)));
        assert_eq!(tap(3.75, 4), Some((3, 3, 0.0)));
        assert_eq!(tap(f32::NAN, 4), None);
    }

    #[test]
    fn too_many_samples_of_an_element_are_an_error() {
        let samples = |extent| Samples::new(0.0, extent, 1, 1 << 14, 1 << 14).unwrap();
        assert!(check_grid(&samples(100.0), &samples(100.0)).is_err());
        // Only those within the map count.
        let far = Samples::new(1e6, 100.0, 1, 1 << 14, 1 << 14).unwrap();
        assert!(check_grid(&samples(100.0), &far).is_ok());
    }

    #[test]
    fn too_many_samples_are_an_error() {
        assert!(Samples::new(0.0, 1e30, 2, 0, 4).is_err());
        assert_eq!(Samples::new(0.0, 4.0, 2, 0, 4).map(|s| (s.per_bin, s.taps.len())).unwrap(), (2, 4));
        assert_eq!(Samples::new(0.0, f32::NAN, 2, 0, 4).map(|s| s.taps.len()).unwrap(), 0);
    }
}
