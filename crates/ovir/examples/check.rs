//! Runs models beside which inputs and expected outputs lie, and tells differences and times.
//!
//! `cargo run --release -p ovir --example check -- [--threads N] [--runs N] [--reference] [--profile] FOLDER...`
//! Each folder holds `model.xml`, `model.bin`, `inputs-K.npz` and `expected-K.npz` (or without `-K`).

#![allow(clippy::print_stdout, missing_docs)]

use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use ovir::tensor::dispatch::FromElement;
use ovir::tensor::npz::read_npz;
use ovir::{CompileOptions, Core, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = CompileOptions { threads: 1, ..CompileOptions::default() };
    let (mut runs, mut profile) = (5, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--threads" => options.threads = arguments.next().unwrap_or_default().parse()?,
            "--runs" => runs = arguments.next().unwrap_or_default().parse()?,
            "--reference" => options.reference_only = true,
            "--profile" => profile = true,
            folder => {
                if let Err(error) = check(Path::new(folder), &options, runs, profile) {
                    println!("{folder}: {error}");
                }
            }
        }
    }
    Ok(())
}

fn check(
    folder: &Path,
    options: &CompileOptions,
    runs: usize,
    profile: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let core = Core::new();
    let model = core.read_model(folder.join("model.xml"))?;
    let read = started.elapsed();
    let compiled = core.compile_model(&model, options)?;
    let compile = started.elapsed() - read;
    let mut request = compiled.create_infer_request();
    for suffix in std::iter::once(String::new()).chain((0..20).map(|k| format!("-{k}"))) {
        let Ok(expected) = std::fs::read(folder.join(format!("expected{suffix}.npz"))) else { continue };
        let ports = model.inputs();
        let hint = |name: &str| model.input_index(name).ok().map(|i| ports[i].element_type);
        for (name, tensor) in read_npz(Cursor::new(std::fs::read(folder.join(format!("inputs{suffix}.npz")))?), hint)? {
            request.set_tensor(&name, tensor)?;
        }
        let first = Instant::now();
        request.infer()?;
        let first = first.elapsed();
        let mut worst = (0.0f64, 0.0f64);
        for (name, tensor) in read_npz(Cursor::new(expected), |_| None)? {
            let actual = request.tensor(&name)?;
            let difference = difference(&tensor, &actual)?;
            worst = if difference.1 > worst.1 { difference } else { worst };
        }
        let mut times = Vec::new();
        request.set_profiling(profile)?;
        for _ in 0..runs {
            let run = Instant::now();
            request.infer()?;
            times.push(run.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!(
            "{}{suffix}: abs {:.2e} rel-to-max {:.2e}; read {:.1} ms, compile {:.1} ms, first {:.2} ms, median {:.3} ms, arena {} KB",
            folder.file_name().unwrap_or_default().to_string_lossy(),
            worst.0,
            worst.1,
            read.as_secs_f64() * 1e3,
            compile.as_secs_f64() * 1e3,
            first.as_secs_f64() * 1e3,
            times.get(times.len() / 2).copied().unwrap_or(0.0),
            request.arena_bytes()? / 1024
        );
        if let Some(mut profile) = request.profile()? {
            profile.entries.sort_by_key(|e| std::cmp::Reverse(e.time));
            for entry in profile.entries.iter().take(15) {
                let time = entry.time.as_secs_f64() * 1e3 / entry.runs.max(1) as f64;
                let how = if entry.is_kernel { "kernel" } else { "reference" };
                println!("    {time:9.3} ms {:24} {how:10} {}", entry.type_name, entry.friendly_name);
            }
        }
    }
    Ok(())
}

/// The largest absolute difference, and the same relative to the largest expected value.
fn difference(expected: &Tensor, actual: &Tensor) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    if expected.shape() != actual.shape() {
        return Err(format!("shape {} where {} is expected", actual.shape(), expected.shape()).into());
    }
    let numbers = |tensor: &Tensor| -> Result<Vec<f64>, ovir::TensorError> {
        ovir::tensor::dispatch!(tensor.element_type(), T in [native] => {
            Ok(tensor.slice::<T>()?.iter().map(|v| f64::from_element(*v)).collect())
        } else { Ok(Vec::new()) })
    };
    let (e, a) = (numbers(expected)?, numbers(actual)?);
    let largest = e.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let worst = e.iter().zip(&a).fold(0.0f64, |m, (x, y)| {
        if (x - y).is_nan() && !(x.is_nan() && y.is_nan()) { f64::INFINITY } else { m.max((x - y).abs()) }
    });
    Ok((worst, if largest > 0.0 { worst / largest } else { worst }))
}
