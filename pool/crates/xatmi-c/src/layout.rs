//! The files that C programs are built with, and where they stand below a prefix.
//!
//! `pollux pool build-server` uses it for a development tree, `pollux pool lay-out` to install,
//! tests to have the same. It never looks for the library: the caller knows where it was built.
//!
//! ```text
//! PREFIX/include/atmi.h  xatmi.h  tx.h  ubf.h  fml32.h  fml.h  fml1632.h  userlog.h
//! PREFIX/include/ndebug.h  ndrstandard.h  Exfields.h  nerror.h  sys_unix.h  xa.h  tpadm.h
//! PREFIX/include/oatmi.h  oubf.h  oatmisrv.h  ondebug.h  odebug.h  onerror.h   the same with a context in front
//! PREFIX/include/Usysflds.h  Usysfl32.h  Uunix.h  Usignal.h  nstopwatch.h  thlock.h  ndebugcmn.h
//! PREFIX/lib/libpollux_xatmi.so.0               the library
//! PREFIX/lib/libpollux_xatmi.so -> it           and libatmi, libatmiclt, libatmisrvinteg, libubf, libnstd,
//!                                               libtux, libbuft, libfml, libfml32, libengine
//! PREFIX/lib/libatmisrv.a                       main of a server
//! PREFIX/lib/pkgconfig/pollux-xatmi.pc  atmisrvinteg.pc
//! ```

use std::io;
use std::path::Path;

pub use crate::prefix::Library;
use crate::prefix::Package;

/// What the dynamic linker looks for.
pub const SONAME: &str = env!("POLLUX_XATMI_SONAME");

/// The file that cargo builds, in `target/PROFILE/deps` and `target/PROFILE`.
pub const BUILT_NAME: &str = "libpollux_xatmi_c.so";

/// The headers with their texts.
const HEADERS: [(&str, &str); 29] = [
    ("atmi.h", include_str!("../include/atmi.h")),
    ("xatmi.h", include_str!("../include/xatmi.h")),
    ("tx.h", include_str!("../include/tx.h")),
    ("ubf.h", include_str!("../include/ubf.h")),
    ("fml32.h", include_str!("../include/fml32.h")),
    ("fml.h", include_str!("../include/fml.h")),
    ("fml1632.h", include_str!("../include/fml1632.h")),
    ("ndebug.h", include_str!("../include/ndebug.h")),
    ("userlog.h", include_str!("../include/userlog.h")),
    ("ndrstandard.h", include_str!("../include/ndrstandard.h")),
    ("Exfields.h", include_str!("../include/Exfields.h")),
    ("oatmi.h", include_str!("../include/oatmi.h")),
    ("oubf.h", include_str!("../include/oubf.h")),
    ("ondebug.h", include_str!("../include/ondebug.h")),
    ("odebug.h", include_str!("../include/odebug.h")),
    ("oatmisrv.h", include_str!("../include/oatmisrv.h")),
    ("oatmisrv_integra.h", include_str!("../include/oatmisrv_integra.h")),
    ("nerror.h", include_str!("../include/nerror.h")),
    ("onerror.h", include_str!("../include/onerror.h")),
    ("sys_unix.h", include_str!("../include/sys_unix.h")),
    ("Usysflds.h", include_str!("../include/Usysflds.h")),
    ("Usysfl32.h", include_str!("../include/Usysfl32.h")),
    ("Uunix.h", include_str!("../include/Uunix.h")),
    ("Usignal.h", include_str!("../include/Usignal.h")),
    ("xa.h", include_str!("../include/xa.h")),
    ("tpadm.h", include_str!("../include/tpadm.h")),
    ("ndebugcmn.h", include_str!("../include/ndebugcmn.h")),
    ("nstopwatch.h", include_str!("../include/nstopwatch.h")),
    ("thlock.h", include_str!("../include/thlock.h")),
];

/// Names of the library at link time; the latter ones are those of other makers' link lines.
const LINK_NAMES: [&str; 11] = [
    "libpollux_xatmi.so",
    "libatmi.so",
    "libatmiclt.so",
    "libatmisrvinteg.so",
    "libubf.so",
    "libnstd.so",
    "libtux.so",
    "libbuft.so",
    "libfml.so",
    "libfml32.so",
    "libengine.so",
];

/// `main` of a server, as an archive.
const SERVER_MAIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libatmisrv.a"));

const PACKAGE: Package<'_> = Package {
    name: "pollux-xatmi",
    description: env!("CARGO_PKG_DESCRIPTION"),
    version: env!("CARGO_PKG_VERSION"),
    headers: &HEADERS,
    soname: SONAME,
    link_names: &LINK_NAMES,
    archives: &[("libatmisrv.a", SERVER_MAIN)],
    other_names: &["atmisrvinteg"],
};

/// Puts everything below `prefix`; what stood there under the same names is replaced.
///
/// # Errors
/// What the file system says, with the path.
pub fn lay_out(prefix: &Path, built: &Path, library: Library) -> io::Result<()> {
    PACKAGE.lay_out(prefix, built, library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_everything_and_can_be_laid_out_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = folder.path().join("prefix");
        let built = folder.path().join(BUILT_NAME);
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
        assert_eq!((count("include"), count("lib"), count("lib/pkgconfig")), (29, 14, 2));
    }

    #[test]
    fn a_library_that_is_not_there_is_named_and_leaves_nothing_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let built = folder.path().join("none.so");
        let error = lay_out(folder.path(), &built, Library::Copied).expect_err("no library");
        assert!(error.to_string().contains(SONAME), "{error}");
        assert_eq!(std::fs::read_dir(folder.path().join("lib")).expect("a folder").count(), 0);
    }
}
