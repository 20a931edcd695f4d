//! Kernels over channels in blocks of sixteen (`nChw16c`).
//!
//! A blocked tensor of shape `[N, C, H, W]` is stored as `[N, ceil(C / 16), H, W, 16]`, and one with a depth as
//! `[N, ceil(C / 16), D, H, W, 16]`. Lanes beyond the last channel
//! hold anything and are never used; [`to_plain`] drops them. Elementwise kernels therefore run over a blocked tensor
//! as over a plain one. The layout is the same for every tier.

mod channels;
mod depthwise;
mod direct;
mod grid;
mod levels;
mod mean_variance;
mod narrow;
mod pad;
mod planes;
mod regions;
mod rows;
mod transposed;

pub use channels::{ChannelRange, blocked_channels};
pub use depthwise::{BlockedDepthwise, DepthwiseInput, DepthwiseWeights, blocked_depthwise};
pub(crate) use direct::{AxisView, PlaneView, lanes_from, slopes_from};
pub use direct::{
    BlockedConvolution, BlockedInput, blocked_convolution, blocked_convolution_nanoseconds,
    blocked_convolution_scratch_len,
};
pub use grid::{GridMode, GridPadding, GridRule, blocked_grid_sample, grid_sample};
pub use levels::{ChannelLevels, blocked_fake_quantize};
pub use mean_variance::{
    GroupMeanVariance, MeanVariance, blocked_channel_normalization, blocked_group_normalization, blocked_mean_variance,
    blocked_mean_variance_scratch_len,
};
pub use narrow::{MOST_NARROW, NarrowConvolution, narrow_convolution};
pub use pad::blocked_pad;
pub use planes::{MOST_DIRECT_TAPS, PoolingKind, blocked_pooling};
pub(crate) use planes::{volumes, window};
pub use regions::{MOST_BINS, RegionMap, RegionPool, RegionTable, blocked_regions};
pub use rows::{from_rows, to_rows};
pub use transposed::{BlockedTransposed, NarrowTransposed, blocked_transposed, narrow_transposed};

use crate::error::{KernelError, check_exact, product};
use crate::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};
use crate::tile::{BYTE_SIDE, SIDE, columns, transpose};
use std::ops::Range;

/// Channels in one block.
pub const BLOCK: usize = 16;

/// Elements of the blocked form of `[batch, channels, positions]`.
#[must_use]
pub fn blocked_len(batch: usize, channels: usize, positions: usize) -> usize {
    batch.saturating_mul(channels.next_multiple_of(BLOCK)).saturating_mul(positions)
}

/// Writes the blocked form of a plain `[batch, channels, positions]`; lanes beyond the last channel become zero.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn from_plain(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let isa = crate::isa::detect();
    write_blocks([batch, channels, positions], input, output, |input, range, output| {
        let (input, count) = (&input[range.start * positions..range.end * positions], range.len());
        let Some(last) = positions.checked_sub(SIDE) else {
            output.fill(0.0);
            input.chunks_exact(positions).enumerate().for_each(|(lane, line)| spread(line, output, lane));
            return;
        };
        // The last positions are those of a tile that has some in common with the one before.
        for position in (0..last).step_by(SIDE).chain([last]) {
            for channel in [0, SIDE] {
                let rows = count.saturating_sub(channel).min(SIDE);
                let (place, mut tile) = (channel * positions + position, [[0.0; SIDE]; SIDE]);
                let (from, stride) = if rows == SIDE {
                    (input[place..].as_ptr(), positions)
                } else {
                    for (index, row) in tile.iter_mut().enumerate().take(rows) {
                        row.copy_from_slice(&input[place + index * positions..][..SIDE]);
                    }
                    (tile.as_flattened().as_ptr(), SIDE)
                };
                let to = output[position * BLOCK + channel..].as_mut_ptr();
                // SAFETY: eight channels of eight positions lie in the output, and either in the input or in the tile.
                unsafe { transpose(isa, from, stride, to, BLOCK) };
            }
        }
    })
}

/// Writes the plain `[batch, channels, positions]` of a blocked form.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn to_plain(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let isa = crate::isa::detect();
    read_blocks([batch, channels, positions], input, output, |input, output, work| {
        parallel_chunks_mut(output, BLOCK * positions, work, |block, output| {
            let input = &input[block * positions * BLOCK..][..positions * BLOCK];
            let count = output.len() / positions;
            let Some(last) = positions.checked_sub(SIDE) else {
                let lines = output.chunks_exact_mut(positions).enumerate();
                lines.for_each(|(lane, line)| collect(input, lane, line));
                return;
            };
            // The last positions are those of a tile that has some in common with the one before.
            for position in (0..last).step_by(SIDE).chain([last]) {
                for channel in [0, SIDE] {
                    let rows = count.saturating_sub(channel).min(SIDE);
                    let (place, mut tile) = (channel * positions + position, [[0.0; SIDE]; SIDE]);
                    let from = input[position * BLOCK + channel..].as_ptr();
                    let (to, stride) = match rows {
                        0 => continue,
                        SIDE => (output[place..].as_mut_ptr(), positions),
                        _ => (tile.as_flattened_mut().as_mut_ptr(), SIDE),
                    };
                    // SAFETY: eight channels of eight positions lie in the input, and either in the output or in the tile.
                    unsafe { transpose(isa, from, BLOCK, to, stride) };
                    if rows < SIDE {
                        for (index, row) in tile.iter().enumerate().take(rows) {
                            output[place + index * positions..][..SIDE].copy_from_slice(row);
                        }
                    }
                }
            }
        });
    })
}

/// As [`from_plain`], for codes of one byte.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn codes_from_plain(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    write_blocks([batch, channels, positions], input, output, |input, range, output| {
        let (input, count) = (&input[range.start * positions..range.end * positions], range.len());
        let whole = positions - positions % BYTE_SIDE;
        if count < BLOCK {
            output[whole * BLOCK..].fill(0);
        }
        for (index, block) in output[..whole * BLOCK].chunks_exact_mut(BYTE_SIDE * BLOCK).enumerate() {
            let mut rows = [[0; BYTE_SIDE]; BLOCK];
            for (row, line) in rows.iter_mut().zip(input.chunks_exact(positions)) {
                row.copy_from_slice(&line[index * BYTE_SIDE..][..BYTE_SIDE]);
            }
            block.copy_from_slice(columns(&rows).as_flattened());
        }
        let lines = input.chunks_exact(positions).map(|line| &line[whole..]);
        lines.enumerate().for_each(|(lane, line)| spread(line, output, whole * BLOCK + lane));
    })
}

/// As [`to_plain`], for codes of one byte.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn codes_to_plain(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    read_blocks([batch, channels, positions], input, output, |input, output, _| {
        for (block, lines) in output.chunks_mut(positions * BLOCK).enumerate() {
            let input = &input[block * positions * BLOCK..][..positions * BLOCK];
            let whole = positions - positions % BYTE_SIDE;
            let (rows, _) = input[..whole * BLOCK].as_chunks::<BLOCK>();
            for (index, rows) in rows.as_chunks::<BYTE_SIDE>().0.iter().enumerate() {
                for (line, column) in lines.chunks_exact_mut(positions).zip(columns(rows)) {
                    line[index * BYTE_SIDE..][..BYTE_SIDE].copy_from_slice(&column);
                }
            }
            for (lane, line) in lines.chunks_exact_mut(positions).enumerate() {
                collect(input, whole * BLOCK + lane, &mut line[whole..]);
            }
        }
    })
}

/// Writes the elements of one channel to its lane, from the place `first` on.
fn spread<T: Copy>(line: &[T], blocks: &mut [T], first: usize) {
    blocks.iter_mut().skip(first).step_by(BLOCK).zip(line).for_each(|(place, value)| *place = *value);
}

/// Reads the elements of one channel from its lane, from the place `first` on.
fn collect<T: Copy>(blocks: &[T], first: usize, line: &mut [T]) {
    line.iter_mut().zip(blocks.iter().skip(first).step_by(BLOCK)).for_each(|(place, value)| *place = *value);
}

/// Has each block of the blocked form of `[batch, channels, positions]` written from its image, which is given with the
/// block's channels.
fn write_blocks<T: Send + Sync>(
    [batch, channels, positions]: [usize; 3],
    input: &[T],
    output: &mut [T],
    write: impl Fn(&[T], Range<usize>, &mut [T]) + Sync,
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[batch, channels, positions])?)?;
    check_exact("output", output.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let (blocks, work) = (channels.div_ceil(BLOCK), nanoseconds_for_bytes(input.len().saturating_mul(16)));
    parallel_chunks_mut(output, positions * BLOCK, work, |index, output| {
        let (image, first) = (index / blocks, index % blocks * BLOCK);
        let input = &input[image * channels * positions..][..channels * positions];
        write(input, first..channels.min(first + BLOCK), output);
    });
    Ok(())
}

/// Has the `channels * positions` values of each image written from its blocks; the last argument is the estimated work of
/// one image, in nanoseconds.
fn read_blocks<T: Send + Sync>(
    [batch, channels, positions]: [usize; 3],
    input: &[T],
    output: &mut [T],
    write: impl Fn(&[T], &mut [T], u64) + Sync,
) -> Result<(), KernelError> {
    check_exact("output", output.len(), product("output", &[batch, channels, positions])?)?;
    check_exact("input", input.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let work = nanoseconds_for_bytes(output.len().saturating_mul(16));
    parallel_chunks_mut(output, channels * positions, work, |image, output| {
        let len = blocked_len(1, channels, positions);
        write(&input[image * len..][..len], output, work / batch as u64);
    });
    Ok(())
}

#[cfg(test)]
mod tests;
