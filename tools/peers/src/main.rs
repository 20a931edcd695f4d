//! Runs a model with another engine, for `tools/bench_peers.py`.
//!
//! `ovir-peers rten|tract MODEL.onnx INPUTS.npz THREADS` reads the model and its inputs, infers once, says `ready`, and
//! answers every line that it reads with the milliseconds of one inference.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use ndarray_npy::NpzReader;
use tract_onnx::tract_hir::internal::tract_ndarray::ArrayD;

mod rten_engine;
mod tract_engine;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A model that has its inputs.
trait Engine {
    /// One inference.
    fn infer(&mut self) -> Fallible<()>;
}

/// The values of an input.
#[derive(Clone)]
enum Values {
    F32(ArrayD<f32>),
    I32(ArrayD<i32>),
    I64(ArrayD<i64>),
    U8(ArrayD<u8>),
    Bool(ArrayD<bool>),
}

/// An input of the file.
struct Input {
    name: String,
    values: Values,
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [engine, model, inputs, threads] = arguments.as_slice() else {
        return Err("usage: ovir-peers rten|tract MODEL.onnx INPUTS.npz THREADS".into());
    };
    let (inputs, threads) = (read_inputs(inputs)?, threads.parse()?);
    let mut engine: Box<dyn Engine> = match engine.as_str() {
        "rten" => Box::new(rten_engine::Rten::new(model, &inputs, threads)?),
        "tract" => Box::new(tract_engine::Tract::new(model, &inputs, threads)?),
        other => return Err(format!("there is no engine `{other}`").into()),
    };
    engine.infer()?;
    println!("ready");
    for line in stdin().lock().lines() {
        line?;
        let begin = Instant::now();
        engine.infer()?;
        println!("{}", begin.elapsed().as_secs_f64() * 1e3);
        stdout().flush()?;
    }
    Ok(())
}

/// All arrays of an archive, in its order.
fn read_inputs(path: &str) -> Fallible<Vec<Input>> {
    let mut archive = NpzReader::new(File::open(path)?)?;
    let mut inputs = Vec::new();
    for index in 0..archive.len() {
        let file = archive.names()?[index].clone();
        let values = None
            .or_else(|| archive.by_index(index).ok().map(Values::F32))
            .or_else(|| archive.by_index(index).ok().map(Values::I64))
            .or_else(|| archive.by_index(index).ok().map(Values::I32))
            .or_else(|| archive.by_index(index).ok().map(Values::U8))
            .or_else(|| archive.by_index(index).ok().map(Values::Bool));
        let values = values.ok_or_else(|| format!("`{file}` has an element type that no peer is given"))?;
        inputs.push(Input { name: file.trim_end_matches(".npy").to_owned(), values });
    }
    Ok(inputs)
}

/// The values of the model's inputs: by name if all names are in the file, else by position, as a conversion may have
/// renamed them.
fn in_order(names: &[String], inputs: &[Input]) -> Fallible<Vec<Values>> {
    let named = |name: &String| inputs.iter().find(|input| input.name == *name).map(|input| input.values.clone());
    if let Some(values) = names.iter().map(named).collect() {
        return Ok(values);
    }
    match names.len() == inputs.len() {
        true => Ok(inputs.iter().map(|input| input.values.clone()).collect()),
        false => Err(format!("the model has {} inputs, the file {}", names.len(), inputs.len()).into()),
    }
}
