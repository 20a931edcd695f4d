//! The corpus of the fuzz targets under `tests/fuzz`: nothing in it makes a target panic.

use super::compare::root;

#[path = "../../../../tests/fuzz/src/lib.rs"]
mod targets;

#[test]
fn fuzz_corpus() {
    for (name, target) in targets::TARGETS {
        let folder = root().join("tests/fuzz/corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{}", folder.display());
        for file in files {
            // The name of the file stands before a panic in the output of the test.
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
    }
}
