//! Tests of the command line are files: `tests/cli/NAME.test` says what is run, `NAME.stdout` and `NAME.stderr` beside it
//! what must come out.
//!
//! Lines of a test:
//! - `RUN: arguments` must succeed, `FAIL: code arguments` must end with this exit code. Several run one after another.
//! - `STDIN: file` is given to the commands after it.
//! - `LIST` prints the names of the files in `$TMP`.
//! - `MASK` hides numbers with a decimal point, `MASK-ALL` all numbers.
//! - `#` begins a comment.
//!
//! Commands run in the root of the repository; `$TMP` is a folder of the test's own. `BLESS=1` writes what comes out as
//! what is expected, and `OVIR_CLI_TESTS=text` selects the tests whose names hold the text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pretty_assertions::StrComparison;

/// Codes that no file shows: all operations that are specified are implemented.
const UNSHOWN: &[&str] = &["OV303"];

/// What a test has printed.
#[derive(Default)]
struct Printed {
    stdout: String,
    stderr: String,
    /// Exit codes that are not as they should be.
    surprises: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mask {
    Nothing,
    Fractions,
    AllNumbers,
}

#[test]
fn command_line() {
    let filter = std::env::var("OVIR_CLI_TESTS").unwrap_or_default();
    let is_blessing = std::env::var_os("BLESS").is_some();
    let mut tests: Vec<PathBuf> = std::fs::read_dir(root().join("tests/cli"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "test"))
        .filter(|path| path.file_stem().unwrap().to_str().unwrap().contains(&filter))
        .collect();
    tests.sort();
    let mut failures = String::new();
    for test in &tests {
        let name = test.file_stem().unwrap().to_str().unwrap();
        let printed = run(test);
        if !printed.surprises.is_empty() {
            let _ = writeln!(
                failures,
                "{name}: {}\nstdout:\n{}\nstderr:\n{}",
                printed.surprises, printed.stdout, printed.stderr
            );
        }
        for (ending, text) in [("stdout", &printed.stdout), ("stderr", &printed.stderr)] {
            check(test, ending, text, is_blessing, &mut failures);
        }
    }
    assert!(failures.is_empty(), "of {} tests:\n{failures}", tests.len());
    assert!(!tests.is_empty(), "no test has a name with \"{filter}\"");
}

#[test]
fn every_code_has_a_snapshot() {
    let snapshots = std::fs::read_to_string(root().join("tests/cli/codes.stdout")).unwrap();
    let missing: Vec<&str> = ovir::diagnostics::CODES
        .iter()
        .map(|card| card.name)
        .filter(|name| !UNSHOWN.contains(name) && !snapshots.contains(&format!("[{name}]")))
        .collect();
    assert!(missing.is_empty(), "no model in tests/cli/codes shows {missing:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Compares a text with the file beside the test; an absent file is an empty text.
fn check(test: &Path, ending: &str, text: &str, is_blessing: bool, failures: &mut String) {
    let path = test.with_extension(ending);
    let expected = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    if expected == text {
        return;
    }
    if !is_blessing {
        let name = path.file_name().unwrap().to_str().unwrap();
        let _ = writeln!(failures, "{name} (expected < > printed):\n{}", StrComparison::new(&expected, text));
    } else if text.is_empty() {
        std::fs::remove_file(path).unwrap();
    } else {
        std::fs::write(path, text).unwrap();
    }
}

fn run(test: &Path) -> Printed {
    let name = test.file_stem().unwrap().to_str().unwrap();
    let folder = std::env::temp_dir().join(format!("ovir-cli-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let temporary = folder.to_str().unwrap();
    let mut printed = Printed::default();
    let mut mask = Mask::Nothing;
    let mut stdin: Option<PathBuf> = None;
    for line in std::fs::read_to_string(test).unwrap().lines() {
        let line = line.trim();
        let arguments = |text: &str| split(&text.replace("$TMP", temporary));
        if let Some(text) = line.strip_prefix("RUN:") {
            command(&arguments(text), 0, stdin.as_deref(), &mut printed);
        } else if let Some(text) = line.strip_prefix("FAIL:") {
            let (code, text) = text.trim().split_once(' ').unwrap();
            command(&arguments(text), code.parse().unwrap(), stdin.as_deref(), &mut printed);
        } else if let Some(text) = line.strip_prefix("STDIN:") {
            stdin = Some(root().join(text.trim()));
        } else if line == "LIST" {
            list(&folder, "", &mut printed.stdout);
        } else if line == "MASK" {
            mask = Mask::Fractions;
        } else if line == "MASK-ALL" {
            mask = Mask::AllNumbers;
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{name}: what does \"{line}\" mean?");
        }
    }
    for text in [&mut printed.stdout, &mut printed.stderr] {
        *text = masked(&text.replace(temporary, "$TMP").replace("\r\n", "\n"), mask);
    }
    std::fs::remove_dir_all(folder).unwrap();
    printed
}

fn command(arguments: &[String], code: i32, stdin: Option<&Path>, printed: &mut Printed) {
    let stdin = match stdin {
        Some(path) => Stdio::from(std::fs::File::open(path).unwrap()),
        None => Stdio::null(),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_ovir"))
        .args(arguments)
        .current_dir(root())
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .stdin(stdin)
        .output()
        .unwrap();
    printed.stdout.push_str(&String::from_utf8_lossy(&output.stdout));
    printed.stderr.push_str(&String::from_utf8_lossy(&output.stderr));
    if output.status.code() != Some(code) {
        let arguments = arguments.join(" ");
        let _ = writeln!(printed.surprises, "`ovir {arguments}` ends with {:?}, not {code}", output.status.code());
    }
}

/// Words separated by spaces; spaces within single quotes belong to the word.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for letter in text.chars() {
        match letter {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn list(folder: &Path, prefix: &str, text: &mut String) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            list(&path, &format!("{prefix}{name}/"), text);
        } else {
            let _ = writeln!(text, "{prefix}{name}");
        }
    }
}

/// Hides numbers that differ from run to run, or in their last digits from machine to machine.
fn masked(text: &str, mask: Mask) -> String {
    if mask == Mask::Nothing {
        return text.to_owned();
    }
    let mut result = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |end| start + end);
        let number = rest[start..end].trim_end_matches('.');
        result.push_str(&rest[..start]);
        let is_hidden = mask == Mask::AllNumbers || number.contains('.');
        result.push_str(if is_hidden { "#" } else { number });
        rest = &rest[start + number.len()..];
    }
    result + rest
}
