//! A folder as a page: names and sizes, sorted, escaped.
//!
//! The file sessions call it when `--listing` is on. Hidden files and what is neither file nor
//! folder do not show. The page is bounded, because a loop waits while it is made.

use std::fmt::Write;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::root::Meta;

/// Most entries that are looked at; each costs a system call of about a microsecond.
const ENTRIES_MAX: usize = 4096;

/// One row of the page.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    is_file: bool,
    name: String,
    len_bytes: u64,
}

/// The page of the folder `fd`, which is served at `path` (decoded, without slashes at the ends).
/// `follow` says what a symbolic link leads to; where it leads out of the site, it does not show.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn page(
    fd: BorrowedFd<'_>,
    path: &str,
    follow: impl Fn(&str) -> Option<Meta>,
) -> rustix::io::Result<String> {
    let (mut rows, has_more) = rows(fd, follow)?;
    rows.sort();
    Ok(render(path, &rows, has_more))
}

fn rows(
    fd: BorrowedFd<'_>,
    follow: impl Fn(&str) -> Option<Meta>,
) -> rustix::io::Result<(Vec<Row>, bool)> {
    let mut rows = Vec::new();
    for (looked_at, entry) in Dir::read_from(fd)?.enumerate() {
        let entry = entry?;
        if looked_at == ENTRIES_MAX {
            return Ok((rows, true));
        }
        // A name that is not UTF-8 has no path that the server would find again.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        // The entry may be gone by now.
        let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let meta = if is_link { follow(name) } else { Meta::of(&stat) };
        let Some(meta) = meta else { continue };
        let (is_file, len_bytes) = (!meta.is_folder, meta.len_bytes);
        rows.push(Row { is_file, name: name.to_owned(), len_bytes });
    }
    Ok((rows, false))
}

fn render(path: &str, rows: &[Row], has_more: bool) -> String {
    let title = escaped(&format!("/{path}"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<table>\n"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td>\n");
    }
    for row in rows {
        let slash = if row.is_file { "" } else { "/" };
        let size = if row.is_file { row.len_bytes.to_string() } else { String::new() };
        // "./" keeps a name with a colon from being read as a scheme.
        let (href, name) = (percent_encoded(row.name.as_bytes()), escaped(&row.name));
        writeln!(page, "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a><td>{size}")
            .expect("a string takes everything");
    }
    if has_more {
        writeln!(page, "<tr><td>only {ENTRIES_MAX} entries were looked at<td>")
            .expect("a string takes everything");
    }
    page.push_str("</table>\n</html>\n");
    page
}

/// Text as it may stand in HTML and in its quoted attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Text as it may stand in one segment of a path (RFC 3986 unreserved characters stay).
pub(super) fn percent_encoded(text: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.iter().copied() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            write!(safe, "%{byte:02X}").expect("a string takes everything");
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    fn listed(path: &Path) -> String {
        let fd = fs::File::open(path).expect("opened");
        page(fd.as_fd(), "a/b", |_| None).expect("read")
    }

    #[test]
    fn folders_come_first_and_hidden_files_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.txt", "a.txt", ".hidden"] {
            fs::write(folder.path().join(name), "12345").expect("written");
        }
        fs::create_dir(folder.path().join("z")).expect("made");
        let page = listed(folder.path());
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("href=\"../\"") < at("./z/"));
        assert!(at("./z/") < at("./a.txt") && at("./a.txt") < at("./b.txt"));
        assert!(page.contains("<td>5\n") && !page.contains("hidden"));
    }

    #[test]
    fn entries_that_do_not_show_are_looked_at_within_the_bound_too() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..ENTRIES_MAX {
            fs::File::create(folder.path().join(format!(".{number}"))).expect("made");
        }
        let page = listed(folder.path());
        assert!(page.contains("only 4096 entries were looked at"), "{page}");
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("<img src=x onerror='1'>\"&\n%"), "").expect("written");
        fs::write(folder.path().join("javascript:1"), "").expect("written");
        let page = listed(folder.path());
        assert!(!page.contains("<img") && !page.contains("onerror='"), "{page}");
        assert!(page.contains("href=\"./%3Cimg%20src%3Dx%20onerror%3D%271%27%3E%22%26%0A%25\""));
        assert!(page.contains("href=\"./javascript%3A1\""));
    }
}
