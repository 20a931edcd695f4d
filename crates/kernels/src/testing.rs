//! Helpers shared by the tests of several kernels.

/// A deterministic stream of numbers.
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number in `[low, high]`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() as usize) % (high - low + 1)
    }

    /// A value in `[-1, 1)`.
    pub(crate) fn value(&mut self) -> f32 {
        (self.next() & 0xff_ffff) as f32 / 8_388_608.0 - 1.0
    }

    /// Values in `[-1, 1)`.
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }
}

/// Steps between two floats; equal values, and NaN with NaN, are at distance zero.
pub(crate) fn ulp_distance(a: f32, b: f32) -> u64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0;
    }
    if a.is_nan() || b.is_nan() {
        return u64::MAX;
    }
    let order = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -bits } else { bits }
    };
    order(a).abs_diff(order(b))
}

/// The error function in f64: its Maclaurin series near zero, the continued fraction of its complement beyond.
pub(crate) fn erf_f64(x: f64) -> f64 {
    let t = x.abs();
    if t > 6.0 {
        return x.signum();
    }
    if t < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut fraction = 0.0;
    for n in (1..200).rev() {
        fraction = f64::from(n) / 2.0 / (t + fraction);
    }
    x.signum() * (1.0 - (-t * t).exp() / std::f64::consts::PI.sqrt() / (t + fraction))
}

/// Asserts that every value is as close to the f64 reference as a sum of `terms` f32 products may be.
pub(crate) fn assert_close(actual: &[f32], expected: &[f64], terms: usize, what: &str) {
    assert_eq!(actual.len(), expected.len());
    let tolerance = 1e-6 * (terms as f64).sqrt().max(1.0) * 4.0;
    for (index, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let close = (f64::from(a) - e).abs() <= tolerance * e.abs().max(1.0) || (a.is_nan() && e.is_nan());
        assert!(close, "{what}: element {index} is {a}, expected {e}");
    }
}

/// Runs with a team of this many threads, all of which stand by.
#[cfg(feature = "threads")]
pub(crate) fn in_pool<R: Send>(threads: usize, body: impl FnOnce() -> R + Send) -> R {
    let team = crate::team::Team::new(crate::team::Crew::new(threads));
    team.lead(|| {
        team.wait_for_helpers();
        body()
    })
}

/// Runs on the caller's thread.
#[cfg(not(feature = "threads"))]
pub(crate) fn in_pool<R: Send>(_threads: usize, body: impl FnOnce() -> R + Send) -> R {
    body()
}
