//! Writes contractions of data with a constant as products of matrices, each with the same one or with its own, and those that
//! sum nothing as products of elements.
//!
//! Converters keep `tf.einsum` and `torch.einsum` of attention layers with their weights as Einsum. As a MatMul the constant
//! is packed once, and the product takes the bias and the activation behind it.

use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::matrix::einsum::{Einsum, Label, Subscript};
use ovir_ops::matrix::matmul::{MatMul, MatMulAttributes};
use ovir_ops::shape::reshape::{Reshape, ReshapeAttributes};
use ovir_ops::shape::unsqueeze::Unsqueeze;
use ovir_tensor::ElementType;

use crate::chain::{Added, Uses, transpose};
use crate::fold_scales::multiply;
use crate::trace::Trace;

const VERSION: OpVersion = OpVersion::new(1, (1, 16), (2, 2), (1, 1));

/// Writes all such contractions as products; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut has_changed = false;
    for (id, node) in model.iter() {
        let Some(einsum) = node.operation.downcast_ref::<Einsum>() else { continue };
        if let Some(aligned) = elementwise(validated, node, einsum) {
            if replace_aligned(&mut changed, id, &aligned, multiply).is_some() {
                trace.applied(node, || "becomes a product of elements".to_owned());
                has_changed = true;
            }
            continue;
        }
        if let Some(aligned) = batch(validated, &uses, node, einsum) {
            if replace_aligned(&mut changed, id, &aligned, plain_product).is_some() {
                trace.applied(node, || "becomes a batch of products with constants".to_owned());
                has_changed = true;
            }
            continue;
        }
        let product = match product(validated, &uses, node, einsum) {
            Ok(product) => product,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        if replace(&mut changed, id, &product).is_some() {
            trace.applied(node, || "becomes a product with a constant".to_owned());
            has_changed = true;
        }
    }
    (has_changed && changed.sort()).then_some(changed)
}

/// How an operand meets axes that are given.
struct Aligned {
    source: Source,
    /// The order of its axes, unless they stand in that of the others.
    order: Option<Vec<i64>>,
    /// The axes that it lacks.
    missing: Vec<i64>,
}

impl Aligned {
    /// An operand of f32 with its letters, all of which stand among the others.
    fn new(validated: &Validated, source: Source, letters: &[u8], all: &[u8]) -> Option<Aligned> {
        let is_f32 = validated.inference().get(source).element_type == ElementType::F32;
        let places: Option<Vec<usize>> =
            letters.iter().map(|letter| all.iter().position(|other| other == letter)).collect();
        let places = places.filter(|_| is_f32)?;
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|axis| places[*axis]);
        let order = (!order.is_sorted()).then(|| order.into_iter().map(|axis| axis as i64).collect());
        let missing = (0..all.len()).filter(|place| !places.contains(place)).map(|place| place as i64).collect();
        Some(Aligned { source, order, missing })
    }

    /// The operand with all axes.
    fn add(&self, added: &mut Added, name: &str, input: usize) -> Option<Source> {
        let mut source = self.source;
        if let Some(order) = &self.order {
            let order = added.integers(format!("{name}/order{input}"), order)?;
            source = added.add(transpose(format!("{name}/turned{input}"), source, order));
        }
        if !self.missing.is_empty() {
            let axes = added.integers(format!("{name}/axes{input}"), &self.missing)?;
            let (unsqueeze, inputs) = (Arc::new(Unsqueeze), vec![source, axes]);
            source = added.add(Node::new(format!("{name}/data{input}"), "Unsqueeze", VERSION, unsqueeze, inputs, 1));
        }
        Some(source)
    }
}

/// The operands of a contraction that sums nothing, if a layer is one.
fn elementwise(validated: &Validated, node: &Node, einsum: &Einsum) -> Option<[Aligned; 2]> {
    let ([first, second], [of_first, of_second]) = (&node.inputs[..], &einsum.inputs[..]) else { return None };
    let output = letters(&einsum.output)?;
    let align = |source: Source, labels: &Subscript| Aligned::new(validated, source, &letters(labels)?, &output);
    Some([align(*first, of_first)?, align(*second, of_second)?])
}

/// Puts a layer of two operands in the place of another one; `None` if it cannot be written.
fn replace_aligned(
    changed: &mut Model,
    id: NodeId,
    aligned: &[Aligned; 2],
    make: impl FnOnce(&str, Vec<Source>) -> Node,
) -> Option<()> {
    let name = changed.nodes[id.index()].friendly_name.clone();
    let mut added = Added::new(changed);
    let inputs = vec![aligned[0].add(&mut added, &name, 0)?, aligned[1].add(&mut added, &name, 1)?];
    added.put(changed, id, make(&name, inputs));
    Some(())
}

/// A product of matrices as they lie.
fn plain_product(name: &str, inputs: Vec<Source>) -> Node {
    let attributes = MatMulAttributes { transpose_a: false, transpose_b: false };
    Node::new(name, "MatMul", VERSION, Arc::new(MatMul { attributes }), inputs, 1)
}

/// The data and the constant of a contraction, with their labels, or why there are none.
fn data_and_constant<'a>(
    uses: &Uses,
    node: &Node,
    einsum: &'a Einsum,
) -> Result<[(Source, &'a Subscript); 2], &'static str> {
    let ([first, second], [of_first, of_second]) = (&node.inputs[..], &einsum.inputs[..]) else {
        return Err("has not two inputs");
    };
    match [first, second].map(|source| uses.is_constant(source.node)) {
        [false, true] => Ok([(*first, of_first), (*second, of_second)]),
        [true, false] => Ok([(*second, of_second), (*first, of_first)]),
        _ => Err("does not contract data with a constant"),
    }
}

/// The data and the constant of a contraction that is a batch of products, each with a matrix of its own, if a layer is one:
/// experts that all see the same rows, or rows of their own.
fn batch(validated: &Validated, uses: &Uses, node: &Node, einsum: &Einsum) -> Option<[Aligned; 2]> {
    let [(data, of_data), (constant, of_constant)] = data_and_constant(uses, node, einsum).ok()?;
    let (of_data, of_constant, output) = (letters(of_data)?, letters(of_constant)?, letters(&einsum.output)?);
    let [outer @ .., rows, columns] = &output[..] else { return None };
    let (in_data, in_constant) = (|letter: &u8| of_data.contains(letter), |letter: &u8| of_constant.contains(letter));
    let mut all_summed = of_data.iter().enumerate().filter(|(_, letter)| !output.contains(letter));
    let (Some((place, summed)), None) = (all_summed.next(), all_summed.next()) else { return None };
    let is_product = in_data(rows)
        && !in_constant(rows)
        && in_constant(columns)
        && !in_data(columns)
        && in_constant(summed)
        && of_constant.iter().all(|letter| letter == summed || output.contains(letter))
        && outer.iter().any(in_constant)
        && outer.iter().all(|letter| in_data(letter) || in_constant(letter));
    // A size of 1 is repeated, which a product does not do with what it sums over.
    let inference = validated.inference();
    let of_place = inference.get(data).shape.dims()?.get(place)?.get()?;
    let in_matrix = of_constant.iter().position(|letter| letter == summed)?;
    let is_same = inference.get(constant).shape.to_shape()?.get(in_matrix) == Some(&of_place);
    if !is_product || !is_same {
        return None;
    }
    let all = |last: [u8; 2]| -> Vec<u8> { outer.iter().copied().chain(last).collect() };
    let data = Aligned::new(validated, data, &of_data, &all([*rows, *summed]))?;
    let constant = Aligned::new(validated, constant, &of_constant, &all([*summed, *columns]))?;
    Some([data, constant])
}

/// The letters of a tensor, unless one stands there twice or there is an ellipsis.
pub(crate) fn letters(subscript: &Subscript) -> Option<Vec<u8>> {
    let letter = |label: &Label| if let Label::Letter(letter) = label { Some(*letter) } else { None };
    let letters = subscript.0.iter().map(letter).collect::<Option<Vec<u8>>>()?;
    let is_single = |(at, letter): (usize, &u8)| !letters[..at].contains(letter);
    letters.iter().enumerate().all(is_single).then_some(letters)
}

/// A contraction as a product.
struct Product {
    data: Source,
    constant: Source,
    /// The axes of the data that stay.
    kept: usize,
    /// The sizes that are summed over, in the order of the data.
    summed: Vec<usize>,
    /// The sizes that the constant adds.
    added: Vec<usize>,
    /// The order of the constant's axes: those that are summed over and then the others, or the reverse.
    order: Vec<i64>,
    /// Whether the constant's added axes come first.
    is_turned: bool,
}

/// The product that a layer is, or why it is none.
fn product(validated: &Validated, uses: &Uses, node: &Node, einsum: &Einsum) -> Result<Product, &'static str> {
    let inference = validated.inference();
    let [(data, of_data), (constant, of_constant)] = data_and_constant(uses, node, einsum)?;
    if [data, constant].iter().any(|source| inference.get(*source).element_type != ElementType::F32) {
        return Err("is not one of f32");
    }
    let (Some(of_data), Some(of_constant), Some(output)) =
        (letters(of_data), letters(of_constant), letters(&einsum.output))
    else {
        return Err("has an ellipsis or takes a diagonal");
    };
    // What stays comes first in the data and in the output, and what is summed over stands in both inputs.
    let kept = of_data.iter().zip(&output).take_while(|(a, b)| a == b).count();
    let (of_kept, of_summed) = of_data.split_at(kept);
    let of_added = &output[kept..];
    let is_product = of_summed.iter().all(|letter| of_constant.contains(letter) && !output.contains(letter))
        && of_kept.iter().all(|letter| !of_constant.contains(letter))
        && of_added.iter().all(|letter| of_constant.contains(letter))
        && of_constant.len() == of_summed.len() + of_added.len()
        && !of_summed.is_empty()
        && !of_added.is_empty();
    if !is_product {
        return Err("is not a product of rows of the data with the constant");
    }
    let unknown = "has sizes that are not known";
    let sizes = inference.get(constant).shape.to_shape().ok_or(unknown)?;
    let dims = inference.get(data).shape.dims().ok_or(unknown)?;
    let place = |letter: &u8| of_constant.iter().position(|other| other == letter).ok_or(unknown);
    let size = |letter: &u8| place(letter).and_then(|at| sizes.get(at).copied().ok_or(unknown));
    let summed = of_summed.iter().map(size).collect::<Result<Vec<usize>, _>>()?;
    let added = of_added.iter().map(size).collect::<Result<Vec<usize>, _>>()?;
    if sizes.contains(&0) {
        return Err("has no elements");
    }
    // A size of 1 is repeated, which a product does not do.
    if dims.len() != of_data.len() || dims[kept..].iter().zip(&summed).any(|(dim, size)| dim.get() != Some(*size)) {
        return Err(unknown);
    }
    let is_turned = place(&of_added[0])? == 0;
    let letters: Vec<&u8> = match is_turned {
        true => of_added.iter().chain(of_summed).collect(),
        false => of_summed.iter().chain(of_added).collect(),
    };
    let order = letters.into_iter().map(|letter| place(letter).map(|at| at as i64)).collect::<Result<Vec<i64>, _>>()?;
    Ok(Product { data, constant, kept, summed, added, order, is_turned })
}

/// Puts a product in the place of a layer; `None` if it cannot be written.
fn replace(changed: &mut Model, id: NodeId, product: &Product) -> Option<()> {
    let old = changed.nodes[id.index()].clone();
    let name = &old.friendly_name;
    let mut layers = Added::new(changed);
    let (summed, added) = (whole(&product.summed)?, whole(&product.added)?);
    let kept = || std::iter::repeat_n(0, product.kept);
    let (mut data, mut constant) = (product.data, product.constant);
    if product.summed.len() > 1 {
        let pattern = layers.integers(format!("{name}/rows"), &kept().chain([summed]).collect::<Vec<i64>>())?;
        data = layers.add(reshape(format!("{name}/data"), data, pattern));
    }
    if !product.order.is_sorted() {
        let order = layers.integers(format!("{name}/order"), &product.order)?;
        constant = layers.add(transpose(format!("{name}/turned"), constant, order));
    }
    if product.order.len() > 2 {
        let matrix = if product.is_turned { [added, summed] } else { [summed, added] };
        let pattern = layers.integers(format!("{name}/matrix"), &matrix)?;
        constant = layers.add(reshape(format!("{name}/constant"), constant, pattern));
    }
    let attributes = MatMulAttributes { transpose_a: false, transpose_b: product.is_turned };
    let mut last =
        Node::new(name.as_str(), "MatMul", VERSION, Arc::new(MatMul { attributes }), vec![data, constant], 1);
    if product.added.len() > 1 {
        last.friendly_name = format!("{name}/product");
        let value = layers.add(last);
        let sizes = product.added.iter().map(|size| i64::try_from(*size)).collect::<Result<Vec<i64>, _>>().ok()?;
        let pattern = layers.integers(format!("{name}/sizes"), &kept().chain(sizes).collect::<Vec<i64>>())?;
        last = reshape(name.clone(), value, pattern);
    }
    layers.put(changed, id, last);
    Some(())
}

/// The elements of all sizes together.
fn whole(sizes: &[usize]) -> Option<i64> {
    i64::try_from(sizes.iter().try_fold(1usize, |total, size| total.checked_mul(*size))?).ok()
}

/// A Reshape, to which 0 means the size that the data has there.
fn reshape(name: String, data: Source, pattern: Source) -> Node {
    let attributes = ReshapeAttributes { special_zero: true };
    Node::new(name, "Reshape", VERSION, Arc::new(Reshape { attributes }), vec![data, pattern], 1)
}
