//! The command line as a whole, and the step that makes it fit for clap.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::terminal::ColorWhen;

/// Run, validate and inspect OpenVINO IR models.
#[derive(Debug, Parser)]
#[command(name = "ovir", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// When to colour; `auto` is on a terminal, unless `NO_COLOR` is set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the model is at fault, or a comparison differs
  2  usage, files, input tensors, unsupported operations, violations at run time

Long flags are understood with one dash or two, with `_` or `-` inside.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    #[cfg(feature = "run")]
    Run(crate::run::RunArguments),
    #[command(alias = "check")]
    Validate(crate::validate::ValidateArguments),
    Info(crate::info::InfoArguments),
    Ops(crate::ops::OpsArguments),
    #[cfg(feature = "run")]
    Compare(crate::compare::CompareArguments),
    Diff(crate::diff::DiffArguments),
    Graph(crate::graph::GraphArguments),
    #[cfg(feature = "run")]
    Bench(crate::bench::BenchArguments),
    #[cfg(feature = "run")]
    Dump(crate::dump::DumpArguments),
    Explain(crate::explain::ExplainArguments),
    Reshape(crate::reshape::ReshapeArguments),
    Save(crate::save::SaveArguments),
}

/// Reads the command line of this process.
///
/// # Errors
/// What clap says, `--help` and `--version` included.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let command = Arguments::command();
    let arguments = normalise(arguments, &command);
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Makes the spellings of benchmark_app those of clap: long flags with one dash get two, `-` and `_` inside a flag are
/// the same, and the optional values of `--digest` and `--reverse_input_channels` are joined with `=`.
///
/// Flags with one letter, values, and everything after `--` stay as they are.
pub fn normalise(arguments: impl IntoIterator<Item = OsString>, command: &Command) -> Vec<OsString> {
    let known = long_flags(command);
    let letters = short_flags(command);
    let mut result: Vec<OsString> = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else {
            result.push(argument);
            continue;
        };
        if text == "--" {
            result.push(argument);
            result.extend(arguments);
            return result;
        }
        let flag = long_flag(text, &known).or_else(|| misspelt_flag(text, &letters));
        let argument = flag.map_or(argument, OsString::from);
        let joined = result.last().and_then(|flag| optional_value(flag.to_str()?, argument.to_str()?));
        match (joined, result.last_mut()) {
            (Some(joined), Some(flag)) => *flag = joined.into(),
            _ => result.push(argument),
        }
    }
    result
}

/// The flag as clap knows it; `None` if the argument is no long flag that is known.
fn long_flag(argument: &str, known: &BTreeSet<String>) -> Option<String> {
    let bare = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let (name, value) = match bare.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (bare, None),
    };
    // One letter after one dash is a short flag.
    if name.chars().count() < 2 {
        return None;
    }
    let spellings = [name.to_owned(), name.replace('-', "_"), name.replace('_', "-")];
    let flag = spellings.into_iter().find(|spelling| known.contains(spelling))?;
    Some(match value {
        Some(value) => format!("--{flag}={value}"),
        None => format!("--{flag}"),
    })
}

/// A word after one dash that cannot be short flags is a long flag that does not exist, which clap then says.
fn misspelt_flag(argument: &str, letters: &BTreeSet<char>) -> Option<String> {
    let name = argument.strip_prefix('-')?;
    let first = name.chars().next().filter(char::is_ascii_alphabetic)?;
    (name.len() > 1 && !letters.contains(&first)).then(|| format!("--{name}"))
}

/// A flag whose value may be left out, joined with the value that follows it.
fn optional_value(flag: &str, value: &str) -> Option<String> {
    let is_value = match flag {
        "--digest" => value == "sha256",
        "--reverse_input_channels" => {
            matches!(value.to_ascii_lowercase().as_str(), "true" | "false" | "yes" | "no")
        }
        _ => false,
    };
    is_value.then(|| format!("{flag}={value}"))
}

fn long_flags(command: &Command) -> BTreeSet<String> {
    let mut flags: BTreeSet<String> = ["help", "version"].map(str::to_owned).into();
    for command in std::iter::once(command).chain(command.get_subcommands()) {
        for argument in command.get_arguments() {
            flags.extend(argument.get_long().map(str::to_owned));
            flags.extend(argument.get_all_aliases().unwrap_or_default().into_iter().map(str::to_owned));
        }
    }
    flags
}

fn short_flags(command: &Command) -> BTreeSet<char> {
    let commands = std::iter::once(command).chain(command.get_subcommands());
    let letters = commands.flat_map(|command| command.get_arguments().filter_map(clap::Arg::get_short));
    letters.chain(['h', 'V']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn normalised(text: &str) -> String {
        let arguments = text.split(' ').map(OsString::from);
        let result = normalise(arguments, &Arguments::command());
        result.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn clap_accepts_the_command() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn one_dash_becomes_two() {
        assert_eq!(normalised("ovir bench -m a.xml -niter 10 -t 5"), "ovir bench -m a.xml --niter 10 -t 5");
        assert_eq!(normalised("ovir bench -nthreads=2 -pc"), "ovir bench --nthreads=2 --pc");
        assert_eq!(normalised("ovir run -shape [1,3]"), "ovir run --shape [1,3]");
        assert_eq!(normalised("ovir bench -data_shape [1]"), "ovir bench --data_shape [1]");
        assert_eq!(normalised("ovir bench --data-shape [1]"), "ovir bench --data_shape [1]");
        assert_eq!(normalised("ovir run --mean-values 1 --reset_state_every 2"), {
            "ovir run --mean_values 1 --reset-state-every 2"
        });
        assert_eq!(normalised("ovir -help"), "ovir --help");
    }

    #[test]
    fn other_arguments_stay() {
        assert_eq!(normalised("ovir run -i x=-1 -o - -wfile"), "ovir run -i x=-1 -o - -wfile");
        assert_eq!(normalised("ovir run -nosuchflag"), "ovir run --nosuchflag");
        assert_eq!(normalised("ovir run -1 -"), "ovir run -1 -");
        assert_eq!(normalised("ovir run -- -niter"), "ovir run -- -niter");
    }

    #[test]
    fn optional_values_are_joined() {
        assert_eq!(normalised("ovir run --digest sha256 a.xml"), "ovir run --digest=sha256 a.xml");
        assert_eq!(normalised("ovir run -digest a.xml"), "ovir run --digest a.xml");
        assert_eq!(normalised("ovir run --reverse_input_channels NO"), "ovir run --reverse_input_channels=NO");
    }
}
