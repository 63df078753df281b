//! The crates that may be published can be packaged, with the files that a registry shows.
//!
//! Those are the crates whose manifest does not forbid it. They are packaged together, so that each finds
//! those that it depends on, without asking a registry.

use std::path::Path;

use flate2::read::GzDecoder;

/// What a package has beside its sources.
const SHOWN: [&str; 4] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];

/// The names of the crates below `root` that may be published.
fn published(root: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root.join("crates")).expect("a workspace");
    let manifests = folders.map(|folder| folder.expect("a folder").path().join("Cargo.toml"));
    let manifests = manifests.map(|path| std::fs::read_to_string(path).expect("a manifest"));
    let tables = manifests.map(|text| text.parse::<toml::Table>().expect("TOML"));
    let packages = tables.map(|table| table["package"].clone());
    let packages = packages.filter(|package| package.get("publish").is_none());
    let mut names: Vec<String> =
        packages.map(|package| package["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// The files of a package, from its folder on.
fn files(package: &Path) -> Vec<String> {
    let file = std::fs::File::open(package).expect("a package");
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().expect("an archive").map(|entry| entry.expect("a file"));
    entries.map(|entry| entry.path().expect("a path").display().to_string()).collect()
}

#[test]
fn crates_that_may_be_published_can_be_packaged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let names = published(root);
    assert_eq!(names, ["pollux-async", "pollux-engine", "pollux-poller", "pollux-sys"]);
    let out = tempfile::tempdir().expect("a folder");
    let mut cargo = crate::cargo();
    cargo.args(["package", "--quiet", "--no-verify", "--offline", "--allow-dirty", "--target-dir"]);
    cargo.arg(out.path()).current_dir(root);
    cargo.args(names.iter().flat_map(|name| ["-p", name]));
    let done = cargo.output().expect("cargo");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for name in names {
        let folder = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let files = files(&out.path().join(format!("package/{folder}.crate")));
        for shown in SHOWN {
            assert!(files.contains(&format!("{folder}/{shown}")), "{name} without {shown}");
        }
    }
}
