//! `cargo xtask package`: a Debian package, a static program and an image, each tried before it is kept.
//!
//! ```text
//!  deb      everything of `install` below /usr, units of systemd, settings; made by dpkg-deb
//!  static   the program `pollux` for the musl target: runs on any kernel of its architecture
//!  oci      an image layout with that program, and one with an agent, as archives; no engine is needed to make them
//! ```
//!
//! What is made stays in `target/package`. A product that cannot be unpacked and started is an error.
//!
//! A test packages the crates that may be published, those whose manifest does not forbid it: together, so that each
//! finds those that it depends on, without asking a registry, and with the files that a registry shows.

mod deb;
mod oci;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_host::Program;
use pollux_xatmi_c::prefix::place;

use crate::install::{at, create, done, output, target};

/// The target of the static program.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";

/// What a package says of itself.
struct Release {
    /// Of the workspace, with date and commit: `0.1.0+20261124.87e1c75b33aa`.
    version: String,
    /// As `pollux --version` has it.
    commit: String,
    out: PathBuf,
}

/// Makes the packages that `arguments` name, or all; says what was made and how each was tried.
///
/// # Errors
/// A sentence: an unknown name, a build that failed, a tool that is missing, a product that does not work.
pub(crate) fn package(root: &Path, arguments: &[String]) -> Result<String, String> {
    const KINDS: [&str; 3] = ["deb", "static", "oci"];
    if let Some(unknown) = arguments.iter().find(|kind| !KINDS.contains(&kind.as_str())) {
        return Err(format!("cargo xtask package: \"{unknown}\" is unknown; expected {KINDS:?}"));
    }
    let wants = |kind: &str| arguments.is_empty() || arguments.iter().any(|each| each == kind);
    let release = Release::of(root)?;
    create(&release.out)?;
    let mut said = Vec::new();
    if wants("deb") {
        let staged = release.out.join("deb");
        crate::install::stage(root, &staged.join("usr"))?;
        let made = deb::write(root, &staged, &release, deb::LEVEL)?;
        said.push(deb::tried(&made, &release)?);
    }
    if wants("static") || wants("oci") {
        let program = static_program(root, &release, "pollux-cli", "pollux")?;
        if wants("static") {
            said.push(alone(&program, &release.commit)?);
        }
        if wants("oci") {
            let image = release.out.join(format!("pollux-{}-oci.tar", release.version));
            let site = root.join("xtask/package/site/index.html");
            oci::write(&image, &oci::Content::of(&program, &site), &release.version)?;
            said.push(oci::tried(&image, &release.commit)?);
            let program = static_program(root, &release, "pollux-agent", "pollux-agent")?;
            let image = release.out.join(format!("pollux-agent-{}-oci.tar", release.version));
            oci::write(&image, &oci::Content::of_agent(&program), &release.version)?;
            said.push(oci::tried_agent(&image, &release.commit)?);
        }
    }
    Ok(said.join("\n"))
}

impl Release {
    fn of(root: &Path) -> Result<Self, String> {
        let git = |words: &[&str]| {
            let said = output(Command::new("git").arg("-C").arg(root).args(words))?;
            Ok::<_, String>(String::from_utf8_lossy(&said).trim().to_owned())
        };
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        let date = git(&["log", "-1", "--format=%cd", "--date=format:%Y%m%d"])?;
        let version = format!("{}+{date}.{commit}", env!("CARGO_PKG_VERSION"));
        Ok(Self { version, commit, out: target(root).join("package") })
    }
}

fn static_program(
    root: &Path,
    release: &Release,
    package: &str,
    program: &str,
) -> Result<PathBuf, String> {
    let build = ["build", "--release", "--locked", "--package", package, "--target"];
    let built = done(crate::cargo().args(build).arg(STATIC_TARGET).current_dir(root));
    built.map_err(|error| {
        format!("{error}\nit needs `rustup target add {STATIC_TARGET}` and the package musl-tools")
    })?;
    let built = target(root).join(STATIC_TARGET).join("release").join(program);
    let program = release.out.join(format!("{program}-{}-{STATIC_TARGET}", release.version));
    place(&program, |path| std::fs::copy(&built, path).map(drop))
        .map_err(|error| error.to_string())?;
    Ok(program)
}

/// A file's size for people.
fn size_of(path: &Path) -> Result<String, String> {
    let len = std::fs::metadata(path).map_err(at(path))?.len();
    Ok(format!("{}.{} MB", len / 1_000_000, len % 1_000_000 / 100_000))
}

/// How long a program may take to say where it listens, and to answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// What `--version` says, which has to name `commit`.
fn version(program: &mut Command, commit: &str) -> Result<String, String> {
    let said = output(program.arg("--version"))?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if said.contains(commit) { Ok(said) } else { Err(format!("\"{said}\" does not name {commit}")) }
}

/// Starts a server, whose arguments are complete, asks it for `/` and ends it. Gives the answer's body.
fn answer(server: &mut Command) -> Result<String, String> {
    let name = server.get_program().to_string_lossy().into_owned();
    server.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = Program::start(&name, server).map_err(|error| format!("{error:?}"))?;
    let mut printed = String::new();
    let address = loop {
        let line = server.line_within(DEADLINE).map_err(|error| error.to_string())?;
        let Some(line) = line else {
            return Err(format!("{name} ended instead of listening: {printed}"));
        };
        if let Some((_, rest)) = line.split_once("http://") {
            break rest.split([' ', '/']).next().unwrap_or_default().to_owned();
        }
        printed += &line;
    };
    let answer = get(&address).map_err(|error| format!("{address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    if head.starts_with("HTTP/1.1 200 ") {
        Ok(body.to_owned())
    } else {
        Err(format!("{address} answered \"{head}\""))
    }
}

fn get(address: &str) -> std::io::Result<String> {
    let mut peer = TcpStream::connect(address)?;
    peer.set_read_timeout(Some(DEADLINE))?;
    peer.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    peer.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A command in a root folder of its own, as a user without rights; root is needed for that.
fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command.arg("--userspec=65534:65534").arg(root).args(words);
    command
}

/// Tries a static program in a folder that has nothing else.
fn alone(program: &Path, commit: &str) -> Result<String, String> {
    let root = tempfile::tempdir().map_err(|error| error.to_string())?;
    let inner = root.path().join("pollux");
    std::fs::copy(program, &inner).map_err(at(&inner))?;
    // The folder's maker alone may enter it otherwise.
    open_to_all(root.path())?;
    let version = version(&mut inside(root.path(), &["/pollux"]), commit)?;
    let serve = ["/pollux", "serve", "--reply", "5", "--listen", "127.0.0.1:0"];
    let body = answer(&mut inside(root.path(), &serve))?;
    Ok(format!(
        "static  {}, {}: {version}; alone in a root folder it served {} bytes",
        program.display(),
        size_of(program)?,
        body.len()
    ))
}

fn open_to_all(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, all).map_err(at(folder))
}

#[cfg(test)]
pub(crate) mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    /// A program as it was built last, copied into `folder` without what a debugger has of it, which is most of it and takes
    /// long to be packed.
    pub(crate) fn built(name: &str, folder: &Path) -> Option<PathBuf> {
        let this = std::env::current_exe().expect("a path");
        let target = this.ancestors().nth(3)?;
        let builds = ["release", "debug"].map(|profile| target.join(profile).join(name));
        let program = builds.into_iter().find(|program| program.exists())?;
        let copy = folder.join(name);
        let strip = Command::new("strip").arg("-o").arg(&copy).arg(&program).status();
        Some(if strip.is_ok_and(|status| status.success()) { copy } else { program })
    }

    pub(crate) fn is_root() -> bool {
        let id = Command::new("id").arg("-u").output().expect("id runs");
        id.stdout == b"0\n"
    }

    #[test]
    fn an_unknown_kind_is_reported_before_anything_is_built() {
        let error = package(Path::new("/nowhere"), &["rpm".to_owned()]).expect_err("unknown");
        assert_eq!(
            error,
            "cargo xtask package: \"rpm\" is unknown; expected [\"deb\", \"static\", \"oci\"]"
        );
    }

    /// What a package has beside its sources.
    const SHOWN: [&str; 4] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];

    /// The names of the crates below `root` that may be published.
    fn published(root: &Path) -> Vec<String> {
        let folders = crate::layers::crates(root).expect("a workspace").into_iter();
        let manifests = folders.map(|folder| root.join(folder).join("Cargo.toml"));
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
    fn files_of(package: &Path) -> Vec<String> {
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
        cargo.args([
            "package",
            "--quiet",
            "--no-verify",
            "--offline",
            "--allow-dirty",
            "--target-dir",
        ]);
        cargo.arg(out.path()).current_dir(root);
        cargo.args(names.iter().flat_map(|name| ["-p", name]));
        let done = cargo.output().expect("cargo");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        for name in names {
            let folder = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
            let files = files_of(&out.path().join(format!("package/{folder}.crate")));
            for shown in SHOWN {
                assert!(files.contains(&format!("{folder}/{shown}")), "{name} without {shown}");
            }
        }
    }
}
