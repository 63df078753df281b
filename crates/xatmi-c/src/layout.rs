//! The files that C programs are built with, and where they stand below a prefix.
//!
//! `pollux pool build-server` uses it for a development tree, `pollux pool lay-out` to install,
//! tests to have the same. It never looks for the library: the caller knows where it was built.
//!
//! ```text
//! PREFIX/include/atmi.h  ubf.h  fml32.h
//! PREFIX/lib/libpollux_xatmi.so.0               the library
//! PREFIX/lib/libpollux_xatmi.so -> it           and libatmi, libatmiclt, libubf, libnstd
//! PREFIX/lib/libatmisrv.a                       main of a server
//! PREFIX/lib/pkgconfig/pollux-xatmi.pc
//! ```

use std::io;
use std::path::Path;

/// How the library itself gets below the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// A copy: the prefix stands for itself.
    Copied,
    /// A link to where it was built: a new build is seen at once.
    Linked,
}

/// What the dynamic linker looks for.
pub const SONAME: &str = env!("POLLUX_XATMI_SONAME");

/// The file that cargo builds, in `target/PROFILE/deps` and `target/PROFILE`.
pub const BUILT_NAME: &str = "libpollux_xatmi_c.so";

/// The headers with their texts.
const HEADERS: [(&str, &str); 3] = [
    ("atmi.h", include_str!("../include/atmi.h")),
    ("ubf.h", include_str!("../include/ubf.h")),
    ("fml32.h", include_str!("../include/fml32.h")),
];

/// Names of the library at link time; the latter ones are those of other makers' link lines.
const LINK_NAMES: [&str; 5] =
    ["libpollux_xatmi.so", "libatmi.so", "libatmiclt.so", "libubf.so", "libnstd.so"];

/// `main` of a server, as an archive.
const SERVER_MAIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libatmisrv.a"));

/// Puts everything below `prefix`; what stood there under the same names is replaced.
///
/// # Errors
/// What the file system says, with the path.
pub fn lay_out(prefix: &Path, built: &Path, library: Library) -> io::Result<()> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    for (name, text) in HEADERS {
        place(&include.join(name), |path| std::fs::write(path, text))?;
    }
    place(&lib.join(SONAME), |path| match library {
        Library::Copied => std::fs::copy(built, path).map(drop),
        Library::Linked => std::os::unix::fs::symlink(std::fs::canonicalize(built)?, path),
    })?;
    for name in LINK_NAMES {
        place(&lib.join(name), |path| std::os::unix::fs::symlink(SONAME, path))?;
    }
    place(&lib.join("libatmisrv.a"), |path| std::fs::write(path, SERVER_MAIN))?;
    place(&pkgconfig.join("pollux-xatmi.pc"), |path| std::fs::write(path, package()))
}

/// The package's description for pkg-config; the paths follow where it stands.
fn package() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: pollux-xatmi\nDescription: {}\nVersion: {}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lpollux_xatmi\n",
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Makes a file under another name and moves it to its own, so that programs which use the old one
/// keep it and two that lay out at once don't see half a file.
fn place(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new{}", std::process::id()));
    let new = Path::new(&new);
    let made = make(new).and_then(|()| std::fs::rename(new, path));
    made.map_err(|error| {
        // What could not be made whole is of no use; that it may not be there at all is fine.
        let _ = std::fs::remove_file(new);
        at(path, &error)
    })
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_everything_and_can_be_laid_out_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (prefix, built) = (folder.path().join("prefix"), folder.path().join(BUILT_NAME));
        std::fs::write(&built, "library").expect("written");
        for library in [Library::Linked, Library::Copied, Library::Copied] {
            lay_out(&prefix, &built, library).expect("laid out");
            for name in LINK_NAMES {
                let text = std::fs::read(prefix.join("lib").join(name)).expect("a library");
                assert_eq!(text, b"library");
            }
            let is_link = prefix.join("lib").join(SONAME).is_symlink();
            assert_eq!(is_link, library == Library::Linked);
        }
        let count = |of: &str| std::fs::read_dir(prefix.join(of)).expect("a folder").count();
        assert_eq!((count("include"), count("lib"), count("lib/pkgconfig")), (3, 8, 1));
    }

    #[test]
    fn a_library_that_is_not_there_is_named_and_leaves_nothing_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let built = folder.path().join("none.so");
        let error = lay_out(folder.path(), &built, Library::Copied).expect_err("no library");
        assert!(error.to_string().contains(SONAME), "{error}");
        assert_eq!(std::fs::read_dir(folder.path().join("lib")).expect("a folder").count(), 1);
    }
}
