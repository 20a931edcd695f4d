//! Ordered rewriting passes over validated models.
//!
//! A pass takes a graph with what is known of its values and changes the graph; the graph is then inferred anew. After
//! every pass of a debug build the results must have the types and shapes that they had before.

mod absorb_transposes;
mod chain;
mod count_booleans;
mod drop_identities;
mod drop_indices;
mod find_attention;
mod find_gelu;
mod find_mvn;
mod finder;
mod fold_affine;
mod fold_levels;
mod fold_pads;
mod fold_scales;
mod fold_shapes;
mod fold_slices;
mod fuse_attention;
mod fuse_averages;
mod fuse_elementwise;
mod fuse_epilogue;
mod fuse_integers;
mod fuse_normalization;
mod fuse_rotary;
mod fuse_scatter;
mod fuse_views;
mod grow_states;
mod join_transposes;
mod lift_activations;
mod lift_strides;
mod lower_einsum;
mod promote_halves;
mod sink_transposes;
mod split_einsum;
mod split_quantizers;
mod store_levels;
mod trace;

use ovir_graph::{Model, Validated, body_facts};

pub use fuse_attention::swaps_rows_and_heads;
pub use fuse_averages::MOST_AVERAGED;
pub use fuse_elementwise::FEW_ELEMENTS;
pub use split_quantizers::{
    BLOCK, FEW_CHANNELS, FEWEST_BYTE_ELEMENTS, FEWEST_SCALED_ELEMENTS, FEWEST_STORED_ELEMENTS, MOST_BYTE_TERMS,
    MOST_CODE_TAPS, is_byte_group,
};
pub use trace::{Note, PassReport};

use trace::Trace;

/// Which passes run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether any pass runs.
    pub enabled: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { enabled: true }
    }
}

/// One pass.
struct Pass {
    /// What it is called in dumps.
    name: &'static str,
    /// The changed graph, if there was anything to change.
    run: fn(&Validated, &mut Trace) -> Option<Model>,
}

/// All passes in their order, with the reason for each place.
static PASSES: &[Pass] = &[
    // Before everything else, because it tells what values are.
    Pass { name: "count_booleans", run: count_booleans::run },
    // Before the passes that look at who reads a value: its shape alone keeps none of them from anything.
    Pass { name: "fold_shapes", run: fold_shapes::run },
    // Before the passes that look for layers side by side.
    Pass { name: "drop_identities", run: drop_identities::run },
    // Early, because all other passes and the kernels know f32 only.
    Pass { name: "promote_halves", run: promote_halves::run },
    // Before all passes that look at weights, which tell stored codes from other constants.
    Pass { name: "store_levels", run: store_levels::run },
    // After the halves, because they take f32 only, and before all passes that look for what they find.
    Pass { name: "find_mvn", run: find_mvn::run },
    Pass { name: "find_gelu", run: find_gelu::run },
    Pass { name: "find_attention", run: find_attention::run },
    // After the attentions, whose keys it turns, and before the passes that take Transposes.
    Pass { name: "join_transposes", run: join_transposes::run },
    // After the halves, because it takes f32 only, and before the pass that looks at contractions of two.
    Pass { name: "split_einsum", run: split_einsum::run },
    // After the halves, because it takes f32 only, and before the passes that look at products and the Reshapes around them.
    Pass { name: "lower_einsum", run: lower_einsum::run },
    // Anywhere: it depends on readers only.
    Pass { name: "drop_indices", run: drop_indices::run },
    // Before the elementwise groups, which would take Transposes for values that are read elsewhere.
    Pass { name: "absorb_transposes", run: absorb_transposes::run },
    // Before the quantisers are split, which shall move codes of what is split already.
    Pass { name: "sink_transposes", run: sink_transposes::run },
    // Before the epilogues, which hide convolutions in fused layers.
    Pass { name: "fold_pads", run: fold_pads::run },
    // After the Pads, whose zeros it may take away again.
    Pass { name: "fold_slices", run: fold_slices::run },
    // Before the epilogues, which take the biases that it leaves.
    Pass { name: "fold_scales", run: fold_scales::run },
    // After the scales, of which it takes those that are left, and before the epilogues, which take the biases that it leaves.
    Pass { name: "fold_affine", run: fold_affine::run },
    // After the Pads and what scales channels, which would stand between, and before the epilogues, which hide convolutions.
    Pass { name: "lift_strides", run: lift_strides::run },
    // Before the quantisers are split, whose first halves take what it folds.
    Pass { name: "fold_levels", run: fold_levels::run },
    // After the indices are gone, which MaxPool could not keep, and before the epilogues, which take the halves.
    Pass { name: "split_quantizers", run: split_quantizers::run },
    // Before the epilogues, which take the activations that it brings.
    Pass { name: "lift_activations", run: lift_activations::run },
    // Before the epilogues, which would let a convolution make codes of its data.
    Pass { name: "fuse_averages", run: fuse_averages::run },
    // After everything that changes what a convolution or a product is made of, so that the longest chains are seen.
    Pass { name: "fuse_epilogue", run: fuse_epilogue::run },
    // Before the elementwise groups, which would take its parts.
    Pass { name: "fuse_normalization", run: fuse_normalization::run },
    // Before the elementwise groups, which would take Transposes too.
    Pass { name: "fuse_attention", run: fuse_attention::run },
    // Before the elementwise groups, which would take its parts.
    Pass { name: "fuse_rotary", run: fuse_rotary::run },
    // After the attentions, which take Transposes of their own.
    Pass { name: "fuse_views", run: fuse_views::run },
    // After the attentions have taken what repeats keys and values.
    Pass { name: "grow_states", run: grow_states::run },
    // Before the elementwise groups, which would take the Converts around the sums.
    Pass { name: "fuse_integers", run: fuse_integers::run },
    // After the epilogues, which are worth more: what is left is elementwise layers among themselves.
    Pass { name: "fuse_elementwise", run: fuse_elementwise::run },
    // Anywhere: its pairs are not part of other chains.
    Pass { name: "fuse_scatter", run: fuse_scatter::run },
];

/// Runs all passes in their order.
pub fn optimize(model: Validated, options: &Options) -> Validated {
    run_passes(model, options, &mut |_| {}, false)
}

/// As [`optimize`], with what each pass did, in their order.
pub fn optimize_traced(model: Validated, options: &Options) -> (Validated, Vec<PassReport>) {
    let mut reports = Vec::new();
    let model = run_passes(model, options, &mut |report| reports.push(report), true);
    (model, reports)
}

/// The names of all passes, in their order.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PASSES.iter().map(|pass| pass.name)
}

fn run_passes(model: Validated, options: &Options, report: &mut dyn FnMut(PassReport), is_traced: bool) -> Validated {
    if !options.enabled {
        return model;
    }
    let mut current = model;
    let mut reports = Vec::new();
    for pass in PASSES {
        let mut trace = Trace::new(is_traced);
        let layers_before = current.model().nodes.len();
        // A pass must keep a model valid; one that does not is left out rather than trusted.
        match (pass.run)(&current, &mut trace).map(|changed| current.changed(changed)) {
            Some(Ok(validated)) => current = validated,
            Some(Err(found)) => {
                debug_assert!(false, "the pass {} broke {}: {:?}", pass.name, current.model().name, found.first());
            }
            None => {}
        }
        let layers_after = current.model().nodes.len();
        reports.push(PassReport { name: pass.name, layers_before, layers_after, notes: trace.take() });
    }
    let current = with_bodies(current, options, &mut reports, is_traced);
    reports.into_iter().for_each(report);
    current
}

/// Runs all passes over the bodies too, for what inference says of their Parameters. Notes go to the reports of the model.
fn with_bodies(current: Validated, options: &Options, reports: &mut [PassReport], is_traced: bool) -> Validated {
    let model = current.model();
    if model.nodes.iter().all(|node| node.bodies.is_empty()) {
        return current;
    }
    let mut changed = model.clone();
    for (id, node) in model.iter().filter(|(_, node)| !node.bodies.is_empty()) {
        for (index, facts) in body_facts(model, current.inference(), id).into_iter().enumerate() {
            let Some(Ok(body)) = facts.map(|facts| Validated::body(node.bodies[index].clone(), facts)) else {
                continue;
            };
            let mut of_body = reports.iter_mut();
            let mut report = |found: PassReport| {
                let Some(report) = of_body.next() else { return };
                let inside = |note: Note| Note {
                    friendly_name: format!("{}/{}", node.friendly_name, note.friendly_name),
                    ..note
                };
                report.notes.extend(found.notes.into_iter().map(inside));
            };
            changed.nodes[id.index()].bodies[index] = run_passes(body, options, &mut report, is_traced).into_model();
        }
    }
    match current.changed(changed) {
        Ok(changed) => changed,
        Err(found) => {
            debug_assert!(false, "the passes broke a body of {}: {:?}", current.model().name, found.first());
            current
        }
    }
}
