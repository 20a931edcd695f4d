//! Images of luma and chroma as red, green and blue, u8 and f32.

use ovir_kernels::color::{Sample, YuvPlanes, yuv_to_rgb};
use ovir_kernels::isa::{self, Isa};
use ovir_ops::image::{i420_to_bgr::I420ToBgr, i420_to_rgb::I420ToRgb, nv12_to_bgr::Nv12ToBgr, nv12_to_rgb::Nv12ToRgb};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, NativeElement, SmallVec};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct ColorKernel {
    isa: Isa,
    /// Whether chroma is one plane of pairs.
    is_interleaved: bool,
    is_bgr: bool,
    element_type: ElementType,
}

/// Claims NV12toRGB, NV12toBGR, I420toRGB and I420toBGR.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    let table = [
        (operation.downcast_ref::<Nv12ToRgb>().is_some(), (true, false)),
        (operation.downcast_ref::<Nv12ToBgr>().is_some(), (true, true)),
        (operation.downcast_ref::<I420ToRgb>().is_some(), (false, false)),
        (operation.downcast_ref::<I420ToBgr>().is_some(), (false, true)),
    ];
    let (is_interleaved, is_bgr) = table.into_iter().find(|(found, _)| *found)?.1;
    let element_type = context.inputs.first()?.element_type;
    matches!(element_type, ElementType::U8 | ElementType::F32).then_some(())?;
    let kernel = ColorKernel { isa: isa::detect(), is_interleaved, is_bgr, element_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl ColorKernel {
    fn apply<T: Sample + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let [output] = io.outputs else { return Err(misfit()) };
        let [batch, height, width, _] = output.shape()[..] else { return Err(misfit()) };
        let planes = io.inputs.iter().map(|input| input.slice::<T>()).collect::<Result<SmallVec<[&[T]; 3]>, _>>()?;
        let target = output.slice_mut::<T>()?;
        let (pixels, quarter) = (height * width, height / 2 * (width / 2));
        if batch * pixels == 0 {
            return Ok(());
        }
        let step = if self.is_interleaved { 2 } else { 1 };
        // From the first value of an image to the second one.
        let second = if self.is_interleaved { 1 } else { quarter };
        for (n, target) in target.chunks_mut(pixels * 3).enumerate() {
            let (y, u, v) = match planes[..] {
                [all] => {
                    let (y, chroma) = all[n * (pixels + 2 * quarter)..][..pixels + 2 * quarter].split_at(pixels);
                    (y, chroma, &chroma[second..])
                }
                [y, pairs] => (&y[n * pixels..], &pairs[n * 2 * quarter..], &pairs[n * 2 * quarter + 1..]),
                [y, u, v] => (&y[n * pixels..], &u[n * quarter..], &v[n * quarter..]),
                _ => return Err(misfit()),
            };
            let planes = YuvPlanes { y, u, v, step };
            yuv_to_rgb(self.isa, [height, width], planes, self.is_bgr, target).map_err(kernel_error)?;
        }
        Ok(())
    }
}

impl Kernel for ColorKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let [output] = shapes.outputs else { return false };
        let [batch, height, width, 3] = output[..] else { return false };
        let (half_height, half_width) = (height / 2, width / 2);
        let inputs = shapes.inputs;
        height.is_multiple_of(2)
            && width.is_multiple_of(2)
            && match inputs {
                [all] => all[..] == [batch, height / 2 * 3, width, 1],
                [y, pairs] => y[..] == [batch, height, width, 1] && pairs[..] == [batch, half_height, half_width, 2],
                [y, u, v] => {
                    let quarter = [batch, half_height, half_width, 1];
                    y[..] == [batch, height, width, 1] && u[..] == quarter && v[..] == quarter
                }
                _ => false,
            }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 / 2).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::U8 => self.apply::<u8>(io),
            _ => self.apply::<f32>(io),
        }
    }
}
