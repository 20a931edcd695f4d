//! The `ovir` command line.
//!
//! Data goes to standard output, diagnostics and progress to standard error. Each verb is one file.

mod arguments;
#[cfg(feature = "run")]
mod bench;
#[cfg(feature = "run")]
mod classes;
#[cfg(feature = "run")]
mod compare;
mod diff;
mod difference;
#[cfg(feature = "run")]
mod dump;
mod explain;
mod failure;
mod graph;
#[cfg(feature = "run")]
mod image_input;
mod info;
#[cfg(feature = "run")]
mod inputs;
mod load;
mod named_lists;
mod ops;
#[cfg(feature = "run")]
mod outputs;
#[cfg(feature = "run")]
mod precision;
mod releases;
mod reshape;
#[cfg(feature = "run")]
mod run;
mod save;
mod summary;
#[cfg(feature = "run")]
mod tensors;
mod terminal;
mod validate;

use std::process::ExitCode;

use arguments::Verb;
use failure::{Failure, USAGE};
use terminal::Terminal;

/// The exit code of a panic, as the Rust runtime has it.
const PANIC: u8 = 101;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
        let message = panic.payload_as_str().unwrap_or("no message");
        Terminal::new(terminal::ColorWhen::Auto).say(&format!("error: internal defect{place}: {message}"));
    }));
    // A panic must not look like a fault of the model.
    ExitCode::from(std::panic::catch_unwind(run).unwrap_or(PANIC))
}

fn run() -> u8 {
    let arguments = match arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data; everything else is wrong usage.
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    let terminal = Terminal::new(arguments.color);
    let result = match arguments.verb {
        #[cfg(feature = "run")]
        Verb::Run(arguments) => run::run(&arguments, &terminal),
        Verb::Validate(arguments) => validate::validate(&arguments, &terminal),
        Verb::Info(arguments) => info::info(&arguments, &terminal),
        Verb::Ops(arguments) => ops::ops(&arguments, &terminal),
        #[cfg(feature = "run")]
        Verb::Compare(arguments) => compare::compare(&arguments, &terminal),
        Verb::Diff(arguments) => diff::diff(&arguments, &terminal),
        Verb::Graph(arguments) => graph::graph(&arguments, &terminal),
        #[cfg(feature = "run")]
        Verb::Bench(arguments) => bench::bench(&arguments, &terminal),
        #[cfg(feature = "run")]
        Verb::Dump(arguments) => dump::dump(&arguments, &terminal),
        Verb::Explain(arguments) => explain::explain(&arguments, &terminal),
        Verb::Reshape(arguments) => reshape::reshape(&arguments, &terminal),
        Verb::Save(arguments) => save::save(&arguments, &terminal),
    };
    match result {
        Ok(()) => 0,
        Err(Failure { code, message }) => {
            if let Some(message) = message {
                terminal.complain("error", &message);
            }
            code
        }
    }
}
