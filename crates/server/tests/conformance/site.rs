//! The directory that the `files` set-up serves. The runner makes it; the cases know it.

/// Files, by their path below the directory. All were last modified at [`MODIFIED_S`].
pub(crate) const FILES: &[(&str, &[u8])] = &[
    ("index.html", b"<!doctype html><title>pollux</title>\n"),
    ("hello.txt", HELLO),
    ("empty.txt", b""),
    ("a b.txt", b"a space in the name\n"),
    ("sub/index.html", b"<!doctype html><title>sub</title>\n"),
    ("sub/page.txt", b"a page below\n"),
    ("bare/file.txt", b"its directory has no index\n"),
    ("app.js", b"plain"),
    ("app.js.gz", b"stands for gzip"),
    ("app.js.br", b"stands for brotli"),
    ("app.js.zst", b"stands for zstd"),
    ("only.js", b"no variants"),
];

/// A symbolic link, by its path, and where it leads: out of the directory.
pub(crate) const LINK_OUT: (&str, &str) = ("outside", "../");

/// `hello.txt`: 100 bytes, each ten the same.
pub(crate) const HELLO: &[u8] = b"\
0123456789012345678901234567890123456789\
0123456789012345678901234567890123456789\
01234567890123456789";

/// When the files were modified, in seconds since 1970: the example date of RFC 9110 5.6.7.
pub(crate) const MODIFIED_S: u64 = 784_111_777;

/// The same as a date.
pub(crate) const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The content of a file.
///
/// # Panics
/// When the site has none of that name.
pub(crate) fn content(path: &str) -> &'static [u8] {
    let file = FILES.iter().find(|(name, _)| *name == path);
    file.expect("the cases name files of the site").1
}

#[test]
fn the_site_is_what_the_cases_rely_on() {
    assert_eq!(HELLO.len(), 100);
    assert_eq!(content("empty.txt"), b"");
    assert!(FILES.iter().all(|(path, _)| *path != LINK_OUT.0 && LINK_OUT.1.starts_with("..")));
    assert!(MODIFIED_S == 784_111_777 && MODIFIED.ends_with("08:49:37 GMT"));
}
