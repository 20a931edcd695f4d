//! Means of regions of feature maps, each part of which has channels of its own.

use std::ops::Range;

use crate::error::{KernelError, check_exact, product};
use crate::parallel::{SharedMut, parallel_for};

/// Writes `[regions, outputs, groups, groups]` from `input` `[batch, outputs * groups * groups, height, width]`: the mean of
/// the elements that a part of a region covers, 0 where it covers none. `images` tells the image of each region; `rows`
/// and `columns` have `groups` ranges for each.
///
/// # Errors
/// A slice does not fit, or a range leaves the map.
pub fn position_sensitive_means(
    [batch, height, width]: [usize; 3],
    [outputs, groups]: [usize; 2],
    images: &[usize],
    (rows, columns): (&[Range<usize>], &[Range<usize>]),
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let cells = product("groups", &[groups, groups])?;
    let channels = product("outputs", &[outputs, cells])?;
    let plane = product("input", &[height, width])?;
    check_exact("input", input.len(), product("input", &[batch, channels, plane])?)?;
    check_exact("output", output.len(), product("output", &[images.len(), channels])?)?;
    let ranges = product("rows", &[images.len(), groups])?;
    check_exact("rows", rows.len(), ranges)?;
    check_exact("columns", columns.len(), ranges)?;
    let leaves = |ranges: &[Range<usize>], size: usize| ranges.iter().any(|range| range.end > size);
    if leaves(rows, height) || leaves(columns, width) || images.iter().any(|image| *image >= batch) {
        return Err(KernelError::invalid("rows", "leave the map"));
    }
    if output.is_empty() {
        return Ok(());
    }
    let work = output.len() as u64 * 20;
    let shared = SharedMut::new(output);
    parallel_for(images.len(), 4, work, |range| {
        for region in range {
            // SAFETY: each region has a part of its own.
            let target = unsafe { shared.slice(region * channels..(region + 1) * channels) };
            let maps = &input[images[region] * channels * plane..][..channels * plane];
            for (channel, (target, map)) in target.iter_mut().zip(maps.chunks_exact(plane)).enumerate() {
                let cell = channel % cells;
                let lines = rows[region * groups + cell / groups].clone();
                let places = columns[region * groups + cell % groups].clone();
                let count = lines.len() * places.len();
                // Sums in f64 do not depend on where a region lies.
                let mut sum = 0.0f64;
                if count > 0 {
                    for line in lines {
                        sum += map[line * width..][places.clone()].iter().map(|value| f64::from(*value)).sum::<f64>();
                    }
                }
                *target = if count == 0 { 0.0 } else { (sum / count as f64) as f32 };
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn means_of_parts() {
        let (outputs, groups, height, width) = (3, 2, 5, 4);
        let input = Random::new(2).values(2 * outputs * groups * groups * height * width);
        let rows = [0..2, 1..5, 3..3, 4..5];
        let columns = [0..4, 3..4, 0..1, 2..3];
        let run = || {
            let mut output = vec![9.0; 2 * outputs * groups * groups];
            let ranges = (&rows[..], &columns[..]);
            position_sensitive_means([2, height, width], [outputs, groups], &[1, 0], ranges, &input, &mut output)
                .unwrap();
            output
        };
        for (place, value) in run().iter().enumerate() {
            let (region, channel) = (place / 12, place % 12);
            let (row, column) = (&rows[region * 2 + channel % 4 / 2], &columns[region * 2 + channel % 2]);
            let image = 1 - region;
            let values: Vec<f64> = row
                .clone()
                .flat_map(|y| column.clone().map(move |x| (y, x)))
                .map(|(y, x)| f64::from(input[((image * 12 + channel) * height + y) * width + x]))
                .collect();
            let mean = if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 };
            assert!((f64::from(*value) - mean).abs() < 1e-6);
        }
        assert_eq!(run(), in_pool(2, run));
        let mut output = [0.0; 4];
        let whole = [0..2, 0..2];
        let misfit = position_sensitive_means([1, 1, 2], [1, 2], &[0], (&whole, &whole), &[0.0; 8], &mut output);
        assert!(misfit.is_err());
    }
}
