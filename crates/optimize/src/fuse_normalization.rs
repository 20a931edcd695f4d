//! Fuses normalisations of rows with the layers that they are made of and with the scale and the bias behind them.
//!
//! Root-mean-square normalisation has no operation of its own: exporters write the square, its mean, epsilon, the root and
//! the products. Layer normalisation is MVN with a Multiply and an Add behind it. Normalisations of groups of channels take
//! the activation behind them, and read and write codes.

use std::collections::HashSet;

use ovir_graph::{Model, NodeId, Source, Validated};
use ovir_ops::codes::{Decode, Encode};
use ovir_ops::common::reduction::ReductionAttributes;
use ovir_ops::reduction::reduce_mean::ReduceMean;
use ovir_tensor::{Dim, ElementType};

use crate::chain::fuse;
use crate::finder::{Finder, first};
use crate::fuse_epilogue::ACTIVATIONS;
use crate::trace::{Trace, all_named};

/// Fuses all normalisations with something to take; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let rows = Finder::new(validated);
    let mut chains = Vec::new();
    let mut taken: HashSet<NodeId> = HashSet::new();
    for (id, node) in model.iter() {
        let chain = match &*node.type_name {
            "MVN" => rows.mean_variance(id),
            "ReduceMean" => rows.root_mean_square(id),
            "GroupNormalization" => rows.groups(id),
            _ => continue,
        };
        match chain {
            // Two rows that are multiplied by each other are each the scale of the other.
            Some(chain) if chain.iter().any(|member| taken.contains(member)) => {
                trace.declined(node, || "what stands behind it belongs to another normalisation".to_owned());
            }
            Some(chain) if chain.len() > 1 => {
                let others = chain.iter().filter(|member| **member != id).map(|member| model.node(*member));
                trace.applied(node, || format!("takes {}", all_named(others)));
                taken.extend(&chain);
                chains.push(chain);
            }
            Some(_) if node.is("GroupNormalization") => {
                trace.declined(node, || "has no activation behind it that reads it alone".to_owned());
            }
            Some(_) => trace.declined(node, || "has no scale and no bias of a row behind it".to_owned()),
            None => trace.declined(node, || "does not normalise f32".to_owned()),
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

impl Finder<'_> {
    /// MVN of rows with what stands behind it.
    fn mean_variance(&self, id: NodeId) -> Option<Vec<NodeId>> {
        let inputs = &self.validated.model().node(id).inputs;
        let row = self.row(*inputs.first()?, *inputs.get(1)?)?;
        Some(self.with_affine(vec![id], &row))
    }

    /// GroupNormalization with the Decode in front of it, the activation behind it and the Encode behind that.
    fn groups(&self, id: NodeId) -> Option<Vec<NodeId>> {
        let inference = self.validated.inference();
        let inputs = &self.node(id).inputs;
        let is_f32 = |source: &Source| inference.get(*source).element_type == ElementType::F32;
        let [data, scale, bias] = inputs[..] else { return None };
        (inputs.iter().all(is_f32) && data != scale && data != bias).then_some(())?;
        let decode = self.node(data.node).operation.downcast_ref::<Decode>();
        let is_decoded = decode.is_some_and(|decode| decode.levels.whole().is_some()) && self.is_only(data.node, id);
        let mut chain: Vec<NodeId> = is_decoded.then_some(data.node).into_iter().chain([id]).collect();
        let activation = self.uses.only_reader(id).filter(|reader| {
            let node = self.node(*reader);
            let is_activation = ACTIVATIONS.contains(&&*node.type_name) && !node.is("PReLU");
            let mut parameters = node.inputs.iter().skip(1);
            is_activation
                && node.inputs.first() == Some(&first(id))
                && parameters.all(|source| self.number(*source).is_some())
        });
        chain.extend(activation);
        chain.extend(self.uses.only_reader(activation.unwrap_or(id)).filter(|reader| {
            let encode = self.node(*reader).operation.downcast_ref::<Encode>();
            encode.is_some_and(|encode| encode.levels.whole().is_some())
        }));
        Some(chain)
    }

    /// The layers around the mean of squares that divide by its root, with what stands behind them.
    fn root_mean_square(&self, mean: NodeId) -> Option<Vec<NodeId>> {
        let model = self.validated.model();
        let node = model.node(mean);
        let ReductionAttributes { keep_dims } = node.operation.downcast_ref::<ReduceMean>()?.attributes;
        let [squares, axes] = node.inputs[..] else { return None };
        let data = self.squared(squares.node).filter(|_| keep_dims)?;
        let row = self.row(data, axes)?;
        self.is_only(squares.node, mean).then_some(())?;
        let mut chain = vec![squares.node, mean];
        let (add, epsilon) = self.operand(mean, "Add")?;
        let is_usual = self.number(epsilon).is_some_and(|value| value >= 0.0);
        is_usual.then_some(())?;
        chain.push(add);
        chain.extend(self.divided(add, data)?);
        Some(self.with_affine(chain, &row))
    }

    /// The layers that divide `data` by the root of a value.
    fn divided(&self, value: NodeId, data: Source) -> Option<Vec<NodeId>> {
        let root = self.uses.only_reader(value)?;
        let inverse = if self.node(root).is("Sqrt") {
            let divide = self.uses.only_reader(root)?;
            let [numerator, denominator] = self.pair(divide, "Divide")?;
            (denominator.node == root).then_some(())?;
            if numerator == data {
                return Some(vec![root, divide]);
            }
            (self.number(numerator) == Some(1.0)).then_some(vec![root, divide])?
        } else {
            let [_, exponent] = self.pair(root, "Power")?;
            (self.number(exponent) == Some(-0.5)).then_some(vec![root])?
        };
        let (product, other) = self.operand(*inverse.last()?, "Multiply")?;
        (other == data).then(|| inverse.into_iter().chain([product]).collect())
    }

    /// Appends the Multiply and the Add by a row that stand behind a chain.
    fn with_affine(&self, mut chain: Vec<NodeId>, row: &[Dim]) -> Vec<NodeId> {
        for type_name in ["Multiply", "Add"] {
            let next = chain.last().and_then(|last| self.operand(*last, type_name));
            chain.extend(next.filter(|(_, other)| self.is_row(*other, row)).map(|(reader, _)| reader));
        }
        chain
    }

    /// The dimensions of `data` that `axes` names, which lie side by side, and 1 for each one behind them: not those of all
    /// positions of an image, which may lie in blocks of channels.
    fn row(&self, data: Source, axes: Source) -> Option<Vec<Dim>> {
        let inference = self.validated.inference();
        let facts = inference.get(data);
        let (dims, axes) = (facts.shape.dims()?, inference.get(axes).integers()?);
        let rank = dims.len();
        let is_named =
            |axis: usize| axes.iter().any(|given| *given == axis as i64 || *given == axis as i64 - rank as i64);
        let first = (0..rank).find(|axis| is_named(*axis))?;
        let end = (first..rank).find(|axis| !is_named(*axis)).unwrap_or(rank);
        let is_image = first == 2 && rank > 3 && end == rank;
        let are_together = !(end..rank).any(is_named) && !is_image;
        let is_known = facts.element_type == ElementType::F32 && dims[first..end].iter().all(|dim| dim.get().is_some());
        (are_together && is_known)
            .then(|| dims[first..end].iter().cloned().chain((end..rank).map(|_| Dim::fixed(1))).collect())
    }

    /// Whether a value has one element for each position of a row.
    fn is_row(&self, source: Source, row: &[Dim]) -> bool {
        let facts = self.validated.inference().get(source);
        let Some(dims) = facts.shape.dims().filter(|_| facts.element_type == ElementType::F32) else { return false };
        let Some(leading) = dims.len().checked_sub(row.len()) else { return false };
        dims[leading..] == *row && dims[..leading].iter().all(|dim| dim.get() == Some(1))
    }
}
