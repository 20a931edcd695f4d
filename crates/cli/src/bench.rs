//! `ovir bench`: benchmark_app's measures.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use ovir::{CompileOptions, CompiledModel, Core, InferRequest, Model, Profile, Tensor, available_threads};
use serde_json::json;

use crate::failure::Failure;
use crate::inputs::{InputArguments, Inputs};
use crate::load::{self, ModelArguments, shown};
use crate::precision::PrecisionArguments;
use crate::run::{profile_json, profile_table};
use crate::terminal::{Format, Terminal};

/// How long is measured when neither `-niter` nor `-t` says it.
const DEFAULT_SECONDS: u64 = 10;

/// The seed of random inputs when `--seed` does not say it.
const DEFAULT_SEED: u64 = 0;

const EXAMPLES: &str = "\
Examples:
  ovir bench model.xml
  ovir bench -m model.xml -niter 100 -nthreads 4 -data_shape '[1,3,224,224]'
  ovir bench model.xml -t 30 --inputs in.npz -pc
  ovir bench model.xml -hint throughput --format json
  ovir bench model.xml -nstreams 2 -nireq 4";

/// Measure latency and throughput.
///
/// Inputs that are not given are random. One inference warms up; the state of a stateful model is set back before each
/// inference, or before each round over the given --inputs, outside of the measured time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    inputs: InputArguments,
    /// The number of inferences.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    niter: Option<u64>,
    /// The time to measure [default: 10, unless -niter is given]. With -niter both must be reached.
    #[arg(short = 't', long = "time", value_name = "SECONDS")]
    time: Option<u64>,
    /// The number of threads [default: all].
    #[arg(long, value_name = "N", visible_alias = "threads")]
    nthreads: Option<usize>,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// The number of inferences that run at the same time, or AUTO for one a thread; they divide the threads among them.
    /// [default: one for each request]
    #[arg(long, value_name = "N", value_parser = streams)]
    nstreams: Option<Streams>,
    /// The number of requests [default: one for each stream]. Those that find no stream free wait for one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nireq: Option<u32>,
    /// `latency`: one request on all threads; `throughput`: one request a thread.
    #[arg(long, value_enum, value_name = "HINT", default_value = "latency")]
    hint: Hint,
    /// New shapes of the inputs, with which the model is compiled.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// The shapes of random data for inputs with dynamic dimensions.
    #[arg(long = "data_shape", value_name = "SHAPES")]
    data_shape: Option<String>,
    /// Inferences before the measured ones.
    #[arg(long, value_name = "N", default_value = "1")]
    warmup: u64,
    /// Prints the time of every layer.
    #[arg(long, alias = "profile")]
    pc: bool,
    /// benchmark_app's reports: `average_counters` and `detailed_counters` print the time of every layer.
    #[arg(long = "report_type", value_enum, value_name = "TYPE")]
    report_type: Option<ReportType>,
    /// The device: only CPU is known.
    #[arg(short, long, value_name = "DEVICE", default_value = "CPU", value_parser = ["CPU"], hide = true)]
    device: String,
    /// benchmark_app's choice of interface, without meaning here.
    #[arg(long, value_name = "API", value_parser = ["sync", "async"], hide = true)]
    api: Option<String>,
    /// Runs every layer by its plain reference evaluation.
    #[arg(long = "reference")]
    is_reference: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// The inferences that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    /// One a thread.
    Auto,
    /// So many.
    Count(NonZeroU32),
}

/// Reads `-nstreams` as benchmark_app does, with the name of the device or without.
fn streams(text: &str) -> Result<Streams, String> {
    let count = text.strip_prefix("CPU:").unwrap_or(text);
    if count.eq_ignore_ascii_case("auto") {
        return Ok(Streams::Auto);
    }
    count.parse().map(Streams::Count).map_err(|_| "neither a number from 1 on nor AUTO".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Hint {
    /// One request on all threads.
    Latency,
    /// One request a thread.
    #[value(aliases = ["tput", "cumulative_throughput", "ctput"])]
    Throughput,
    /// As `latency`.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(clippy::enum_variant_names)]
enum ReportType {
    /// Nothing more.
    #[value(name = "no_counters")]
    NoCounters,
    /// The time of every layer.
    #[value(name = "average_counters")]
    AverageCounters,
    /// The time of every layer.
    #[value(name = "detailed_counters")]
    DetailedCounters,
}

/// When measuring ends: when all that are given are reached.
struct Goal {
    iterations: Option<u64>,
    time: Option<Duration>,
}

/// What was measured.
struct Measures {
    read: Duration,
    compile: Duration,
    first: Duration,
    total: Duration,
    /// The latencies in ascending order.
    latencies: Vec<Duration>,
    profile: Option<Profile>,
    division: Division,
    batch: usize,
    arena: usize,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn bench(arguments: &BenchArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let start = Instant::now();
    let mut model = arguments.model.load(&core, terminal)?;
    if let Some(text) = &arguments.shape {
        model = load::reshape(&model, text, "--shape", terminal)?;
    }
    let read = start.elapsed();
    let inputs = read_inputs(arguments, &model, terminal)?;
    let division = Division::new(arguments);
    let options = CompileOptions {
        threads: division.threads,
        reference_only: arguments.is_reference,
        ..arguments.precision.options()
    };
    let start = Instant::now();
    let compiled = core.compile_model(&model, &options)?;
    let compile = start.elapsed();
    let measures = measure(arguments, &model, &compiled, &inputs, division, terminal)?;
    let measures = Measures { read, compile, batch: batch(&model, &inputs), ..measures };
    match arguments.format {
        Format::Human => terminal.print(&human(&measures)),
        Format::Json => terminal.print(&json(arguments, &measures)),
    }
}

/// The tensors of each round: given ones, random ones in their absence.
fn read_inputs(arguments: &BenchArguments, model: &Model, terminal: &Terminal) -> Result<Vec<Vec<Tensor>>, Failure> {
    // Shapes of data do not change the model that is compiled, only what it is given.
    let shaped = match &arguments.data_shape {
        Some(text) => load::reshape(model, text, "-data_shape", terminal)?,
        None => model.clone(),
    };
    let seed = arguments.inputs.seed.unwrap_or(DEFAULT_SEED);
    let given = InputArguments { seed: Some(seed), ..arguments.inputs.clone() };
    let inputs = Inputs::new(&given, &shaped, terminal)?;
    (0..inputs.count()).map(|position| inputs.read(position)).collect()
}

/// How the work is divided.
#[derive(Debug, Clone, Copy)]
struct Division {
    /// All threads.
    threads: usize,
    /// Inferences that run at the same time, at most as many as requests.
    streams: usize,
    requests: usize,
}

impl Division {
    fn new(arguments: &BenchArguments) -> Division {
        let threads = arguments.nthreads.filter(|n| *n > 0).unwrap_or_else(available_threads);
        let requests = arguments.nireq.map(|n| n as usize);
        let streams = match arguments.nstreams {
            Some(Streams::Auto) => threads,
            Some(Streams::Count(count)) => count.get() as usize,
            None => requests.unwrap_or(if arguments.hint == Hint::Throughput { threads } else { 1 }),
        };
        let requests = requests.unwrap_or(streams);
        Division { threads, streams: streams.min(requests), requests }
    }

    /// The threads of each inference.
    fn threads_each(self) -> usize {
        (self.threads / self.streams).max(1)
    }
}

/// The streams that are free.
struct FreeStreams {
    count: Mutex<usize>,
    returned: Condvar,
}

impl FreeStreams {
    /// Runs `work` as soon as a stream is free.
    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // A poisoned lock means that another thread has panicked, which the scope reports; the count is right all the same.
        let mut free = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        let _taken = TakenStream(self);
        work()
    }
}

/// A stream that comes back when the work has ended, however it does: others may wait for it.
struct TakenStream<'a>(&'a FreeStreams);

impl Drop for TakenStream<'_> {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}

/// The images in a batch: the dimension N of the first input whose layout is known.
fn batch(model: &Model, inputs: &[Vec<Tensor>]) -> usize {
    let of = |(port, tensor): (&ovir::Port, &Tensor)| {
        let position = port.layout.as_ref()?.chars().filter(char::is_ascii_alphabetic).position(|c| c == 'N')?;
        tensor.shape().get(position).copied()
    };
    let ports = model.inputs();
    inputs.first().and_then(|round| ports.iter().zip(round).find_map(of)).unwrap_or(1)
}

fn measure(
    arguments: &BenchArguments,
    model: &Model,
    compiled: &CompiledModel,
    inputs: &[Vec<Tensor>],
    division: Division,
    terminal: &Terminal,
) -> Result<Measures, Failure> {
    let goal = Goal::new(arguments);
    let is_stateful = model.graph().nodes.iter().any(|node| node.is("ReadValue"));
    let mut all: Vec<InferRequest> = (0..division.requests).map(|_| compiled.create_infer_request()).collect();
    let streams = FreeStreams { count: Mutex::new(division.streams), returned: Condvar::new() };
    let mut first = Duration::ZERO;
    for request in &mut all {
        for warmup in 0..arguments.warmup.max(1) {
            let time = round(request, inputs, warmup as usize, is_stateful, &streams)?;
            if first.is_zero() {
                first = time;
            }
        }
    }
    let is_profiled = arguments.pc || !matches!(arguments.report_type, None | Some(ReportType::NoCounters));
    all[0].set_profiling(is_profiled)?;
    let bar = match goal.iterations {
        Some(count) => terminal.progress(count, "inferences"),
        None => ProgressBar::hidden(),
    };
    let counter = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let start = Instant::now();
    let work = |request: &mut InferRequest| {
        let result = measure_one(request, inputs, is_stateful, &streams, &goal, &counter, start, &bar);
        // A poisoned lock means that another thread has panicked, which the scope reports.
        if let Ok(mut results) = results.lock() {
            results.push(result);
        }
    };
    std::thread::scope(|scope| {
        let mut others = all.iter_mut();
        let own = others.next();
        for request in others {
            scope.spawn(|| work(request));
        }
        if let Some(request) = own {
            work(request);
        }
    });
    let total = start.elapsed();
    bar.finish_and_clear();
    let mut latencies = Vec::new();
    for result in results.into_inner().unwrap_or_default() {
        latencies.extend(result?);
    }
    latencies.sort();
    Ok(Measures {
        read: Duration::ZERO,
        compile: Duration::ZERO,
        first,
        total,
        latencies,
        profile: all[0].profile()?,
        division,
        batch: 1,
        arena: all[0].arena_bytes()?,
    })
}

fn measure_one(
    request: &mut InferRequest,
    inputs: &[Vec<Tensor>],
    is_stateful: bool,
    streams: &FreeStreams,
    goal: &Goal,
    counter: &AtomicUsize,
    start: Instant,
    bar: &ProgressBar,
) -> Result<Vec<Duration>, Failure> {
    let mut latencies = Vec::new();
    loop {
        let iteration = counter.fetch_add(1, Ordering::Relaxed);
        if goal.is_reached(iteration as u64, start) {
            return Ok(latencies);
        }
        latencies.push(round(request, inputs, iteration, is_stateful, streams)?);
        bar.inc(1);
    }
}

/// One inference and its time, from when it is asked for, as benchmark_app measures.
fn round(
    request: &mut InferRequest,
    inputs: &[Vec<Tensor>],
    iteration: usize,
    is_stateful: bool,
    streams: &FreeStreams,
) -> Result<Duration, Failure> {
    let position = iteration % inputs.len().max(1);
    if is_stateful && position == 0 {
        request.reset_state()?;
    }
    let tensors = inputs.get(position).map_or(&[][..], Vec::as_slice);
    for (index, tensor) in tensors.iter().enumerate() {
        request.set_input_tensor(index, tensor.clone())?;
    }
    let start = Instant::now();
    streams.run(|| request.infer())?;
    Ok(start.elapsed())
}

impl Goal {
    fn new(arguments: &BenchArguments) -> Goal {
        let time = match (arguments.time, arguments.niter) {
            (Some(seconds), _) => Some(Duration::from_secs(seconds)),
            (None, None) => Some(Duration::from_secs(DEFAULT_SECONDS)),
            (None, Some(_)) => None,
        };
        Goal { iterations: arguments.niter, time }
    }

    /// At least one inference is measured.
    fn is_reached(&self, iteration: u64, start: Instant) -> bool {
        let iterations = self.iterations.is_none_or(|count| iteration >= count);
        let time = self.time.is_none_or(|time| start.elapsed() >= time);
        iterations && time && iteration > 0
    }
}

impl Measures {
    fn median(&self) -> Duration {
        let count = self.latencies.len();
        let middle = |index: usize| self.latencies.get(index).copied().unwrap_or_default();
        if count % 2 == 1 { middle(count / 2) } else { (middle((count / 2).saturating_sub(1)) + middle(count / 2)) / 2 }
    }

    fn average(&self) -> Duration {
        self.latencies.iter().sum::<Duration>().checked_div(self.latencies.len() as u32).unwrap_or_default()
    }

    fn min(&self) -> Duration {
        self.latencies.first().copied().unwrap_or_default()
    }

    fn max(&self) -> Duration {
        self.latencies.last().copied().unwrap_or_default()
    }

    /// Inferences, or images where the model says what its batch is, a second.
    fn throughput(&self) -> f64 {
        (self.latencies.len() * self.batch) as f64 / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn human(measures: &Measures) -> String {
    let mut text = String::new();
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let division = measures.division;
    let waiting = match division.requests > division.streams {
        true => format!(" on {}", plural(division.streams, "stream")),
        false => String::new(),
    };
    let threads = plural(division.threads_each(), "thread");
    let _ = writeln!(text, "Requests:           {}{waiting}, {threads} each", plural(division.requests, "request"));
    let _ = writeln!(text, "Read:               {:.2} ms", milliseconds(measures.read));
    let _ = writeln!(text, "Compile:            {:.2} ms", milliseconds(measures.compile));
    let _ = writeln!(text, "First inference:    {:.2} ms", milliseconds(measures.first));
    let _ = writeln!(text, "Arena:              {}", crate::info::size(measures.arena as u64));
    let _ = writeln!(text, "Count:              {}", plural(measures.latencies.len(), "iteration"));
    let _ = writeln!(text, "Duration:           {:.2} ms", milliseconds(measures.total));
    let _ = writeln!(text, "Latency:");
    for (name, time) in [
        ("Median:", measures.median()),
        ("Average:", measures.average()),
        ("Min:", measures.min()),
        ("Max:", measures.max()),
    ] {
        let _ = writeln!(text, "   {name:<16} {:.3} ms", milliseconds(time));
    }
    let _ = writeln!(text, "Throughput:         {:.2} FPS", measures.throughput());
    if let Some(profile) = &measures.profile {
        let _ = write!(text, "\n{}", profile_table(profile));
    }
    text
}

fn json(arguments: &BenchArguments, measures: &Measures) -> String {
    let mut object = json!({
        "schema": 1,
        "model": shown(arguments.model.path()),
        "requests": measures.division.requests,
        "streams": measures.division.streams,
        "threads": measures.division.threads_each(),
        "batch": measures.batch,
        "read_ms": milliseconds(measures.read),
        "compile_ms": milliseconds(measures.compile),
        "first_inference_ms": milliseconds(measures.first),
        "arena_bytes": measures.arena,
        "iterations": measures.latencies.len(),
        "duration_ms": milliseconds(measures.total),
        "latency_ms": {
            "median": milliseconds(measures.median()),
            "average": milliseconds(measures.average()),
            "min": milliseconds(measures.min()),
            "max": milliseconds(measures.max()),
        },
        "throughput_fps": measures.throughput(),
    });
    if let Some(profile) = &measures.profile {
        object["layers"] = profile_json(profile);
    }
    format!("{object:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};
    use pretty_assertions::assert_eq;

    fn measures(milliseconds: &[u64]) -> Measures {
        Measures {
            read: Duration::ZERO,
            compile: Duration::ZERO,
            first: Duration::ZERO,
            total: Duration::from_secs(1),
            latencies: milliseconds.iter().map(|ms| Duration::from_millis(*ms)).collect(),
            profile: None,
            division: Division { threads: 1, streams: 1, requests: 1 },
            batch: 2,
            arena: 0,
        }
    }

    #[test]
    fn latencies_are_summed_up() {
        let odd = measures(&[1, 2, 9]);
        assert_eq!((odd.median(), odd.average()), (Duration::from_millis(2), Duration::from_millis(4)));
        assert_eq!(measures(&[1, 2, 4, 9]).median(), Duration::from_millis(3));
        assert_eq!(measures(&[]).median(), Duration::ZERO);
        assert_eq!(odd.throughput(), 6.0);
    }

    #[test]
    fn threads_are_divided() {
        let divided = |text: &str| {
            let command = BenchArguments::augment_args(clap::Command::new("bench"));
            let matches = command.try_get_matches_from(format!("bench m.xml --nthreads 8 {text}").split_whitespace());
            let arguments = BenchArguments::from_arg_matches(&matches.unwrap()).unwrap();
            let division = Division::new(&arguments);
            (division.requests, division.streams, division.threads_each())
        };
        assert_eq!(divided(""), (1, 1, 8));
        assert_eq!(divided("--hint throughput"), (8, 8, 1));
        assert_eq!(divided("--nireq 4"), (4, 4, 2));
        assert_eq!(divided("--nstreams 2"), (2, 2, 4));
        assert_eq!(divided("--nstreams CPU:2 --nireq 3"), (3, 2, 4));
        assert_eq!(divided("--nstreams AUTO --nireq 4"), (4, 4, 2));
        assert_eq!(divided("--nstreams 20"), (20, 20, 1));
        assert!(["0", "-1", "GPU:2", ""].iter().all(|text| streams(text).is_err()));
    }

    #[test]
    fn goals_are_reached() {
        let start = Instant::now();
        let goal = Goal { iterations: Some(3), time: None };
        assert_eq!([0, 2, 3].map(|i| goal.is_reached(i, start)), [false, false, true]);
        let goal = Goal { iterations: None, time: Some(Duration::ZERO) };
        assert_eq!([0, 1].map(|i| goal.is_reached(i, start)), [false, true]);
    }
}
