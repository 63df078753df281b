//! What `mkfldhdr` writes, as manuals of Enduro/X show it: a C header, constants of Go, a class of Java, a module of
//! Python.
//!
//! The command calls it. Programs and makefiles that were written for the command find the same text: nothing is added
//! to a header but what stands in the table, guards neither. `pollux fld` writes headers of its own form.

use std::fmt::{self, Write};
use std::path::Path;

use super::file::{Definition, FieldFile, Item};

/// The kinds of text, by the numbers of `-m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManualLanguage {
    C,
    Go,
    Java,
    Python,
}

impl ManualLanguage {
    /// That of a number, as `-m` has it.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::C),
            1 => Some(Self::Go),
            2 => Some(Self::Java),
            3 => Some(Self::Python),
            _ => None,
        }
    }

    /// The file that a table becomes. Those of Java and Python lose the last ending of the table's name, which a class or a
    /// module cannot have.
    #[must_use]
    pub fn file_name(self, table: &Path) -> String {
        let name = table.file_name().unwrap_or(table.as_os_str()).to_string_lossy();
        match self {
            Self::C => format!("{name}.h"),
            Self::Go => format!("{name}.go"),
            Self::Java => format!("{}.java", stem(&name)),
            Self::Python => format!("{}.py", stem(&name)),
        }
    }

    /// The text; `package` is the package of Go, which is the table's name without one, and of Java.
    #[must_use]
    pub fn text(self, file: &FieldFile, package: &str) -> String {
        let name = file.path.file_name().unwrap_or(file.path.as_os_str()).to_string_lossy();
        let mut out = String::new();
        match self {
            Self::Go if package.is_empty() => line(&mut out, format_args!("package {name}\n")),
            Self::Go => line(&mut out, format_args!("package {package}\n")),
            Self::Java if !package.is_empty() => {
                line(&mut out, format_args!("package {package};\n"));
            }
            Self::C | Self::Java | Self::Python => {}
        }
        let mut is_begun = false;
        for item in &file.items {
            match item {
                Item::Text(text) if self == Self::C => line(&mut out, format_args!("{text}")),
                Item::Text(text) if is_of_preprocessor(text) => {}
                Item::Text(text) if self == Self::Python && !text.trim().is_empty() => {
                    line(&mut out, format_args!("#{text}"));
                }
                Item::Text(text) => line(&mut out, format_args!("{text}")),
                Item::Base if self == Self::C => line(&mut out, format_args!("{HEADING}")),
                Item::Base => {}
                Item::Field(field) => {
                    if !is_begun {
                        self.begin(&stem(&name), &mut out);
                        is_begun = true;
                    }
                    self.field(field, &mut out);
                }
            }
        }
        match self {
            Self::Go if is_begun => line(&mut out, format_args!(")")),
            Self::Java if is_begun => line(&mut out, format_args!("}}")),
            Self::C | Self::Go | Self::Java | Self::Python => {}
        }
        out
    }

    /// What stands once in front of the fields.
    fn begin(self, class: &str, out: &mut String) {
        match self {
            Self::Go => line(out, format_args!("{HEADING}\nconst (")),
            Self::Java => line(out, format_args!("public final class {class}\n{{")),
            Self::C | Self::Python => {}
        }
    }

    fn field(self, field: &Definition, out: &mut String) {
        let Definition { name, id, .. } = field;
        let raw = id.raw();
        let number = id.number();
        let field_type = id.field_type();
        match self {
            Self::C => line(
                out,
                format_args!(
                    "#define\t{name}\t((BFLDID32){raw})\t/* number: {number}\t type: {field_type} */"
                ),
            ),
            Self::Go => line(
                out,
                format_args!("\t{name} = {raw} /* number: {number} type: {field_type} */"),
            ),
            Self::Java => line(
                out,
                format_args!(
                    "\t  /** number: {number} type: {field_type}*/\n\t  public final static int {name} = {raw};"
                ),
            ),
            Self::Python => {
                line(out, format_args!("{name} = {raw} # number: {number} type: {field_type} "));
            }
        }
    }
}

const HEADING: &str = "/*\tfname\tbfldid            */\n/*\t-----\t-----            */";

/// Guards of a header, which mean nothing elsewhere.
fn is_of_preprocessor(text: &str) -> bool {
    ["#ifndef", "#define", "#endif"].iter().any(|word| text.starts_with(word))
}

fn stem(name: &str) -> String {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}

fn line(out: &mut String, text: fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANK: &str = "$/* a bank */\n$#ifndef BANK_H\n$#define BANK_H\n\n*base 1000\nT_ACCNUM 1 string - the account\n\
                        T_SUM 3 double\n$#endif\n";

    fn text(number: u8, package: &str) -> String {
        let bank = FieldFile::parse(Path::new("some/bank.fd"), BANK).expect("sound");
        ManualLanguage::from_number(number).expect("known").text(&bank, package)
    }

    #[test]
    fn a_header_is_what_the_manual_shows() {
        assert_eq!(
            text(0, ""),
            "/* a bank */\n#ifndef BANK_H\n#define BANK_H\n/*\tfname\tbfldid            */\n\
             /*\t-----\t-----            */\n\
             #define\tT_ACCNUM\t((BFLDID32)167773161)\t/* number: 1001\t type: string */\n\
             #define\tT_SUM\t((BFLDID32)134218731)\t/* number: 1003\t type: double */\n#endif\n"
        );
    }

    #[test]
    fn other_languages_have_their_constants() {
        assert_eq!(
            text(1, "ubftab"),
            "package ubftab\n\n/* a bank */\n/*\tfname\tbfldid            */\n/*\t-----\t-----            */\nconst (\n\
             \tT_ACCNUM = 167773161 /* number: 1001 type: string */\n\
             \tT_SUM = 134218731 /* number: 1003 type: double */\n)\n"
        );
        assert!(text(1, "").starts_with("package bank.fd\n"));
        assert_eq!(
            text(2, "a.b"),
            "package a.b;\n\n/* a bank */\npublic final class bank\n{\n\t  /** number: 1001 type: string*/\n\
             \t  public final static int T_ACCNUM = 167773161;\n\t  /** number: 1003 type: double*/\n\
             \t  public final static int T_SUM = 134218731;\n}\n"
        );
        assert_eq!(
            text(3, ""),
            "#/* a bank */\nT_ACCNUM = 167773161 # number: 1001 type: string \n\
             T_SUM = 134218731 # number: 1003 type: double \n"
        );
        let names = [0, 1, 2, 3].map(|number| {
            ManualLanguage::from_number(number).map(|of| of.file_name(Path::new("x/bank.fd")))
        });
        let names = names.map(|name| name.expect("known"));
        assert_eq!(names, ["bank.fd.h", "bank.fd.go", "bank.java", "bank.py"]);
        assert_eq!(ManualLanguage::from_number(4), None);
    }
}
