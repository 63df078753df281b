//! Gives the `--version` of `pollux` and of `pollux-pool` the commit that it was built from, where that is known: a release build
//! in a checkout. A development build has none, so that a commit alone compiles nothing; sources
//! without git have none either. The same commit gives the same binary.

use std::path::Path;
use std::process::Command;

/// Digits of a commit.
const DIGITS: &str = "--short=12";

fn main() {
    // Two packages are built with it, each from a folder of its own below the root.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |above: &&Path| above.join("Cargo.lock").is_file();
    let root = folder.ancestors().find(is_root).unwrap_or(folder);
    println!("cargo::rerun-if-changed={}", root.join("crates/cli/build.rs").display());
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // Sources that were unpacked somewhere below another checkout are not part of it.
    if !root.join(".git").exists() {
        return;
    }
    let Some(commit) = git(root, &["rev-parse", DIGITS, "HEAD"]) else { return };
    println!("cargo::rustc-env=POLLUX_COMMIT={commit}");
    // What changes with the commit: the branch that is checked out, and where it stands.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(root, &["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
    }
}

/// What git says, if it is there and has an answer.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // Those of a hook would name another checkout.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    let output = git.arg("-C").arg(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
}
