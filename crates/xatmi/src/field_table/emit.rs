//! A field table as a C header or as a Rust module.
//!
//! `pollux fld` and build scripts call it. It returns text and writes nothing.

use std::fmt::Write;
use std::path::Path;

use super::parse::{Definition, FieldFile, Item};

/// A header with one `#define` for each field; it includes nothing and needs `ubf.h` where its
/// names are used.
#[must_use]
pub fn c_header(file: &FieldFile) -> String {
    let (name, mut out) = (file_name(&file.path), String::new());
    let guard = guard(&name);
    line(
        &mut out,
        format_args!(
            "/* Fields of {}. Written by `pollux fld`: change that file. */",
            in_comment(&name)
        ),
    );
    line(&mut out, format_args!("#ifndef {guard}\n#define {guard}\n"));
    for item in &file.items {
        match item {
            Item::Text(text) => line(&mut out, format_args!("{text}")),
            Item::Field(Definition { name, id, .. }) => {
                let (raw, number, field_type) = (id.raw(), id.number(), id.field_type());
                let define = format!("#define {name} ((BFLDID32){raw})");
                line(&mut out, format_args!("{define:<56} /* number {number}, {field_type} */"));
            }
        }
    }
    line(&mut out, format_args!("\n#endif"));
    out
}

/// A module with one constant for each field. Lines that started with `$` are C and are left out.
#[must_use]
pub fn rust_module(file: &FieldFile) -> String {
    let (name, mut out) = (file_name(&file.path), String::new());
    line(
        &mut out,
        format_args!("// Fields of {name}. Written by `pollux fld`: change that file.\n"),
    );
    line(&mut out, format_args!("use pollux_xatmi::ubf::{{FieldId, FieldType}};"));
    for Definition { name, id, comment, .. } in file.definitions() {
        let (number, field_type) = (id.number(), id.field_type());
        let colon = if comment.is_empty() { "" } else { ": " };
        line(&mut out, format_args!("\n/// Number {number}, {field_type}{colon}{comment}"));
        if name.bytes().any(|b| b.is_ascii_lowercase()) {
            line(&mut out, format_args!("#[allow(non_upper_case_globals)]"));
        }
        let raw = if KEYWORDS.contains(&name.as_str()) { "r#" } else { "" };
        let field_type = format!("{field_type:?}");
        line(
            &mut out,
            format_args!(
                "pub const {raw}{name}: FieldId = FieldId::new(FieldType::{field_type}, {number});"
            ),
        );
    }
    out
}

/// Words that are names in C and none in Rust, but for those that cannot be written there at all.
const KEYWORDS: [&str; 48] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A name of a file, so that it does not end the comment it stands in.
fn in_comment(name: &str) -> String {
    name.replace(['*', '\n'], "_")
}

fn guard(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("FIELDS_{}_H", name.chars().map(word).collect::<String>())
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANK: &str = "$/* a bank */\n*base 1000\nT_ACCNUM 1 string - the account\nin 3 double\n";

    fn bank() -> FieldFile {
        FieldFile::parse(Path::new("some/bank.fd"), BANK).expect("sound")
    }

    #[test]
    fn a_header_defines_every_field_once() {
        assert_eq!(
            c_header(&bank()),
            "/* Fields of bank.fd. Written by `pollux fld`: change that file. */\n\
             #ifndef FIELDS_BANK_FD_H\n#define FIELDS_BANK_FD_H\n\n/* a bank */\n\
             #define T_ACCNUM ((BFLDID32)167773161)                   /* number 1001, string */\n\
             #define in ((BFLDID32)134218731)                         /* number 1003, double */\n\
             \n#endif\n"
        );
    }

    #[test]
    fn a_module_has_a_constant_for_every_field() {
        assert_eq!(
            rust_module(&bank()),
            "// Fields of bank.fd. Written by `pollux fld`: change that file.\n\n\
             use pollux_xatmi::ubf::{FieldId, FieldType};\n\n\
             /// Number 1001, string: the account\n\
             pub const T_ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);\n\n\
             /// Number 1003, double\n#[allow(non_upper_case_globals)]\n\
             pub const r#in: FieldId = FieldId::new(FieldType::Double, 1003);\n"
        );
    }
}
