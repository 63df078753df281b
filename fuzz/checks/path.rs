//! What holds for the path of every target.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Write as _;

use pollux_http::FilePath;

/// Decodes the input, with a slash in front, into a buffer that is just long enough.
pub(crate) fn holds(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let path = format!("/{text}");
    let mut out = vec![0; path.len()];
    let Ok(file) = FilePath::decode(&path, &mut out) else { return };

    assert!(!file.relative.starts_with(b"/") && !file.relative.ends_with(b"/"));
    assert!(!file.relative.contains(&0));
    assert!(file.relative.len() < path.len());
    let mut segments = file.relative.split(|&b| b == b'/');
    let is_root = file.relative.is_empty();
    assert!(is_root || !segments.any(|segment| matches!(segment, b"" | b"." | b"..")));
    assert!(!is_root || file.is_directory, "the root is a directory");

    let again = encode(file);
    let mut out = vec![0; again.len()];
    assert_eq!(FilePath::decode(&again, &mut out), Ok(file), "decoded twice from {again}");
    assert!(FilePath::decode(&again, &mut out[1..]).is_err(), "the buffer was too short");
}

/// A path that must decode to the same file, with every byte but the slashes encoded.
fn encode(file: FilePath<'_>) -> String {
    let mut path = String::from("/");
    for &b in file.relative {
        match b {
            b'/' => path.push('/'),
            _ => write!(path, "%{b:02x}").expect("a string takes everything"),
        }
    }
    if file.is_directory && !file.relative.is_empty() {
        path.push('/');
    }
    path
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
