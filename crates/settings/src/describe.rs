//! The table of a command as data: what flags, help and completions are made of, the reference page that is
//! written from it in Markdown, and the macro that declares one.
//!
//! It is what [`Table::read`] asks for, written down instead of read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use toml::de::DeTable;

use crate::given::{Given, Reading};
use crate::keys::{Keys, Table};
use crate::kind::Word;
use crate::quantity;

/// Every key of a command, by section. The first section is the top of the file.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// In the order in which they are read.
    pub sections: Vec<Section>,
}

/// A part of a file that holds keys.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Names of the tables from the top, such as `backend.server`; empty for the top.
    pub path: String,
    /// Whether there may be several: `[[backend]]`, not `[backend]`.
    pub is_repeated: bool,
    /// Whether it stands in a list beside texts: `arms = ["a", { name = "b" }]`.
    pub is_item: bool,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Its keys, in the order in which they are read.
    pub rows: Vec<Row>,
}

/// One key: `--header-timeout` on the command line is `header_timeout` in a file.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name in a file.
    pub name: &'static str,
    /// Its names of earlier days, which still hold.
    pub aliases: Vec<&'static str>,
    /// Name of the flag without its dashes, where that is not the key's.
    pub(crate) flag: Option<&'static str>,
    /// The letter of a short flag.
    pub short: Option<char>,
    /// Where it may be said.
    pub given_by: GivenBy,
    /// Heading in help texts.
    pub heading: Cow<'static, str>,
    /// What it does, in one line.
    pub about: Cow<'static, str>,
    /// More about it, for long help texts.
    pub more: &'static str,
    /// The value when nothing is said, as it would be written.
    pub default: Option<&'static str>,
    /// What happens when nothing is said and there is no default, or why this default.
    pub otherwise: &'static str,
    /// A value as it is written in a file.
    pub example: &'static str,
    /// How often it is given.
    pub takes: Takes,
    /// Which values of its flag are divided at commas, if any.
    pub split: Option<fn(&str) -> bool>,
    /// What a flag without a value means, where it may stand so.
    pub bare: Option<&'static str>,
    /// Stands for a value in help texts.
    pub placeholder: &'static str,
    /// What is accepted, in words.
    pub accepts: String,
    /// Words that are accepted, or that completions offer.
    pub words: Vec<Word>,
    /// Keys without which it does nothing, each with the reason.
    pub(crate) needs: Vec<(&'static str, &'static str)>,
    /// Keys that cannot be said beside it.
    pub(crate) excludes: &'static [&'static str],
    /// Whether it has to be said.
    pub(crate) is_required: bool,
    /// Whether help and reference page leave it out.
    pub is_hidden: bool,
    /// Whether only completions and the manual know its flag.
    pub is_unlisted: bool,
}

/// Where a key may be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GivenBy {
    /// As a flag and in a file.
    #[default]
    Both,
    /// As an argument without a flag, and in a file.
    Positional,
    /// In a file only.
    File,
    /// As a flag only.
    Flag,
}

/// How often and with what a key is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Takes {
    #[default]
    Value,
    /// One value or several.
    List,
    /// On or off.
    Switch,
}

/// The description of a command's table.
#[must_use]
pub fn describe<T: Table>() -> Description {
    let description = Description { sections: vec![Section::default()] };
    let reading = Reading::new("", "", &[], description, true);
    Keys::top::<T>(&reading, &BTreeMap::new(), &DeTable::new(), None);
    reading.description.into_inner()
}

impl Description {
    /// The section at `path`, which is empty for the top.
    #[must_use]
    pub fn section(&self, path: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.path == path)
    }

    /// The keys that have a flag: those of the top and of tables that stand once.
    pub fn flags(&self) -> impl Iterator<Item = &Row> {
        let of_flags = self.sections.iter().filter(|section| !self.is_repeated(&section.path));
        of_flags.flat_map(|section| &section.rows).filter(|row| row.given_by != GivenBy::File)
    }

    /// Whether a section or one above it may stand several times.
    pub(crate) fn is_repeated(&self, path: &str) -> bool {
        let is_above = |section: &Section| {
            path == section.path || path.starts_with(&format!("{}.", section.path))
        };
        self.sections.iter().any(|section| section.is_repeated && is_above(section))
    }
}

impl Section {
    /// The header as it is written; none for the top.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.path.as_str(), self.is_repeated) {
            (path, _) if self.is_item => format!("a table in {path}"),
            ("", _) => "the top of the file".to_owned(),
            (path, true) => format!("[[{path}]]"),
            (path, false) => format!("[{path}]"),
        }
    }

    /// The key called `name`, or that was called so.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name || row.aliases.contains(&name))
    }
}

impl Row {
    /// The flag as it is written, or what stands for an argument without one.
    #[must_use]
    pub fn written(&self) -> String {
        match self.given_by {
            GivenBy::Positional => self.placeholder.to_owned(),
            _ => format!("--{}", self.flag_name()),
        }
    }

    /// Name of the flag without its dashes.
    #[must_use]
    pub fn flag_name(&self) -> String {
        self.flag.map_or_else(|| self.name.replace('_', "-"), str::to_owned)
    }
}

/// A table for each section of `T`: key, flag, what is accepted, default, what it does. The caller
/// puts words before it.
#[must_use]
pub fn reference<T: Table>() -> String {
    let mut page = String::new();
    let description = describe::<T>();
    for section in &description.sections {
        if !section.path.is_empty() {
            let title = section.title();
            let about = section.about;
            let title = if section.is_item {
                format!("A table in `{}`", section.path)
            } else {
                format!("`{title}`")
            };
            writeln!(page, "\n## {title}\n\n{about}.").expect("a String");
        }
        rows(&mut page, section, !description.is_repeated(&section.path));
    }
    page
}

/// Whether `file` below docs/ keeps `made` between the lines `<!-- part -->` and `<!-- end of part -->`,
/// around which people write. With `POLLUX_BLESS` in the environment it is written there first. For the
/// tests that hold pages and tables together.
///
/// # Errors
/// What to do about it.
pub fn kept(file: &str, part: &str, made: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let failed = |error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    let begin = format!("<!-- {part} -->\n");
    let end = format!("<!-- end of {part} -->\n");
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (between, after) = rest.split_once(&end)?;
        Some((before, between, after))
    });
    let lacks = || format!("{} lacks {begin}or {end}", path.display());
    let (before, between, after) = parts.ok_or_else(lacks)?;
    if between == made {
        return Ok(());
    }
    if std::env::var_os("POLLUX_BLESS").is_none() {
        return Err(format!("{} is old; `cargo xtask bless` writes it anew", path.display()));
    }
    std::fs::write(&path, format!("{before}{begin}{made}{end}{after}")).map_err(failed)
}

/// Where flags of `T` read a number, size, duration or share in another way than [`quantity`](crate::quantity) says:
/// the least value of each is said in several spellings, which have to mean the same, and in some that are none. The
/// keys at the top of a file are tried in the same way. For the tests of commands that have a table.
#[must_use]
pub fn misread<T: Table>() -> Vec<String> {
    let description = describe::<T>();
    let flags = description.flags().filter(|row| row.takes != Takes::Switch);
    let flags = flags.map(|row| (row, true));
    let keys = description.sections[0].rows.iter();
    let keys = keys.filter(|row| row.given_by != GivenBy::Flag && row.takes != Takes::Switch);
    let mut wrong = Vec::new();
    for (row, is_flag) in flags.chain(keys.map(|row| (row, false))) {
        let Some(spellings) = spellings(&row.accepts) else { continue };
        let said = |text: &str| {
            let given = if is_flag {
                let mut given = Given::default();
                given.flag(row.name, vec![text.to_owned()]);
                given
            } else {
                Given::from_toml(&format!("{} = \"{text}\"", row.name), "file")
            };
            let mistakes = given.read::<T>().err().map_or_else(Vec::new, |errors| errors.mistakes);
            mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
        };
        let name = if is_flag { row.written() } else { format!("key {}", row.name) };
        let plain = said(&spellings[0]);
        for text in &spellings {
            if said(text) != plain || plain.iter().any(|why| why.contains(&row.accepts)) {
                wrong.push(format!("{name} does not take {text:?}: {:?}", said(text)));
            }
        }
        for text in ["1__0", "_1", "1_", "-1", "+1", "0x10"] {
            if said(text) == plain {
                wrong.push(format!("{name} takes {text:?}"));
            }
        }
    }
    wrong
}

/// The least value that is accepted, as it stands there, and the same in other spellings; none of what is not a quantity.
fn spellings(accepts: &str) -> Option<Vec<String>> {
    let least = |what: &str| Some(accepts.split_once(what)?.1.split_once(" to ")?.0);
    let separated = |digits: &str| match digits.split_at(1) {
        (_, "") => digits.to_owned(),
        (first, rest) => format!("{first}_{rest}"),
    };
    let of_number = |number: u64| {
        let digits = number.to_string();
        [separated(&digits), format!("{digits}.0"), format!("{digits}e0"), format!(" {digits} ")]
    };
    if let Some(number) = least("a whole number from ") {
        let number: u64 = number.replace(',', "").parse().ok()?;
        return Some([vec![number.to_string()], of_number(number).to_vec()].concat());
    }
    if let Some(text) = least("a size from ") {
        let bytes = quantity::size(text)?;
        let own = vec![text.to_owned(), bytes.to_string(), format!("{bytes} B")];
        return Some([own, of_number(bytes).to_vec()].concat());
    }
    if let Some(text) = least("a duration from ") {
        let ns = quantity::duration(text).ok()?.as_nanos().to_string();
        return Some(vec![text.to_owned(), format!("{ns}ns"), format!("{}ns", separated(&ns))]);
    }
    let text = least("a share from ")?;
    let percent = text.strip_suffix('%')?;
    Some(vec![text.to_owned(), format!("{percent} %"), format!(" {percent}e0%")])
}

fn rows(page: &mut String, section: &Section, has_flags: bool) {
    let mut heading = None;
    let is_shown = |row: &&Row| {
        !row.is_hidden && !row.is_unlisted && (has_flags || row.given_by != GivenBy::Flag)
    };
    for row in section.rows.iter().filter(is_shown) {
        if heading != Some(&row.heading) {
            heading = Some(&row.heading);
            match &*row.heading {
                "" => page.push('\n'),
                heading => writeln!(page, "\n### {heading}\n").expect("a String"),
            }
            page.push_str(
                "| key | flag | accepts | default | what it does |\n|---|---|---|---|---|\n",
            );
        }
        let flag = if has_flags { flag(row) } else { String::new() };
        let cells = [name(row), flag, accepts(row), default(row), row.about.to_string()];
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', "<br>"));
        writeln!(page, "| {} |", cells.join(" | ")).expect("a String");
    }
}

fn name(row: &Row) -> String {
    if row.given_by == GivenBy::Flag { String::new() } else { format!("`{}`", row.name) }
}

fn flag(row: &Row) -> String {
    match (row.given_by, row.short) {
        (GivenBy::File, _) => String::new(),
        (_, Some(short)) => format!("`-{short}`, `{}`", row.written()),
        (_, None) => format!("`{}`", row.written()),
    }
}

fn accepts(row: &Row) -> String {
    let list = if row.takes == Takes::List { "one or a list of: " } else { "" };
    let example = match row.example {
        "" => String::new(),
        example => format!(", such as `{example}`"),
    };
    let words = row.words.iter().filter(|word| !word.about.is_empty());
    let words: String = words.map(|word| format!("\n`{}`: {}", word.name, word.about)).collect();
    format!("{list}{}{example}{words}", row.accepts)
}

fn default(row: &Row) -> String {
    match (row.default, row.otherwise) {
        (None, otherwise) => otherwise.to_owned(),
        (Some(default), "") => format!("`{default}`"),
        (Some(default), otherwise) => format!("`{default}`: {otherwise}"),
    }
}

// [`table!`]: a struct and the keys that it is read from, in one list.

/// Declares a struct and implements [`Table`](crate::Table) for it: a key for each field, in their
/// order.
///
/// The words behind `///` are what the key does, in help texts, on the reference page and in the
/// documentation of the field. Behind `=` stands its value, by the two names that the table begins
/// with: `key` is the key of this name with these words, to be asked by what it accepts
/// ([`Key`](crate::Key)); `keys` are those of the section ([`Keys`](crate::Keys)), for fields that are
/// tables themselves. `as "name"` names the key where the field has a longer name,
/// `#[heading("…")]` is the heading in help texts from there on, and `=> method` what judges the keys
/// together: `fn method(self, keys: &mut Keys<'_>) -> Self`. A table that begins with `keys, key,
/// default;` implements [`Default`] too, with what it is where nothing is said.
///
/// A macro, as no function declares a type.
#[macro_export]
macro_rules! table {
    (
        $keys:ident, $key:ident $(, $default:ident)?;
        $(#[$of_struct:meta])*
        $vis:vis struct $table:ident {
            $(
                $(#[heading($heading:expr)])?
                $(#[doc = $about:literal])*
                $field_vis:vis $field:ident $(as $name:literal)?: $type:ty = $value:expr
            ),* $(,)?
        }
        $(=> $judge:ident)?
    ) => {
        $(#[$of_struct])*
        $vis struct $table {
            $( $(#[doc = $about])* $field_vis $field: $type, )*
        }

        impl $crate::Table for $table {
            fn read($keys: &mut $crate::Keys<'_>) -> Self {
                let table = Self {
                    // In this order.
                    $($field: {
                        $( $keys.heading($heading); )?
                        let name = $crate::table!(@name $field $($name)?);
                        let $key = $keys.key(name, concat!($($about),*));
                        // A field that is a table has no key of its own.
                        let _ = &$key;
                        $value
                    },)*
                };
                $( let table = table.$judge($keys); )?
                table
            }
        }

        $(
            impl Default for $table {
                /// As the table says.
                fn $default() -> Self {
                    $crate::Given::$default().read().expect("the defaults are right")
                }
            }
        )?
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}
