//! # ScaledDotProductAttention
//! `softmax(query * transpose(key) * scale + mask) * value`.
//!
//! Specification: `sequence/scaled-dot-product-attention` (version 13).
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | query | f16 bf16 f32 f64 | `[batch..., L, E]` |
//! | in 1 | key | that of `query` | `[batch..., S, E]` |
//! | in 2 | value | that of `query` | `[batch..., S, Ev]` |
//! | in 3 | attention_mask (optional) | that of `query`, boolean | broadcastable to `[batch..., L, S]` |
//! | in 4 | scale (optional) | that of `query` | one element |
//! | in 5 | sink (optional) | that of `query` | broadcastable to `[batch..., L, 1]` |
//! | out 0 | | that of `query` | `[batch..., L, Ev]` |
//!
//! Batch dimensions are broadcast by NumPy's rule (the third example of the page repeats sizes other than 1, which
//! nothing computes). With `causal` the mask is ignored. Without a scale it is `1 / sqrt(E)`. Beyond the page, a mask
//! may have any rank. A row that the mask forbids everywhere is NaN. The sink is the score of one more key, which takes its
//! share of the weights and has no value. Sums are f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, SmallVec};

use crate::common::broadcast::{broadcast_shapes, broadcast_strides, for_each_offset, numpy_mismatch};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ScaledDotProductAttention.
pub static SCALED_DOT_PRODUCT_ATTENTION: OpDef = OpDef {
    type_name: "ScaledDotProductAttention",
    category: Category::Sequence,
    versions: &[OpVersion::new(13, (13, 16), (3, 6), (1, 1))],
    attributes: ScaledDotProductAttentionAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ScaledDotProductAttention.
    pub struct ScaledDotProductAttentionAttributes {
        /// Whether a query sees only keys up to its own position.
        causal: bool = "causal", required true;
    }
}

/// A ScaledDotProductAttention layer.
#[derive(Debug)]
pub struct ScaledDotProductAttention {
    /// The attributes.
    pub attributes: ScaledDotProductAttentionAttributes,
}

/// The sizes of an attention over matrices.
struct Sizes {
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

impl Operation for ScaledDotProductAttention {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = self.check_types(context)?;
        for port in 0..3 {
            context.require_rank(port, 3..=usize::MAX)?;
        }
        if context.input_count() > 4 {
            context.require_one_element(4)?;
        }
        let (query, key, value) = (context.shape(0), context.shape(1), context.shape(2));
        self.check_width(query, key)?;
        let source = self.source_length(key, value)?;
        let (Some(q), Some(k), Some(v)) = (query.dims(), key.dims(), value.dims()) else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let batch = |dims: &[Dim]| PartialShape::from_dims(dims[..dims.len() - 2].iter().copied());
        let merge = |a: &PartialShape, b: &PartialShape, port: usize| {
            a.broadcast(b).map_err(|(i, j)| numpy_mismatch(a, b, i, j, (0, port)))
        };
        let all = merge(&merge(&batch(q), &batch(k), 1)?, &batch(v), 2)?;
        let length = q[q.len() - 2];
        if context.input_count() > 3 && !self.attributes.causal {
            self.check_addend(3, context.shape(3), &all, [length, source])?;
        }
        if context.input_count() > 5 {
            self.check_addend(5, context.shape(5), &all, [length, Dim::fixed(1)])?;
        }
        let dims = all.dims().unwrap_or(&[]).iter().copied().chain([length, v[v.len() - 1]]);
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shapes = [context.input(0)?.shape(), context.input(1)?.shape(), context.input(2)?.shape()];
        let (q, k, v) = (shapes[0], shapes[1], shapes[2]);
        let sizes = Sizes {
            queries: q[q.rank() - 2],
            keys: k[k.rank() - 2],
            width: q[q.rank() - 1],
            value_width: v[v.rank() - 1],
        };
        let batches = shapes.map(|s| &s[..s.rank() - 2]);
        let batch = broadcast_shapes(batches[0], batches[1])
            .and_then(|b| broadcast_shapes(&b, batches[2]))
            .ok_or_else(|| OpError::shape(Blame::Input(2), "the batches cannot be broadcast"))?;
        let output_shape: Shape = batch.iter().copied().chain([sizes.queries, sizes.value_width]).collect();
        context.output(0, &output_shape)?;
        let result = self.attend(context, &batch, batches, &sizes)?;
        write_rounded(context.output(0, &output_shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(13)
    }
}

impl ScaledDotProductAttention {
    fn check_types(&self, context: &mut InferContext<'_>) -> OpResult<ElementType> {
        for port in 0..3 {
            context.require_class(port, ElementClass::Float)?;
        }
        let element_type = context.require_same_type(&[0, 1, 2])?;
        if context.input_count() > 3 && !self.attributes.causal && context.element_type(3) != ElementType::Boolean {
            context.require_same_type(&[0, 3])?;
        }
        for port in 4..context.input_count() {
            context.require_same_type(&[0, port])?;
        }
        Ok(element_type)
    }

    fn check_width(&self, query: &PartialShape, key: &PartialShape) -> OpResult {
        let (Some(q), Some(k)) = (query.dims(), key.dims()) else { return Ok(()) };
        let (a, b) = (q[q.len() - 1], k[k.len() - 1]);
        if a.compatible(b) {
            return Ok(());
        }
        let message = format!("the last dimension {b} of shape {key} must be {a}, that of query {query}");
        Err(OpError::shape(Blame::Input(1), message))
    }

    fn source_length(&self, key: &PartialShape, value: &PartialShape) -> OpResult<Dim> {
        let (Some(k), Some(v)) = (key.dims(), value.dims()) else { return Ok(Dim::DYNAMIC) };
        let (a, b) = (k[k.len() - 2], v[v.len() - 2]);
        a.merge(b).ok_or_else(|| {
            let message = format!("the length {b} of shape {value} must be {a}, that of key {key}");
            OpError::shape(Blame::Input(2), message)
        })
    }

    /// The mask and the sink must be broadcastable to the weights without making them larger.
    fn check_addend(&self, port: usize, addend: &PartialShape, batch: &PartialShape, last: [Dim; 2]) -> OpResult {
        let Some(dims) = addend.dims() else { return Ok(()) };
        let weights: SmallVec<[Dim; 8]> = batch.dims().unwrap_or(&[]).iter().copied().chain(last).collect();
        let surplus = dims.len().saturating_sub(weights.len());
        let fits = dims[..surplus].iter().all(|d| d.contains(1))
            && dims[surplus..].iter().rev().zip(weights.iter().rev()).all(|(m, w)| m.contains(1) || m.compatible(*w));
        if fits {
            return Ok(());
        }
        let weights = PartialShape::from_dims(weights);
        Err(OpError::shape(Blame::Input(port), format!("shape {addend} cannot be broadcast to the weights {weights}")))
    }

    fn attend(
        &self,
        context: &EvaluateContext<'_>,
        batch: &Shape,
        batches: [&[usize]; 3],
        sizes: &Sizes,
    ) -> OpResult<Vec<f64>> {
        let (query, key) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let value = widened_view(context.input(2)?)?;
        let scale = match context.input_count() > 4 {
            true => widened_view(context.input(4)?)?.first().copied().unwrap_or(1.0),
            false => 1.0 / (sizes.width as f64).sqrt(),
        };
        let weights_shape: Shape = batch.iter().copied().chain([sizes.queries, sizes.keys]).collect();
        let mask = Mask::read(context, self.attributes.causal, &weights_shape)?;
        let sink = sink(context, &weights_shape)?;
        let mut result = filled::<f64>(batch.elements().saturating_mul(sizes.queries * sizes.value_width))?;
        let mut row = filled::<f64>(sizes.keys)?;
        let [q, k, v] = batches.map(|b| broadcast_strides(b, batch));
        let rank = batch.rank();
        let mut start = 0;
        let (sinks, sink_strides) = &sink;
        for_each_offset(batch, [&q, &k, &v, &mask.strides[..rank], &sink_strides[..rank]], |[q, k, v, m, sunk]| {
            for l in 0..sizes.queries {
                let target = &mut result[start..start + sizes.value_width];
                start += sizes.value_width;
                let x = &query[(q * sizes.queries + l) * sizes.width..][..sizes.width];
                for (s, weight) in row.iter_mut().enumerate() {
                    let y = &key[(k * sizes.keys + s) * sizes.width..][..sizes.width];
                    let sum: f64 = x.iter().zip(y).map(|(a, b)| a * b).sum();
                    *weight = sum * scale + mask.at(m, l, s);
                }
                softmax(&mut row, sinks.get(sunk + l * sink_strides[rank]).copied());
                for (s, weight) in row.iter().enumerate() {
                    let source = &value[(v * sizes.keys + s) * sizes.value_width..][..sizes.value_width];
                    target.iter_mut().zip(source).for_each(|(t, x)| *t += weight * x);
                }
            }
        });
        Ok(result)
    }
}

/// What is added to the weights.
struct Mask {
    values: Vec<f64>,
    strides: SmallVec<[usize; 8]>,
    causal: bool,
}

impl Mask {
    fn read(context: &EvaluateContext<'_>, causal: bool, weights: &Shape) -> OpResult<Mask> {
        let none = || Mask { values: Vec::new(), strides: SmallVec::from_elem(0, weights.rank()), causal };
        if causal || context.input_count() < 4 {
            return Ok(none());
        }
        let view = context.input(3)?;
        if broadcast_shapes(view.shape(), weights).is_none_or(|s| s.elements() != weights.elements()) {
            let message = format!("shape {} cannot be broadcast to the weights {weights}", view.shape());
            return Err(OpError::shape(Blame::Input(3), message));
        }
        let values = match view.element_type() {
            ElementType::Boolean => {
                view.slice::<u8>()?.iter().map(|b| if *b != 0 { 0.0 } else { f64::NEG_INFINITY }).collect()
            }
            _ => widened_view(view)?,
        };
        Ok(Mask { values, strides: broadcast_strides(view.shape(), weights), causal })
    }

    fn at(&self, batch: usize, query: usize, key: usize) -> f64 {
        if self.causal {
            return if key > query { f64::NEG_INFINITY } else { 0.0 };
        }
        let rank = self.strides.len();
        let offset = batch + query * self.strides[rank - 2] + key * self.strides[rank - 1];
        if self.values.is_empty() { 0.0 } else { self.values[offset] }
    }
}

/// The values of the sink, none without one, and their strides along the axes of the weights.
fn sink(context: &EvaluateContext<'_>, weights: &Shape) -> OpResult<(Vec<f64>, SmallVec<[usize; 8]>)> {
    if context.input_count() < 6 {
        return Ok((Vec::new(), SmallVec::from_elem(0, weights.rank())));
    }
    let view = context.input(5)?;
    let mut rows = weights.clone();
    if let Some(keys) = rows.last_mut() {
        *keys = 1;
    }
    if broadcast_shapes(view.shape(), &rows).is_none_or(|s| s.elements() != rows.elements()) {
        let message = format!("shape {} cannot be broadcast to the weights {rows}", view.shape());
        return Err(OpError::shape(Blame::Input(5), message));
    }
    Ok((widened_view(view)?, broadcast_strides(view.shape(), &rows)))
}

/// The weights that scores mean, beside the score of a sink.
fn softmax(row: &mut [f64], sink: Option<f64>) {
    let first = sink.unwrap_or(f64::NEG_INFINITY);
    let largest = row.iter().copied().fold(first, |a, b| if b > a || b.is_nan() { b } else { a });
    let mut sum = sink.map_or(0.0, |score| (score - largest).exp());
    for weight in row.iter_mut() {
        *weight = (*weight - largest).exp();
        sum += *weight;
    }
    row.iter_mut().for_each(|weight| *weight /= sum);
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ScaledDotProductAttentionAttributes::read(context.attributes);
    Arc::new(ScaledDotProductAttention { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    fn case(causal: &str) -> Case {
        Case::new("ScaledDotProductAttention", "opset13").attribute("causal", causal)
    }

    #[test]
    fn the_examples_of_the_specification() {
        let plain = ["f32[1,?,80]", "f32[1,?,80]", "f32[1,?,80]", "f32[1,?,?]"];
        assert_eq!(case("false").infer(&plain), ["f32[1,?,80]"]);
        let batches = ["f32[1,2,3,?,80]", "f32[1,2,3,?,80]", "f32[1,2,3,?,80]", "f32[1,2,3,?,?]"];
        assert_eq!(case("false").infer(&batches), ["f32[1,2,3,?,80]"]);
    }

    #[test]
    fn masks_forbid() {
        let query = tensor(&[0f32, 0.0], [1, 2, 1]);
        let (key, value) = (tensor(&[1f32, 2.0], [1, 2, 1]), tensor(&[4f32, 8.0], [1, 2, 1]));
        let inputs = [query.clone(), key.clone(), value.clone()];
        assert_eq!(case("false").run(&inputs).unwrap()[0], tensor(&[6f32, 6.0], [1, 2, 1]));
        assert_eq!(case("true").run(&inputs).unwrap()[0], tensor(&[4f32, 6.0], [1, 2, 1]));
        let mask = booleans(&[true, false, false, true], [1, 2, 2]);
        let masked = case("false").run(&[query, key, value, mask]).unwrap();
        assert_eq!(masked[0], tensor(&[4f32, 8.0], [1, 2, 1]));
    }

    #[test]
    fn a_sink_takes_its_share() {
        let query = tensor(&[0f32; 4], [2, 2, 1]);
        let (key, value) = (tensor(&[1f32; 4], [2, 2, 1]), tensor(&[3f32, 6.0, 9.0, 12.0], [2, 2, 1]));
        let (mask, scale) = (tensor(&[0f32], [1]), tensor(&[1f32], [1]));
        let run = |sink| {
            let inputs = [query.clone(), key.clone(), value.clone(), mask.clone(), scale.clone(), sink];
            case("false").run(&inputs).unwrap().remove(0)
        };
        // Weights of a third each, or halves where nothing sinks.
        let sink = tensor(&[0f32, f32::NEG_INFINITY], [2, 1, 1]);
        assert_eq!(run(sink), tensor(&[3f32, 3.0, 10.5, 10.5], [2, 2, 1]));
        let of_rows = run(tensor(&[0f32, f32::NEG_INFINITY], [1, 2, 1]));
        assert_eq!(of_rows, tensor(&[3f32, 4.5, 7.0, 10.5], [2, 2, 1]));
        let facts = ["f32[2,2,1]", "f32[2,2,1]", "f32[2,2,1]", "f32[]", "f32[]", "f32[2,2,2]"];
        assert_eq!(
            case("false").infer_error(&facts),
            "input 5: shape [2,2,2] cannot be broadcast to the weights [2,2,1]"
        );
    }

    #[test]
    fn inference_is_monotone() {
        let all = ["f32[2,2,3,4]", "f32[1,2,5,4]", "f32[2,2,5,6]", "boolean[3,5]", "f32[]", "f32[2,1,1]"];
        case("false").assert_monotone(&all);
        case("true").assert_monotone(&all[..3]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(
            case("false").infer_error(&["f32[1,4,8]", "f32[1,5,7]", "f32[1,5,8]"]),
            "input 1: the last dimension 7 of shape [1,5,7] must be 8, that of query [1,4,8]"
        );
        assert_eq!(
            case("false").infer_error(&["f32[1,4,8]", "f32[1,5,8]", "f32[1,5,8]", "f32[1,4,4]"]),
            "input 3: shape [1,4,4] cannot be broadcast to the weights [1,4,5]"
        );
    }
}
