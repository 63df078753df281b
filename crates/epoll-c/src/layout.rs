//! The files that C programs are built with, and where they stand below a prefix.
//!
//! `cargo xtask install` uses it, and tests to have the same. It never looks for the library: the
//! caller knows where it was built.
//!
//! ```text
//! PREFIX/include/pollux/epoll.h
//! PREFIX/lib/libpollux_epoll.so.0
//! PREFIX/lib/libpollux_epoll.so -> it
//! PREFIX/lib/pkgconfig/pollux-epoll.pc
//! ```

use std::io;
use std::path::Path;

/// What the dynamic linker looks for.
pub const SONAME: &str = env!("POLLUX_EPOLL_SONAME");

/// The file that cargo builds, in `target/PROFILE/deps` and `target/PROFILE`.
pub const BUILT_NAME: &str = "libpollux_epoll_c.so";

const LINK_NAME: &str = "libpollux_epoll.so";
const HEADER: &str = include_str!("../include/pollux/epoll.h");

/// Puts everything below `prefix`, the library as a copy of `built`; what stood there under the same
/// names is replaced.
///
/// # Errors
/// What the file system says, with the path.
pub fn lay_out(prefix: &Path, built: &Path) -> io::Result<()> {
    let (include, lib) = (prefix.join("include/pollux"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    place(&include.join("epoll.h"), |path| std::fs::write(path, HEADER))?;
    place(&lib.join(SONAME), |path| std::fs::copy(built, path).map(drop))?;
    place(&lib.join(LINK_NAME), |path| std::os::unix::fs::symlink(SONAME, path))?;
    place(&pkgconfig.join("pollux-epoll.pc"), |path| std::fs::write(path, package()))
}

/// The package's description for pkg-config; the paths follow where it stands.
fn package() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: pollux-epoll\nDescription: {}\nVersion: {}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lpollux_epoll\n",
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Makes a file under another name and moves it to its own, so that programs which use the old one
/// keep it.
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
