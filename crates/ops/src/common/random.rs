//! Random number generators: Philox 4x32-10 and MT19937.

/// The state array of MT19937.
const MERSENNE_SIZE: usize = 624;

/// A source of random 32-bit numbers.
pub(crate) trait Generator {
    /// Writes the next numbers, whose count is a multiple of four.
    fn fill(&mut self, numbers: &mut [u32]);
}

/// Philox 4x32 with ten rounds (Salmon and others, *Parallel Random Numbers: As Easy as 1, 2, 3*).
#[derive(Debug, Clone)]
pub(crate) struct Philox {
    /// The key, which is the global seed.
    pub key: u64,
    /// The high half of the counter, which is the seed of the operation.
    pub counter: u64,
    /// The low half of the counter: the position in the sequence.
    pub position: u64,
}

impl Generator for Philox {
    fn fill(&mut self, numbers: &mut [u32]) {
        for four in numbers.chunks_mut(4) {
            for (number, word) in four.iter_mut().zip(self.block()) {
                *number = word;
            }
            self.step();
        }
    }
}

impl Philox {
    /// The four numbers of the counter.
    #[inline]
    fn block(&self) -> [u32; 4] {
        let mut key = split(self.key);
        let (mut n, mut counter) = (split(self.position), split(self.counter));
        for _ in 0..10 {
            let product_n = split(0xD251_1F53 * u64::from(n[0]));
            let product_counter = split(0xCD9E_8D57 * u64::from(counter[0]));
            n = [product_counter[1] ^ n[1] ^ key[0], product_counter[0]];
            counter = [product_n[1] ^ counter[1] ^ key[1], product_n[0]];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        [n[0], n[1], counter[0], counter[1]]
    }

    /// Goes on to the next counter.
    #[inline]
    fn step(&mut self) {
        self.position = self.position.wrapping_add(1);
        if self.position == 0 {
            self.counter = self.counter.wrapping_add(1);
        }
    }
}

/// The Mersenne twister MT19937 (Matsumoto and Nishimura).
#[derive(Debug, Clone)]
pub(crate) struct Mersenne {
    state: Box<[u32; MERSENNE_SIZE]>,
    used: usize,
}

impl Mersenne {
    /// A generator started from the low 32 bits of a seed.
    pub(crate) fn new(seed: u64) -> Mersenne {
        let mut state = Box::new([0u32; MERSENNE_SIZE]);
        state[0] = split(seed)[0];
        for i in 1..MERSENNE_SIZE {
            let previous = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(i as u32);
        }
        Mersenne { state, used: MERSENNE_SIZE }
    }

    /// A generator started as the C++ library does from a `std::seed_seq` of the low 32 bits of some seeds.
    pub(crate) fn of_sequence(seeds: &[u64]) -> Mersenne {
        let mut state = Box::new([0u32; MERSENNE_SIZE]);
        spread(seeds, &mut state);
        if state[0] & 0x8000_0000 == 0 && state[1..].iter().all(|word| *word == 0) {
            state[0] = 0x8000_0000;
        }
        Mersenne { state, used: MERSENNE_SIZE }
    }

    fn twist(&mut self) {
        const AHEAD: usize = 397;
        const BEFORE: usize = MERSENNE_SIZE - AHEAD;
        let state = &mut *self.state;
        // Ranges without a wrap, in which no number depends on the few before it.
        for i in 0..BEFORE {
            state[i] = twisted(state[i], state[i + 1], state[i + AHEAD]);
        }
        for i in BEFORE..MERSENNE_SIZE - 1 {
            state[i] = twisted(state[i], state[i + 1], state[i - BEFORE]);
        }
        state[MERSENNE_SIZE - 1] = twisted(state[MERSENNE_SIZE - 1], state[0], state[AHEAD - 1]);
        self.used = 0;
    }

    /// The next number.
    pub(crate) fn next_one(&mut self) -> u32 {
        if self.used == MERSENNE_SIZE {
            self.twist();
        }
        self.used += 1;
        tempered(self.state[self.used - 1])
    }
}

fn twisted(current: u32, next: u32, far: u32) -> u32 {
    let mixed = (current & 0x8000_0000) | (next & 0x7fff_ffff);
    far ^ (mixed >> 1) ^ ((next & 1).wrapping_neg() & 0x9908_b0df)
}

fn tempered(mut y: u32) -> u32 {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c_5680;
    y ^= (y << 15) & 0xefc6_0000;
    y ^ (y >> 18)
}

impl Generator for Mersenne {
    fn fill(&mut self, numbers: &mut [u32]) {
        let mut rest = numbers;
        while !rest.is_empty() {
            if self.used == MERSENNE_SIZE {
                self.twist();
            }
            let (now, later) = rest.split_at_mut(rest.len().min(MERSENNE_SIZE - self.used));
            for (number, word) in now.iter_mut().zip(&self.state[self.used..]) {
                *number = tempered(*word);
            }
            self.used += now.len();
            rest = later;
        }
    }
}

/// Fills a state with bits that depend on all seeds: `std::seed_seq::generate` of the C++ standard.
fn spread(seeds: &[u64], state: &mut [u32; MERSENNE_SIZE]) {
    const GAP: usize = (MERSENNE_SIZE - 11) / 2;
    state.fill(0x8b8b_8b8b);
    let at = |k: usize| k % MERSENNE_SIZE;
    let mixed = |x: u32| x ^ (x >> 27);
    let rounds = MERSENNE_SIZE.max(seeds.len() + 1);
    for k in 0..rounds {
        let before = state[at(k + MERSENNE_SIZE - 1)];
        let first = mixed(state[at(k)] ^ state[at(k + GAP)] ^ before).wrapping_mul(1_664_525);
        let added = match k {
            0 => seeds.len() as u32,
            k if k <= seeds.len() => (at(k) as u32).wrapping_add(split(seeds[k - 1])[0]),
            k => at(k) as u32,
        };
        let second = first.wrapping_add(added);
        state[at(k + GAP)] = state[at(k + GAP)].wrapping_add(first);
        state[at(k + GAP + 11)] = state[at(k + GAP + 11)].wrapping_add(second);
        state[at(k)] = second;
    }
    for k in rounds..rounds + MERSENNE_SIZE {
        let before = state[at(k + MERSENNE_SIZE - 1)];
        let sum = state[at(k)].wrapping_add(state[at(k + GAP)]).wrapping_add(before);
        let first = mixed(sum).wrapping_mul(1_566_083_941);
        let second = first.wrapping_sub(at(k) as u32);
        state[at(k + GAP)] ^= first;
        state[at(k + GAP + 11)] ^= second;
        state[at(k)] = second;
    }
}

/// The low and the high half.
#[inline]
fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn next(generator: &mut impl Generator) -> [u32; 4] {
        let mut numbers = [0; 4];
        generator.fill(&mut numbers);
        numbers
    }

    #[test]
    fn one_by_one_and_together() {
        let (mut one, mut many) = (Mersenne::new(9), Mersenne::new(9));
        let mut numbers = [0; 4000];
        many.fill(&mut numbers[..1004]);
        many.fill(&mut numbers[1004..]);
        assert!(numbers.iter().all(|number| *number == one.next_one()));
        // The carry into the high half comes in between.
        let philox = Philox { key: 0x1234_5678_9abc_def0, counter: u64::MAX, position: u64::MAX - 20 };
        let (mut one, mut many) = (philox.clone(), philox);
        many.fill(&mut numbers[..1004]);
        for four in numbers[..1004].chunks(4) {
            assert_eq!(next(&mut one), four);
        }
        assert_eq!((one.counter, one.position), (many.counter, many.position));
        assert_eq!(many.counter, 0);
    }

    #[test]
    fn the_first_numbers_of_mt19937() {
        // The seed of the authors' reference program.
        let mut generator = Mersenne::new(5489);
        assert_eq!(next(&mut generator), [3_499_211_612, 581_869_302, 3_890_346_734, 3_586_334_585]);
    }

    #[test]
    fn the_first_numbers_of_a_seed_sequence() {
        // Printed by a C++ program: std::seed_seq{1, 2} seeding std::mt19937.
        let mut generator = Mersenne::of_sequence(&[1, 2]);
        assert_eq!(next(&mut generator), [3_232_623_227, 3_218_984_147, 1_585_538_226, 694_568_912]);
    }
}
