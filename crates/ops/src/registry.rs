//! The registry: which operation a type and a version mean.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ovir_diagnostics::{nearest, nearest_all};

use crate::{OpDef, OpVersion};

/// All operations that come with ovir, in the order of the categories.
pub static BUILT_IN: &[&[&OpDef]] = &[
    crate::activation::OPERATIONS,
    crate::arithmetic::OPERATIONS,
    crate::bitwise::OPERATIONS,
    crate::comparison::OPERATIONS,
    crate::condition::OPERATIONS,
    crate::convolution::OPERATIONS,
    crate::detection::OPERATIONS,
    crate::generation::OPERATIONS,
    crate::image::OPERATIONS,
    crate::infrastructure::OPERATIONS,
    crate::logical::OPERATIONS,
    crate::matrix::OPERATIONS,
    crate::movement::OPERATIONS,
    crate::normalization::OPERATIONS,
    crate::pooling::OPERATIONS,
    crate::quantization::OPERATIONS,
    crate::reduction::OPERATIONS,
    crate::sequence::OPERATIONS,
    crate::shape::OPERATIONS,
    crate::signals::OPERATIONS,
    crate::sort::OPERATIONS,
    crate::sparse::OPERATIONS,
    crate::r#type::OPERATIONS,
];

/// The newest opset whose operations are known.
const NEWEST_OPSET: u8 = 17;

/// The operations that OpenVINO reads by the names `experimental` and `extension` too, as old files write them; opset6
/// took the last of them over.
const EARLY_OPERATIONS: [&str; 8] = [
    "ExperimentalDetectronDetectionOutput",
    "ExperimentalDetectronGenerateProposalsSingleImage",
    "ExperimentalDetectronPriorGridGenerator",
    "ExperimentalDetectronROIFeatureExtractor",
    "ExperimentalDetectronTopKROIs",
    "GRUCell",
    "Proposal",
    "RNNCell",
];

/// A set of operations: those that come with ovir and those that a user adds.
#[derive(Debug, Clone)]
pub struct Registry {
    /// By the type in lower case.
    by_type: HashMap<String, &'static OpDef, RandomState>,
    /// By the type as it is usually spelt.
    by_spelling: HashMap<&'static str, &'static OpDef, RandomState>,
    user: HashMap<(String, String), Arc<OpDef>>,
}

/// The answer of a look-up.
#[derive(Debug, Clone)]
pub enum Resolution {
    /// An operation that comes with ovir.
    BuiltIn(&'static OpDef, OpVersion),
    /// An operation that a user registered for exactly this opset name.
    User(Arc<OpDef>, OpVersion),
    /// The type exists, but not in this opset.
    WrongOpset {
        /// The operation.
        definition: &'static OpDef,
    },
    /// No such type.
    Unknown {
        /// The nearest known type.
        nearest: Option<&'static str>,
    },
}

impl Default for Registry {
    fn default() -> Registry {
        let all = || BUILT_IN.iter().flat_map(|category| category.iter());
        let by_type = all().map(|definition| (definition.type_name.to_ascii_lowercase(), *definition)).collect();
        let by_spelling = all().map(|definition| (definition.type_name, *definition)).collect();
        Registry { by_type, by_spelling, user: HashMap::new() }
    }
}

impl Registry {
    /// Adds an operation of a user under an opset name of their choice: what layers write as `version`. It goes before an
    /// operation of ovir with the same type and opset; one that was registered before is replaced.
    pub fn register(&mut self, opset: &str, definition: OpDef) {
        self.user.insert((opset.to_owned(), definition.type_name.to_ascii_lowercase()), Arc::new(definition));
    }

    /// What `type_name` means in `opset` (`opset1`, `opset13`, or a user's name). Type names are compared without
    /// regard to case, as OpenVINO does.
    pub fn resolve(&self, type_name: &str, opset: &str) -> Resolution {
        if let Some(definition) = self.user_definition(type_name, opset) {
            let version = definition.versions.first().copied().unwrap_or(OpVersion::new(
                1,
                (1, 1),
                (0, usize::MAX),
                (0, usize::MAX),
            ));
            return Resolution::User(definition.clone(), version);
        }
        let found = self.by_spelling.get(type_name).or_else(|| self.by_type.get(&type_name.to_ascii_lowercase()));
        let Some(definition) = found else {
            // Of names that are equally near the first is meant, on every run.
            let mut names: Vec<&'static str> = self.by_type.values().map(|d| d.type_name).collect();
            names.sort_unstable();
            return Resolution::Unknown { nearest: nearest(type_name, names) };
        };
        match resolve_version(definition, opset) {
            Some(version) => Resolution::BuiltIn(definition, version),
            None => Resolution::WrongOpset { definition },
        }
    }

    fn user_definition(&self, type_name: &str, opset: &str) -> Option<&Arc<OpDef>> {
        if self.user.is_empty() {
            return None;
        }
        self.user.get(&(opset.to_owned(), type_name.to_ascii_lowercase()))
    }

    /// All operations that come with ovir, by category and type.
    pub fn built_in(&self) -> Vec<&'static OpDef> {
        let mut all: Vec<_> = self.by_type.values().copied().collect();
        all.sort_by_key(|d| (d.category, d.type_name));
        all
    }

    /// The known types that a misspelt one may be meant for, nearest first, operations of users among them.
    pub fn near(&self, type_name: &str) -> Vec<String> {
        let users = self.user.values().map(|definition| definition.type_name);
        let mut names: Vec<&str> = crate::SPECIFIED.iter().map(|s| s.type_name).chain(users).collect();
        names.sort_unstable();
        names.dedup();
        nearest_all(type_name, names).into_iter().map(str::to_owned).collect()
    }

    /// Operations that users registered.
    pub fn user(&self) -> impl Iterator<Item = &OpDef> {
        self.user.values().map(|d| &**d)
    }
}

/// The class version of `definition` that `opset` means: the newest that is not newer than the opset.
fn resolve_version(definition: &OpDef, opset: &str) -> Option<OpVersion> {
    let number: u8 = match opset {
        "experimental" | "extension" if EARLY_OPERATIONS.contains(&definition.type_name) => 6,
        _ => opset.strip_prefix("opset")?.parse().ok().filter(|n| (1..=NEWEST_OPSET).contains(n))?,
    };
    let accepts = |v: &&OpVersion| v.first_opset <= number && number <= v.last_opset;
    definition.versions.iter().rev().find(accepts).copied()
}
