//! What is installed below a prefix: files that appear whole, and those of a C library.
//!
//! What a C interface has is its [`Package`]; `cargo xtask install`, `pollux-pool` and tests lay it
//! out. Nothing here looks for a file: the caller knows where it was built.
//!
//! ```text
//! PREFIX/include/HEADER …
//! PREFIX/lib/SONAME                    the library
//! PREFIX/lib/libNAME.so -> SONAME      and other names to link by
//! PREFIX/lib/pkgconfig/PACKAGE.pc
//! ```

use std::io;
use std::path::Path;

/// How a library itself gets below the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// A copy: the prefix stands for itself.
    Copied,
    /// A link to where it was built: a new build is seen at once.
    Linked,
}

/// A C library with what programs are built with.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    /// As pkg-config knows it.
    pub name: &'a str,
    /// In one line.
    pub description: &'a str,
    /// Of the package, not of the interface.
    pub version: &'a str,
    /// Below `include`, with their texts.
    pub headers: &'a [(&'a str, &'a str)],
    /// What the dynamic linker looks for.
    pub soname: &'a str,
    /// Names at link time, `libNAME.so`; pkg-config gives the first.
    pub link_names: &'a [&'a str],
    /// Further files below `lib`, with their bytes.
    pub archives: &'a [(&'a str, &'a [u8])],
    /// Names that pkg-config knows it by too, as builds of other makers ask for.
    pub other_names: &'a [&'a str],
}

impl Package<'_> {
    /// Puts everything below `prefix`, with the library from `built`; what stood there under the same names is
    /// replaced.
    ///
    /// # Errors
    /// What the file system says, with the path.
    pub fn lay_out(&self, prefix: &Path, built: &Path, library: Library) -> io::Result<()> {
        let include = prefix.join("include");
        let lib = prefix.join("lib");
        for (name, text) in self.headers {
            place(&include.join(name), |path| std::fs::write(path, text))?;
        }
        place(&lib.join(self.soname), |path| match library {
            Library::Copied => std::fs::copy(built, path).map(drop),
            Library::Linked => std::os::unix::fs::symlink(std::fs::canonicalize(built)?, path),
        })?;
        for name in self.link_names {
            place(&lib.join(name), |path| std::os::unix::fs::symlink(self.soname, path))?;
        }
        for (name, bytes) in self.archives {
            place(&lib.join(name), |path| std::fs::write(path, bytes))?;
        }
        for name in [&self.name].into_iter().chain(self.other_names) {
            let pc = lib.join("pkgconfig").join(format!("{name}.pc"));
            place(&pc, |path| std::fs::write(path, self.for_pkg_config(name)))?;
        }
        Ok(())
    }

    /// The package's description for pkg-config; the paths follow where it stands.
    fn for_pkg_config(&self, name: &str) -> String {
        let first = self.link_names.first().copied().unwrap_or_default();
        let linked = first.strip_prefix("lib").and_then(|name| name.strip_suffix(".so"));
        format!(
            "prefix=${{pcfiledir}}/../..\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
             Name: {}\nDescription: {}\nVersion: {}\n\
             Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -l{}\n",
            name,
            self.description,
            self.version,
            linked.unwrap_or(first),
        )
    }
}

/// Makes a file under another name in its folder, which is made too, and moves it to its own: programs that
/// use the old one keep it, and two that install at once don't see half a file.
///
/// # Errors
/// What the file system says, with the path.
pub fn place(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new{}", std::process::id()));
    let new = Path::new(&new);
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let made = folder.and_then(|()| make(new)).and_then(|()| std::fs::rename(new, path));
    made.map_err(|error| {
        // What could not be made whole is of no use; that it may not be there at all is fine.
        let _ = std::fs::remove_file(new);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: Package<'_> = Package {
        name: "pollux-test",
        description: "a library",
        version: "1.2.3",
        headers: &[("test/one.h", "one"), ("two.h", "two")],
        soname: "libtest.so.0",
        link_names: &["libtest.so", "libother.so"],
        archives: &[("libmain.a", b"main")],
        other_names: &["other-test"],
    };

    #[test]
    fn a_prefix_has_everything_and_can_be_laid_out_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = folder.path().join("prefix");
        let built = folder.path().join("built.so");
        std::fs::write(&built, "library").expect("written");
        for library in [Library::Linked, Library::Copied, Library::Copied] {
            PACKAGE.lay_out(&prefix, &built, library).expect("laid out");
            for (name, text) in [
                ("include/test/one.h", "one"),
                ("include/two.h", "two"),
                ("lib/libtest.so.0", "library"),
                ("lib/libtest.so", "library"),
                ("lib/libother.so", "library"),
                ("lib/libmain.a", "main"),
            ] {
                let found = std::fs::read_to_string(prefix.join(name)).expect(name);
                assert_eq!(found, text, "{name}");
            }
            let linked = prefix.join("lib/libtest.so.0").is_symlink();
            assert_eq!(linked, library == Library::Linked);
            let left = std::fs::read_dir(prefix.join("lib")).expect("a folder").count();
            assert_eq!(left, 5, "nothing unfinished stays");
        }
        for name in ["pollux-test", "other-test"] {
            let pc = prefix.join(format!("lib/pkgconfig/{name}.pc"));
            let said = std::fs::read_to_string(pc).expect("for pkg-config");
            assert!(said.contains(&format!("Name: {name}\n")));
            assert!(
                said.ends_with(
                    "Version: 1.2.3\nCflags: -I${includedir}\nLibs: -L${libdir} -ltest\n"
                )
            );
        }
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lib/file");
        let failed = place(&path, |new| {
            std::fs::write(new, "half")?;
            Err(io::Error::other("no more"))
        });
        let error = failed.expect_err("it failed").to_string();
        assert_eq!(error, format!("{}: no more", path.display()));
        assert_eq!(std::fs::read_dir(folder.path().join("lib")).expect("made").count(), 0);
    }
}
