//! # TopK
//! The k largest or smallest elements along an axis, and where they are.
//!
//! Specification: `sort/top-k-1`, `sort/top-k-3`, `sort/top-k-11`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | rank at least 1 |
//! | in 1 | k | any integer type | scalar or `[1]` |
//! | out 0 | values | that of `data` | `data` with `k` along the axis |
//! | out 1 | indices | i32, i64 | that of `values` |
//!
//! Version 11 added `stable`. In every version, of equal elements the first comes first, so `stable` changes nothing;
//! `sort="none"` sorts by value. NaN counts as the largest number. `k` is at most the size of the axis; 0 is accepted.

use std::cmp::Ordering;
use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, NativeElement, Shape, Value, dispatch};

use crate::common::elementwise::unsupported;
use crate::condition::non_zero::check_index_type;
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// Which elements are picked.
    pub enum TopKMode {
        /// The largest.
        #[default]
        Max = "max",
        /// The smallest.
        Min = "min",
    }
}

crate::attribute_enum! {
    /// In what order the elements come.
    pub enum TopKSort {
        /// By value, the best first.
        #[default]
        Value = "value",
        /// By index.
        Index = "index",
        /// In any order.
        None = "none",
    }
}

crate::attributes! {
    /// The attributes of TopK.
    pub struct TopKAttributes {
        /// The axis along which elements are picked; negative counts from the end.
        axis: i64 = "axis", required true;
        /// Which elements are picked.
        mode: TopKMode = "mode", required true;
        /// In what order they come.
        sort: TopKSort = "sort", required true;
        /// The element type of the indices: i32 or i64.
        index_element_type: ElementType = "index_element_type", default "i32";
        /// Whether equal elements keep their order.
        stable: bool = "stable", default "false", since 11;
    }
}

/// The definition of TopK.
pub static TOP_K: OpDef = OpDef {
    type_name: "TopK",
    category: Category::Sort,
    versions: &[
        OpVersion::new(1, (1, 2), (2, 2), (2, 2)),
        OpVersion::new(3, (3, 10), (2, 2), (2, 2)),
        OpVersion::new(11, (11, 16), (2, 2), (2, 2)),
    ],
    attributes: TopKAttributes::DEFINITIONS,
    build,
};

/// A TopK layer.
#[derive(Debug)]
pub struct TopK {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: TopKAttributes,
}

impl Operation for TopK {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        context.require_class(1, ElementClass::Integer)?;
        context.require_one_element(1)?;
        let mut shape = context.shape(0).clone();
        if let Some(dims) = shape.dims_mut() {
            let axis = normalize_axis(self.attributes.axis, dims.len(), Blame::attribute("axis"))?;
            let k = context.bounds(1).and_then(|b| b.values.first()).copied().unwrap_or(Value::UNKNOWN);
            let size = dims[axis];
            check_k(k, size)?;
            dims[axis] = match k.get() {
                Some(k) => Dim::interval(k, k),
                None if k.symbol.is_some() => Dim::interval(k.min, k.max.min(size.max())).with_symbol(k.symbol),
                None => context.new_dim(k.min, k.max.min(size.max())),
            };
        }
        context.set_output(0, element_type, shape.clone());
        context.set_output(1, self.attributes.index_element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let axis = normalize_axis(self.attributes.axis, data.shape().rank(), Blame::attribute("axis"))?;
        let k = context.integer(1)?;
        check_k(Value::known(k), Dim::fixed(data.shape()[axis]))?;
        let mut shape = data.shape().clone();
        shape[axis] = k as usize;
        let mut outputs = context.all_outputs(&[shape.clone(), shape])?;
        let [values, indices] = &mut outputs[..] else {
            return Err(OpError::shape(Blame::Node, "two outputs are needed"));
        };
        dispatch!(data.element_type(), T in [numeric] => {
            let (source, target) = (data.slice::<T>()?, values.slice_mut::<T>()?);
            match self.attributes.index_element_type {
                ElementType::I32 => {
                    let indices = indices.slice_mut::<i32>()?;
                    self.select(source, data.shape(), axis, k as usize, |place, value, index| {
                        (target[place], indices[place]) = (value, index as i32);
                    })
                }
                _ => {
                    let indices = indices.slice_mut::<i64>()?;
                    self.select(source, data.shape(), axis, k as usize, |place, value, index| {
                        (target[place], indices[place]) = (value, index as i64);
                    })
                }
            }
        } else { Err(unsupported(data.element_type())) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl TopK {
    /// Calls `write(place in the outputs, value, index)` for everything that is picked.
    fn select<T: NativeElement>(
        &self,
        source: &[T],
        shape: &Shape,
        axis: usize,
        k: usize,
        mut write: impl FnMut(usize, T, usize),
    ) -> OpResult {
        let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        if k == 0 || source.is_empty() {
            return Ok(());
        }
        let mut order: Vec<usize> = Vec::new();
        order.try_reserve_exact(size).map_err(|_| OpError::unsupported("there is no memory to sort in"))?;
        for outer in 0..source.len() / (size * inner) {
            for lane in 0..inner {
                let value = |i: usize| source[(outer * size + i) * inner + lane];
                // Sorting is compiled once, and not for each element type.
                let better: &dyn Fn(&usize, &usize) -> Ordering = &|a, b| {
                    let by_value = total_order(value(*a), value(*b));
                    let best_first = if self.attributes.mode == TopKMode::Max { by_value.reverse() } else { by_value };
                    best_first.then(a.cmp(b))
                };
                order.clear();
                order.extend(0..size);
                if k < size {
                    order.select_nth_unstable_by(k, better);
                    order.truncate(k);
                }
                match self.attributes.sort {
                    TopKSort::Index => order.sort_unstable(),
                    _ => order.sort_unstable_by(better),
                }
                for (j, index) in order.iter().enumerate() {
                    write((outer * k + j) * inner + lane, value(*index), *index);
                }
            }
        }
        Ok(())
    }
}

/// The order of numbers in which NaN is the largest and equal to itself.
pub(crate) fn total_order<T: PartialOrd>(a: T, b: T) -> Ordering {
    #[allow(clippy::eq_op)]
    let is_nan = |v: &T| v != v;
    a.partial_cmp(&b).unwrap_or_else(|| is_nan(&a).cmp(&is_nan(&b)))
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = TopKAttributes::read(context.attributes);
    check_index_type("index_element_type", &mut attributes.index_element_type, context);
    Arc::new(TopK { class_version: context.class_version, attributes })
}

fn check_k(k: Value, size: Dim) -> OpResult {
    if k.max >= 0 && k.min <= size.max() {
        return Ok(());
    }
    Err(OpError::value(Blame::Input(1), format!("k is {k:?}; it must be in [0, {size}], the size of the axis")))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(mode: &str, sort: &str) -> Case {
        Case::new("TopK", "opset11")
            .attribute("axis", "-1")
            .attribute("mode", mode)
            .attribute("sort", sort)
            .attribute("stable", "true")
            .outputs(2)
    }

    #[test]
    fn the_example_of_the_specification() {
        let data = tensor(&[5f32, 3.0, 1.0, 2.0, 5.0, 5.0], [6]);
        let output = case("min", "index").run(&[data.clone(), tensor(&[4i64], [])]).unwrap();
        assert_eq!(output, [tensor(&[5f32, 3.0, 1.0, 2.0], [4]), tensor(&[0, 1, 2, 3], [4])]);
        let output = case("max", "value").run(&[data, tensor(&[4u8], [1])]).unwrap();
        assert_eq!(output, [tensor(&[5f32, 5.0, 5.0, 3.0], [4]), tensor(&[0, 4, 5, 1], [4])]);
    }

    #[test]
    fn other_axes_types_and_nan() {
        let columns = Case::new("TopK", "opset1")
            .attribute("axis", "0")
            .attribute("mode", "max")
            .attribute("sort", "value")
            .attribute("index_element_type", "i64")
            .outputs(2);
        let output = columns.run(&[tensor(&[1i8, 8, 3, -4, 2, 9], [3, 2]), tensor(&[2i32], [])]).unwrap();
        assert_eq!(output, [tensor(&[3i8, 9, 2, 8], [2, 2]), tensor(&[1i64, 2, 2, 0], [2, 2])]);
        let output = case("max", "value").run(&[tensor(&[1f32, f32::NAN, 2.0], [3]), tensor(&[2i64], [])]).unwrap();
        assert_eq!(output[1], tensor(&[1, 2], [2]));
    }

    #[test]
    fn shapes() {
        assert_eq!(case("max", "value").infer(&["f32[6,12]", "i64[]=3"]), ["f32[6,3]", "i32[6,3]"]);
        assert_eq!(case("max", "value").infer(&["f32[6,12]", "i64[]"]), ["f32[6,..12]", "i32[6,..12]"]);
        assert_eq!(case("max", "value").infer(&["f32[...]", "i64[]=3"]), ["f32[...]", "i32[...]"]);
        assert_eq!(
            case("max", "value").infer_error(&["f32[6,12]", "i64[]=13"]),
            "input 1: k is 13; it must be in [0, 12], the size of the axis"
        );
    }
}
