//! # Unique
//! The distinct elements of a tensor, or its distinct slices along an axis.
//!
//! Specification: `movement/unique-10`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any native type, string | any |
//! | in 1 | axis (optional) | i32, i64 | scalar or `[1]`; must be known |
//! | out 0 | unique elements | that of `data` | `[count]`, or `data` with `count` along the axis |
//! | out 1 | indices of first occurrences | i32, i64 | `[count]` |
//! | out 2 | for each element its place in output 0 | i32, i64 | `[elements]`, or `[size of the axis]` |
//! | out 3 | counts of occurrences | i32, i64 | `[count]` |
//!
//! Sorted output is ascending (slices: lexicographically), else in the order of first occurrence. As in NumPy, NaN
//! equals NaN and is the largest number; the specification does not say.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, TensorView, TensorViewMut, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell, known_axis};
use crate::common::number::{Key, Number};
use crate::condition::non_zero::check_index_type;
use crate::infer::normalize_axis;
use crate::sort::top_k::total_order;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of Unique.
    pub struct UniqueAttributes {
        /// Whether the distinct elements are sorted.
        sorted: bool = "sorted", default "true";
        /// The element type of the indices: i32 or i64.
        index_element_type: ElementType = "index_element_type", default "i64";
        /// The element type of the counts: i32 or i64.
        count_element_type: ElementType = "count_element_type", default "i64";
    }
}

/// The definition of Unique.
pub static UNIQUE: OpDef = OpDef {
    type_name: "Unique",
    category: Category::Movement,
    versions: &[OpVersion::new(10, (10, 16), (1, 2), (4, 4))],
    attributes: UniqueAttributes::DEFINITIONS,
    build,
};

/// A Unique layer.
#[derive(Debug)]
pub struct Unique {
    /// The attributes.
    pub attributes: UniqueAttributes,
}

impl Operation for Unique {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        let data = context.shape(0);
        let mut slices = data.elements();
        let mut unique = PartialShape::of_rank(1);
        let mut place = Some(0);
        if context.input_count() > 1 {
            context.require_class(1, ElementClass::Index)?;
            context.require_one_element(1)?;
            unique = data.clone();
            place = match data.rank() {
                Some(rank) => known_axis(context, 1, rank)?,
                None => None,
            };
            slices = place.map_or(Dim::DYNAMIC, |axis| data.dim(axis));
            if let (None, Some(dims)) = (place, unique.dims_mut()) {
                dims.fill(Dim::DYNAMIC);
            }
        }
        let count = context.new_dim(slices.min().min(1), slices.max());
        if let (Some(place), Some(dims)) = (place, unique.dims_mut()) {
            dims[place] = count;
        }
        let UniqueAttributes { index_element_type, count_element_type, .. } = self.attributes;
        context.set_output(0, element_type, unique);
        context.set_output(1, index_element_type, PartialShape::from_dims([count]));
        context.set_output(2, index_element_type, PartialShape::from_dims([slices]));
        context.set_output(3, count_element_type, PartialShape::from_dims([count]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let shape = data.shape();
        let axis = match context.input_count() > 1 {
            true => Some(normalize_axis(context.integer(1)?, shape.rank(), Blame::Input(1))?),
            false => None,
        };
        // Without an axis the flat tensor has slices of one element each.
        let (outer, size, inner) = match axis {
            Some(axis) => (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()),
            None => (1, shape.elements(), 1),
        };
        let slices = Slices { outer, size, inner };
        let groups = self.groups(&data, slices)?;
        let count = groups.first.len();
        let unique = match axis {
            Some(axis) => {
                let mut unique = shape.clone();
                unique[axis] = count;
                unique
            }
            None => Shape::from([count]),
        };
        let shapes = [unique, Shape::from([count]), Shape::from([size]), Shape::from([count])];
        let mut outputs = context.all_outputs(&shapes)?;
        let [values, first, inverse, counts] = &mut outputs[..] else {
            return Err(OpError::shape(Blame::Node, "four outputs are needed"));
        };
        write_integers(first, &groups.first)?;
        write_integers(inverse, &groups.inverse)?;
        write_integers(counts, &groups.counts)?;
        dispatch_cell!(data.element_type(), C => {
            let (source, target) = (C::source(&data), C::target(values));
            let to = Strided::dense(&[outer, count, inner]).strides;
            let from = Strided::dense(&[outer, size, inner]).strides;
            if outer == 1 {
                for (slice, target) in groups.first.iter().zip(target.chunks_exact_mut(inner.max(1))) {
                    target.clone_from_slice(&source[slice * inner..][..inner]);
                }
                return Ok(());
            }
            for (place, slice) in groups.first.iter().enumerate() {
                let from = Strided { offset: slice * inner, strides: from.clone() };
                let to = Strided { offset: place * inner, strides: to.clone() };
                copy_strided(&[outer, 1, inner], source, &from, target, &to);
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(10)
    }
}

/// A tensor as `size` slices of `outer * inner` elements.
#[derive(Clone, Copy)]
struct Slices {
    outer: usize,
    size: usize,
    inner: usize,
}

impl Slices {
    fn compare(self, a: usize, b: usize, order: impl Fn(usize, usize) -> Ordering) -> Ordering {
        for block in 0..self.outer {
            for i in 0..self.inner {
                let place = |slice: usize| (block * self.size + slice) * self.inner + i;
                match order(place(a), place(b)) {
                    Ordering::Equal => {}
                    other => return other,
                }
            }
        }
        Ordering::Equal
    }
}

/// Which slices are equal.
#[derive(Default)]
struct Groups {
    /// The first slice of each group.
    first: Vec<usize>,
    /// The group of each slice.
    inverse: Vec<usize>,
    /// The number of slices of each group.
    counts: Vec<usize>,
}

impl Unique {
    fn groups(&self, data: &TensorView<'_>, slices: Slices) -> OpResult<Groups> {
        if let Some(strings) = data.strings() {
            return self.group(slices, &|a, b| slices.compare(a, b, |i, j| strings[i].cmp(&strings[j])));
        }
        dispatch!(data.element_type(), T in [native] => {
            let values = data.slice::<T>()?;
            if slices.outer == 1 && slices.inner == 1 {
                return self.group_elements(values);
            }
            self.group(slices, &|a, b| slices.compare(a, b, |i, j| total_order(values[i], values[j])))
        } else { Err(unsupported(data.element_type())) })
    }

    /// Groups of single elements, found by what equal ones have in common.
    fn group_elements<T: Number>(&self, values: &[T]) -> OpResult<Groups> {
        let mut groups = Groups { first: Vec::new(), inverse: reserved(values.len())?, counts: Vec::new() };
        let mut found: HashMap<i64, usize, RandomState> = HashMap::default();
        for (i, value) in values.iter().enumerate() {
            let key = if T::IS_FLOAT { i64::of_float(value.to_f64()) } else { value.to_i128() as i64 };
            let group = *found.entry(key).or_insert(groups.first.len());
            if group == groups.first.len() {
                groups.first.push(i);
                groups.counts.push(0);
            }
            groups.counts[group] += 1;
            groups.inverse.push(group);
        }
        if self.attributes.sorted {
            groups.order_by(&|a, b| total_order(values[a], values[b]))?;
        }
        Ok(groups)
    }

    /// Groups of slices. As sorting is, this is compiled once, and not for each element type.
    fn group(&self, slices: Slices, compare: &dyn Fn(usize, usize) -> Ordering) -> OpResult<Groups> {
        let mut order = reserved(slices.size)?;
        order.extend(0..slices.size);
        order.sort_unstable_by(|a, b| compare(*a, *b).then(a.cmp(b)));
        let mut groups = Groups { first: Vec::new(), inverse: reserved(slices.size)?, counts: Vec::new() };
        groups.inverse.resize(slices.size, 0);
        for (i, slice) in order.iter().enumerate() {
            if i == 0 || compare(order[i - 1], *slice) != Ordering::Equal {
                groups.first.push(*slice);
                groups.counts.push(0);
            }
            let group = groups.first.len() - 1;
            groups.inverse[*slice] = group;
            groups.counts[group] += 1;
        }
        if !self.attributes.sorted {
            groups.order_by(&|a, b| a.cmp(&b))?;
        }
        Ok(groups)
    }
}

impl Groups {
    /// Orders groups by their first slices, which no two have in common.
    fn order_by(&mut self, compare: &dyn Fn(usize, usize) -> Ordering) -> OpResult {
        let mut order = reserved(self.first.len())?;
        order.extend(0..self.first.len());
        order.sort_unstable_by(|a: &usize, b: &usize| compare(self.first[*a], self.first[*b]));
        let mut place = reserved(order.len())?;
        place.resize(order.len(), 0);
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        self.first = order.iter().map(|old| self.first[*old]).collect();
        self.counts = order.iter().map(|old| self.counts[*old]).collect();
        for group in &mut self.inverse {
            *group = place[*group];
        }
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = UniqueAttributes::read(context.attributes);
    check_index_type("index_element_type", &mut attributes.index_element_type, context);
    check_index_type("count_element_type", &mut attributes.count_element_type, context);
    Arc::new(Unique { attributes })
}

fn reserved(length: usize) -> OpResult<Vec<usize>> {
    let mut list = Vec::new();
    list.try_reserve_exact(length).map_err(|_| OpError::unsupported("there is no memory to sort in"))?;
    Ok(list)
}

fn write_integers(output: &mut TensorViewMut<'_>, values: &[usize]) -> OpResult {
    if output.element_type() == ElementType::I32 {
        for (target, value) in output.slice_mut::<i32>()?.iter_mut().zip(values) {
            *target = *value as i32;
        }
        return Ok(());
    }
    for (target, value) in output.slice_mut::<i64>()?.iter_mut().zip(values) {
        *target = *value as i64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(sorted: &str) -> Case {
        Case::new("Unique", "opset10").attribute("sorted", sorted).attribute("index_element_type", "i32").outputs(4)
    }

    #[test]
    fn elements() {
        let data = tensor(&[3f32, 1.0, 3.0, 2.0, 1.0, 0.0], [2, 3]);
        let first = case("false").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(first[0], tensor(&[3f32, 1.0, 2.0, 0.0], [4]));
        assert_eq!(first[1], tensor(&[0, 1, 3, 5], [4]));
        assert_eq!(first[2], tensor(&[0, 1, 0, 2, 1, 3], [6]));
        assert_eq!(first[3], tensor(&[2i64, 2, 1, 1], [4]));
        let sorted = case("true").run(&[data]).unwrap();
        assert_eq!(sorted[0], tensor(&[0f32, 1.0, 2.0, 3.0], [4]));
        assert_eq!(sorted[2], tensor(&[3, 1, 3, 2, 1, 0], [6]));
        let scalar = case("true").run(&[tensor(&[7u8], [])]).unwrap();
        assert_eq!(scalar[0], tensor(&[7u8], [1]));
        let none = case("true").run(&[tensor::<f32>(&[], [0, 2])]).unwrap();
        assert_eq!(none[0].shape().to_vec(), [0]);
        let nan = case("true").run(&[tensor(&[f32::NAN, 1.0, f32::NAN], [3])]).unwrap();
        assert_eq!(nan[3], tensor(&[1i64, 2], [2]));
    }

    #[test]
    fn elements_are_grouped_as_slices_are() {
        let special = [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, -1.5];
        let floats: Vec<f32> =
            (0..200).map(|i| if i % 3 == 0 { special[i / 3 % 6] } else { (i * i % 41) as f32 }).collect();
        let integers: Vec<u64> = (0..200).map(|i| u64::MAX - i * i % 53 * (1 << 58)).collect();
        for sorted in ["true", "false"] {
            for data in [tensor(&floats, [200]), tensor(&integers, [200])] {
                // Along an axis slices are compared; pairs with the same second element are as their first ones.
                let flat = case(sorted).run(std::slice::from_ref(&data)).unwrap();
                let pairs = match data.element_type() {
                    ovir_tensor::ElementType::F32 => {
                        tensor(&floats.iter().flat_map(|v| [*v, 1.0]).collect::<Vec<_>>(), [200, 2])
                    }
                    _ => tensor(&integers.iter().flat_map(|v| [*v, 1]).collect::<Vec<_>>(), [200, 2]),
                };
                let along = case(sorted).run(&[pairs, tensor(&[0i64], [])]).unwrap();
                assert_eq!(flat[1..], along[1..]);
                assert_eq!(flat[0].elements() * 2, along[0].elements());
            }
        }
    }

    #[test]
    fn slices() {
        let data = tensor(&[3i8, 1, 3, 2, 1, 2], [2, 3]);
        let output = case("true").run(&[data, tensor(&[1i64], [])]).unwrap();
        assert_eq!(output[0], tensor(&[1i8, 3, 1, 2], [2, 2]));
        assert_eq!(output[1], tensor(&[1, 0], [2]));
        assert_eq!(output[2], tensor(&[1, 0, 1], [3]));
        assert_eq!(output[3], tensor(&[1i64, 2], [2]));
    }

    #[test]
    fn shapes() {
        assert_eq!(case("true").infer(&["f32[3,3]"]), ["f32[1..9]", "i32[1..9]", "i32[9]", "i64[1..9]"]);
        let along = case("true").infer(&["f32[3,?]", "i64[]=0"]);
        assert_eq!(along, ["f32[1..3,?]", "i32[1..3]", "i32[3]", "i64[1..3]"]);
        assert_eq!(case("true").infer(&["f32[3,2]", "i64[]"])[0], "f32[?,?]");
    }
}
