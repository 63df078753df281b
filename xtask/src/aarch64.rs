//! `cargo xtask aarch64`: whether what is installed compiles for aarch64, from a machine of another architecture.
//!
//! It needs no second toolchain: the standard library is checked too, from its sources (`-Zbuild-std`), which are
//! those of the toolchain where it has them, or of Debian's package `rust-src` in the same version. The package is
//! fetched with lists of its own and unpacked below `target/aarch64`; nothing is installed and the toolchain is not
//! touched: the compiler gets a folder of links to it in which the sources stand (`--sysroot`).

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// For what is C in dependencies: Debian's `gcc-aarch64-linux-gnu`.
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";

/// What is installed, and the libraries that may be published; the rest of the workspace lies below them, or tests.
const PACKAGES: [&str; 8] = [
    "pollux-cli",
    "pollux-pool",
    "pollux-agent",
    "pollux-acme",
    "pollux-preload",
    "pollux-epoll-c",
    "pollux-xatmi-c",
    "pollux-async",
];

/// Debian's suite that has many versions of the compiler side by side.
const SUITE: &str = "trixie-backports";

/// Where the sources of the standard library stand in a toolchain.
const LIBRARY: &str = "lib/rustlib/src/rust/library";

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let folder = root.join("target/aarch64");
    make(&folder)?;
    let compiler = Compiler::find()?;
    let library = compiler.library(&folder)?;
    let wrapper = compiler.with_sources(&library, &folder)?;
    let mut cargo = super::cargo();
    cargo.args(["check", "--target", TARGET, "-Zbuild-std=std,panic_unwind"]);
    cargo.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    // What follows `cargo xtask aarch64`: `--quiet`, say.
    cargo.args(super::arguments());
    cargo.env("RUSTC", wrapper).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &folder);
    cargo.env("CC_aarch64_unknown_linux_gnu", C_COMPILER);
    let status = cargo.current_dir(root).status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(format!("{TARGET} compiles"))
    } else {
        Err(format!("cargo: {status}"))
    }
}

/// The compiler that the workspace is built with.
struct Compiler {
    version: String,
    sysroot: PathBuf,
}

impl Compiler {
    fn find() -> Result<Self, String> {
        let told = said(Command::new("rustc").arg("-vV"))?;
        let version = told.lines().find_map(|line| line.strip_prefix("release: "));
        let version =
            version.ok_or_else(|| format!("rustc -vV does not name a release: {told}"))?;
        let sysroot = said(Command::new("rustc").arg("--print=sysroot"))?;
        Ok(Self { version: version.to_owned(), sysroot: PathBuf::from(sysroot.trim()) })
    }

    /// The sources of its standard library.
    fn library(&self, folder: &Path) -> Result<PathBuf, String> {
        let own = self.sysroot.join(LIBRARY);
        let unpacked = folder.join(format!("library-{}", self.version));
        if own.is_dir() {
            return Ok(own);
        }
        if !unpacked.is_dir() {
            self.fetch(&unpacked, folder).map_err(|error| {
                format!(
                    "the sources of the standard library of rustc {} are missing: {error}; expected them in \
                     the toolchain (rustup component add rust-src) or as Debian's rust-src of {SUITE}",
                    self.version
                )
            })?;
        }
        Ok(unpacked)
    }

    /// Debian's package of the same version, of which only the library is unpacked.
    fn fetch(&self, unpacked: &Path, folder: &Path) -> Result<(), String> {
        let apt = Apt::new(&folder.join("apt"))?;
        said(&mut apt.command("apt-get", &["update", "-qq"]))?;
        let known = said(&mut apt.command("apt-cache", &["madison", "rust-src"]))?;
        let versions = known.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
        let is_same = |version: &&str| {
            version
                .strip_prefix(&self.version)
                .is_some_and(|rest| rest.starts_with(['+', '-', '~']))
        };
        let version = versions
            .clone()
            .find(is_same)
            .ok_or_else(|| format!("{SUITE} has {}", versions.collect::<Vec<_>>().join(", ")))?;
        let package = format!("rust-src={version}");
        said(apt.command("apt-get", &["download", "-qq", &package]).current_dir(&apt.folder))?;
        let files = fs::read_dir(&apt.folder).map_err(|error| error.to_string())?;
        let deb = files.filter_map(Result::ok).map(|file| file.path());
        let deb = deb.into_iter().find(|path| path.extension() == Some(OsStr::new("deb")));
        let deb = deb.ok_or("apt-get download left no package")?;
        // Renamed when it is whole.
        let part = folder.join("library.part");
        remove(&part)?;
        make(&part)?;
        let unpack =
            "dpkg-deb --fsys-tarfile \"$0\" | tar -x -C \"$1\" --strip-components=5 \"$2\"";
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-c", unpack]).arg(&deb).arg(&part);
        said(shell.arg(format!("./usr/src/rustc-{}/library", self.version)))?;
        fs::rename(&part, unpacked).map_err(|error| format!("{}: {error}", unpacked.display()))?;
        remove(&apt.folder)
    }

    /// A program that is the compiler, with the sources in its sysroot.
    fn with_sources(&self, library: &Path, folder: &Path) -> Result<PathBuf, String> {
        let sysroot = folder.join("sysroot");
        remove(&sysroot)?;
        let libraries = self.sysroot.join("lib");
        let is_apart = |name: &OsStr| name == "rustlib" || name == "src";
        link_all(&libraries, &sysroot.join("lib"), is_apart)?;
        link_all(&libraries.join("rustlib"), &sysroot.join("lib/rustlib"), is_apart)?;
        let at = sysroot.join(LIBRARY);
        make(at.parent().expect("a path of several parts"))?;
        symlink(library, &at).map_err(|error| format!("{}: {error}", at.display()))?;
        let wrapper = folder.join("rustc");
        let script = format!("#!/bin/sh\nexec rustc --sysroot '{}' \"$@\"\n", sysroot.display());
        fs::write(&wrapper, script).map_err(|error| format!("{}: {error}", wrapper.display()))?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&wrapper, executable).map_err(|error| error.to_string())?;
        Ok(wrapper)
    }
}

/// apt with lists of one suite in a folder of its own, so that what the machine would install stays the same.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path) -> Result<Self, String> {
        remove(folder)?;
        make(&folder.join("state/lists/partial"))?;
        make(&folder.join("cache/archives/partial"))?;
        let archives =
            said(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
        let archive = archives.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
        let archive = archive.ok_or("apt has no archive of Debian")?;
        let list = format!("deb {archive} {SUITE} main\n");
        fs::write(folder.join("sources.list"), list).map_err(|error| error.to_string())?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", "/var/lib/dpkg/status"),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command.args(arguments);
        command
    }
}

/// What a command prints that succeeds.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}: {}", output.status, why.trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{name}: {error}"))
}

/// Links everything in `from` into `to`, which is made, but names that are `apart`.
fn link_all(from: &Path, to: &Path, is_apart: fn(&OsStr) -> bool) -> Result<(), String> {
    make(to)?;
    let link = || -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if !is_apart(&entry.file_name()) {
                symlink(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    };
    link().map_err(|error| format!("{}: {error}", from.display()))
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Removes a folder, which need not be there.
fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}
