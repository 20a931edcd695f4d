//! A product of one row with so few columns that their sums stay in registers, for which the work around the product would
//! take as long as the product does.

use crate::epilogue::{Channelwise, Epilogue};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch};

/// One row times one packed panel.
struct Single {
    a: *const f32,
    k: usize,
    panel: *const f32,
    /// Null where there is none.
    bias: *const f32,
    limits: (f32, f32),
    c: *mut f32,
    n: usize,
}

/// Computes `c = epilogue(a * B)`, with B in one packed panel of `c.len()` columns, if the epilogue adds no other result and needs
/// no pass of its own. Says whether it did.
///
/// # Safety
/// The panel has a line for each value of `a`, and `c` has as many values as the panel columns, one at least.
pub(super) unsafe fn single(isa: Isa, a: &[f32], panel: &[f32], c: &mut [f32], epilogue: &Epilogue<'_>) -> bool {
    let bias = match epilogue.bias {
        Channelwise::None => std::ptr::null(),
        Channelwise::PerColumn(bias) if bias.len() >= c.len() => bias.as_ptr(),
        _ => return false,
    };
    if epilogue.residual.is_some() || epilogue.needs_pass() {
        return false;
    }
    let (a, k, c, n) = (a.as_ptr(), a.len(), c.as_mut_ptr(), c.len());
    dispatch(isa, Single { a, k, panel: panel.as_ptr(), bias, limits: epilogue.limits(), c, n });
    true
}

impl Kernel for Single {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // The second half of a panel takes as long to read as the first one.
        match self.n <= S::LANES {
            true => self.columns::<S, 1>(s),
            false => self.columns::<S, 2>(s),
        }
    }
}

impl Single {
    #[inline(always)]
    fn columns<S: Simd, const VECTORS: usize>(&self, s: S) {
        // Neighbouring steps have sums of their own, so that one does not wait for the other.
        let mut sums = [[s.splat(0.0); 4]; VECTORS];
        let whole = self.k - self.k % 4;
        for step in (0..whole).step_by(4) {
            for chain in 0..4 {
                // SAFETY: the step is one of the shared axis.
                unsafe { self.add(s, step + chain, chain, &mut sums) };
            }
        }
        for chain in 0..3 {
            if whole + chain < self.k {
                // SAFETY: as above.
                unsafe { self.add(s, whole + chain, chain, &mut sums) };
            }
        }
        let (low, high) = (s.splat(self.limits.0), s.splat(self.limits.1));
        for vector in 0..VECTORS {
            let [first, second, third, fourth] = sums[vector];
            let mut sum = s.add(s.add(first, second), s.add(third, fourth));
            let (column, count) = (vector * S::LANES, self.n - vector * S::LANES);
            // SAFETY: `count` columns from this one on lie in C and in the bias.
            unsafe {
                if !self.bias.is_null() {
                    sum = s.add(sum, s.load_first(self.bias.add(column), count));
                }
                s.store_first(self.c.add(column), s.min(high, s.max(low, sum)), count);
            }
        }
    }

    /// Adds the products of a step to the sums of a chain.
    ///
    /// # Safety
    /// The step is one of the shared axis.
    #[inline(always)]
    unsafe fn add<S: Simd, const VECTORS: usize>(
        &self,
        s: S,
        step: usize,
        chain: usize,
        sums: &mut [[S::F; 4]; VECTORS],
    ) {
        // SAFETY: the panel has two vectors for each step.
        unsafe {
            let left = s.splat(*self.a.add(step));
            for vector in 0..VECTORS {
                let right = s.load(self.panel.add((2 * step + vector) * S::LANES));
                sums[vector][chain] = s.fma(left, right, sums[vector][chain]);
            }
        }
    }
}
