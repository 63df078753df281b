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

use pollux_prefix::{Library, Package};

/// What the dynamic linker looks for.
pub const SONAME: &str = env!("POLLUX_EPOLL_SONAME");

/// The file that cargo builds, in `target/PROFILE/deps` and `target/PROFILE`.
pub const BUILT_NAME: &str = "libpollux_epoll_c.so";

const PACKAGE: Package<'_> = Package {
    name: "pollux-epoll",
    description: env!("CARGO_PKG_DESCRIPTION"),
    version: env!("CARGO_PKG_VERSION"),
    headers: &[("pollux/epoll.h", include_str!("../include/pollux/epoll.h"))],
    soname: SONAME,
    link_names: &["libpollux_epoll.so"],
    archives: &[],
};

/// Puts everything below `prefix`, the library as a copy of `built`; what stood there under the same
/// names is replaced.
///
/// # Errors
/// What the file system says, with the path.
pub fn lay_out(prefix: &Path, built: &Path) -> io::Result<()> {
    PACKAGE.lay_out(prefix, built, Library::Copied)
}
