//! Random number generators: Philox 4x32-10 and MT19937.

/// The state array of MT19937.
const MERSENNE_SIZE: usize = 624;

/// A source of random 32-bit numbers, four at a time.
pub(crate) trait Generator {
    /// The next four numbers.
    fn next(&mut self) -> [u32; 4];
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
    fn next(&mut self) -> [u32; 4] {
        let mut key = split(self.key);
        let (mut n, mut counter) = (split(self.position), split(self.counter));
        for _ in 0..10 {
            let product_n = split(0xD251_1F53 * u64::from(n[0]));
            let product_counter = split(0xCD9E_8D57 * u64::from(counter[0]));
            n = [product_counter[1] ^ n[1] ^ key[0], product_counter[0]];
            counter = [product_n[1] ^ counter[1] ^ key[1], product_n[0]];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        self.position = self.position.wrapping_add(1);
        if self.position == 0 {
            self.counter = self.counter.wrapping_add(1);
        }
        [n[0], n[1], counter[0], counter[1]]
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
        for i in 0..MERSENNE_SIZE {
            let (current, next) = (self.state[i], self.state[(i + 1) % MERSENNE_SIZE]);
            let mixed = (current & 0x8000_0000) | (next & 0x7fff_ffff);
            let twisted = (mixed >> 1) ^ if next & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + 397) % MERSENNE_SIZE] ^ twisted;
        }
        self.used = 0;
    }

    /// The next number.
    pub(crate) fn next_one(&mut self) -> u32 {
        if self.used == MERSENNE_SIZE {
            self.twist();
        }
        let mut y = self.state[self.used];
        self.used += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }
}

impl Generator for Mersenne {
    fn next(&mut self) -> [u32; 4] {
        std::array::from_fn(|_| self.next_one())
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
fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_first_numbers_of_mt19937() {
        // The seed of the authors' reference program.
        let mut generator = Mersenne::new(5489);
        assert_eq!(generator.next(), [3_499_211_612, 581_869_302, 3_890_346_734, 3_586_334_585]);
    }

    #[test]
    fn the_first_numbers_of_a_seed_sequence() {
        // Printed by a C++ program: std::seed_seq{1, 2} seeding std::mt19937.
        let mut generator = Mersenne::of_sequence(&[1, 2]);
        assert_eq!(generator.next(), [3_232_623_227, 3_218_984_147, 1_585_538_226, 694_568_912]);
    }
}
