//! What a run of the model shows: the time of each layer, and the memory that is in use from step to step.

use std::collections::HashMap;

/// Times of layers and the memory of the plan, for pictures.
pub struct Times {
    /// For each layer that is a step, or is part of one, by friendly name.
    pub by_layer: HashMap<String, LayerTime>,
    /// The steps in their order.
    pub steps: Vec<StepTime>,
    /// The milliseconds of all steps of one inference.
    pub total: f64,
    /// How many inferences were measured, on how many threads.
    pub inferences: u64,
    pub threads: usize,
    /// The bytes of the arena.
    pub arena_bytes: usize,
}

/// A step of the plan.
pub struct StepTime {
    /// The friendly name of its layer.
    pub layer: String,
    pub milliseconds: f64,
    /// The bytes of the arena that are in use.
    pub in_use: usize,
}

/// What one layer takes.
#[derive(Clone)]
// Without the feature nothing is run, and pictures have no times.
#[cfg_attr(not(feature = "run"), allow(dead_code))]
pub enum LayerTime {
    /// Its own step: milliseconds, the part of the whole, what does it, and the other layers that were fused into it.
    Own { milliseconds: f64, share: f64, by: String, others: usize },
    /// It is part of the step of another layer.
    In(String),
}

impl LayerTime {
    /// A line for the box of a layer.
    pub fn line(&self) -> String {
        match self {
            LayerTime::Own { milliseconds, share, .. } => {
                format!("{milliseconds:.3} ms, {:.1} %", share * 100.0)
            }
            LayerTime::In(layer) => format!("in {layer}"),
        }
    }

    /// The part of the whole time.
    pub fn share(&self) -> f64 {
        match self {
            LayerTime::Own { share, .. } => *share,
            LayerTime::In(_) => 0.0,
        }
    }
}

#[cfg(feature = "run")]
mod measured {
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::time::Duration;

    use ovir::{CompileOptions, Core, Model, Plan, PlanStep, Profile, Shape};

    use super::{LayerTime, StepTime, Times};
    use crate::dump::{doer, in_use};
    use crate::failure::Failure;
    use crate::image_input::ImageOptions;
    use crate::inputs::{InputArguments, Inputs};
    use crate::load;
    use crate::terminal::Terminal;

    /// The seed of random inputs when `--seed` does not say it.
    const DEFAULT_SEED: u64 = 0;

    /// Whether and how a model is run for its picture.
    #[derive(Debug, clap::Args)]
    pub struct ProfileArguments {
        /// Runs the model and shows the time of every layer, and the memory in use from step to step.
        #[arg(long)]
        pub profile: bool,
        /// All inputs of an inference, keyed by tensor name, friendly name or index; random ones in their absence.
        #[arg(long, value_name = "F.npz", requires = "profile")]
        inputs: Vec<PathBuf>,
        /// The seed of random inputs.
        #[arg(long, value_name = "N", requires = "profile")]
        seed: Option<u64>,
        /// The shapes of random data for inputs with dynamic dimensions.
        #[arg(long = "data_shape", visible_alias = "shape", value_name = "SHAPES", requires = "profile")]
        data_shape: Option<String>,
        /// The number of inferences that are measured.
        #[arg(long, value_name = "N", default_value = "10", requires = "profile",
              value_parser = clap::value_parser!(u64).range(1..))]
        niter: u64,
        /// The number of threads [default: all].
        #[arg(long, value_name = "N", visible_alias = "threads", requires = "profile")]
        nthreads: Option<usize>,
    }

    /// Runs a model and measures it.
    ///
    /// # Errors
    /// Inputs that do not fit, and what goes wrong in an inference.
    pub fn measure(
        arguments: &ProfileArguments,
        core: &Core,
        model: &Model,
        terminal: &Terminal,
    ) -> Result<Times, Failure> {
        let options = CompileOptions { threads: arguments.nthreads.unwrap_or(0), ..CompileOptions::default() };
        let compiled = core.compile_model(model, &options)?;
        let shaped = match &arguments.data_shape {
            Some(text) => load::reshape(model, text, "-data_shape", terminal)?,
            None => model.clone(),
        };
        let seed = Some(arguments.seed.unwrap_or(DEFAULT_SEED));
        let given = InputArguments {
            inputs: arguments.inputs.clone(),
            input: Vec::new(),
            image: ImageOptions::default(),
            seed,
        };
        let inputs = Inputs::new(&given, &shaped, terminal)?;
        let mut request = compiled.create_infer_request();
        let mut shapes: Vec<Shape> = Vec::new();
        // The first inference makes the plan and warms the caches.
        for inference in 0..=arguments.niter {
            let round = (inference as usize).checked_rem(inputs.count()).unwrap_or(0);
            if round == 0 {
                request.reset_state()?;
            }
            let tensors = inputs.read(round)?;
            shapes = tensors.iter().map(|tensor| tensor.shape().clone()).collect();
            for (index, tensor) in tensors.into_iter().enumerate() {
                request.set_input_tensor(index, tensor)?;
            }
            request.infer()?;
            if inference == 0 {
                request.set_profiling(true)?;
            }
        }
        let shapes: Vec<_> = shapes.iter().map(Into::into).collect();
        let profile = request.profile()?.unwrap_or_default();
        Ok(times(&compiled.plan(&shapes)?, &profile))
    }

    fn times(plan: &Plan, profile: &Profile) -> Times {
        let milliseconds = |time: Duration, runs: u64| time.as_secs_f64() * 1e3 / runs.max(1) as f64;
        let own: Vec<f64> = profile.entries.iter().map(|entry| milliseconds(entry.time, entry.runs)).collect();
        let total: f64 = own.iter().sum();
        let mut by_layer = HashMap::new();
        let mut steps = Vec::with_capacity(plan.steps.len());
        for ((step, milliseconds), in_use) in plan.steps.iter().zip(&own).zip(in_use(plan)) {
            add(&mut by_layer, step, *milliseconds, milliseconds / total.max(f64::MIN_POSITIVE));
            steps.push(StepTime { layer: step.friendly_name.clone(), milliseconds: *milliseconds, in_use });
        }
        let inferences = profile.entries.first().map_or(0, |entry| entry.runs);
        Times { by_layer, steps, total, inferences, threads: plan.threads, arena_bytes: plan.arena_bytes }
    }

    fn add(by_layer: &mut HashMap<String, LayerTime>, step: &PlanStep, milliseconds: f64, share: f64) {
        // A reorder has the name of the value that it moves, whose layer has a step of its own.
        if step.type_name == "Reorder" {
            return;
        }
        for member in step.members.iter().filter(|member| **member != step.friendly_name) {
            by_layer.insert(member.clone(), LayerTime::In(step.friendly_name.clone()));
        }
        let others = step.members.len().saturating_sub(1);
        let time = LayerTime::Own { milliseconds, share, by: doer(step), others };
        by_layer.insert(step.friendly_name.clone(), time);
    }
}

#[cfg(feature = "run")]
pub use measured::{ProfileArguments, measure};
