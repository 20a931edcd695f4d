//! Rows of channels (`[N, positions, C]`) into blocks and back: what a Transpose does around layers on blocks.

use super::{BLOCK, read_blocks, write_blocks};
use crate::error::KernelError;
use crate::parallel::parallel_chunks_mut;

/// The positions that one task takes from rows: so many rows stay in the cache while their blocks are read.
const ROWS: usize = 64;

/// Writes the blocked form of `[batch, positions, channels]`, of values or of codes; lanes beyond the last channel become zero.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn from_rows<T: Copy + Default + Send + Sync>(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    write_blocks([batch, channels, positions], input, output, |input, range, output| {
        for (row, lanes) in input.chunks_exact(channels).zip(output.as_chunks_mut::<BLOCK>().0) {
            match row[range.start..].first_chunk() {
                Some(whole) => *lanes = *whole,
                None => {
                    lanes[..range.len()].copy_from_slice(&row[range.start..]);
                    lanes[range.len()..].fill(T::default());
                }
            }
        }
    })
}

/// Writes `[batch, positions, channels]` of a blocked form, of values or of codes.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn to_rows<T: Copy + Send + Sync>(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    read_blocks([batch, channels, positions], input, output, |input, output, work| {
        parallel_chunks_mut(output, ROWS * channels, work, |task, output| {
            for (block, first) in (0..channels).step_by(BLOCK).enumerate() {
                let lanes = &input[(block * positions + task * ROWS) * BLOCK..];
                for (row, lanes) in output.chunks_exact_mut(channels).zip(lanes.as_chunks::<BLOCK>().0) {
                    match row[first..].first_chunk_mut() {
                        Some(whole) => *whole = *lanes,
                        None => row[first..].copy_from_slice(&lanes[..channels - first]),
                    }
                }
            }
        });
    })
}
