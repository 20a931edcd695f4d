//! Channels of blocked values put side by side: concatenations, splits and slices along channels.

use std::ops::Range;

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact};
use crate::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};

/// Some channels of a blocked value.
#[derive(Debug, Clone)]
pub struct ChannelRange<'a, T> {
    /// The value, blocked `[batch, channels, positions]`.
    pub values: &'a [T],
    /// The channels of the value.
    pub channels: usize,
    /// Those that are taken.
    pub range: Range<usize>,
}

/// The positions that a thread writes at once, enough that finding out what they consist of costs nothing beside them.
const PIECE: usize = 256;

/// Lanes of one block that go to lanes of another.
#[derive(Clone, Copy)]
struct Lanes<'a, T> {
    /// The block of all positions.
    values: &'a [T],
    from: usize,
    to: usize,
    count: usize,
}

/// Writes blocked `[batch, channels, positions]` whose channels are those of `parts`, one part after the other.
///
/// # Errors
/// A slice has the wrong length, or a part takes channels that its value does not have.
pub fn blocked_channels<T: Copy + Send + Sync>(
    batch: usize,
    positions: usize,
    parts: &[ChannelRange<'_, T>],
    output: &mut [T],
) -> Result<(), KernelError> {
    let mut channels = 0usize;
    for part in parts {
        check_exact("values", part.values.len(), blocked_len(batch, part.channels, positions))?;
        if part.range.start > part.range.end || part.range.end > part.channels {
            return Err(KernelError::invalid("range", "takes channels that the value does not have"));
        }
        channels = channels.saturating_add(part.range.len());
    }
    check_exact("output", output.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let blocks = channels.div_ceil(BLOCK);
    let work = nanoseconds_for_bytes(size_of_val(output).saturating_mul(2));
    parallel_chunks_mut(output, PIECE * BLOCK, work, |index, mut rest| {
        let mut first = index * PIECE;
        while !rest.is_empty() {
            let (plane, position) = (first / positions, first % positions);
            let count = (positions - position).min(rest.len() / BLOCK);
            let (here, after) = rest.split_at_mut(count * BLOCK);
            let (image, block) = (plane / blocks, plane % blocks);
            let wanted = block * BLOCK..channels.min((block + 1) * BLOCK);
            fill_block(parts, positions, image, wanted, position * BLOCK, here);
            (first, rest) = (first + count, after);
        }
    });
    Ok(())
}

/// Writes some positions of the block of the `wanted` channels; `at` is where the first of them begins in a block.
fn fill_block<T: Copy>(
    parts: &[ChannelRange<'_, T>],
    positions: usize,
    image: usize,
    wanted: Range<usize>,
    at: usize,
    output: &mut [T],
) {
    let empty = Lanes { values: &[], from: 0, to: 0, count: 0 };
    // Each takes a lane at least.
    let mut moves = [empty; BLOCK];
    let mut used = 0;
    let mut start = 0;
    for part in parts {
        let (first, end) = (wanted.start.max(start), wanted.end.min(start + part.range.len()));
        let mut channel = first;
        while channel < end {
            let source = part.range.start + channel - start;
            let from = source % BLOCK;
            let count = (end - channel).min(BLOCK - from);
            let plane = image * part.channels.div_ceil(BLOCK) + source / BLOCK;
            let values = &part.values[plane * positions * BLOCK + at..][..output.len()];
            moves[used] = Lanes { values, from, to: channel - wanted.start, count };
            used += 1;
            channel += count;
        }
        start += part.range.len();
    }
    match &moves[..used] {
        // Lanes beyond the last channel hold anything.
        [Lanes { values, from: 0, to: 0, .. }] => output.copy_from_slice(values),
        [a] => move_lanes([*a], output),
        [a, b] => move_lanes([*a, *b], output),
        [a, b, c] => move_lanes([*a, *b, *c], output),
        _ => move_lanes(moves, output),
    }
}

/// Moves lanes of all positions. A copy is of a whole block, whatever it moves: what it writes too much belongs to the
/// moves and positions that follow. Only those of the last position are of their own length.
#[inline(always)]
fn move_lanes<T: Copy, const N: usize>(moves: [Lanes<'_, T>; N], output: &mut [T]) {
    let last = output.len() - BLOCK;
    let moves = moves.map(|lanes| Lanes { values: lanes.values.get(lanes.from..).unwrap_or_default(), ..lanes });
    for place in (0..last).step_by(BLOCK) {
        for lanes in moves.iter().filter(|lanes| N < BLOCK || lanes.count > 0) {
            output[place + lanes.to..][..BLOCK].copy_from_slice(&lanes.values[place..][..BLOCK]);
        }
    }
    for lanes in moves.iter().filter(|lanes| lanes.count > 0) {
        output[last + lanes.to..][..lanes.count].copy_from_slice(&lanes.values[last..][..lanes.count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{codes_from_plain, codes_to_plain, from_plain, to_plain};
    use crate::testing::Random;
    use pretty_assertions::assert_eq;
    use std::array::from_fn;

    /// A plain value of `[batch, channels, positions]` and its blocks, whose lanes beyond the last channel are not zero.
    fn value(random: &mut Random, batch: usize, channels: usize, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let plain = random.values(batch * channels * positions);
        let mut blocked = vec![0.0; blocked_len(batch, channels, positions)];
        from_plain(batch, channels, positions, &plain, &mut blocked).unwrap();
        for (index, element) in blocked.iter_mut().enumerate() {
            let block = index / (positions * BLOCK) % channels.div_ceil(BLOCK);
            if block * BLOCK + index % BLOCK >= channels {
                *element = 777.0;
            }
        }
        (plain, blocked)
    }

    #[test]
    fn parts_of_any_size_lie_side_by_side() {
        let mut random = Random::new(5);
        let (ones, middles): ([_; 20], [_; 16]) = (from_fn(|_| (1, 0..1)), from_fn(|_| (3, 1..2)));
        let cases: [&[(usize, Range<usize>)]; 9] = [
            &[(16, 0..16), (32, 0..32)],
            &[(24, 0..24), (24, 0..24)],
            &[(8, 0..8), (8, 0..8), (1, 0..1), (37, 0..37)],
            &[(40, 3..37)],
            &[(40, 8..16)],
            &[(40, 16..40)],
            &[(33, 20..33), (5, 5..5), (19, 1..18)],
            &ones,
            &middles,
        ];
        for parts in cases {
            for (batch, positions) in [(1, 1), (2, 5), (1, 49), (3, 16), (1, PIECE + 1), (2, 2 * PIECE - 3)] {
                let values: Vec<_> =
                    parts.iter().map(|(count, _)| value(&mut random, batch, *count, positions)).collect();
                let total = parts.iter().map(|(_, range)| range.len()).sum();
                let mut expected = Vec::new();
                for image in 0..batch {
                    for ((plain, _), (count, range)) in values.iter().zip(parts) {
                        let first = (image * count + range.start) * positions;
                        expected.extend_from_slice(&plain[first..first + range.len() * positions]);
                    }
                }
                let ranges: Vec<_> = values
                    .iter()
                    .zip(parts)
                    .map(|((_, values), (channels, range))| ChannelRange {
                        values,
                        channels: *channels,
                        range: range.clone(),
                    })
                    .collect();
                let mut blocked = vec![0.0; blocked_len(batch, total, positions)];
                blocked_channels(batch, positions, &ranges, &mut blocked).unwrap();
                let mut plain = vec![0.0; batch * total * positions];
                to_plain(batch, total, positions, &blocked, &mut plain).unwrap();
                assert_eq!(plain, expected, "{parts:?} of {batch} images with {positions} positions");
            }
        }
    }

    #[test]
    fn codes_move_as_values_do() {
        let (batch, positions) = (2, 21);
        let first: Vec<u8> = (0..batch * 20 * positions).map(|i| (i % 251) as u8).collect();
        let second: Vec<u8> = (0..batch * 9 * positions).map(|i| (i % 241) as u8).collect();
        let blocked = |plain: &[u8], channels| {
            let mut blocked = vec![0; blocked_len(batch, channels, positions)];
            codes_from_plain(batch, channels, positions, plain, &mut blocked).unwrap();
            blocked
        };
        let (a, b) = (blocked(&first, 20), blocked(&second, 9));
        let parts = [
            ChannelRange { values: &a[..], channels: 20, range: 2..20 },
            ChannelRange { values: &b[..], channels: 9, range: 0..9 },
        ];
        let mut joined = vec![0; blocked_len(batch, 27, positions)];
        blocked_channels(batch, positions, &parts, &mut joined).unwrap();
        let mut plain = vec![0; batch * 27 * positions];
        codes_to_plain(batch, 27, positions, &joined, &mut plain).unwrap();
        let image = |values: &[u8], of: usize, channels: usize, skipped: usize| {
            values[(of * channels + skipped) * positions..(of + 1) * channels * positions].to_vec()
        };
        let expected: Vec<u8> =
            (0..batch).flat_map(|of| [image(&first, of, 20, 2), image(&second, of, 9, 0)].concat()).collect();
        assert_eq!(plain, expected);
    }

    #[test]
    fn parts_that_do_not_fit_are_errors() {
        let values = [0.0f32; 32];
        let part = |range| [ChannelRange { values: &values[..], channels: 20, range }];
        let mut output = [0.0; 32];
        assert!(blocked_channels(1, 1, &part(0..21), &mut output).is_err());
        assert!(blocked_channels(1, 2, &part(0..20), &mut output).is_err());
        assert!(blocked_channels(1, 1, &part(0..10), &mut output).is_err());
        blocked_channels(1, 1, &part(0..17), &mut output).unwrap();
    }
}
