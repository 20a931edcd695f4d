//! Random numbers from Philox 4x32 with ten rounds (Salmon and others, *Parallel Random Numbers: As Easy as 1, 2, 3*).

use crate::isa::Isa;
use crate::parallel::parallel_chunks_mut;
use crate::simd::{Kernel, Simd, dispatch};

/// Counters whose numbers are made side by side.
const SIDE: usize = 64;

/// Numbers of a counter.
const NUMBERS: usize = 4;

/// Counters of a parallel chunk.
const CHUNK: usize = 1 << 11;

/// A place in a stream of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Philox {
    /// The key.
    pub key: u64,
    /// The high half of the counter.
    pub counter: u64,
    /// The low half of the counter.
    pub position: u64,
}

impl Philox {
    /// The place so many counters behind it.
    #[must_use]
    pub fn skip(self, counters: u64) -> Philox {
        let (position, carries) = self.position.overflowing_add(counters);
        Philox { counter: self.counter.wrapping_add(u64::from(carries)), position, ..self }
    }

    /// The four numbers of the counter so many behind it, in two pairs whose first is the low half.
    #[inline(always)]
    fn pairs(self, counters: u64) -> [u64; 2] {
        let Philox { key, counter, position } = self.skip(counters);
        let (mut key, low) = ([key & LOW, key >> 32], |number: u64| number & LOW);
        let (mut n, mut c) = ([low(position), position >> 32], [low(counter), counter >> 32]);
        for _ in 0..10 {
            let (from_n, from_c) = (0xD251_1F53 * n[0], 0xCD9E_8D57 * c[0]);
            n = [(from_c >> 32) ^ n[1] ^ key[0], low(from_c)];
            c = [(from_n >> 32) ^ c[1] ^ key[1], low(from_n)];
            key = [low(key[0] + 0x9E37_79B9), low(key[1] + 0xBB67_AE85)];
        }
        [n[0] | n[1] << 32, c[0] | c[1] << 32]
    }
}

/// The low half of a number.
const LOW: u64 = u32::MAX as u64;

/// Numbers evenly distributed over `[low, high)`, made of those of a stream.
pub trait Uniform: Copy + Send + Sync + 'static {
    /// How many a counter gives.
    const OF_COUNTER: usize;
    /// What is known of two limits.
    type Range: Copy + Send + Sync;
    /// The limits `low < high`.
    fn range(low: Self, high: Self) -> Self::Range;
    /// Writes what becomes of the pairs of some counters; the last ones may be wanted in part only.
    fn convert(range: Self::Range, pairs: &[[u64; 2]], target: &mut [Self]);
}

/// Fills the output with numbers between two limits, `low < high`, from a place in a stream on.
pub fn fill_uniform<T: Uniform>(isa: Isa, from: Philox, [low, high]: [T; 2], output: &mut [T]) {
    let range = T::range(low, high);
    let counters = output.len().div_ceil(T::OF_COUNTER);
    // About 4 cycles a counter, of vectors of eight.
    parallel_chunks_mut(output, CHUNK * T::OF_COUNTER, counters as u64, |chunk, target| {
        dispatch(isa, Chunk { from: from.skip((chunk * CHUNK) as u64), range, target });
    });
}

/// Some neighbouring numbers.
struct Chunk<'a, T: Uniform> {
    from: Philox,
    range: T::Range,
    target: &'a mut [T],
}

impl<T: Uniform> Kernel for Chunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Chunk { mut from, range, target } = self;
        let mut pairs = [[0u64; 2]; SIDE];
        for target in target.chunks_mut(SIDE * T::OF_COUNTER) {
            for (index, pairs) in pairs.iter_mut().enumerate() {
                *pairs = from.pairs(index as u64);
            }
            T::convert(range, &pairs, target);
            from = from.skip(SIDE as u64);
        }
    }
}

impl Uniform for f32 {
    const OF_COUNTER: usize = NUMBERS;
    type Range = [f32; 2];

    fn range(low: f32, high: f32) -> [f32; 2] {
        [low, high - low]
    }

    #[inline(always)]
    fn convert([low, width]: [f32; 2], pairs: &[[u64; 2]], target: &mut [f32]) {
        numbers(pairs, target, |x| (f32::from_bits(127 << 23 | x & 0x7f_ffff) - 1.0) * width + low);
    }
}

/// A divisor with its inverse, which is too small by less than one and its last place.
#[derive(Debug, Clone, Copy)]
pub struct Divisor<T> {
    value: T,
    inverse: T,
}

impl Uniform for i32 {
    const OF_COUNTER: usize = NUMBERS;
    type Range = (u32, Divisor<u32>);

    fn range(low: i32, high: i32) -> Self::Range {
        let value = (high.wrapping_sub(low) as u32).max(1);
        (low as u32, Divisor { value, inverse: u32::MAX / value })
    }

    #[inline(always)]
    fn convert((low, Divisor { value, inverse }): Self::Range, pairs: &[[u64; 2]], target: &mut [i32]) {
        numbers(pairs, target, |x| {
            let quotient = ((u64::from(x) * u64::from(inverse)) >> 32) as u32;
            // The quotient lacks two at most.
            let rest = x.wrapping_sub(quotient.wrapping_mul(value));
            let rest = rest.min(rest.wrapping_sub(value));
            rest.min(rest.wrapping_sub(value)).wrapping_add(low) as i32
        });
    }
}

impl Uniform for i64 {
    const OF_COUNTER: usize = NUMBERS / 2;
    type Range = (u64, Divisor<u64>);

    fn range(low: i64, high: i64) -> Self::Range {
        let value = (high.wrapping_sub(low) as u64).max(1);
        (low as u64, Divisor { value, inverse: u64::MAX / value })
    }

    #[inline(always)]
    fn convert((low, Divisor { value, inverse }): Self::Range, pairs: &[[u64; 2]], target: &mut [i64]) {
        for (target, x) in target.iter_mut().zip(pairs.as_flattened()) {
            // The quotient lacks two at most.
            let rest = x.wrapping_sub(high_product(*x, inverse).wrapping_mul(value));
            let rest = rest.min(rest.wrapping_sub(value));
            *target = rest.min(rest.wrapping_sub(value)).wrapping_add(low) as i64;
        }
    }
}

/// The high half of the product, of four products that vectors have instructions for.
#[inline(always)]
fn high_product(a: u64, b: u64) -> u64 {
    let ([a_low, a_high], [b_low, b_high]) = ([a & LOW, a >> 32], [b & LOW, b >> 32]);
    let middle = a_high * b_low + ((a_low * b_low) >> 32);
    let other = a_low * b_high + (middle & LOW);
    a_high * b_high + (middle >> 32) + (other >> 32)
}

/// Converts one number after the other.
#[inline(always)]
fn numbers<T>(pairs: &[[u64; 2]], target: &mut [T], convert: impl Fn(u32) -> T) {
    let (whole, rest) = target.as_chunks_mut::<2>();
    let pairs = pairs.as_flattened();
    for (target, pair) in whole.iter_mut().zip(pairs) {
        *target = [convert(*pair as u32), convert((*pair >> 32) as u32)];
    }
    if let ([target], Some(pair)) = (rest, pairs.get(whole.len())) {
        *target = convert(*pair as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    /// The definition: ten rounds over numbers of 32 bits.
    fn defined(at: Philox) -> [u32; 4] {
        let split = |x: u64| [x as u32, (x >> 32) as u32];
        let (mut key, mut n, mut c) = (split(at.key), split(at.position), split(at.counter));
        for _ in 0..10 {
            let from_n = split(0xD251_1F53 * u64::from(n[0]));
            let from_c = split(0xCD9E_8D57 * u64::from(c[0]));
            n = [from_c[1] ^ n[1] ^ key[0], from_c[0]];
            c = [from_n[1] ^ c[1] ^ key[1], from_n[0]];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        [n[0], n[1], c[0], c[1]]
    }

    /// So many numbers from a place on.
    fn stream(mut at: Philox, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            numbers.extend(defined(at));
            let position = at.position.wrapping_add(1);
            at = Philox { position, counter: at.counter.wrapping_add(u64::from(position == 0)), ..at };
        }
        numbers
    }

    fn check<T: Uniform + PartialEq + std::fmt::Debug + Default>(
        random: &mut Random,
        limits: [T; 2],
        expected: impl Fn(&[u32], usize) -> T,
    ) {
        for count in [0, 1, 2, 3, 4, 5, 127, 128, 129, 255, 257, 1000, 40_001] {
            let near = random.between(0, 300) as u64;
            for (counter, position) in [(0, 0), (7, near), (7, near.wrapping_neg()), (u64::MAX, u64::MAX - 20)] {
                let from = Philox { key: (random.next() << 20) ^ random.next(), counter, position };
                let numbers = stream(from, 2 * count + 4);
                let expected: Vec<T> = (0..count).map(|index| expected(&numbers, index)).collect();
                for isa in Isa::available() {
                    for threads in 1..3 {
                        let mut output = vec![T::default(); count];
                        in_pool(threads, || fill_uniform(isa, from, limits, &mut output));
                        assert!(output == expected, "{isa}: {count} from {from:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn streams_are_those_of_the_definition() {
        let mut random = Random::new(4);
        let known = Philox { key: 0x0370_7344_1319_8a2e, counter: 0x85a3_08d3_243f_6a88, position: 0 };
        assert_eq!(stream(known, 4), defined(known));
        // Counter and key of all ones, from the test vectors of Random123.
        let ones = Philox { key: u64::MAX, counter: u64::MAX, position: u64::MAX };
        assert_eq!(defined(ones), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        for [low, high] in [[0.0f32, 1.0], [-3.5, 1e10], [f32::MIN, f32::MAX], [1e-45, 3e-45]] {
            let convert = |x: u32| (f32::from_bits(127 << 23 | x & 0x7f_ffff) - 1.0) * (high - low) + low;
            check(&mut random, [low, high].map(f32::to_bits).map(Bits), |x, i| Bits(convert(x[i]).to_bits()));
        }
        for [low, high] in [[0i32, 100], [-7, -6], [i32::MIN, i32::MAX], [-5, i32::MAX], [0, 1 << 30], [3, 70_000]] {
            let range = high.wrapping_sub(low) as u32;
            check(&mut random, [low, high], |x, i| (x[i] % range).wrapping_add(low as u32) as i32);
        }
        let wide = [[i64::MIN, i64::MAX], [-5, i64::MAX], [0, 1 << 62], [3, 70_000], [-9, -8], [0, 1 << 32], [0, 100]];
        for [low, high] in wide {
            let range = high.wrapping_sub(low) as u64;
            check(&mut random, [low, high], |x, i| {
                let number = u64::from(x[2 * i + 1]) << 32 | u64::from(x[2 * i]);
                (number % range).wrapping_add(low as u64) as i64
            });
        }
    }

    /// An f32 that is the same where its bits are.
    #[derive(Debug, Clone, Copy, PartialEq, Default)]
    struct Bits(u32);

    impl Uniform for Bits {
        const OF_COUNTER: usize = f32::OF_COUNTER;
        type Range = [f32; 2];
        fn range(low: Bits, high: Bits) -> [f32; 2] {
            f32::range(f32::from_bits(low.0), f32::from_bits(high.0))
        }
        #[inline(always)]
        fn convert(range: [f32; 2], pairs: &[[u64; 2]], target: &mut [Bits]) {
            let mut values = vec![0.0; target.len()];
            f32::convert(range, pairs, &mut values);
            target.iter_mut().zip(values).for_each(|(target, value)| *target = Bits(value.to_bits()));
        }
    }

    #[test]
    fn remainders_by_multiplication() {
        let numbers = |i: u64| {
            let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            [i, u64::MAX - i, 1 << (i % 64), (1 << (i % 64)) - 1, scattered, scattered >> (i % 64), u64::MAX / (i + 1)]
        };
        let divisors: Vec<u64> = (1..60).flat_map(numbers).filter(|divisor| *divisor != 0).collect();
        for x in (0..300).flat_map(numbers) {
            for divisor in &divisors {
                assert_eq!(high_product(x, *divisor), ((u128::from(x) * u128::from(*divisor)) >> 64) as u64);
                let mut rest = [0i64];
                i64::convert(i64::range(0, *divisor as i64), &[[x, 0]], &mut rest);
                assert_eq!(rest[0] as u64, x % divisor, "{x} % {divisor}");
                let (x, divisor) = (x as u32, (*divisor as u32).max(1));
                let mut rest = [0i32];
                i32::convert(i32::range(0, divisor as i32), &[[u64::from(x), 0]], &mut rest);
                assert_eq!(rest[0] as u32, x % divisor, "{x} % {divisor}");
            }
        }
    }
}
