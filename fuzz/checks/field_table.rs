//! What holds for every text that somebody takes for a field table.
//!
//! The fuzz target, the corpus test and the property tests call it. It panics when something does
//! not hold.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use pollux_xatmi::field_table::{FieldFile, FieldTable, c_header, rust_module};

pub(crate) fn holds(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let file = match FieldFile::parse(Path::new("t.fd"), text) {
        Ok(file) => file,
        Err(error) => {
            let line = error.line.expect("a mistake has a line");
            assert!((1..=text.lines().count()).contains(&line));
            assert_eq!(error.number(), 13);
            return;
        }
    };
    let mut table = FieldTable::new();
    table.insert(&file).expect("an empty table takes every field");
    let header = c_header(&file);
    let module = rust_module(&file);
    for field in file.definitions() {
        assert_eq!(table.id(&field.name), Some(field.id));
        assert_eq!(table.name(field.id), Some(field.name.as_str()));
        let define = format!("#define {} {} ", field.name, field.id);
        assert!(header.lines().any(|line| line.starts_with(&define)), "{define}: {header}");
        let field_type = field.id.field_type();
        let number = field.id.number();
        let value = format!("FieldId::new(FieldType::{field_type:?}, {number});");
        assert!(module.lines().any(|line| line.ends_with(&value)), "{value}: {module}");
    }
    assert_eq!(table.definitions().count(), file.definitions().count());
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
