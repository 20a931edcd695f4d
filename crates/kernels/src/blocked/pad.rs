//! Padding of blocked tensors with a constant.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact, product};
use crate::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};

/// Copies blocked `[batch, channels, height, width]` into a larger one, whose further elements become `value`: `begin`
/// lines and columns come first, and further channels are the last.
///
/// # Errors
/// A slice has the wrong length, or the output is smaller than the padded input or has another batch.
pub fn blocked_pad(
    value: f32,
    from: [usize; 4],
    to: [usize; 4],
    begin: [usize; 2],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [batch, channels, high, wide] = from;
    let fits = |axis: usize| from[axis + 2].checked_add(begin[axis]).is_some_and(|end| end <= to[axis + 2]);
    if to[0] != batch || to[1] < channels || !fits(0) || !fits(1) {
        return Err(KernelError::invalid("to", "is smaller than the padded input"));
    }
    check_exact("input", input.len(), blocked_len(batch, channels, product("input", &[high, wide])?))?;
    check_exact("output", output.len(), blocked_len(batch, to[1], product("output", &to[2..])?))?;
    let (blocks_in, blocks_out) = (channels.div_ceil(BLOCK), to[1].div_ceil(BLOCK));
    let (line_in, line_out) = (wide * BLOCK, to[3] * BLOCK);
    // Lanes of the last block that are channels of the output only.
    let fresh = if to[1] > channels { channels % BLOCK } else { 0 };
    let work = nanoseconds_for_bytes(output.len().saturating_mul(8));
    parallel_chunks_mut(output, line_out, work, |first, lines| {
        for (offset, line) in lines.chunks_exact_mut(line_out).enumerate() {
            let (plane, y) = ((first + offset) / to[2], (first + offset) % to[2]);
            let (image, block) = (plane / blocks_out, plane % blocks_out);
            let row = y.checked_sub(begin[0]).filter(|row| *row < high && block < blocks_in);
            let Some(row) = row else {
                line.fill(value);
                continue;
            };
            let source = &input[((image * blocks_in + block) * high + row) * line_in..][..line_in];
            let (before, rest) = line.split_at_mut(begin[1] * BLOCK);
            let (middle, after) = rest.split_at_mut(line_in);
            before.fill(value);
            middle.copy_from_slice(source);
            after.fill(value);
            if fresh > 0 && block + 1 == blocks_in {
                middle.as_chunks_mut::<BLOCK>().0.iter_mut().for_each(|lanes| lanes[fresh..].fill(value));
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{from_plain, to_plain};
    use crate::testing::Random;
    use pretty_assertions::assert_eq;

    #[test]
    fn pads_as_on_plain_values() {
        let cases = [
            ([2, 8, 3, 4], [2, 16, 3, 4], [0, 0]),
            ([1, 8, 3, 4], [1, 40, 5, 6], [1, 2]),
            ([1, 32, 2, 2], [1, 48, 2, 3], [0, 1]),
            ([1, 20, 2, 2], [1, 20, 3, 2], [1, 0]),
        ];
        for (from, to, begin) in cases {
            let values = Random::new(7).values(from.iter().product());
            let mut blocked = vec![f32::NAN; blocked_len(from[0], from[1], from[2] * from[3])];
            from_plain(from[0], from[1], from[2] * from[3], &values, &mut blocked).unwrap();
            // Lanes beyond the last channel hold anything.
            if from[1] % BLOCK != 0 {
                let last = from[1] / BLOCK * from[2] * from[3] * BLOCK;
                for place in (last..last + from[2] * from[3] * BLOCK).filter(|place| place % BLOCK >= from[1] % BLOCK) {
                    blocked[place] = f32::NAN;
                }
            }
            let mut padded = vec![f32::NAN; blocked_len(to[0], to[1], to[2] * to[3])];
            blocked_pad(1.5, from, to, begin, &blocked, &mut padded).unwrap();
            let mut result = vec![0.0; to.iter().product()];
            to_plain(to[0], to[1], to[2] * to[3], &padded, &mut result).unwrap();
            for (index, value) in result.iter().enumerate() {
                let (x, rest) = (index % to[3], index / to[3]);
                let (y, rest) = (rest % to[2], rest / to[2]);
                let (channel, image) = (rest % to[1], rest / to[1]);
                let inside = (begin[0]..begin[0] + from[2]).contains(&y) && (begin[1]..begin[1] + from[3]).contains(&x);
                let expected = if channel < from[1] && inside {
                    values[((image * from[1] + channel) * from[2] + y - begin[0]) * from[3] + x - begin[1]]
                } else {
                    1.5
                };
                assert_eq!(*value, expected, "{from:?} {to:?} {begin:?} at {index}");
            }
        }
        assert!(blocked_pad(0.0, [1, 8, 2, 2], [1, 8, 2, 1], [0, 0], &[0.0; 64], &mut [0.0; 32]).is_err());
    }
}
