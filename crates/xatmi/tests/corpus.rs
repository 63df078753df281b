//! Runs the checks of the fuzz targets over their corpus, on the stable compiler.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/expression.rs"]
mod expression;
#[path = "../../../fuzz/checks/field_table.rs"]
mod field_table;
#[path = "../../../fuzz/checks/printed.rs"]
mod printed;
#[path = "../../../fuzz/checks/ubf.rs"]
mod ubf;

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 10;

#[test]
fn every_region_of_the_corpus_holds() {
    replay("ubf", ubf::holds);
}

#[test]
fn every_printed_text_of_the_corpus_holds() {
    replay("printed", printed::holds);
}

#[test]
fn every_field_table_of_the_corpus_holds() {
    replay("field_table", field_table::holds);
}

#[test]
fn every_expression_of_the_corpus_holds() {
    replay("expression", expression::holds);
}

fn replay(target: &str, holds: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(files.len() >= FILES_MIN, "{} files in the corpus of {target}", files.len());
    for file in files {
        let data = fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| holds(&data));
        assert!(outcome.is_ok(), "{} broke its check; the reason stands above", file.display());
    }
}
