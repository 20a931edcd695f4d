//! DFT, IDFT, RDFT and IRDFT of f32 along constant axes, STFT and ISTFT.

use std::sync::{Arc, Mutex, PoisonError};

use ovir_kernels::fourier::{FourierPlan, LineForm, Lines, fourier, fourier_scratch_len, overlap_add};
use ovir_kernels::isa::{self, Isa};
use ovir_ops::signals::{dft::Dft, idft::Idft, irdft::Irdft, istft::Istft, rdft::Rdft, stft::Stft};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::layout::axis_of;
use super::parts::{kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// What the layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// DFT.
    Complex,
    /// IDFT.
    InverseComplex,
    /// RDFT.
    Real,
    /// IRDFT.
    InverseReal,
}

struct TransformKernel {
    isa: Isa,
    kind: Kind,
    axes: SmallVec<[i64; 8]>,
    /// The sizes along the axes, where the layer says them.
    signal_sizes: Option<SmallVec<[i64; 8]>>,
    /// The passes of the shapes that came last.
    last: Mutex<Option<Arc<Passes>>>,
}

struct FrameKernel {
    isa: Isa,
    plan: FourierPlan,
    step: usize,
    transposes: bool,
}

struct SignalKernel {
    isa: Isa,
    plan: FourierPlan,
    step: usize,
    /// The elements that are left out at the beginning, and what the others are multiplied with.
    margin: usize,
    scale: f32,
}

/// What to do for one pair of shapes.
struct Passes {
    data: Shape,
    output: Shape,
    passes: Vec<Pass>,
}

/// Transforms along one axis.
struct Pass {
    plan: FourierPlan,
    sizes: [usize; 2],
    from: Lines,
    to: Lines,
    /// The elements of the result.
    len: usize,
}

/// Claims Fourier transforms.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    let isa = isa::detect();
    if context.inputs.first()?.element_type != ElementType::F32 {
        return None;
    }
    let integers = |port: usize| context.inputs.get(port).and_then(|facts| facts.integers());
    let frame = || {
        let (size, step) = (*integers(2)?.first()?, *integers(3)?.first()?);
        let (size, step) = (usize::try_from(size).ok()?, usize::try_from(step).ok()?);
        (size > 0 && step > 0).then_some((FourierPlan::new(size).ok()?, step))
    };
    if let Some(stft) = operation.downcast_ref::<Stft>() {
        let (plan, step) = frame()?;
        let kernel = FrameKernel { isa, plan, step, transposes: stft.attributes.transpose_frames };
        return Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() });
    }
    if let Some(istft) = operation.downcast_ref::<Istft>() {
        let (plan, step) = frame()?;
        let size = plan.length();
        let margin = if istft.attributes.center { size / 2 } else { 0 };
        let scale = if istft.attributes.normalized { (size as f32).sqrt() } else { 1.0 };
        let kernel = SignalKernel { isa, plan, step, margin, scale };
        return Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() });
    }
    let table = [
        (operation.downcast_ref::<Dft>().is_some(), Kind::Complex),
        (operation.downcast_ref::<Idft>().is_some(), Kind::InverseComplex),
        (operation.downcast_ref::<Rdft>().is_some(), Kind::Real),
        (operation.downcast_ref::<Irdft>().is_some(), Kind::InverseReal),
    ];
    let kind = table.into_iter().find(|(found, _)| *found)?.1;
    let signal_sizes = if context.inputs.len() > 2 { Some(integers(2)?) } else { None };
    let kernel = TransformKernel { isa, kind, axes: integers(1)?, signal_sizes, last: Mutex::new(None) };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl TransformKernel {
    /// The passes for the shapes at hand; `None` if the kernel does not do them.
    fn passes(&self, data: &Shape, output: &Shape) -> Option<Arc<Passes>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(passes) = last.as_ref().filter(|passes| passes.data == *data && passes.output == *output) {
            return Some(Arc::clone(passes));
        }
        let passes = self.make_passes(data, output)?;
        let passes = Arc::new(Passes { data: data.clone(), output: output.clone(), passes });
        *last = Some(Arc::clone(&passes));
        Some(passes)
    }

    fn make_passes(&self, data: &Shape, output: &Shape) -> Option<Vec<Pass>> {
        let is_real_input = self.kind == Kind::Real;
        let rank = if is_real_input { data.rank() } else { data.rank().checked_sub(1)? };
        let mut shape: SmallVec<[usize; 8]> = SmallVec::from_slice(data.get(..rank)?);
        if data.elements() == 0 || output.elements() == 0 || (!is_real_input && data.last() != Some(&2)) {
            return None;
        }
        let mut items: Vec<(usize, Option<usize>)> = Vec::new();
        for (item, axis) in self.axes.iter().enumerate() {
            let size = match &self.signal_sizes {
                Some(sizes) => Some(*sizes.get(item)?).filter(|size| *size != -1),
                None => None,
            };
            let size = size.map(usize::try_from).transpose().ok()?;
            items.push((axis_of(*axis, rank)?, size));
        }
        // The halved axis is the last one: it goes first where it halves the work of the others.
        let halved = items.len().checked_sub(1)?;
        let order: Vec<usize> =
            if is_real_input { (0..items.len()).rev().collect() } else { (0..items.len()).collect() };
        let mut passes = Vec::new();
        for item in order {
            let (axis, size) = items[item];
            let (before, is_halved) = (shape[axis], item == halved);
            let (length, kept, from, to) = match (self.kind, is_halved) {
                (Kind::Real, true) => {
                    let length = size.unwrap_or(before);
                    (length, length / 2 + 1, LineForm::Real, LineForm::Half)
                }
                (Kind::InverseReal, true) => {
                    let length = size.unwrap_or(2 * (before - 1));
                    (length, length, LineForm::Half, LineForm::Real)
                }
                _ => {
                    let length = size.unwrap_or(before);
                    (length, length, LineForm::Complex, LineForm::Complex)
                }
            };
            if length == 0 {
                return None;
            }
            let (outers, inners) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product::<usize>());
            let lines = |count: usize, form: LineForm| {
                let parts = if form == LineForm::Real { 1 } else { 2 };
                Lines { outer: count * inners * parts, inner: parts, step: inners * parts, count, form }
            };
            let (from, to) = (lines(before, from), lines(kept, to));
            let plan = FourierPlan::new(length).ok()?;
            passes.push(Pass { plan, sizes: [outers, inners], from, to, len: outers * to.outer });
            shape[axis] = kept;
        }
        if self.kind != Kind::InverseReal {
            shape.push(2);
        }
        (shape[..] == output[..]).then_some(passes)
    }
}

impl Kernel for TransformKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        self.passes(data, output).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let Some(passes) = self.passes(data, output) else { return 0 };
        let own = |pass: &Pass| fourier_scratch_len(&pass.plan, pass.sizes[0] * pass.sizes[1]);
        let between: usize = passes.passes.iter().rev().skip(1).map(|pass| pass.len).sum();
        between.saturating_add(passes.passes.iter().map(own).max().unwrap_or(0)).saturating_mul(4)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 * 4).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let [output] = io.outputs else { return Err(misfit()) };
        let data = io.inputs.first().ok_or_else(misfit)?;
        let passes = self.passes(data.shape(), output.shape()).ok_or_else(misfit)?;
        let is_inverse = matches!(self.kind, Kind::InverseComplex | Kind::InverseReal);
        let (last, before) = passes.passes.split_last().ok_or_else(misfit)?;
        let mut rest = scratch_f32(io.scratch);
        let mut held: &[f32] = data.slice::<f32>()?;
        let between: usize = before.iter().map(|pass| pass.len).sum();
        let (mut room, own) = rest.split_at_mut(between);
        for pass in before {
            let (next, free) = room.split_at_mut(pass.len);
            fourier(self.isa, &pass.plan, is_inverse, pass.sizes, (held, pass.from), None, (next, pass.to), own)
                .map_err(kernel_error)?;
            (held, room) = (next, free);
        }
        rest = own;
        let target = output.slice_mut::<f32>()?;
        fourier(self.isa, &last.plan, is_inverse, last.sizes, (held, last.from), None, (target, last.to), rest)
            .map_err(kernel_error)
    }
}

impl FrameKernel {
    /// The signals, their length, and the frames of each.
    fn sizes(&self, signal: &Shape, window: &Shape, output: &Shape) -> Option<[usize; 3]> {
        let (length, size) = (*signal.last()?, self.plan.length());
        let batch: usize = signal[..signal.rank() - 1].iter().product();
        let frames = length.checked_sub(size)? / self.step + 1;
        let results = size / 2 + 1;
        let fits = output.elements() == batch * frames * results * 2 && window.elements() <= size && batch > 0;
        fits.then_some([batch, length, frames])
    }
}

impl Kernel for FrameKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([signal, window, ..], [output])
            if self.sizes(signal, window, output).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([signal, window, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let Some([batch, _, frames]) = self.sizes(signal, window, output) else { return 0 };
        fourier_scratch_len(&self.plan, batch * frames).saturating_add(self.plan.length()).saturating_mul(4)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 * 4).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let ([signal, window, ..], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let sizes = self.sizes(signal.shape(), window.shape(), output.shape());
        let [batch, length, frames] = sizes.ok_or_else(misfit)?;
        let (size, results) = (self.plan.length(), self.plan.length() / 2 + 1);
        let (padded, scratch) = scratch_f32(io.scratch).split_at_mut(size);
        pad_window(window.slice::<f32>()?, padded);
        let from = Lines { outer: length, inner: self.step, step: 1, count: size, form: LineForm::Real };
        let (inner, step) = if self.transposes { (2, 2 * frames) } else { (2 * results, 2) };
        let to = Lines { outer: frames * results * 2, inner, step, count: results, form: LineForm::Half };
        let (values, target) = (signal.slice::<f32>()?, output.slice_mut::<f32>()?);
        fourier(self.isa, &self.plan, false, [batch, frames], (values, from), Some(padded), (target, to), scratch)
            .map_err(kernel_error)
    }
}

impl SignalKernel {
    /// The signals, their length, and the frames of each.
    fn sizes(&self, data: &Shape, window: &Shape, output: &Shape) -> Option<[usize; 3]> {
        let [outer @ .., results, frames, 2] = &data[..] else { return None };
        let (batch, length): (usize, usize) = (outer.iter().product(), *output.last()?);
        let fits = *results == self.plan.length() / 2 + 1 && window.elements() <= self.plan.length();
        let is_whole = output.elements() == batch * length && *frames > 0 && output.elements() > 0;
        (fits && is_whole).then_some([batch, length, *frames])
    }
}

impl Kernel for SignalKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, window, ..], [output])
            if self.sizes(data, window, output).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([data, window, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let Some([_, _, frames]) = self.sizes(data, window, output) else { return 0 };
        let size = self.plan.length();
        let own = frames.saturating_mul(size).saturating_add(size);
        fourier_scratch_len(&self.plan, frames).saturating_add(own).saturating_mul(4)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |data| data.elements() as u64 * 4)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let ([data, window, ..], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let sizes = self.sizes(data.shape(), window.shape(), output.shape());
        let [_, length, frames] = sizes.ok_or_else(misfit)?;
        let (size, results) = (self.plan.length(), self.plan.length() / 2 + 1);
        let (padded, rest) = scratch_f32(io.scratch).split_at_mut(size);
        pad_window(window.slice::<f32>()?, padded);
        let (waves, scratch) = rest.split_at_mut(frames * size);
        let from = Lines { outer: 2, inner: 0, step: 2 * frames, count: results, form: LineForm::Half };
        let to = Lines { outer: size, inner: 0, step: 1, count: size, form: LineForm::Real };
        let spectra = data.slice::<f32>()?.chunks_exact(results * frames * 2);
        for (spectrum, signal) in spectra.zip(output.slice_mut::<f32>()?.chunks_exact_mut(length)) {
            fourier(self.isa, &self.plan, true, [frames, 1], (spectrum, from), None, (waves, to), scratch)
                .and_then(|()| overlap_add(self.isa, waves, padded, self.step, (self.margin, self.scale), signal))
                .map_err(kernel_error)?;
        }
        Ok(())
    }
}

/// A short window stands in the middle of the frame.
fn pad_window(window: &[f32], padded: &mut [f32]) {
    let start = (padded.len() - window.len()) / 2;
    padded.fill(0.0);
    padded[start..start + window.len()].copy_from_slice(window);
}
