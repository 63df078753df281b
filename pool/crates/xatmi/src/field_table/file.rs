//! One `.fd` file: its lines as definitions, with the first mistake as an error, and the C header or Rust
//! module that it becomes.
//!
//! Tables, `pollux fld` and build scripts call it. It knows nothing of other files.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Problem, TableError};
use crate::ubf::{FieldId, FieldType};

/// Longest name of a field: what the C standard lets compilers distinguish.
pub(super) const NAME_BYTES_MAX: usize = 63;

/// Longest file that is read: some hundred thousand fields.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A field as a line of a table defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name: an identifier of C.
    pub name: String,
    pub id: FieldId,
    /// The rest of the line, behind the flag; may be empty.
    pub comment: String,
    /// The line, from 1.
    pub line: usize,
}

/// The content of one `.fd` file.
#[derive(Clone, Debug)]
pub struct FieldFile {
    /// Where it was read from; errors name it.
    pub path: PathBuf,
    pub(super) items: Vec<Item>,
}

/// A line of the header, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A line that started with `$`, without it.
    Text(String),
    /// A line with a base.
    Base,
    Field(Definition),
}

/// What becomes of a name or an id that stands twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// The table is wrong.
    Refused,
    /// The later line counts, as it does for programs.
    LaterCounts,
}

impl FieldFile {
    /// Reads a file in which no name and no id stands twice.
    ///
    /// # Errors
    /// [`TableError`] when it cannot be read or a line is wrong.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        Self::open_with(path, Twice::Refused)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, twice: Twice) -> Result<Self, TableError> {
        let failed = |error| TableError::of(path, Problem::Unreadable(error));
        let file = fs::File::open(path).map_err(failed)?;
        let mut text = Vec::new();
        // A pipe or a device has no length beforehand.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(TableError::of(path, Problem::TooLong { most: FILE_BYTES_MAX }));
        }
        Self::parse_with(path, &String::from_utf8_lossy(&text), twice)
    }

    /// Reads the text of a file; `path` is for errors.
    ///
    /// # Errors
    /// [`TableError`] with the first line that is wrong, or that takes the name or id of another.
    pub fn parse(path: &Path, text: &str) -> Result<Self, TableError> {
        Self::parse_with(path, text, Twice::Refused)
    }

    fn parse_with(path: &Path, text: &str, twice: Twice) -> Result<Self, TableError> {
        let mut items = Vec::new();
        let mut base = 0;
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem| TableError::at(path, index + 1, problem);
            if let Some(text) = line.strip_prefix('$') {
                items.push(Item::Text(text.to_owned()));
            } else if line.trim_start().starts_with('*') {
                base = parse_base(line).map_err(wrong)?;
                items.push(Item::Base);
            } else if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
                let definition = parse_field(line, base, index + 1).map_err(wrong)?;
                items.push(Item::Field(definition));
            }
        }
        let file = Self { path: path.to_owned(), items };
        if twice == Twice::Refused {
            file.check_unique()?;
        }
        Ok(file)
    }

    /// The fields, in the order of the file.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.items.iter().filter_map(|item| match item {
            Item::Field(definition) => Some(definition),
            Item::Text(_) | Item::Base => None,
        })
    }

    fn check_unique(&self) -> Result<(), TableError> {
        let mut names = HashMap::new();
        let mut ids = HashMap::new();
        for field in self.definitions() {
            if let Some(other) = names.insert(field.name.as_str(), field) {
                return Err(name_taken(&self.path, field, &self.path, other.line));
            }
            if let Some(other) = ids.insert(field.id, field) {
                return Err(id_taken(&self.path, field, &self.path, other));
            }
        }
        Ok(())
    }
}

fn name_taken(path: &Path, field: &Definition, other: &Path, line: usize) -> TableError {
    let before = format!("{}:{line}", other.display());
    TableError::at(path, field.line, Problem::NameTaken { name: field.name.clone(), before })
}

pub(super) fn id_taken(
    path: &Path,
    field: &Definition,
    other_path: &Path,
    other: &Definition,
) -> TableError {
    let problem = Problem::IdTaken {
        number: field.id.number(),
        field_type: field.id.field_type(),
        name: other.name.clone(),
        before: format!("{}:{}", other_path.display(), other.line),
    };
    TableError::at(path, field.line, problem)
}

fn parse_base(line: &str) -> Result<i64, Problem> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let base = match words[..] {
        ["*base", base] => base.parse().ok(),
        _ => None,
    };
    let base = base.filter(|base| (0..=i64::from(FieldId::NUMBER_MAX)).contains(base));
    base.ok_or_else(|| Problem::BadBase { line: line.trim().to_owned() })
}

fn parse_field(line: &str, base: i64, number_of_line: usize) -> Result<Definition, Problem> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(relative), Some(type_name)) = (words.next(), words.next(), words.next())
    else {
        return Err(Problem::TooFewWords { line: line.trim().to_owned() });
    };
    // The flag means nothing any more; the comment is everything behind it.
    let comment = words.skip(1).collect::<Vec<_>>().join(" ");
    if !is_identifier(name) {
        return Err(Problem::BadName { name: name.to_owned() });
    }
    let relative: i64 =
        relative.parse().map_err(|_| Problem::BadNumber { text: relative.to_owned() })?;
    let number = relative.saturating_add(base);
    let in_range = i32::try_from(number).ok().filter(|n| (1..=FieldId::NUMBER_MAX).contains(n));
    let sound = in_range.ok_or(Problem::OutOfRange { number, base, relative })?;
    let field_type = FieldType::from_name(type_name)
        .ok_or_else(|| Problem::BadType { name: type_name.to_owned() })?;
    let id = FieldId::new(field_type, sound);
    Ok(Definition { name: name.to_owned(), id, comment, line: number_of_line })
}

fn is_identifier(name: &str) -> bool {
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_word && name.len() <= NAME_BYTES_MAX && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A header with one `#define` for each field; it includes nothing and needs `ubf.h` where its
/// names are used.
#[must_use]
pub fn c_header(file: &FieldFile) -> String {
    let name = file_name(&file.path);
    let mut out = String::new();
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
            Item::Base => {}
            Item::Field(Definition { name, id, .. }) => {
                let raw = id.raw();
                let number = id.number();
                let field_type = id.field_type();
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
    let name = file_name(&file.path);
    let mut out = String::new();
    line(
        &mut out,
        format_args!("// Fields of {name}. Written by `pollux fld`: change that file.\n"),
    );
    line(&mut out, format_args!("use pollux_xatmi::ubf::{{FieldId, FieldType}};"));
    for Definition { name, id, comment, .. } in file.definitions() {
        let number = id.number();
        let field_type = id.field_type();
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

/// Words that are identifiers in C and keywords in Rust, without those that cannot be written there at all.
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

    fn parsed(text: &str) -> Result<FieldFile, TableError> {
        FieldFile::parse(Path::new("t.fd"), text)
    }

    fn refusal(text: &str) -> String {
        let error = parsed(text).expect_err(text);
        assert_eq!(error.number(), 13);
        error.to_string()
    }

    #[test]
    fn every_kind_of_line_is_read() {
        let text = "$#define X 1\n# remark\n\n  # another\n*base 1000\nA 1 string - the first one\n\
                    B\t2   double\nC 3 fml32 M\n*base 0\nD 1 long 1 x\r\n";
        let file = parsed(text).expect("sound");
        assert_eq!(file.items[0], Item::Text("#define X 1".to_owned()));
        let found: Vec<_> =
            file.definitions().map(|d| (d.name.as_str(), d.id.raw(), d.line)).collect();
        let id = |field_type, number| FieldId::new(field_type, number).raw();
        assert_eq!(
            found,
            [
                ("A", 167_773_161, 6),
                ("B", id(FieldType::Double, 1002), 7),
                ("C", id(FieldType::Ubf, 1003), 8),
                ("D", id(FieldType::Long, 1), 10),
            ]
        );
        let comments: Vec<_> = file.definitions().map(|d| d.comment.as_str()).collect();
        assert_eq!(comments, ["the first one", "", "", "x"]);
    }

    #[test]
    fn an_error_names_the_line_and_what_is_expected() {
        for (text, said) in [
            ("A 1 string\n\nB 1", "t.fd:3: 'B 1' is not a field: expected NAME NUMBER TYPE"),
            (
                "*base",
                "t.fd:1: '*base' is not a base: expected *base and a number of 0 to 33554431",
            ),
            ("*base -1", "is not a base"),
            ("*bass 1", "is not a base"),
            ("*base 1 2", "is not a base"),
            ("A x string", "t.fd:1: 'x' is not a number"),
            ("A 1 strong", "t.fd:1: 'strong' is not a type: expected short, long"),
            ("A 1 int", "'int' is not a type"),
            ("A 0 long", "number 0 (base 0 + 0) is outside 1 to 33554431"),
            ("*base 33554431\nA 1 long", "t.fd:2: number 33554432 (base 33554431 + 1)"),
            ("A 9223372036854775807 long", "is outside 1 to"),
            ("1A 1 long", "t.fd:1: '1A' is not a name"),
            ("A-B 1 long", "'A-B' is not a name"),
            ("A 1 long\nA 2 long", "t.fd:2: the name A is taken by a field in t.fd:1"),
            ("A 1 long\nB 1 long", "t.fd:2: number 1 of type long is taken by A in t.fd:1"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(said), "{text:?}: {refusal}");
        }
        assert!(parsed("A 1 long\nB 1 short").is_ok(), "types have numbers of their own");
        let longest = "N".repeat(NAME_BYTES_MAX);
        assert!(parsed(&format!("{longest} 1 long")).is_ok());
        assert!(refusal(&format!("{longest}N 1 long")).contains("at most 63"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = FieldFile::open(Path::new("no/such.fd")).expect_err("no file");
        assert!(error.to_string().starts_with("no/such.fd: cannot be read"), "{error}");
        assert_eq!(error.number(), 12);
    }

    #[test]
    fn no_more_is_read_than_a_table_can_have() {
        let error = FieldFile::open(Path::new("/dev/zero")).expect_err("it has no end");
        assert!(error.to_string().starts_with("/dev/zero: it has more than 16777216 bytes"));
        assert_eq!(error.number(), 12);
    }

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
