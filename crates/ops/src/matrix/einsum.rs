//! # Einsum
//! Sums of products of elements, after an equation that labels the dimensions: `ab,bc->ac`.
//!
//! Specification: `matrix/einsum-7`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in n | | any numeric type, the same for all | one dimension a label; any number for `...` |
//! | out 0 | | that of the inputs | the dimensions of the output's labels |
//!
//! Dimensions of one label are broadcast between inputs and equal within an input, of which the diagonal is taken.
//! Labels that the output lacks are summed over, `...` too. Integers wrap.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, MAX_RANK, PartialShape, Shape, SmallVec, TensorView, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Einsum.
pub static EINSUM: OpDef = OpDef {
    type_name: "Einsum",
    category: Category::Matrix,
    versions: &[OpVersion::new(7, (7, 16), (1, usize::MAX), (1, 1))],
    attributes: EinsumAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Einsum.
    pub struct EinsumAttributes {
        /// The equation.
        equation: String = "equation", required true;
    }
}

/// An Einsum layer.
#[derive(Debug, Clone)]
pub struct Einsum {
    /// The attributes.
    pub attributes: EinsumAttributes,
    /// The labels of each input.
    pub inputs: Vec<Subscript>,
    /// The labels of the output.
    pub output: Subscript,
}

/// The labels of one tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscript(pub Vec<Label>);

/// What stands for a dimension, or for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Label {
    /// A letter: one dimension.
    Letter(u8),
    /// `...`: any number of dimensions.
    Ellipsis,
}

/// A dimension of the computation: a letter, or a dimension under the ellipsis, counted from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Letter(u8),
    Covered(usize),
}

impl Operation for Einsum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports: SmallVec<[usize; 8]> = (0..context.input_count()).collect();
        context.require_class(0, ElementClass::Numeric)?;
        let element_type = context.require_same_type(&ports)?;
        let shapes: SmallVec<[&PartialShape; 8]> = ports.iter().map(|port| context.shape(*port)).collect();
        let shape = self.infer_shape(&shapes)?;
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let views: SmallVec<[TensorView<'_>; 8]> =
            (0..context.input_count()).map(|port| context.input(port)).collect::<OpResult<_>>()?;
        let plan = self.plan(&views.iter().map(TensorView::shape).collect::<SmallVec<[&Shape; 8]>>())?;
        let element_type = views[0].element_type();
        let mut output = context.output(0, &plan.shape)?;
        dispatch!(element_type, T in [numeric] => {
            let sources: SmallVec<[&[T]; 8]> = views.iter().map(|v| v.slice::<T>()).collect::<Result<_, _>>()?;
            contract(&plan, &sources, output.slice_mut::<T>()?);
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(7)
    }
}

/// One stride an axis, in elements; 0 where the input has one element for all, or no such axis.
pub type Strides = SmallVec<[usize; 8]>;

/// The loops of a computation: the axes of the output, then those that are summed over.
#[derive(Debug)]
pub struct Plan {
    /// The sizes of the axes of the output.
    pub shape: Shape,
    /// The sizes of the axes that are summed over.
    pub summed: Shape,
    /// For each input, the strides along the axes of the output and along those that are summed over.
    pub strides: Vec<(Strides, Strides)>,
}

impl Einsum {
    fn infer_shape(&self, shapes: &[&PartialShape]) -> OpResult<PartialShape> {
        let Some(axes) = self.axes(shapes)? else { return Ok(PartialShape::DYNAMIC) };
        let dims = self
            .output_axes(&axes)
            .into_iter()
            .map(|axis| axes.iter().find(|(other, _)| *other == axis).map_or(Dim::DYNAMIC, |(_, dim)| *dim));
        Ok(PartialShape::from_dims(dims))
    }

    /// All axes with their dimensions; nothing if the rank under an ellipsis is not known.
    fn axes(&self, shapes: &[&PartialShape]) -> OpResult<Option<Vec<(Axis, Dim)>>> {
        let mut axes: Vec<(Axis, Dim)> = Vec::new();
        for letter in self.inputs.iter().flat_map(|s| &s.0) {
            if let Label::Letter(letter) = letter {
                let axis = Axis::Letter(*letter);
                if !axes.iter().any(|(other, _)| *other == axis) {
                    axes.push((axis, Dim::fixed(1)));
                }
            }
        }
        let mut is_known = true;
        for (port, (subscript, shape)) in self.inputs.iter().zip(shapes).enumerate() {
            let Some(dims) = shape.dims() else {
                is_known &= !subscript.0.contains(&Label::Ellipsis);
                for label in &subscript.0 {
                    if let Label::Letter(letter) = label {
                        join(&mut axes, Axis::Letter(*letter), Dim::DYNAMIC, port)?;
                    }
                }
                continue;
            };
            for (axis, dim) in labelled(subscript, dims, port)? {
                join(&mut axes, axis, dim, port)?;
            }
        }
        Ok(is_known.then_some(axes))
    }

    /// The axes of the output in their order.
    fn output_axes(&self, axes: &[(Axis, Dim)]) -> SmallVec<[Axis; 8]> {
        let covered = axes.iter().filter(|(axis, _)| matches!(axis, Axis::Covered(_))).count();
        let mut output = SmallVec::new();
        for label in &self.output.0 {
            match label {
                Label::Letter(letter) => output.push(Axis::Letter(*letter)),
                Label::Ellipsis => output.extend((0..covered).rev().map(Axis::Covered)),
            }
        }
        output
    }

    /// The loops for dense inputs of these shapes.
    ///
    /// # Errors
    /// When the shapes do not fit the equation.
    pub fn plan(&self, shapes: &[&Shape]) -> OpResult<Plan> {
        let partial: SmallVec<[PartialShape; 8]> = shapes.iter().map(|shape| PartialShape::from(*shape)).collect();
        let axes = self.axes(&partial.iter().collect::<SmallVec<[&PartialShape; 8]>>())?.unwrap_or_default();
        let output = self.output_axes(&axes);
        let size = |axis: &Axis| {
            axes.iter().find(|(other, _)| other == axis).and_then(|(_, dim)| dim.get()).unwrap_or_default()
        };
        let summed: SmallVec<[Axis; 8]> =
            axes.iter().map(|(axis, _)| *axis).filter(|axis| !output.contains(axis)).collect();
        let mut strides = Vec::with_capacity(shapes.len());
        for (port, (subscript, shape)) in self.inputs.iter().zip(shapes).enumerate() {
            let dims: SmallVec<[Dim; 8]> = shape.iter().map(|s| Dim::fixed(*s)).collect();
            let own: SmallVec<[(Axis, usize); 8]> = labelled(subscript, &dims, port)?
                .into_iter()
                .zip(shape.strides())
                .map(|((axis, dim), stride)| (axis, if dim.get() == Some(1) { 0 } else { stride }))
                .collect();
            // A repeated label adds its strides up, which walks the diagonal.
            let along = |axis: &Axis| own.iter().filter(|(other, _)| other == axis).map(|(_, stride)| stride).sum();
            strides.push((output.iter().map(along).collect(), summed.iter().map(along).collect()));
        }
        Ok(Plan { shape: output.iter().map(size).collect(), summed: summed.iter().map(size).collect(), strides })
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = EinsumAttributes::read(context.attributes);
    let parsed = parse(&attributes.equation).and_then(|(inputs, output)| match inputs.len() {
        count if count == context.input_count => Ok((inputs, output)),
        count => Err(format!("it has {count} subscripts for {} inputs", context.input_count)),
    });
    let (inputs, output) = parsed.unwrap_or_else(|reason| {
        if context.attributes.text("equation").is_some() {
            let message = format!("`equation` is `{}`: {reason}", attributes.equation);
            context.attributes.report(OpError::attribute("equation", message));
        }
        (vec![Subscript(vec![Label::Ellipsis]); context.input_count], Subscript::default())
    });
    Arc::new(Einsum { attributes, inputs, output })
}

/// Reads an equation.
fn parse(equation: &str) -> Result<(Vec<Subscript>, Subscript), String> {
    let equation: String = equation.chars().filter(|c| *c != ' ').collect();
    let (left, right) = equation.split_once("->").map_or((equation.as_str(), None), |(l, r)| (l, Some(r)));
    let inputs: Vec<Subscript> = left.split(',').map(parse_subscript).collect::<Result<_, _>>()?;
    let all = || inputs.iter().flat_map(|s| s.0.iter().copied());
    let Some(right) = right else {
        let mut letters: Vec<Label> = all().filter(|label| all().filter(|other| other == label).count() == 1).collect();
        letters.retain(|label| *label != Label::Ellipsis);
        letters.sort_by_key(|label| if let Label::Letter(letter) = label { *letter } else { 0 });
        if all().any(|label| label == Label::Ellipsis) {
            letters.insert(0, Label::Ellipsis);
        }
        return Ok((inputs, Subscript(letters)));
    };
    let output = parse_subscript(right)?;
    for (i, label) in output.0.iter().enumerate() {
        if output.0[..i].contains(label) {
            return Err(format!("the output has the label `{}` twice", show(*label)));
        }
        if !all().any(|other| other == *label) {
            return Err(format!("the label `{}` of the output is in no input", show(*label)));
        }
    }
    Ok((inputs, output))
}

fn parse_subscript(text: &str) -> Result<Subscript, String> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if labels.contains(&Label::Ellipsis) {
                return Err(format!("the subscript `{text}` has two ellipses"));
            }
            labels.push(Label::Ellipsis);
            rest = after;
        } else if first.is_ascii_alphabetic() {
            labels.push(Label::Letter(first as u8));
            rest = &rest[1..];
        } else {
            return Err(format!("`{first}` is neither a letter nor an ellipsis"));
        }
    }
    if labels.len() > MAX_RANK {
        return Err(format!("the subscript `{text}` has more than {MAX_RANK} labels"));
    }
    Ok(Subscript(labels))
}

fn show(label: Label) -> String {
    match label {
        Label::Letter(letter) => char::from(letter).to_string(),
        Label::Ellipsis => "...".to_owned(),
    }
}

/// The dimensions of an input with their axes.
fn labelled(subscript: &Subscript, dims: &[Dim], port: usize) -> OpResult<SmallVec<[(Axis, Dim); 8]>> {
    let letters = subscript.0.iter().filter(|label| **label != Label::Ellipsis).count();
    let has_ellipsis = letters < subscript.0.len();
    if dims.len() < letters || (!has_ellipsis && dims.len() != letters) {
        let text: String = subscript.0.iter().map(|label| show(*label)).collect();
        let message = format!(
            "shape {} has rank {}; the subscript `{text}` is of rank {letters}{}",
            PartialShape::from_dims(dims.iter().copied()),
            dims.len(),
            if has_ellipsis { " or more" } else { "" }
        );
        return Err(OpError::shape(Blame::Input(port), message));
    }
    let covered = dims.len() - letters;
    let mut result: SmallVec<[(Axis, Dim); 8]> = SmallVec::new();
    let mut rest = dims.iter().copied();
    for label in &subscript.0 {
        match label {
            Label::Letter(letter) => result.extend(rest.next().map(|dim| (Axis::Letter(*letter), dim))),
            Label::Ellipsis => {
                result.extend((0..covered).rev().zip(rest.by_ref()).map(|(i, dim)| (Axis::Covered(i), dim)));
            }
        }
    }
    for (i, (axis, dim)) in result.iter().enumerate() {
        if let Some((_, other)) = result[..i].iter().find(|(other, d)| other == axis && !d.compatible(*dim)) {
            let message = format!("dimensions {other} and {dim} have the same label; they must be equal");
            return Err(OpError::shape(Blame::Input(port), message));
        }
    }
    Ok(result)
}

/// Broadcasts a dimension into its axis.
fn join(axes: &mut Vec<(Axis, Dim)>, axis: Axis, dim: Dim, port: usize) -> OpResult {
    let Some((_, known)) = axes.iter_mut().find(|(other, _)| *other == axis) else {
        axes.push((axis, dim));
        return Ok(());
    };
    *known = known.broadcast(dim).ok_or_else(|| {
        let message = format!("dimension {dim} cannot be broadcast with {known} of the same label");
        OpError::shape(Blame::Input(port), message)
    })?;
    Ok(())
}

/// Sums in f64 (integers modulo 2^128), rounded once.
fn contract<T: Number>(plan: &Plan, sources: &[&[T]], target: &mut [T]) {
    let outer: SmallVec<[&[usize]; 8]> = plan.strides.iter().map(|(outer, _)| &outer[..]).collect();
    let inner: SmallVec<[&[usize]; 8]> = plan.strides.iter().map(|(_, inner)| &inner[..]).collect();
    let start: SmallVec<[usize; 8]> = SmallVec::from_elem(0, sources.len());
    let mut targets = target.iter_mut();
    walk(&plan.shape, &outer, &start, |offsets| {
        let (mut float, mut integer) = (0f64, 0i128);
        walk(&plan.summed, &inner, offsets, |offsets| {
            let elements = sources.iter().zip(offsets).map(|(source, offset)| source[*offset]);
            if T::IS_FLOAT {
                float += elements.map(Number::to_f64).product::<f64>();
            } else {
                integer = integer.wrapping_add(elements.fold(1, |p: i128, x| p.wrapping_mul(x.to_i128())));
            }
        });
        if let Some(result) = targets.next() {
            *result = if T::IS_FLOAT { T::from_f64(float) } else { T::from_i128(integer) };
        }
    });
}

/// Visits all positions of `shape` in row-major order with the offsets of all inputs, which begin at `start`.
fn walk(shape: &[usize], strides: &[&[usize]], start: &[usize], mut visit: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut offsets: SmallVec<[usize; 8]> = SmallVec::from_slice(start);
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.len());
    loop {
        visit(&offsets);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            let is_done = index[axis] == shape[axis];
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset += strides[axis];
                if is_done {
                    *offset -= strides[axis] * shape[axis];
                }
            }
            if !is_done {
                break;
            }
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case(equation: &str) -> Case {
        Case::new("Einsum", "opset7").attribute("equation", equation)
    }

    fn run(equation: &str, inputs: &[Tensor]) -> Tensor {
        case(equation).run(inputs).unwrap().remove(0)
    }

    #[test]
    fn examples_1_to_8_of_the_specification() {
        let vector = tensor(&[4f32, 5.0, 6.0], [3]);
        assert_eq!(run("i,i->", &[tensor(&[1f32, 2.0, 3.0], [3]), vector.clone()]), tensor(&[32f32], []));
        let rows = tensor(&[1f32, 2.0, 3.0, 1.0, 2.0, 3.0], [2, 3]);
        assert_eq!(run("ij,j->i", &[rows, vector]), tensor(&[32f32, 32.0], [2]));
        let count: Vec<f32> = (1..10).map(|i| i as f32).collect();
        let double: Vec<f32> = count.iter().map(|x| x * 2.0).collect();
        let batch = tensor(&[count.clone(), double].concat(), [2, 3, 3]);
        assert_eq!(run("kii->k", std::slice::from_ref(&batch)), tensor(&[15f32, 30.0], [2]));
        assert_eq!(run("kii->ki", &[batch]), tensor(&[1f32, 5.0, 9.0, 2.0, 10.0, 18.0], [2, 3]));
        let transposed = [1f32, 4.0, 7.0, 2.0, 5.0, 8.0, 3.0, 6.0, 9.0];
        assert_eq!(run("ijk->kij", &[tensor(&count, [1, 3, 3])]), tensor(&transposed, [3, 1, 3]));
        let square = tensor(&count, [3, 3]);
        assert_eq!(run("a...->...", std::slice::from_ref(&square)), tensor(&[12f32, 15.0, 18.0], [3]));
        let half: Vec<f32> = count.iter().map(|x| x / 2.0).collect();
        assert_eq!(run("a...,...->a...", &[square, tensor(&[0.5f32], [1])]), tensor(&half, [3, 3]));
        let six = tensor(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 2, 3]);
        assert_eq!(run("AbC", &[six]), tensor(&[1f32, 4.0, 2.0, 5.0, 3.0, 6.0], [1, 3, 2]));
    }

    #[test]
    fn shapes_of_the_specification() {
        assert_eq!(case("ij,ij->i").infer(&["f32[2,64]", "f32[2,64]"]), ["f32[2]"]);
        assert_eq!(case("ab...,ac...,ade->...bc").infer(&["f32[2,3,4]", "f32[2,7,1]", "f32[2,4,7]"]), ["f32[4,3,7]"]);
        assert_eq!(case("a...b,b...->a...").infer(&["f32[9,1,4,3]", "f32[3,11,7,1]"]), ["f32[9,11,7,4]"]);
        assert_eq!(case("ab,bcd,bc->ca").infer(&["f32[2,5]", "f32[5,3,6]", "f32[5,3]"]), ["f32[3,2]"]);
        assert_eq!(case("dbbc,ca").infer(&["f32[2,5,5,3]", "f32[3,4]"]), ["f32[4,2]"]);
    }

    #[test]
    fn unknown_shapes() {
        assert_eq!(case("ab,bc->ac").infer(&["f32[?,4]", "f32[...]"]), ["f32[?,?]"]);
        assert_eq!(case("a...,ab->...b").infer(&["f32[...]", "f32[3,4]"]), ["f32[...]"]);
        assert_eq!(
            case("ab,bc->ac").infer_error(&["f32[2,3]", "f32[4,5]"]),
            "input 1: dimension 4 cannot be broadcast with 3 of the same label"
        );
        assert_eq!(
            case("ab,bc->ac").infer_error(&["f32[2,3]", "f32[4]"]),
            "input 1: shape [4] has rank 1; the subscript `bc` is of rank 2"
        );
        assert!(case("aa->a").infer_error(&["f32[2,3]"]).contains("have the same label"));
    }

    #[test]
    fn equations_are_checked() {
        let message = |equation: &str, inputs: usize| case(equation).attribute_errors(inputs).join("; ");
        assert!(message("ab,bc->ad", 2).ends_with("the label `d` of the output is in no input"));
        assert!(message("ab,bc->aa", 2).ends_with("the output has the label `a` twice"));
        assert!(message("ab->a", 2).ends_with("it has 1 subscripts for 2 inputs"));
        assert!(message("a1->a", 1).ends_with("`1` is neither a letter nor an ellipsis"));
        assert_eq!(message(" a b , b c -> a c ", 2), "");
    }

    #[test]
    fn inference_is_monotone() {
        case("ab...,ac...,ade->...bc").assert_monotone(&["f32[2,3,4]", "f32[2,7,1]", "f32[2,4,7]"]);
        case("kii->k").assert_monotone(&["f32[2,3,3]"]);
        case("a...b,b...->a...").assert_monotone(&["f32[9,1,4,3]", "f32[3,11,7,1]"]);
    }
}
