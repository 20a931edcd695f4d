//! `ovir explain`: the card of a diagnostic or of an operation.

use std::fmt::Write as _;

use ovir::diagnostics::{CODES, CodeCard, nearest};
use ovir::ops::{OpDef, OpVersion, Registry};

use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  ovir explain OV503
  ovir explain Gather-8
  ovir explain ScatterUpdate";

/// Explain a diagnostic code or an operation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArguments {
    /// Codes such as OV503, and operations such as Gather-8 or Gather.
    #[arg(value_name = "CODE|TYPE-VERSION", required = true)]
    topics: Vec<String>,
}

/// Runs the verb.
///
/// # Errors
/// Topics that do not exist.
pub fn explain(arguments: &ExplainArguments, terminal: &Terminal) -> Result<(), Failure> {
    let mut cards = Vec::new();
    for topic in &arguments.topics {
        cards.push(card(topic, terminal)?);
    }
    terminal.print(&cards.join("\n"))
}

fn card(topic: &str, terminal: &Terminal) -> Result<String, Failure> {
    if let Some(card) = CODES.iter().find(|card| card.name.eq_ignore_ascii_case(topic)) {
        return Ok(code_card(card, terminal));
    }
    let (name, version) = match topic.rsplit_once('-') {
        Some((name, version)) => match version.trim_start_matches("opset").parse::<u8>() {
            Ok(version) => (name, Some(version)),
            Err(_) => (topic, None),
        },
        None => (topic, None),
    };
    let built_in = Registry::default().built_in();
    let Some(definition) = built_in.iter().find(|d| d.type_name.eq_ignore_ascii_case(name)) else {
        return Err(unknown(topic, name, &built_in));
    };
    match version {
        None => Ok(operation_card(definition, None, terminal)),
        Some(number) => match definition.versions.iter().find(|v| v.class_version == number) {
            Some(version) => Ok(operation_card(definition, Some(version), terminal)),
            None => {
                let versions: Vec<String> = definition
                    .versions
                    .iter()
                    .map(|v| format!("{}-{}", definition.type_name, v.class_version))
                    .collect();
                Err(Failure::usage(format!("there is no {topic}; there is {}", versions.join(", "))))
            }
        },
    }
}

fn unknown(topic: &str, name: &str, built_in: &[&'static OpDef]) -> Failure {
    let names = CODES.iter().map(|card| card.name).chain(built_in.iter().map(|d| d.type_name));
    match nearest(name, names) {
        Some(candidate) => Failure::usage(format!("there is no \"{topic}\"; did you mean {candidate}?")),
        None => Failure::usage(format!(
            "there is no \"{topic}\"; codes are {} to {}, and `ovir ops` lists the operations",
            CODES.first().map_or("", |card| card.name),
            CODES.last().map_or("", |card| card.name)
        )),
    }
}

fn code_card(card: &CodeCard, terminal: &Terminal) -> String {
    let head = terminal.bold(&format!("{}: {}", card.name, card.title));
    format!("{head}\nUsually {}.\n\n{}\n\nFor example:\n\n    {}\n", severity(card), card.explanation, card.example)
}

fn severity(card: &CodeCard) -> String {
    let article = if card.severity.to_string().starts_with(['e', 'i']) { "an" } else { "a" };
    format!("{article} {}", card.severity)
}

fn operation_card(definition: &OpDef, version: Option<&OpVersion>, terminal: &Terminal) -> String {
    let name = match version {
        Some(version) => format!("{}-{}", definition.type_name, version.class_version),
        None => definition.type_name.to_owned(),
    };
    let mut text = format!("{} ({})\n", terminal.bold(&name), definition.category);
    for v in definition.versions.iter().filter(|v| version.is_none_or(|version| version == *v)) {
        let _ = writeln!(
            text,
            "  version {} (opset{} to opset{}): {}, {}",
            v.class_version,
            v.first_opset,
            v.last_opset,
            ports(v.inputs, "input"),
            ports(v.outputs, "output")
        );
    }
    let mut is_first = true;
    for attribute in definition.attributes {
        if version.is_some_and(|v| !(attribute.since..=attribute.until).contains(&v.class_version)) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            text.push_str("\nAttributes:\n");
        }
        let _ = writeln!(text, "  {}: {}", terminal.bold(attribute.name), attribute.documentation.trim());
        let mut facts = vec![attribute.kind.name.to_owned()];
        if !attribute.kind.allowed.is_empty() {
            facts.push(format!("one of {}", attribute.kind.allowed.join(", ")));
        }
        match (attribute.required, attribute.default) {
            (true, _) => facts.push("required".to_owned()),
            (false, Some("")) => facts.push("default is empty".to_owned()),
            (false, Some(default)) => facts.push(format!("default {default}")),
            (false, None) => facts.push("optional".to_owned()),
        }
        if version.is_none() && definition.versions.first().is_some_and(|v| attribute.since > v.class_version) {
            facts.push(format!("since version {}", attribute.since));
        }
        if version.is_none() && definition.versions.last().is_some_and(|v| attribute.until < v.class_version) {
            facts.push(format!("until version {}", attribute.until));
        }
        let _ = writeln!(text, "      {}", facts.join("; "));
    }
    if is_first {
        text.push_str("\nThe operation has no attributes.\n");
    }
    text
}

fn ports((min, max): (usize, usize), what: &str) -> String {
    match (min, max) {
        (1, 1) => format!("1 {what}"),
        _ if min == max => format!("{min} {what}s"),
        (min, usize::MAX) => format!("{min} or more {what}s"),
        (min, max) => format!("{min} to {max} {what}s"),
    }
}
