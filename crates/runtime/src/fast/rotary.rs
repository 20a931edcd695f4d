//! Rotary position embeddings of f32, which are fused layers.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::rotary::{RotaryGeometry, rotate};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{Shape, SmallVec, TensorView};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct RotaryKernel {
    isa: Isa,
    data: usize,
    cosines: usize,
    sines: usize,
    /// Whether the data have their rows before their heads.
    is_swapped: bool,
}

/// Claims rotary position embeddings.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let stages = &operation.downcast_ref::<Fused>()?.stages;
    stages.iter().any(|stage| stage.type_name == "Slice").then_some(())?;
    let sum = stages.last().filter(|stage| stage.type_name == "Add")?;
    let earlier = |stage: &Stage, type_name: &str| {
        stage.inputs.iter().find_map(|input| match input {
            StageInput::Stage(index) => stages.get(*index).filter(|stage| stage.type_name == type_name),
            StageInput::Outside(_) => None,
        })
    };
    let products: SmallVec<[&Stage; 2]> = stages.iter().filter(|stage| stage.type_name == "Multiply").collect();
    let with_sines = products.iter().find(|stage| earlier(stage, "Concat").is_some())?;
    let sines = with_sines.outside(0).or_else(|| with_sines.outside(1))?;
    let with_cosines = sum.inputs.iter().find_map(|input| match input {
        StageInput::Stage(index) => stages.get(*index).filter(|stage| !std::ptr::eq(*stage, *with_sines)),
        StageInput::Outside(_) => None,
    })?;
    let transpose = stages.iter().find(|stage| stage.type_name == "Transpose");
    let slice = stages.iter().find(|stage| stage.type_name == "Slice")?;
    let data = transpose.unwrap_or(slice).outside(0)?;
    let is_cosines = |port: &usize| transpose.is_some() || *port != data;
    let cosines = [0, 1].into_iter().filter_map(|place| with_cosines.outside(place)).find(is_cosines)?;
    let kernel = RotaryKernel { isa: isa::detect(), data, cosines, sines, is_swapped: transpose.is_some() };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The sizes of four axes, those that a shape does not have being 1.
fn four(shape: &Shape) -> Option<[usize; 4]> {
    let missing = 4usize.checked_sub(shape.rank())?;
    Some(std::array::from_fn(|axis| axis.checked_sub(missing).map_or(1, |axis| shape[axis])))
}

/// The distances of images, heads and rows of an operand that repeats along axes of size 1.
fn repeated(shape: &Shape, sizes: [usize; 4]) -> Option<[usize; 3]> {
    let own = four(shape)?;
    let fits = own[3] == sizes[3] && (0..3).all(|axis| own[axis] == 1 || own[axis] == sizes[axis]);
    let row = own[3];
    let strides = [own[1] * own[2] * row, own[2] * row, row];
    fits.then(|| std::array::from_fn(|axis| if own[axis] == 1 { 0 } else { strides[axis] }))
}

impl RotaryKernel {
    fn geometry(&self, inputs: &[&Shape]) -> Option<RotaryGeometry> {
        let shape = |port: usize| inputs.get(port).copied();
        let given = four(shape(self.data)?)?;
        let [images, a, b, columns] = given;
        let row = columns;
        let (sizes, data_strides) = match self.is_swapped {
            true => ([images, b, a, columns], [a * b * row, row, b * row]),
            false => (given, [a * b * row, b * row, row]),
        };
        let is_even = columns > 0 && columns.is_multiple_of(2);
        is_even.then_some(RotaryGeometry {
            sizes: [sizes[0], sizes[1], sizes[2]],
            half: columns / 2,
            data_strides,
            cosine_strides: repeated(shape(self.cosines)?, sizes)?,
            sine_strides: repeated(shape(self.sines)?, sizes)?,
        })
    }
}

impl Kernel for RotaryKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        // Cosines and sines that are larger than the data repeat them.
        let Some(geometry) = self.geometry(shapes.inputs) else { return false };
        let elements = geometry.sizes.iter().product::<usize>() * 2 * geometry.half;
        shapes.outputs.first().is_some_and(|output| output.elements() == elements && elements > 0)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|shape| shape.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let shapes: SmallVec<[&Shape; 8]> = io.inputs.iter().map(TensorView::shape).collect();
        let geometry = self.geometry(&shapes).ok_or_else(|| OpError::shape(Blame::Node, "the kernel does not fit"))?;
        let [output] = io.outputs else { return Ok(()) };
        let values = |port: usize| io.inputs[port].slice::<f32>();
        let (data, cosines, sines) = (values(self.data)?, values(self.cosines)?, values(self.sines)?);
        rotate(self.isa, &geometry, data, cosines, sines, output.slice_mut::<f32>()?).map_err(kernel_error)
    }
}
