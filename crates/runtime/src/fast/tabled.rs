//! Movements of few elements whose places are known when the model is compiled.

use ovir_ops::{OpResult, RandomStream};
use ovir_tensor::{ElementType, Shape, SmallVec, Tensor, TensorView};

use super::movement::misfit;
use super::{ClaimContext, Kernel, StepIo, StepShapes};

/// The most elements that a table places. The border is not measured.
const MOST_PLACES: usize = 128;

/// The most elements that the data have, so that their numbers fit into the table.
const MOST_DATA: usize = u16::MAX as usize;

/// For each element of the output its place in the data.
struct TableKernel {
    places: Box<[u16]>,
    width: usize,
    data: Shape,
    output: Shape,
}

/// The table of a movement of the first input's elements, of `width` bytes, between static shapes, if all other inputs, which say
/// where they go, are constants. `numbers` is the kernel that moves elements of four bytes in the same way; it moves the numbers
/// of the elements.
pub(super) fn table(
    context: &mut ClaimContext<'_>,
    width: usize,
    numbers: impl FnOnce(&mut ClaimContext<'_>) -> Option<Box<dyn Kernel>>,
) -> Option<Box<dyn Kernel>> {
    let [output] = context.outputs else { return None };
    let (data, output) = (context.inputs.first()?.shape.to_shape()?, output.shape.to_shape()?);
    let is_few = (1..=MOST_PLACES).contains(&output.checked_elements()?) && data.checked_elements()? <= MOST_DATA;
    (is_few && matches!(width, 1 | 2 | 4 | 8)).then_some(())?;
    // They begin with one: nothing that does not come from the data is taken for the first element.
    let numbered: Vec<u32> = (1..=data.elements() as u32).collect();
    let mut tensors = vec![Tensor::from_slice(&numbered, data.clone()).ok()?];
    for port in 1..context.inputs.len() {
        tensors.push((context.constant)(port)?);
    }
    let kernel = numbers(context)?;
    let inputs: SmallVec<[&Shape; 4]> = tensors.iter().map(Tensor::shape).collect();
    let shapes = StepShapes { inputs: &inputs, outputs: &[&output] };
    (kernel.accepts(&shapes) && kernel.scratch_bytes(&shapes) == 0).then_some(())?;
    let views: SmallVec<[TensorView<'_>; 4]> = tensors.iter().map(Tensor::view).collect();
    let mut moved = Tensor::zeros(ElementType::U32, output.clone()).ok()?;
    let random = &mut RandomStream::default();
    let outputs = &mut [moved.view_mut().ok()?];
    kernel.run(StepIo { inputs: &views, outputs, scratch: &mut [], in_place: None, random }).ok()?;
    let count = data.elements();
    let place = |number: &u32| u16::try_from(number.checked_sub(1)?).ok().filter(|place| usize::from(*place) < count);
    let places = moved.view().slice::<u32>().ok()?.iter().map(place).collect::<Option<_>>()?;
    Some(Box::new(TableKernel { places, width, data, output }))
}

impl TableKernel {
    fn pick<const WIDTH: usize>(&self, data: &[u8], output: &mut [u8]) {
        let (data, output) = (data.as_chunks::<WIDTH>().0, output.as_chunks_mut::<WIDTH>().0);
        for (element, place) in output.iter_mut().zip(&self.places) {
            *element = data[usize::from(*place)];
        }
    }
}

impl Kernel for TableKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        **data == self.data && **output == self.output
    }

    fn inputs_read(&self) -> usize {
        1
    }

    fn work_nanoseconds(&self, _shapes: &StepShapes<'_>) -> u64 {
        self.places.len() as u64
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (data, output) = (data.bytes(), output.bytes_mut());
        let is_whole = data.len() == self.data.elements() * self.width;
        if !is_whole || output.len() != self.places.len() * self.width {
            return Err(misfit());
        }
        match self.width {
            1 => self.pick::<1>(data, output),
            2 => self.pick::<2>(data, output),
            4 => self.pick::<4>(data, output),
            _ => self.pick::<8>(data, output),
        }
        Ok(())
    }
}
