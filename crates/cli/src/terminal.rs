//! Standard output and standard error: colour, progress, and pipes that end early.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColorWhen {
    // Variants have no help of their own: their names say everything.
    #[default]
    Auto,
    Always,
    Never,
}

/// What may be written where.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Whether standard output is coloured.
    pub is_output_coloured: bool,
    /// Whether standard error is coloured.
    pub is_error_coloured: bool,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    // Variants have no help of their own: their names say everything.
    Human,
    Json,
}

impl Terminal {
    /// Decides about colours.
    pub fn new(when: ColorWhen) -> Terminal {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let decide = |is_terminal: bool| match when {
            ColorWhen::Auto => is_terminal && is_wanted,
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        };
        Terminal {
            is_output_coloured: decide(io::stdout().is_terminal()),
            is_error_coloured: decide(io::stderr().is_terminal()),
        }
    }

    /// Writes data to standard output. A reader that has seen enough is no failure.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        self.print_bytes(text.as_bytes())
    }

    /// Writes bytes to standard output.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut output = io::stdout().lock();
        match output.write_all(bytes).and_then(|()| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::usage(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Says something on standard error.
    pub fn say(&self, text: &str) {
        // There is nobody to tell when standard error is closed.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Says on standard error what is wrong, after a coloured word.
    pub fn complain(&self, word: &str, text: &str) {
        let color = if word == "error" { anstyle::AnsiColor::BrightRed } else { anstyle::AnsiColor::Yellow };
        let style = if self.is_error_coloured { color.on_default().bold() } else { anstyle::Style::new() };
        self.say(&format!("{style}{word}{style:#}: {text}"));
    }

    /// The text in bold on standard output.
    pub fn bold(&self, text: &str) -> String {
        let style = if self.is_output_coloured { anstyle::Style::new().bold() } else { anstyle::Style::new() };
        format!("{style}{text}{style:#}")
    }

    /// A bar on standard error, hidden unless that is a terminal. It appears when the work takes a while.
    pub fn progress(&self, steps: u64, what: &str) -> ProgressBar {
        if !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}
