//! What holds for every text that somebody takes for a Boolean expression.
//!
//! The fuzz target, the corpus test and the property tests call it. It panics when something does
//! not hold.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use pollux_xatmi::expression::Expression;
use pollux_xatmi::field_table::{FieldFile, FieldTable};
use pollux_xatmi::ubf::{Ubf, Value};

/// Names that texts can use, one for each type.
const FIELDS: &str = "A 1 short\nB 2 long\nC 3 char\nD 4 float\nE 5 double\nF 6 string\n\
                      G 7 carray\nP 8 ptr\nU 9 ubf\nV 10 view\n";

pub(crate) fn holds(data: &[u8]) {
    let file = FieldFile::parse(Path::new("fields.fd"), FIELDS).expect("a sound table");
    let mut table = FieldTable::new();
    table.insert(&file).expect("an empty table takes every field");

    let expression = match Expression::compile(data, &table) {
        Ok(expression) => expression,
        Err(error) => {
            assert!([9, 11, 14, 22].contains(&error.number()), "{error}");
            return;
        }
    };
    let printed = expression.to_string();
    assert!(printed.is_ascii(), "{printed}");
    // With all its parentheses a text may be longer than one may be.
    let Ok(again) = Expression::compile(printed.as_bytes(), &table) else {
        assert!(printed.len() > data.len(), "{printed}");
        return;
    };
    assert_eq!(again.to_string(), printed);
    for fields in [Ubf::new(), some(&table)] {
        let fields = fields.fields();
        assert_eq!(expression.is_true(fields), again.is_true(fields), "{printed}");
        let numbers = (expression.number(fields), again.number(fields));
        assert_eq!(numbers.0.map(f64::to_bits), numbers.1.map(f64::to_bits), "{printed}");
    }
}

/// Two occurrences of each field that can have a value, in a buffer and in one within it.
fn some(table: &FieldTable) -> Ubf {
    let mut fields = Ubf::new();
    for depth in 0..2 {
        let inner = fields.clone();
        for number in [7_i64, -1] {
            for name in ["A", "B", "C", "D", "E", "F", "G"] {
                let id = table.id(name).expect("it is in the table");
                fields.add_as(id, Value::Long(number)).expect("a number goes to each of these");
            }
        }
        if depth == 1 {
            fields.add(table.id("U").expect("in the table"), inner.fields()).expect("room");
        }
    }
    fields
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
