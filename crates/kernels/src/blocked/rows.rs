//! Rows of channels (`[N, positions, C]`) into blocks and back: what a Transpose does around layers on blocks.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact, product};
use crate::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};

/// The positions that one task takes from rows: so many rows stay in the cache while their blocks are read.
const ROWS: usize = 64;

/// Writes the blocked form of `[batch, positions, channels]`; lanes beyond the last channel become zero.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn from_rows(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[batch, positions, channels])?)?;
    check_exact("output", output.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let (blocks, work) = (channels.div_ceil(BLOCK), nanoseconds_for_bytes(input.len().saturating_mul(8)));
    parallel_chunks_mut(output, positions * BLOCK, work, |index, output| {
        let (image, first) = (index / blocks, index % blocks * BLOCK);
        let rows = input[image * positions * channels..][..positions * channels].chunks_exact(channels);
        let count = BLOCK.min(channels - first);
        for (row, lanes) in rows.zip(output.as_chunks_mut::<BLOCK>().0) {
            match row[first..].first_chunk() {
                Some(whole) => *lanes = *whole,
                None => {
                    lanes[..count].copy_from_slice(&row[first..]);
                    lanes[count..].fill(0.0);
                }
            }
        }
    });
    Ok(())
}

/// Writes `[batch, positions, channels]` of a blocked form.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn to_rows(
    batch: usize,
    channels: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("output", output.len(), product("output", &[batch, positions, channels])?)?;
    check_exact("input", input.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let work = nanoseconds_for_bytes(output.len().saturating_mul(8));
    parallel_chunks_mut(output, positions * channels, work, |image, output| {
        let input = &input[image * positions * channels.next_multiple_of(BLOCK)..];
        parallel_chunks_mut(output, ROWS * channels, work / batch as u64, |task, output| {
            let start = task * ROWS;
            for (block, first) in (0..channels).step_by(BLOCK).enumerate() {
                let lanes = &input[(block * positions + start) * BLOCK..];
                let count = BLOCK.min(channels - first);
                for (row, lanes) in output.chunks_exact_mut(channels).zip(lanes.as_chunks::<BLOCK>().0) {
                    match row[first..].first_chunk_mut() {
                        Some(whole) => *whole = *lanes,
                        None => row[first..].copy_from_slice(&lanes[..count]),
                    }
                }
            }
        });
    });
    Ok(())
}
