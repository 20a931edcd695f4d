//! What kernels work out from shapes.

use ovir_tensor::{Shape, SmallVec, TensorView};

use super::{ClaimContext, StepShapes};

/// What a kernel works out from the shapes of its inputs. Where these are the same in every inference, it is worked out once,
/// when the model is compiled.
pub(super) struct Settled<T> {
    known: Option<Box<(Shapes, T)>>,
}

impl<T> Settled<T> {
    /// For a layer whose first `inputs` inputs have shapes that matter.
    pub fn new(
        context: &ClaimContext<'_>,
        inputs: usize,
        work_out: impl FnOnce(&StepShapes<'_>) -> Option<T>,
    ) -> Settled<T> {
        let known = static_shapes(context).and_then(|(given, outputs)| {
            let [inputs_given, outputs_given] = [&given, &outputs].map(|shapes| shapes.iter().collect::<Vec<&Shape>>());
            let result = work_out(&StepShapes { inputs: &inputs_given, outputs: &outputs_given })?;
            Some(Box::new((given.into_iter().take(inputs).collect(), result)))
        });
        Settled { known }
    }

    /// What was worked out, if it was for these inputs.
    pub fn get(&self, inputs: &[TensorView<'_>]) -> Option<&T> {
        let (shapes, result) = self.known.as_deref()?;
        let is_same = inputs.len() >= shapes.len() && shapes.iter().zip(inputs).all(|(a, b)| a == b.shape());
        is_same.then_some(result)
    }
}

type Shapes = SmallVec<[Shape; 2]>;

/// The shapes of all inputs and outputs of a layer, if all of them are static.
fn static_shapes(context: &ClaimContext<'_>) -> Option<(Shapes, Shapes)> {
    let inputs: Option<Shapes> = context.inputs.iter().map(|facts| facts.shape.to_shape()).collect();
    let outputs: Option<Shapes> = context.outputs.iter().map(|facts| facts.shape.to_shape()).collect();
    Some((inputs?, outputs?))
}
