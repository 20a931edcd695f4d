//! Discrete Fourier transforms of f32 lines, and signals from frames that overlap.
//!
//! Sixteen lines are transformed side by side, one in each lane, by Stockham's algorithm: every pass reads one buffer and
//! writes another, and its innermost loop runs over neighbouring places. Two real lines share a lane as the parts of complex
//! numbers. Lengths with large prime factors are convolutions with a chirp (Bluestein).

use std::f64::consts::PI;

use crate::error::{KernelError, check_len};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_chunks_mut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Lines that are transformed together.
const LANES: usize = 16;

/// The most parallel chunks of a call; each has buffers of its own.
const CHUNKS: usize = 16;

/// The longest lines that have a plan: tables take some dozens of bytes a number.
const LONGEST: usize = 1 << 20;

/// What the numbers of a line are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineForm {
    /// Real numbers.
    Real,
    /// Pairs of real and imaginary part.
    Complex,
    /// The pairs of the first half of a spectrum, up to the middle; the other half mirrors it.
    Half,
}

/// Where lines lie. Strides count elements of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    /// The distance between lines of neighbouring outer places.
    pub outer: usize,
    /// The distance between lines of neighbouring inner places.
    pub inner: usize,
    /// The distance between the numbers of a line.
    pub step: usize,
    /// The numbers of a line: what an input lacks is zero, what it has beyond the length is left out.
    pub count: usize,
    /// What they are.
    pub form: LineForm,
}

impl Lines {
    fn parts(&self) -> usize {
        if self.form == LineForm::Real { 1 } else { 2 }
    }

    /// Checks that all lines lie within a slice.
    fn check(&self, argument: &'static str, [outers, inners]: [usize; 2], len: usize) -> Result<(), KernelError> {
        let axes = [(outers, self.outer), (inners, self.inner), (self.count, self.step), (self.parts(), 1)];
        check_len(argument, len, crate::error::span(argument, &axes)?)
    }

    /// Checks that no two numbers lie at one place.
    fn check_disjoint(&self, [outers, inners]: [usize; 2]) -> Result<(), KernelError> {
        let mut axes = [(self.outer, outers), (self.inner, inners), (self.step, self.count), (1, self.parts())];
        axes.sort_unstable();
        let mut end = 1usize;
        for (stride, count) in axes.into_iter().filter(|(_, count)| *count > 1) {
            if stride < end {
                return Err(KernelError::invalid("output", "its lines overlap"));
            }
            end = stride.saturating_mul(count - 1).saturating_add(end);
        }
        Ok(())
    }
}

/// Tables for the transforms of one length.
#[derive(Debug, Clone)]
pub struct FourierPlan {
    length: usize,
    passes: Vec<Pass>,
    chirp: Option<Box<Chirp>>,
}

/// One pass over the data.
#[derive(Debug, Clone)]
struct Pass {
    radix: usize,
    /// The powers of the root for each block: `radix - 1` cosines and sines each.
    twiddles: Vec<(f32, f32)>,
    /// The cosine and sine of each multiple of the angle of the radix.
    roots: Vec<(f32, f32)>,
}

/// What Bluestein's algorithm needs.
#[derive(Debug, Clone)]
struct Chirp {
    plan: FourierPlan,
    chirp: Vec<(f32, f32)>,
    spectrum: Vec<(f32, f32)>,
}

impl FourierPlan {
    /// Transforms of `length` numbers.
    ///
    /// # Errors
    /// The length is beyond a million.
    pub fn new(length: usize) -> Result<Self, KernelError> {
        if length > LONGEST {
            return Err(KernelError::invalid("length", "is too large for tables"));
        }
        Ok(Self::of_length(length))
    }

    fn of_length(length: usize) -> Self {
        let mut passes = Vec::new();
        let mut rest = length.max(1);
        for radix in [4, 2, 3, 5, 7] {
            while rest.is_multiple_of(radix) {
                rest /= radix;
                passes.push(Pass::new(radix, rest));
            }
        }
        if rest == 1 {
            return Self { length, passes, chirp: None };
        }
        Self { length, passes: Vec::new(), chirp: Some(Box::new(Chirp::new(length))) }
    }

    /// The numbers of a line.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The elements of one part of a buffer.
    fn buffer(&self) -> usize {
        let numbers = self.chirp.as_ref().map_or(self.length, |chirp| chirp.plan.length);
        numbers.saturating_mul(LANES)
    }

    /// Transforms the lines of the first buffer; tells whether the result lies in the second.
    fn run(&self, isa: Isa, buffers: &mut [[&mut [f32]; 2]; 2]) -> bool {
        let Some(chirp) = &self.chirp else {
            let (mut blocks, mut width, mut turned) = (self.length.max(1), LANES, false);
            for pass in &self.passes {
                blocks /= pass.radix;
                let [first, second] = buffers;
                let (from, to) = if turned { (second, first) } else { (first, second) };
                let [from_re, from_im] = from;
                let [to_re, to_im] = to;
                dispatch(isa, RunPass { pass, blocks, width, from: [from_re, from_im], to: [to_re, to_im] });
                width *= pass.radix;
                turned = !turned;
            }
            return turned;
        };
        chirp.run(isa, self.length, buffers)
    }
}

impl Pass {
    fn new(radix: usize, blocks: usize) -> Self {
        let root = |numerator: usize, denominator: usize| {
            let (sin, cos) = (2.0 * PI * (numerator % denominator) as f64 / denominator as f64).sin_cos();
            (cos as f32, -sin as f32)
        };
        let twiddle = |block: usize| (1..radix).map(move |power| root(block * power, blocks * radix));
        Self {
            radix,
            twiddles: (0..blocks).flat_map(twiddle).collect(),
            roots: (0..radix).map(|power| root(power, radix)).collect(),
        }
    }
}

impl Chirp {
    fn new(length: usize) -> Self {
        let plan = FourierPlan::of_length((2 * length - 1).next_power_of_two());
        let padded = plan.length;
        let mut chirp = Vec::with_capacity(length);
        let mut mirrored = vec![(0.0f64, 0.0f64); padded];
        for k in 0..length {
            let square = (k as u128 * k as u128 % (2 * length as u128)) as f64;
            let (sin, cos) = (PI * square / length as f64).sin_cos();
            chirp.push((cos as f32, -sin as f32));
            mirrored[k] = (cos, sin);
            mirrored[(padded - k) % padded] = (cos, sin);
        }
        // The spectrum of the mirrored chirp, in f64, once for a plan.
        radix_2(&mut mirrored);
        let scale = 1.0 / padded as f64;
        let spectrum = mirrored.iter().map(|(re, im)| ((re * scale) as f32, (im * scale) as f32)).collect();
        Self { plan, chirp, spectrum }
    }

    fn run(&self, isa: Isa, length: usize, buffers: &mut [[&mut [f32]; 2]; 2]) -> bool {
        let padded = self.plan.length;
        let first = &mut buffers[0];
        rotate(first, &self.chirp, false);
        first.iter_mut().for_each(|part| part[length * LANES..padded * LANES].fill(0.0));
        if self.plan.run(isa, buffers) {
            let [first, second] = buffers;
            std::mem::swap(first, second);
        }
        // The conjugate turns the next transform into the inverse one.
        rotate(&mut buffers[0], &self.spectrum, true);
        let turned = self.plan.run(isa, buffers);
        let result = &mut buffers[usize::from(turned)];
        result[1].iter_mut().for_each(|value| *value = -*value);
        rotate(result, &self.chirp, false);
        turned
    }
}

/// Multiplies the numbers of all lanes by factors, and conjugates the products if asked.
fn rotate([re, im]: &mut [&mut [f32]; 2], factors: &[(f32, f32)], conjugates: bool) {
    let sign = if conjugates { -1.0 } else { 1.0 };
    let lanes = re.as_chunks_mut::<LANES>().0.iter_mut().zip(im.as_chunks_mut::<LANES>().0);
    for ((re, im), (cos, sin)) in lanes.zip(factors) {
        for (re, im) in re.iter_mut().zip(im) {
            (*re, *im) = (*re * cos - *im * sin, sign * (*re * sin + *im * cos));
        }
    }
}

/// The transform of a power of two in f64.
fn radix_2(line: &mut [(f64, f64)]) {
    let length = line.len();
    let shift = length.leading_zeros() + 1;
    for i in 0..length {
        let mirrored = if length > 1 { i.reverse_bits() >> shift } else { 0 };
        if mirrored > i {
            line.swap(i, mirrored);
        }
    }
    let mut half = 1;
    while half < length {
        for block in line.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (k, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let (sin, cos) = (-PI * k as f64 / half as f64).sin_cos();
                let product = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                (*a, *b) = ((a.0 + product.0, a.1 + product.1), (a.0 - product.0, a.1 - product.1));
            }
        }
        half *= 2;
    }
}

/// One pass: `to[(radix * block + r) * width + q]` is the `r`th output of a butterfly over `from[(block + blocks * k) *
/// width + q]`, times its twiddle.
struct RunPass<'a> {
    pass: &'a Pass,
    blocks: usize,
    width: usize,
    from: [&'a [f32]; 2],
    to: [&'a mut [f32]; 2],
}

/// A complex number in each lane.
struct Number<S: Simd>(S::F, S::F);

impl<S: Simd> Clone for Number<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Simd> Copy for Number<S> {}

impl Kernel for RunPass<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let total = self.pass.radix * self.blocks * self.width;
        let fits = self.from.iter().all(|part| part.len() >= total) && self.to.iter().all(|part| part.len() >= total);
        if !(fits && self.width.is_multiple_of(LANES) && LANES.is_multiple_of(S::LANES)) {
            debug_assert!(false, "buffers are as long as the plan says");
            // `fourier` has checked the lengths; this keeps the loads below sound whoever calls.
            return;
        }
        match self.pass.radix {
            2 => self.butterflies::<S, 2>(s, |s, [a, b], _| [add(s, a, b), sub(s, a, b)]),
            3 => self.butterflies::<S, 3>(s, odd::<S, 3>),
            4 => self.butterflies::<S, 4>(s, |s, [a, b, c, d], _| {
                let (even, odd) = ((add(s, a, c), sub(s, a, c)), (add(s, b, d), sub(s, b, d)));
                let turned = Number(odd.1.1, s.neg(odd.1.0));
                [add(s, even.0, odd.0), add(s, even.1, turned), sub(s, even.0, odd.0), sub(s, even.1, turned)]
            }),
            5 => self.butterflies::<S, 5>(s, odd::<S, 5>),
            _ => self.butterflies::<S, 7>(s, odd::<S, 7>),
        }
    }
}

impl RunPass<'_> {
    #[inline(always)]
    fn butterflies<S: Simd, const RADIX: usize>(
        self,
        s: S,
        butterfly: impl Fn(S, [Number<S>; RADIX], &[(f32, f32)]) -> [Number<S>; RADIX],
    ) {
        let Self { pass, blocks, width, from: [from_re, from_im], to: [to_re, to_im] } = self;
        for block in 0..blocks {
            let twiddles = &pass.twiddles[block * (RADIX - 1)..][..RADIX - 1];
            for q in (0..width).step_by(S::LANES) {
                let mut numbers = [Number(s.splat(0.0), s.splat(0.0)); RADIX];
                for (k, number) in numbers.iter_mut().enumerate() {
                    let at = (block + blocks * k) * width + q;
                    // SAFETY: `run` has checked that RADIX * blocks * width elements are there.
                    *number = unsafe { Number(s.load(from_re.as_ptr().add(at)), s.load(from_im.as_ptr().add(at))) };
                }
                for (r, number) in butterfly(s, numbers, &pass.roots).into_iter().enumerate() {
                    let at = (RADIX * block + r) * width + q;
                    let Number(re, im) = number;
                    let (re, im) = match r.checked_sub(1).map(|power| twiddles[power]) {
                        None => (re, im),
                        Some((cos, sin)) => {
                            let (cos, sin) = (s.splat(cos), s.splat(sin));
                            (s.sub(s.mul(re, cos), s.mul(im, sin)), s.fma(re, sin, s.mul(im, cos)))
                        }
                    };
                    // SAFETY: as above.
                    unsafe {
                        s.store(to_re.as_mut_ptr().add(at), re);
                        s.store(to_im.as_mut_ptr().add(at), im);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add<S: Simd>(s: S, a: Number<S>, b: Number<S>) -> Number<S> {
    Number(s.add(a.0, b.0), s.add(a.1, b.1))
}

#[inline(always)]
fn sub<S: Simd>(s: S, a: Number<S>, b: Number<S>) -> Number<S> {
    Number(s.sub(a.0, b.0), s.sub(a.1, b.1))
}

/// The butterfly of an odd radix: sums and differences of opposite numbers share their products.
#[inline(always)]
fn odd<S: Simd, const RADIX: usize>(s: S, numbers: [Number<S>; RADIX], roots: &[(f32, f32)]) -> [Number<S>; RADIX] {
    let mut result = [numbers[0]; RADIX];
    let (mut sums, mut differences) = (numbers, numbers);
    for k in 1..=RADIX / 2 {
        (sums[k], differences[k]) = (add(s, numbers[k], numbers[RADIX - k]), sub(s, numbers[k], numbers[RADIX - k]));
        result[0] = add(s, result[0], sums[k]);
    }
    for r in 1..=RADIX / 2 {
        let (mut even, mut turned) = (numbers[0], Number(s.splat(0.0), s.splat(0.0)));
        for k in 1..=RADIX / 2 {
            let (cos, sin) = roots[r * k % RADIX];
            let (cos, sin) = (s.splat(cos), s.splat(sin));
            even = Number(s.fma(sums[k].0, cos, even.0), s.fma(sums[k].1, cos, even.1));
            // The difference times i times the sine, which is negative for the first half of the circle.
            turned = Number(s.sub(turned.0, s.mul(differences[k].1, sin)), s.fma(differences[k].0, sin, turned.1));
        }
        (result[r], result[RADIX - r]) = (add(s, even, turned), sub(s, even, turned));
    }
    result
}

/// The lines of a call.
struct Job<'a> {
    plan: &'a FourierPlan,
    is_inverse: bool,
    sizes: [usize; 2],
    input: &'a [f32],
    from: Lines,
    window: Option<&'a [f32]>,
    to: Lines,
    /// Whether two real lines share a lane.
    is_paired: bool,
}

/// The elements of scratch that [`fourier`] needs for so many lines.
#[must_use]
pub fn fourier_scratch_len(plan: &FourierPlan, lines: usize) -> usize {
    let groups = lines.div_ceil(LANES);
    groups.min(CHUNKS).saturating_mul(plan.buffer().saturating_mul(4))
}

/// Transforms `outers * inners` lines of `input` into `output`. Numbers of the input are multiplied by those of the window,
/// if there is one. The inverse is divided by the length. Of a result whose form is real, imaginary parts are left out.
///
/// # Errors
/// A slice is too short for its lines, those of the output overlap, or a result has more numbers than the length.
pub fn fourier(
    isa: Isa,
    plan: &FourierPlan,
    is_inverse: bool,
    sizes: [usize; 2],
    (input, from): (&[f32], Lines),
    window: Option<&[f32]>,
    (output, to): (&mut [f32], Lines),
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    from.check("input", sizes, input.len())?;
    to.check("output", sizes, output.len())?;
    to.check_disjoint(sizes)?;
    if to.count > plan.length || window.is_some_and(|window| window.len() < from.count.min(plan.length)) {
        return Err(KernelError::invalid("output", "has more numbers than the transform, or the window has fewer"));
    }
    let lines = crate::error::product("sizes", &sizes)?;
    check_len("scratch", scratch.len(), fourier_scratch_len(plan, lines))?;
    if lines == 0 || to.count == 0 {
        return Ok(());
    }
    // The spectrum of a real line is a mirror image of itself, so two come apart again.
    let is_paired =
        from.form == LineForm::Real && !is_inverse || from.form == LineForm::Half && to.form == LineForm::Real;
    let job = Job { plan, is_inverse, sizes, input, from, window, to, is_paired };
    let groups = lines.div_ceil(if is_paired { 2 * LANES } else { LANES });
    let grain = groups.div_ceil(CHUNKS);
    let work = (lines * plan.length) as u64 * 4;
    let (shared, scratch) = (SharedMut::new(output), SharedMut::new(scratch));
    let buffer = plan.buffer();
    parallel_for(groups, grain, work, |range| {
        let chunk = range.start / grain;
        // SAFETY: each chunk has buffers of its own.
        let parts = unsafe { scratch.slice(chunk * 4 * buffer..(chunk + 1) * 4 * buffer) };
        let (first, second) = parts.split_at_mut(2 * buffer);
        let ((a, b), (c, d)) = (first.split_at_mut(buffer), second.split_at_mut(buffer));
        let mut buffers = [[a, b], [c, d]];
        for group in range {
            job.load(group, &mut buffers[0]);
            let turned = plan.run(isa, &mut buffers);
            job.store(group, &buffers[usize::from(turned)], &shared);
        }
    });
    Ok(())
}

impl Job<'_> {
    /// The lines of a group: in which lane, whether as the second of a pair, and where its first number lies.
    fn lines(&self, group: usize, place: Lines) -> impl Iterator<Item = (usize, bool, usize)> {
        let size = if self.is_paired { 2 * LANES } else { LANES };
        let [outers, inners] = self.sizes;
        let first = group * size;
        (first..(outers * inners).min(first + size)).map(move |line| {
            let at = line - first;
            (at % LANES, at >= LANES, line / inners * place.outer + line % inners * place.inner)
        })
    }

    /// Fills a buffer with the lines of a group.
    fn load(&self, group: usize, buffer: &mut [&mut [f32]; 2]) {
        let length = self.plan.length;
        let count = self.from.count.min(length);
        // What lines do not reach is zero, and so are lanes without a line.
        buffer.iter_mut().for_each(|part| part[..length * LANES].fill(0.0));
        let [re, im] = buffer;
        for (lane, is_second, start) in self.lines(group, self.from) {
            let number = |k: usize| {
                let at = start + k * self.from.step;
                let weight = self.window.map_or(1.0, |window| window[k]);
                let imaginary = if self.from.form == LineForm::Real { 0.0 } else { self.input[at + 1] };
                (self.input[at] * weight, imaginary * weight)
            };
            let mut put = |k: usize, (real, imaginary): (f32, f32)| {
                // The inverse is the transform with both parts exchanged, there and back.
                let (real, imaginary) = if self.is_inverse { (imaginary, real) } else { (real, imaginary) };
                re[k * LANES + lane] += real;
                im[k * LANES + lane] += imaginary;
            };
            match self.from.form {
                LineForm::Real if is_second => (0..count).for_each(|k| put(k, (0.0, number(k).0))),
                LineForm::Real | LineForm::Complex => (0..count).for_each(|k| put(k, number(k))),
                LineForm::Half => {
                    for k in 0..count.min(length / 2 + 1) {
                        let (real, imaginary) = number(k);
                        let mirrored = (length - k) % length;
                        let is_own_mirror = mirrored == k;
                        // A second line is multiplied by i.
                        let turn = |(a, b): (f32, f32)| if is_second { (-b, a) } else { (a, b) };
                        put(k, turn((real, if is_own_mirror && self.is_paired { 0.0 } else { imaginary })));
                        if !is_own_mirror {
                            put(mirrored, turn((real, -imaginary)));
                        }
                    }
                }
            }
        }
    }

    /// Writes the lines of a group out of a buffer.
    fn store(&self, group: usize, [re, im]: &[&mut [f32]; 2], output: &SharedMut<'_, f32>) {
        let length = self.plan.length;
        let scale = if self.is_inverse { 1.0 / length as f32 } else { 1.0 };
        for (lane, is_second, start) in self.lines(group, self.to) {
            let held = |k: usize| {
                let (real, imaginary) = (re[k * LANES + lane], im[k * LANES + lane]);
                if self.is_inverse { (imaginary * scale, real * scale) } else { (real, imaginary) }
            };
            for k in 0..self.to.count {
                let (real, imaginary) = match (self.is_paired, self.from.form) {
                    (true, LineForm::Real) => {
                        let ((a, b), (c, d)) = (held(k), held((length - k) % length));
                        if is_second { (0.5 * (b + d), 0.5 * (c - a)) } else { (0.5 * (a + c), 0.5 * (b - d)) }
                    }
                    (true, _) => {
                        let (a, b) = held(k);
                        (if is_second { b } else { a }, 0.0)
                    }
                    _ => held(k),
                };
                let at = start + k * self.to.step;
                // SAFETY: lines were checked to lie within the output and apart from each other; each is stored once.
                unsafe {
                    output.pointer().add(at).write(real);
                    if self.to.form != LineForm::Real {
                        output.pointer().add(at + 1).write(imaginary);
                    }
                }
            }
        }
    }
}

/// Elements of a signal that are summed together.
const PIECE: usize = 1 << 10;

/// Adds frames where they overlap, and divides by the sum of the squared windows there; where that is zero, so is the signal.
/// `frames` holds frames of the window's length one after the other, each of which begins `step` elements behind the one before. The
/// output begins `margin` elements behind the first frame, is multiplied by `scale`, and is zero beyond the frames.
///
/// # Errors
/// `frames` holds no whole number of frames, or there is no step.
pub fn overlap_add(
    isa: Isa,
    frames: &[f32],
    window: &[f32],
    step: usize,
    (margin, scale): (usize, f32),
    output: &mut [f32],
) -> Result<(), KernelError> {
    let size = window.len();
    if step == 0 || size == 0 || !frames.len().is_multiple_of(size) {
        return Err(KernelError::invalid("frames", "are not whole, or do not go on"));
    }
    let overlapping = size.div_ceil(step) as u64;
    let work = (output.len() as u64).saturating_mul(overlapping) / 4;
    parallel_chunks_mut(output, PIECE, work, |index, output| {
        let first = (index * PIECE).saturating_add(margin);
        dispatch(isa, OverlapAdd { frames, window, step, first, scale, output });
    });
    Ok(())
}

/// At most [`PIECE`] elements of a signal.
struct OverlapAdd<'a> {
    frames: &'a [f32],
    window: &'a [f32],
    step: usize,
    /// How far the first element lies behind the beginning of the first frame.
    first: usize,
    scale: f32,
    output: &'a mut [f32],
}

impl Kernel for OverlapAdd<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        let Self { frames, window, step, first, scale, output } = self;
        let size = window.len();
        let end = first.saturating_add(output.len());
        let mut weights = [0.0f32; PIECE];
        output.fill(0.0);
        // The frames that reach the piece, in order.
        let from = if first < size { 0 } else { (first - size) / step + 1 };
        let begins = |number: usize| number.saturating_mul(step);
        let reaching = frames.chunks_exact(size).enumerate().skip(from).take_while(|(number, _)| begins(*number) < end);
        for (number, frame) in reaching {
            let begin = begins(number);
            let (low, high) = (begin.max(first), end.min(begin + size));
            if low >= high {
                continue;
            }
            let part = low - begin..high - begin;
            let values = frame[part.clone()].iter().zip(&window[part]);
            let sums = output[low - first..high - first].iter_mut().zip(&mut weights[low - first..high - first]);
            for ((sum, weight), (value, window)) in sums.zip(values) {
                *sum += value * window;
                *weight += window * window;
            }
        }
        for (value, weight) in output.iter_mut().zip(weights) {
            *value = if weight == 0.0 { 0.0 } else { *value * scale / weight };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn definition(line: &[(f64, f64)], is_inverse: bool) -> Vec<(f64, f64)> {
        let length = line.len();
        let sign = if is_inverse { 1.0 } else { -1.0 };
        let scale = if is_inverse { 1.0 / length as f64 } else { 1.0 };
        let output = |k: usize| {
            let term = |(j, x): (usize, &(f64, f64))| {
                let (sin, cos) = (sign * 2.0 * PI * (j * k % length) as f64 / length as f64).sin_cos();
                (x.0 * cos - x.1 * sin, x.0 * sin + x.1 * cos)
            };
            let sum = line.iter().enumerate().map(term).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
            (sum.0 * scale, sum.1 * scale)
        };
        (0..length).map(output).collect()
    }

    /// Transforms dense lines; `numbers` of each line are given and `kept` of each result.
    fn check(length: usize, is_inverse: bool, from: LineForm, to: LineForm, numbers: usize, kept: usize) {
        let parts = |form| if form == LineForm::Real { 1 } else { 2 };
        let [outers, inners] = [3, 7];
        let lines = |form, count: usize| {
            let step = inners * parts(form);
            Lines { outer: count * step, inner: parts(form), step, count, form }
        };
        let (source, target) = (lines(from, numbers), lines(to, kept));
        let input = Random::new(length as u64).values(outers * source.outer);
        let plan = FourierPlan::new(length).unwrap();
        let run = |isa| {
            let mut output = vec![f32::NAN; outers * target.outer];
            let mut scratch = vec![f32::NAN; fourier_scratch_len(&plan, outers * inners)];
            let sizes = [outers, inners];
            fourier(isa, &plan, is_inverse, sizes, (&input, source), None, (&mut output, target), &mut scratch)
                .unwrap();
            output
        };
        for isa in Isa::available() {
            let output = run(isa);
            assert_eq!(output, in_pool(2, || run(isa)));
            for line in 0..outers * inners {
                let start = |place: Lines| line / inners * place.outer + line % inners * place.inner;
                let mut whole = vec![(0.0, 0.0); length];
                for (k, number) in whole.iter_mut().enumerate() {
                    let is_mirrored = from == LineForm::Half && k > length / 2;
                    let taken = if is_mirrored { length - k } else { k };
                    if taken < numbers {
                        let at = start(source) + taken * source.step;
                        let imaginary = if from == LineForm::Real { 0.0 } else { f64::from(input[at + 1]) };
                        *number = (f64::from(input[at]), if is_mirrored { -imaginary } else { imaginary });
                    }
                }
                for (k, expected) in definition(&whole, is_inverse).iter().take(kept).enumerate() {
                    let at = start(target) + k * target.step;
                    let imaginary = if to == LineForm::Real { expected.1 } else { f64::from(output[at + 1]) };
                    let gap = (expected.0 - f64::from(output[at])).abs().max((expected.1 - imaginary).abs());
                    assert!(gap < 1e-5 * (length as f64).sqrt(), "{length} {from:?} {to:?} {isa}: {gap}");
                }
            }
        }
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        for length in (1..40).chain([49, 60, 64, 121, 210, 251, 256]) {
            check(length, false, LineForm::Complex, LineForm::Complex, length, length);
            check(length, true, LineForm::Complex, LineForm::Complex, length, length);
            check(length, false, LineForm::Real, LineForm::Half, length, length / 2 + 1);
            check(length, true, LineForm::Half, LineForm::Real, length / 2 + 1, length);
        }
    }

    #[test]
    fn lines_are_cut_and_filled() {
        for length in [6, 11, 16] {
            check(length, false, LineForm::Complex, LineForm::Complex, length - 2, length);
            check(length, false, LineForm::Real, LineForm::Complex, length + 3, length);
            check(length, true, LineForm::Half, LineForm::Real, 2, length);
            check(length, true, LineForm::Half, LineForm::Complex, length / 2 + 1, length);
        }
    }

    #[test]
    fn frames_overlap() {
        let mut random = Random::new(3);
        for (size, step, count, margin, len) in [
            (5, 2, 4, 0, 11),
            (4, 4, 3, 2, 20),
            (3, 5, 4, 0, 30),
            (64, 3, 900, 32, 2900),
            (1, 1, 1, 0, 1),
            (7, 2, 0, 3, 9),
        ] {
            let (frames, mut window) = (random.values(size * count), random.values(size));
            window[0] = 0.0;
            let expected: Vec<f32> = (margin..margin + len)
                .map(|at| {
                    let inside = (0..count).filter(|frame| (frame * step..frame * step + size).contains(&at));
                    let (sum, weight) = inside.fold((0.0, 0.0), |(sum, weight), frame| {
                        let place = at - frame * step;
                        (sum + frames[frame * size + place] * window[place], weight + window[place] * window[place])
                    });
                    if weight == 0.0 { 0.0 } else { sum * 3.0 / weight }
                })
                .collect();
            for isa in Isa::available() {
                let run = || {
                    let mut output = vec![f32::NAN; len];
                    overlap_add(isa, &frames, &window, step, (margin, 3.0), &mut output).unwrap();
                    output
                };
                assert_eq!(run(), expected, "{isa}: {size} {step}");
                assert_eq!(in_pool(2, run), expected);
            }
        }
        // Frames that lie beyond all memory do not come around to the beginning.
        let mut output = [f32::NAN; 3];
        overlap_add(Isa::portable(), &[1.0, 2.0, 4.0], &[1.0], usize::MAX / 2 + 1, (0, 1.0), &mut output).unwrap();
        assert_eq!(output, [1.0, 0.0, 0.0]);
        assert!(overlap_add(Isa::portable(), &[0.0; 3], &[1.0; 2], 1, (0, 1.0), &mut []).is_err());
        assert!(overlap_add(Isa::portable(), &[0.0; 2], &[1.0; 2], 0, (0, 1.0), &mut []).is_err());
    }

    #[test]
    fn what_does_not_fit() {
        let plan = FourierPlan::new(4).unwrap();
        let line = Lines { outer: 8, inner: 0, step: 2, count: 4, form: LineForm::Complex };
        let mut scratch = vec![0.0; fourier_scratch_len(&plan, 1)];
        let mut run = |input: usize, output: usize, to: Lines| {
            let mut output = vec![0.0; output];
            let input = vec![0.0; input];
            fourier(Isa::portable(), &plan, false, [1, 1], (&input, line), None, (&mut output, to), &mut scratch)
                .is_err()
        };
        assert!(!run(8, 8, line));
        assert!(run(7, 8, line));
        assert!(run(8, 7, line));
        assert!(run(8, 8, Lines { step: 1, ..line }));
        assert!(run(8, 16, Lines { count: 5, ..line }));
    }
}
