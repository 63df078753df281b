//! What holds for every text that somebody takes for printed fields.
//!
//! The fuzz target, the corpus test and the property tests call it. It panics when something does
//! not hold.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use pollux_xatmi::field_table::{FieldFile, FieldTable};
use pollux_xatmi::ubf::{LineForm, UbfRef, print, read_printed};

/// Names that texts can use, one for each type.
const FIELDS: &str = "A 1 short\nB 2 long\nC 3 char\nD 4 float\nE 5 double\nF 6 string\n\
                      G 7 carray\nP 8 ptr\nU 9 ubf\nV 10 view\n";

pub(crate) fn holds(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let file = FieldFile::parse(Path::new("fields.fd"), FIELDS).expect("a sound table");
    let mut table = FieldTable::new();
    table.insert(&file).expect("an empty table takes every field");

    let Ok(fields) = read_printed(text, &table, &LineForm::PLAIN) else { return };
    assert!(UbfRef::check(fields.used_bytes()).is_ok());
    let printed = print(fields.fields(), &table, &LineForm::PLAIN).expect("sound");
    assert!(printed.is_ascii());
    let again = read_printed(&printed, &table, &LineForm::PLAIN)
        .unwrap_or_else(|e| panic!("{e}:\n{printed}"));
    // A floating number was rounded to the digits that are printed; the rest is the same.
    assert_eq!(again.fields().iter().count(), fields.fields().iter().count(), "{printed}");
    assert_eq!(print(again.fields(), &table, &LineForm::PLAIN).as_deref(), Ok(&printed[..]));
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
