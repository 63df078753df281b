//! The reference page of a table, in Markdown.

use std::fmt::Write as _;
use std::path::Path;

use crate::describe::{Places, Row, Section, Takes, describe};
use crate::keys::Table;

/// A table for each section of `T`: key, flag, what is accepted, default, what it does. The caller
/// puts words before it.
#[must_use]
pub fn reference<T: Table>() -> String {
    let mut page = String::new();
    let description = describe::<T>();
    for section in &description.sections {
        if !section.path.is_empty() {
            let (title, about) = (section.title(), section.about);
            let title = match section.is_item {
                true => format!("A table in `{}`", section.path),
                false => format!("`{title}`"),
            };
            writeln!(page, "\n## {title}\n\n{about}.").expect("a String");
        }
        rows(&mut page, section, !description.is_repeated(&section.path));
    }
    page
}

/// Whether `file` of docs/ keeps `made` between the lines `<!-- part -->` and `<!-- end of part -->`,
/// around which people write. With `POLLUX_BLESS` in the environment it is written there first. For the
/// tests that hold pages and tables together.
///
/// # Errors
/// What to do about it.
pub fn kept(file: &str, part: &str, made: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let failed = |error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    let (begin, end) = (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->\n"));
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

fn rows(page: &mut String, section: &Section, has_flags: bool) {
    let mut heading = None;
    let is_shown =
        |row: &&Row| !row.is_hidden && !row.is_unlisted && (has_flags || row.place != Places::Flag);
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
    if row.place == Places::Flag { String::new() } else { format!("`{}`", row.name) }
}

fn flag(row: &Row) -> String {
    match (row.place, row.short) {
        (Places::File, _) => String::new(),
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
