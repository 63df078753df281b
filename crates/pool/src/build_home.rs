//! Where the headers and the C library of this installation stand.
//!
//! `build_program.rs` asks. Beside an installed binary they are in `../include` and `../lib`; a
//! development tree gets the same folders in its target folder, as links to what cargo built.

use std::path::{Path, PathBuf};

use pollux_xatmi_c::layout::{self, Library};

use pollux_command::output::Failure;

/// The folders for the compiler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) include: PathBuf,
    pub(crate) lib: PathBuf,
}

impl Home {
    /// The folders that belong to the running binary.
    pub(crate) fn find() -> Result<Self, Failure> {
        let binary = std::env::current_exe().and_then(std::fs::canonicalize);
        let binary = binary.map_err(|error| Failure::failed(format!("the own path: {error}")))?;
        let folder = binary.parent().unwrap_or(Path::new("/"));
        Self::beside(folder)
    }

    fn beside(folder: &Path) -> Result<Self, Failure> {
        if let Some(prefix) = folder.parent()
            && let Some(home) = Self::below(prefix)
        {
            return Ok(home);
        }
        let built = folder.join("deps").join(layout::BUILT_NAME);
        if !built.exists() {
            return Err(Failure::failed(format!(
                "no include/atmi.h and lib/{} beside {}: install pollux with cargo xtask install \
                 --prefix DIR, and use the binary of that folder",
                layout::SONAME,
                folder.display()
            )));
        }
        let prefix = folder.join("xatmi-home");
        layout::lay_out(&prefix, &built, Library::Linked).map_err(Failure::failed)?;
        Self::below(&prefix)
            .ok_or_else(|| Failure::failed(format!("{} is not whole", prefix.display())))
    }

    fn below(prefix: &Path) -> Option<Self> {
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        let is_whole = include.join("atmi.h").exists() && lib.join(layout::SONAME).exists();
        is_whole.then_some(Self { include, lib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_found_beside_the_binary() {
        let prefix = tempfile::tempdir().expect("a folder");
        let bin = prefix.path().join("bin");
        let error = Home::beside(&bin).expect_err("nothing there").message;
        assert!(error.contains("xtask install"), "{error}");
        let library = prefix.path().join("built.so");
        std::fs::write(&library, "").expect("written");
        layout::lay_out(prefix.path(), &library, Library::Copied).expect("laid out");
        let home = Home::beside(&bin).expect("an installation");
        assert_eq!(home.include, prefix.path().join("include"));
    }

    #[test]
    fn a_development_tree_gets_the_folders_in_its_target_folder() {
        let target = tempfile::tempdir().expect("a folder");
        let debug = target.path().join("debug");
        std::fs::create_dir_all(debug.join("deps")).expect("made");
        std::fs::write(debug.join("deps").join(layout::BUILT_NAME), "").expect("written");
        let home = Home::beside(&debug).expect("laid out");
        assert_eq!(home.lib, debug.join("xatmi-home/lib"));
        assert!(home.lib.join("libatmisrv.a").exists());
    }
}
