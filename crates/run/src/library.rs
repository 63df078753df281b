//! Where the library is that goes before the program's C library.

use std::path::{Path, PathBuf};

/// Its file.
pub const NAME: &str = "libpollux_preload.so";

/// Looks where cargo builds it, beside the program, and where `cargo xtask install` puts it.
///
/// # Errors
/// The places where it was looked for.
pub fn find(own_folder: Option<&Path>) -> Result<PathBuf, String> {
    let places: Vec<PathBuf> = own_folder.map(places).into_iter().flatten().collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "{NAME} was not found: expected {}; in the sources of pollux, `cargo build --release` makes \
             it, and `cargo xtask install --prefix DIR` installs it",
            places.join(", or ")
        )
    })
}

fn places(own: &Path) -> [PathBuf; 3] {
    // Cargo puts a dependency's library into deps; one beside the program may be of an earlier build.
    [own.join("deps").join(NAME), own.join(NAME), own.join("../lib/pollux").join(NAME)]
}
