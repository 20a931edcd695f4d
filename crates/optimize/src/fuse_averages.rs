//! Fuses what makes values of codes, an average of them, and what makes codes of it: `Decode → AvgPool → Encode`, or a
//! ReduceMean of all positions instead of the AvgPool, where the Encode is optional. Kernels then sum codes.

use ovir_graph::{Model, NodeId, Validated};
use ovir_ops::codes::Encode;
use ovir_ops::pooling::avg_pool::AvgPool;
use ovir_ops::reduction::reduce_mean::ReduceMean;
use ovir_tensor::ElementType;

use crate::chain::{Uses, fuse};
use crate::fuse_epilogue::is_whole_decode;
use crate::trace::{Trace, all_named};

/// The most codes whose sum is an i32.
pub const MOST_AVERAGED: u64 = i32::MAX as u64 / 255;

/// Fuses all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut chains = Vec::new();
    for (id, node) in model.iter().filter(|(id, _)| is_average(validated, *id)) {
        let Some(decode) = node.inputs.first().map(|data| data.node).filter(|data| is_whole_decode(model.node(*data)))
        else {
            continue;
        };
        if uses.only_reader(decode) != Some(id) {
            trace.declined(node, || "others read the values of its codes".to_owned());
            continue;
        }
        let is_whole = |next: &NodeId| {
            let encode = model.node(*next).operation.downcast_ref::<Encode>();
            encode.is_some_and(|encode| encode.levels.whole().is_some())
        };
        let chain: Vec<NodeId> = [decode, id].into_iter().chain(uses.only_reader(id).filter(is_whole)).collect();
        trace.applied(node, || {
            let others = chain.iter().filter(|member| **member != id).map(|member| model.node(*member));
            format!("takes {}", all_named(others))
        });
        chains.push(chain);
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

/// Whether a layer averages windows of lines, images or volumes of f32, or all positions of images or volumes, whose channels
/// are known.
pub(crate) fn is_average(validated: &Validated, id: NodeId) -> bool {
    let node = validated.model().node(id);
    let Some(data) = node.inputs.first().map(|data| validated.inference().get(*data)) else { return false };
    let Some(dims) = data.shape.dims().filter(|dims| matches!(dims.len(), 3..=5)) else { return false };
    let are_blocks = data.element_type == ElementType::F32 && dims[1].get().is_some_and(|channels| channels > 0);
    if let Some(pool) = node.operation.downcast_ref::<AvgPool>() {
        let taps =
            pool.attributes.kernel.iter().try_fold(1u64, |taps, size| taps.checked_mul(u64::try_from(*size).ok()?));
        return are_blocks && node.outputs.len() == 1 && taps.is_some_and(|taps| taps <= MOST_AVERAGED);
    }
    let mean = node.operation.downcast_ref::<ReduceMean>();
    if !mean.is_some_and(|mean| mean.attributes.keep_dims) {
        return false;
    }
    let Some(mut axes) = node.inputs.get(1).and_then(|axes| validated.inference().get(*axes).integers()) else {
        return false;
    };
    let rank = dims.len() as i64;
    axes.iter_mut().filter(|axis| **axis < 0).for_each(|axis| *axis += rank);
    axes.sort_unstable();
    are_blocks && rank > 3 && axes[..] == (2..rank).collect::<Vec<i64>>()
}
