//! `ovir explain`: the card of a diagnostic or of an operation.

use std::fmt::Write as _;

use ovir::diagnostics::{CODES, CodeCard};
use ovir::ops::{OpDef, OpVersion, Registry, SPECIFIED};

use crate::failure::Failure;
use crate::terminal::Terminal;

/// How far apart two names may be for one to be a slip of the other.
const NEAR: usize = 2;

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
    if let Some(specified) = SPECIFIED.iter().find(|s| s.type_name.eq_ignore_ascii_case(name)) {
        return Failure::usage(format!("{} is an operation of OpenVINO, but not implemented yet", specified.type_name));
    }
    let names = CODES.iter().map(|card| card.name).chain(built_in.iter().map(|d| d.type_name));
    let near = names
        .map(|candidate| (distance(&candidate.to_ascii_lowercase(), &name.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= NEAR)
        .min();
    match near {
        Some((_, candidate)) => Failure::usage(format!("there is no \"{topic}\"; did you mean {candidate}?")),
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
            "  version {} (opset{} to opset{}): {} inputs, {} outputs",
            v.class_version,
            v.first_opset,
            v.last_opset,
            range(v.inputs),
            range(v.outputs)
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

fn range((min, max): (usize, usize)) -> String {
    match (min, max) {
        _ if min == max => min.to_string(),
        (min, usize::MAX) => format!("{min} or more"),
        (min, max) => format!("{min} to {max}"),
    }
}

/// The number of letters to insert, remove or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn distances() {
        assert_eq!(distance("gather", "gater"), 1);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(distance("ov503", "ov503"), 0);
    }
}
