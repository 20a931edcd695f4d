//! Elements that share bytes, given one byte each to operations that only move them.
//!
//! The one place where the packed types u1 to u6, i4, nf4 and f4e2m1 meet operations that know elements of whole bytes.

use ovir_diagnostics::Code;
use ovir_tensor::{ElementType, Shape, SmallVec, Tensor, TensorView, TensorViewMut, packed};

use crate::{Environment, EvaluateContext, OpError, OpResult, Operation, Outputs};

/// What stands for an element while it has a byte of its own: a type of one byte in which nothing is computed, so that
/// an operation that is not content with moving elements refuses it.
const OPAQUE: ElementType = ElementType::F8e8m0;

/// Whether elements of a type share bytes.
pub(crate) fn is_packed(element_type: ElementType) -> bool {
    !element_type.bits().is_multiple_of(8)
}

/// Evaluates an operation with a byte for each packed element, and packs what it yields.
///
/// # Errors
/// Those of the operation, and when memory cannot be had.
pub(crate) fn evaluate(operation: &dyn Operation, context: &mut EvaluateContext<'_>) -> OpResult {
    let packed_type = context.inputs.iter().map(TensorView::element_type).find(|t| is_packed(*t));
    let mut inputs: SmallVec<[Option<Tensor>; 4]> = SmallVec::new();
    for (port, view) in context.inputs.iter().enumerate() {
        let is_held = context.in_place && operation.in_place_input() == Some(port);
        inputs.push(match is_packed(view.element_type()) {
            true if is_held => Some(spread_output(context.outputs, view, context.environment)?),
            true => Some(spread(view.element_type(), view.bytes(), view.shape(), context.environment)?),
            false => None,
        });
    }
    let views: SmallVec<[TensorView<'_>; 4]> =
        inputs.iter().zip(context.inputs).map(|(own, given)| own.as_ref().map_or(*given, Tensor::view)).collect();
    let mut outputs = Spread { tensors: SmallVec::from_elem(None, context.outputs.count()), packed: context.outputs };
    let mut inner = EvaluateContext::new(&views, &mut outputs, context.bodies, context.environment, false);
    operation.evaluate(&mut inner).map_err(|error| renamed(error, packed_type))?;
    outputs.pack(context.environment)
}

/// A tensor of the same shape that gives each element of a packed tensor a byte.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn spread_out(tensor: &Tensor) -> OpResult<Tensor> {
    let mut spread = Tensor::zeros(OPAQUE, tensor.shape().clone())?;
    packed::unpack_codes(tensor.element_type(), tensor.bytes(), spread.bytes_mut()?)?;
    Ok(spread)
}

/// The packed tensor of `element_type` that [`spread_out`] was given.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn pack(spread: &Tensor, element_type: ElementType) -> OpResult<Tensor> {
    let mut tensor = Tensor::zeros(element_type, spread.shape().clone())?;
    packed::pack_codes(element_type, spread.bytes(), tensor.bytes_mut()?)?;
    Ok(tensor)
}

/// Outputs of packed types as tensors of a byte for each element.
struct Spread<'o, 'p> {
    packed: &'o mut (dyn Outputs + 'p),
    tensors: SmallVec<[Option<Tensor>; 4]>,
}

impl Spread<'_, '_> {
    /// Makes a tensor for a packed output; returns whether it is one.
    fn prepare(&mut self, port: usize, shape: &Shape, environment: &Environment) -> OpResult<bool> {
        let is_spread = is_packed(self.packed.element_type(port));
        if let Some(tensor) = self.tensors.get_mut(port).filter(|_| is_spread) {
            *tensor = Some(environment.allocate(OPAQUE, shape)?);
        }
        Ok(is_spread)
    }

    fn pack(self, environment: &Environment) -> OpResult {
        for (port, tensor) in self.tensors.into_iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let mut target = self.packed.ready(port, tensor.shape(), environment)?;
            packed::pack_codes(target.element_type(), tensor.bytes(), target.bytes_mut())?;
        }
        Ok(())
    }
}

impl Outputs for Spread<'_, '_> {
    fn count(&self) -> usize {
        self.packed.count()
    }

    fn element_type(&self, port: usize) -> ElementType {
        let element_type = self.packed.element_type(port);
        if is_packed(element_type) { OPAQUE } else { element_type }
    }

    fn ready(&mut self, port: usize, shape: &Shape, environment: &Environment) -> OpResult<TensorViewMut<'_>> {
        if !self.prepare(port, shape, environment)? {
            return self.packed.ready(port, shape, environment);
        }
        match &mut self.tensors[port] {
            Some(tensor) => Ok(tensor.view_mut()?),
            None => self.packed.ready(port, shape, environment),
        }
    }

    fn all_ready(&mut self, shapes: &[Shape], environment: &Environment) -> OpResult<SmallVec<[TensorViewMut<'_>; 4]>> {
        for (port, shape) in shapes.iter().enumerate() {
            self.prepare(port, shape, environment)?;
        }
        let given = self.packed.all_ready(shapes, environment)?;
        let own = self.tensors.iter_mut().map(Some).chain(std::iter::repeat_with(|| None));
        given
            .into_iter()
            .zip(own)
            .map(|(given, own)| match own {
                Some(Some(tensor)) => Ok(tensor.view_mut()?),
                _ => Ok(given),
            })
            .collect()
    }

    fn set(&mut self, port: usize, tensor: Tensor, environment: &Environment) -> OpResult {
        match self.tensors.get_mut(port) {
            Some(own) if is_packed(self.packed.element_type(port)) => {
                *own = Some(tensor);
                Ok(())
            }
            _ => self.packed.set(port, tensor, environment),
        }
    }
}

fn spread(element_type: ElementType, bytes: &[u8], shape: &Shape, environment: &Environment) -> OpResult<Tensor> {
    let mut tensor = environment.allocate(OPAQUE, shape)?;
    packed::unpack_codes(element_type, bytes, tensor.bytes_mut()?)?;
    Ok(tensor)
}

/// The elements of an input that works in place: they are in the first output.
fn spread_output(outputs: &mut dyn Outputs, view: &TensorView<'_>, environment: &Environment) -> OpResult<Tensor> {
    let mut held = outputs.ready(0, view.shape(), environment)?;
    spread(view.element_type(), held.bytes_mut(), view.shape(), environment)
}

/// An operation that refuses the opaque type refuses the packed one.
fn renamed(error: OpError, packed_type: Option<ElementType>) -> OpError {
    match packed_type {
        Some(element_type) if error.code() == Code::NotImplemented => {
            OpError::unsupported(format!("elements of type {element_type} can be moved, but not computed with"))
                .help("convert them first")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::{ElementType, Shape, Tensor, packed};
    use pretty_assertions::assert_eq;

    const PACKED: [ElementType; 8] = [
        ElementType::U1,
        ElementType::U2,
        ElementType::U3,
        ElementType::U4,
        ElementType::U6,
        ElementType::I4,
        ElementType::Nf4,
        ElementType::F4e2m1,
    ];

    /// Different codes of a type, one byte each.
    fn codes(element_type: ElementType, count: usize, start: usize) -> Vec<u8> {
        (0..count).map(|i| ((start + i * 7 + i / 3) % (1 << element_type.bits())) as u8).collect()
    }

    fn pack(element_type: ElementType, codes: &[u8], shape: &Shape) -> Tensor {
        let mut packed = Tensor::zeros(element_type, shape.clone()).unwrap();
        packed::pack_codes(element_type, codes, packed.bytes_mut().unwrap()).unwrap();
        packed
    }

    /// Runs an operation on packed tensors and on their codes as u8, and compares. `shapes` are those of the inputs of the
    /// packed type, and `others` what follows or (with a port) stands between them.
    fn compare(case: &Case, shapes: &[Shape], others: &[(usize, Tensor)]) {
        for element_type in PACKED {
            let (mut packed_inputs, mut plain) = (Vec::new(), Vec::new());
            for (start, shape) in shapes.iter().enumerate() {
                let codes = codes(element_type, shape.elements(), start);
                packed_inputs.push(pack(element_type, &codes, shape));
                plain.push(tensor(&codes, shape.clone()));
            }
            for (port, other) in others {
                packed_inputs.insert(*port, other.clone());
                plain.insert(*port, other.clone());
            }
            let (found, expected) = (case.run(&packed_inputs).unwrap(), case.run(&plain).unwrap());
            for (found, expected) in found.iter().zip(&expected) {
                let codes = expected.slice::<u8>().unwrap();
                assert_eq!(*found, pack(element_type, codes, expected.shape()), "{element_type}");
            }
        }
    }

    fn case(type_name: &str, opset: &str) -> Case {
        Case::new(type_name, opset)
    }

    fn shapes(list: &[&[usize]]) -> Vec<Shape> {
        list.iter().map(|shape| Shape::from_slice(shape)).collect()
    }

    #[test]
    fn elements_are_reordered() {
        let axes = |values: &[i64]| tensor(values, [values.len()]);
        let one = |value: i64| tensor(&[value], []);
        compare(&case("Transpose", "opset1"), &shapes(&[&[3, 5]]), &[(1, axes(&[1, 0]))]);
        compare(&case("Concat", "opset1").attribute("axis", "1"), &shapes(&[&[3, 2], &[3, 5]]), &[]);
        compare(&case("Split", "opset1").attribute("num_splits", "3").outputs(3), &shapes(&[&[3, 9]]), &[(1, one(1))]);
        compare(&case("VariadicSplit", "opset1").outputs(2), &shapes(&[&[3, 5]]), &[(1, one(1)), (2, axes(&[2, 3]))]);
        compare(&case("Reverse", "opset1").attribute("mode", "index"), &shapes(&[&[3, 5]]), &[(1, axes(&[1]))]);
        let lengths = [(1, tensor(&[2i32, 4, 1], [3]))];
        let case_of = case("ReverseSequence", "opset1").attribute("batch_axis", "0").attribute("seq_axis", "1");
        compare(&case_of, &shapes(&[&[3, 5]]), &lengths);
        compare(&case("Roll", "opset7"), &shapes(&[&[3, 5]]), &[(1, axes(&[2])), (2, axes(&[1]))]);
        compare(&case("ShuffleChannels", "opset1").attribute("group", "2"), &shapes(&[&[1, 4, 3]]), &[]);
        compare(&case("Tile", "opset1"), &shapes(&[&[3, 5]]), &[(1, axes(&[2, 3]))]);
        compare(&case("Broadcast", "opset3").attribute("mode", "numpy"), &shapes(&[&[3, 1]]), &[(1, axes(&[2, 3, 5]))]);
        let blocks = case("DepthToSpace", "opset1").attribute("mode", "blocks_first").attribute("block_size", "2");
        compare(&blocks, &shapes(&[&[1, 4, 3, 3]]), &[]);
        let blocks = case("SpaceToDepth", "opset1").attribute("mode", "blocks_first").attribute("block_size", "2");
        compare(&blocks, &shapes(&[&[1, 1, 4, 2]]), &[]);
        for reshaping in ["Reshape", "Squeeze", "Unsqueeze"] {
            let (shape, target): (&[usize], &[i64]) = match reshaping {
                "Reshape" => (&[3, 5], &[5, 3]),
                _ => (&[3, 1, 5], &[1]),
            };
            let case = case(reshaping, "opset1");
            let case = if reshaping == "Reshape" { case.attribute("special_zero", "false") } else { case };
            compare(&case, &shapes(&[shape]), &[(1, axes(target))]);
        }
    }

    #[test]
    fn elements_are_selected() {
        let axes = |values: &[i64]| tensor(values, [values.len()]);
        let one = |value: i64| tensor(&[value], []);
        compare(&case("Gather", "opset8"), &shapes(&[&[3, 5]]), &[(1, axes(&[4, 0, -1])), (2, one(1))]);
        compare(
            &case("GatherElements", "opset6").attribute("axis", "0"),
            &shapes(&[&[3, 2]]),
            &[(1, tensor(&[2i64, 0], [1, 2]))],
        );
        compare(&case("GatherND", "opset8"), &shapes(&[&[3, 5]]), &[(1, tensor(&[2i64, 0, 1, 4], [2, 2]))]);
        let parts = [(1, axes(&[1, 3])), (2, axes(&[3, 0])), (3, axes(&[1, -1]))];
        compare(&case("Slice", "opset8"), &shapes(&[&[3, 5]]), &parts);
        let masks = case("StridedSlice", "opset1").attribute("begin_mask", "0,0").attribute("end_mask", "0,0");
        compare(&masks, &shapes(&[&[3, 5]]), &parts);
        let pads = [(1, axes(&[1, 0])), (2, axes(&[0, 2]))];
        for mode in ["constant", "edge", "reflect", "symmetric"] {
            compare(&case("Pad", "opset1").attribute("pad_mode", mode), &shapes(&[&[3, 5]]), &pads);
        }
        let condition = tensor(&[1u8, 0, 1], [3]);
        let condition = Tensor::from_bytes(ElementType::Boolean, [3], condition.bytes()).unwrap();
        compare(&case("Select", "opset1"), &shapes(&[&[2, 3], &[3]]), &[(0, condition)]);
    }

    #[test]
    fn elements_are_scattered() {
        let one = |value: i64| tensor(&[value], []);
        let indices = [(1, tensor(&[2i64, 0], [2])), (3, one(0))];
        compare(&case("ScatterUpdate", "opset3"), &shapes(&[&[3, 5], &[2, 5]]), &indices);
        let places = [(1, tensor(&[2i64, 0, 1, 3], [2, 2]))];
        compare(&case("ScatterNDUpdate", "opset4"), &shapes(&[&[3, 5], &[2]]), &places);
        let indices = [(1, tensor(&[2i64, 0], [1, 2])), (3, one(0))];
        compare(&case("ScatterElementsUpdate", "opset12"), &shapes(&[&[3, 5], &[1, 2]]), &indices);
    }

    #[test]
    fn what_computes_refuses() {
        let data = pack(ElementType::U4, &[1, 2, 3], &Shape::from([3]));
        let inputs = [data.clone(), tensor(&[0i64], [1]), data.clone().reshaped([3]).unwrap(), tensor(&[0i64], [])];
        let case = case("ScatterElementsUpdate", "opset12").attribute("reduction", "sum");
        let updates = pack(ElementType::U4, &[1], &Shape::from([1]));
        let inputs = [inputs[0].clone(), inputs[1].clone(), updates, inputs[3].clone()];
        let error = case.run(&inputs).unwrap_err().to_string();
        assert!(error.contains("u4"), "{error}");
    }
}
