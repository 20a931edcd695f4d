//! Finds normalisations that are written as means, roots and products, and writes them as MVN with its scale and its bias.
//!
//! Keras computes `x * f + (bias - mean * f)` with `f = scale / sqrt(variance + epsilon)`, others `(x - mean) * f + bias`, where
//! the variance may be the mean of squares less the square of the mean. Converters leave the former so. As MVN they are one
//! layer, whether channels come last or lie in blocks.

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::arithmetic::maximum::Maximum;
use ovir_ops::common::reduction::ReductionAttributes;
use ovir_ops::normalization::mvn::Mvn;
use ovir_ops::reduction::reduce_mean::ReduceMean;
use ovir_tensor::{ElementType, SmallVec};
use std::sync::Arc;

use crate::chain::{Added, have_same_shape, is_repeated};
use crate::finder::{Finder, first, without};
use crate::fold_scales::{add, multiply};
use crate::trace::{Trace, all_named};

const VERSION: OpVersion = OpVersion::new(6, (6, 16), (2, 2), (1, 1));

/// Writes all such normalisations as MVN; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    if !model.nodes.iter().any(|node| node.is("ReduceMean")) {
        return None;
    }
    let finder = Finder::new(validated);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Power") || node.is("Sqrt")) {
        let Some(moments) = finder.moments(id) else { continue };
        let Some(found) = finder.normalization(moments) else {
            trace.declined(node, || "divides by the root of a variance, but is not part of a normalisation".to_owned());
            continue;
        };
        let last = model.node(found.last);
        trace.applied(last, || {
            format!("is MVN, instead of {}", all_named(found.layers.iter().map(|layer| model.node(*layer))))
        });
        put(&mut changed, &found, &last.friendly_name);
        replaced.extend(found.layers);
    }
    without(changed, replaced)
}

/// A variance, what it is taken of, and the inverse of its root.
struct Moments {
    data: Source,
    mean: NodeId,
    axes: Source,
    epsilon: f32,
    inverse: NodeId,
    /// The layers that compute it.
    layers: Vec<NodeId>,
}

/// A normalisation.
struct Normalization {
    data: Source,
    axes: Source,
    epsilon: f32,
    scale: Option<Source>,
    bias: Option<Source>,
    last: NodeId,
    /// All layers but the last one.
    layers: Vec<NodeId>,
}

impl Finder<'_> {
    /// The variance under a root whose inverse is taken.
    fn moments(&self, root: NodeId) -> Option<Moments> {
        let node = self.node(root);
        let value = *node.inputs.first()?;
        let mut layers = vec![root];
        let inverse = if node.is("Sqrt") {
            let divide = self.uses.only_reader(root)?;
            let [one, _] = self.pair(divide, "Divide")?;
            (self.number(one) == Some(1.0)).then_some(())?;
            layers.push(divide);
            divide
        } else {
            let [_, exponent] = self.pair(root, "Power")?;
            (self.number(exponent) == Some(-0.5)).then_some(root)?
        };
        let (variance, epsilon) = self.with_number(value.node, "Add").filter(|(_, epsilon)| *epsilon >= 0.0)?;
        layers.push(value.node);
        let (data, mean, axes) =
            self.variance(variance.node, &mut layers).or_else(|| self.difference(variance.node, &mut layers))?;
        let facts = self.validated.inference().get(data);
        let is_known = facts.element_type == ElementType::F32 && facts.shape.rank().is_some();
        is_known.then_some(Moments { data, mean, axes, epsilon, inverse, layers })
    }

    /// What a layer is the mean of, and its axes, if these stay in the shape.
    fn mean(&self, id: NodeId) -> Option<(Source, Source)> {
        let node = self.node(id);
        let ReductionAttributes { keep_dims } = node.operation.downcast_ref::<ReduceMean>()?.attributes;
        let [data, axes] = node.inputs[..] else { return None };
        keep_dims.then_some((data, axes))
    }

    /// Whether two values name the same axes of data.
    fn are_same_axes(&self, data: Source, one: Source, other: Source) -> bool {
        let inference = self.validated.inference();
        let Some(rank) = inference.get(data).shape.rank() else { return false };
        let sorted = |source: Source| {
            let axes = inference.get(source).integers()?;
            let mut axes: SmallVec<[i64; 8]> =
                axes.iter().map(|axis| if *axis < 0 { axis + rank as i64 } else { *axis }).collect();
            axes.sort_unstable();
            (!axes.is_empty()).then_some(axes)
        };
        sorted(one).is_some_and(|axes| sorted(other).is_some_and(|other| axes == other))
    }

    /// The data, the mean and the axes of a mean of squared distances from the mean.
    fn variance(&self, id: NodeId, layers: &mut Vec<NodeId>) -> Option<(Source, NodeId, Source)> {
        let (squares, axes) = self.mean(id)?;
        let distances = match self.squared(squares.node) {
            Some(distance) => self.pair(distance.node, "Subtract").map(|pair| (pair, Some(distance.node))),
            None => self.pair(squares.node, "SquaredDifference").map(|pair| (pair, None)),
        };
        let ([a, b], subtract) = distances?;
        // The squares of distances are the same either way.
        let (data, mean, axes_of_mean) = [(a, b), (b, a)].into_iter().find_map(|(data, mean)| {
            let (of, axes) = self.mean(mean.node)?;
            (of == data).then_some((data, mean.node, axes))
        })?;
        self.are_same_axes(data, axes, axes_of_mean).then_some(())?;
        layers.extend([id, squares.node, mean]);
        layers.extend(subtract);
        Some((data, mean, axes))
    }

    /// The same of a mean of squares less the square of the mean, which may be kept from being negative.
    fn difference(&self, id: NodeId, layers: &mut Vec<NodeId>) -> Option<(Source, NodeId, Source)> {
        let node = self.node(id);
        let kept = node.operation.downcast_ref::<Maximum>().and_then(|_| self.with_number(id, "Maximum"));
        let subtract = match kept {
            Some((value, 0.0)) => value.node,
            Some(_) => return None,
            None if node.is("ReLU") => node.inputs.first()?.node,
            None => id,
        };
        let [of_squares, square] = self.pair(subtract, "Subtract")?;
        let (squares, axes) = self.mean(of_squares.node)?;
        let (data, mean) = (self.squared(squares.node)?, self.squared(square.node)?);
        let (of_mean, axes_of_mean) = self.mean(mean.node)?;
        (of_mean == data && self.are_same_axes(data, axes, axes_of_mean)).then_some(())?;
        layers.extend([id, subtract, of_squares.node, squares.node, square.node, mean.node]);
        Some((data, mean.node, axes))
    }

    /// The normalisation that an inverse root is part of.
    fn normalization(&self, moments: Moments) -> Option<Normalization> {
        let Moments { data, mean, axes, epsilon, inverse, mut layers } = moments;
        let mean = first(mean);
        // The scale may be multiplied by the inverse root first.
        let scaled = self.operand(inverse, "Multiply").filter(|(_, scale)| {
            *scale != data && !self.is_distance(scale.node, data, mean) && is_repeated(self.validated, *scale, data)
        });
        let (factor, scale) = match scaled {
            Some((factor, scale)) => {
                layers.push(factor);
                (factor, Some(scale))
            }
            None => (inverse, None),
        };
        let factor = first(factor);
        let (last, bias) = match *self.uses.of_value(factor) {
            // (x - mean) * factor
            [product] => {
                let distance = self.other(product, "Multiply", factor)?;
                self.is_distance(distance.node, data, mean).then_some(())?;
                layers.push(distance.node);
                (product, None)
            }
            [a, b] => {
                let of_data = |id: NodeId| self.other(id, "Multiply", factor) == Some(data);
                let (product, of_mean) = if of_data(a) { (a, b) } else { of_data(b).then_some((b, a))? };
                layers.extend([product, of_mean]);
                self.sum(product, of_mean, factor, mean, &mut layers)?
            }
            _ => return None,
        };
        let keeps_shape = have_same_shape(self.validated, first(last), data);
        let fits = |source: Option<Source>| source.is_none_or(|source| is_repeated(self.validated, source, data));
        (keeps_shape && fits(scale) && fits(bias)).then_some(Normalization {
            data,
            axes,
            epsilon,
            scale,
            bias,
            last,
            layers,
        })
    }

    /// Whether a layer subtracts the mean from the data.
    fn is_distance(&self, id: NodeId, data: Source, mean: Source) -> bool {
        self.pair(id, "Subtract") == Some([data, mean])
    }

    /// The layer that gives the product of the data and a factor less that of the mean, with the bias if it is added too.
    fn sum(
        &self,
        product: NodeId,
        of_mean: NodeId,
        factor: Source,
        mean: Source,
        layers: &mut Vec<NodeId>,
    ) -> Option<(NodeId, Option<Source>)> {
        let times = self.other(of_mean, "Multiply", factor)?;
        let is_negative = times != mean;
        if is_negative {
            let by_number = self.with_number(times.node, "Multiply") == Some((mean, -1.0));
            let negated = self.node(times.node).is("Negative") && self.node(times.node).inputs.first() == Some(&mean);
            (by_number || negated).then_some(())?;
            layers.push(times.node);
        }
        let (product, of_mean) = (first(product), first(of_mean));
        let last = self.uses.only_reader(product.node)?;
        let next = self.uses.only_reader(of_mean.node)?;
        if next == last {
            let subtracts = !is_negative && self.pair(last, "Subtract") == Some([product, of_mean]);
            let adds = is_negative && self.other(last, "Add", product) == Some(of_mean);
            return (subtracts || adds).then_some((last, None));
        }
        let bias = match is_negative {
            true => self.other(next, "Add", of_mean)?,
            false => self.pair(next, "Subtract").filter(|[_, b]| *b == of_mean).map(|[bias, _]| bias)?,
        };
        let is_whole = self.is_only(next, last) && self.other(last, "Add", product) == Some(first(next));
        layers.push(next);
        is_whole.then_some((last, Some(bias)))
    }
}

/// Puts a normalisation in the place of the last of its layers.
fn put(changed: &mut Model, found: &Normalization, name: &str) {
    let mut added = Added::new(changed);
    let mvn = Arc::new(Mvn::of_axes(f64::from(found.epsilon)));
    let mut last = Node::new(name, "MVN", VERSION, mvn, vec![found.data, found.axes], 1);
    if let Some(scale) = found.scale {
        last.friendly_name = format!("{name}/normalised");
        let value = added.add(last);
        last = multiply(name, vec![value, scale]);
    }
    if let Some(bias) = found.bias {
        last.friendly_name = format!("{name}/scaled");
        let value = added.add(last);
        last = add(name, vec![value, bias]);
    }
    added.put(changed, found.last, last);
}
