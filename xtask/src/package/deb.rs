//! The Debian package: the staged tree with units, settings and a control file, packed by dpkg-deb.

use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_xatmi_c::prefix::place;

use super::{Release, answer, size_of, version};
use crate::install::{self, at, create, done, output};

/// How hard a package is packed: what `dpkg-deb` does by itself.
pub(super) const LEVEL: &str = "-z6";

/// Files of `xtask/package` with their places.
const FILES: [(&str, &str); 12] = [
    ("systemd/pollux-serve.service", "usr/lib/systemd/system/pollux-serve.service"),
    ("systemd/pollux-proxy.service", "usr/lib/systemd/system/pollux-proxy.service"),
    ("systemd/pollux-pool.service", "usr/lib/systemd/system/pollux-pool.service"),
    ("systemd/pollux-agent.service", "usr/lib/systemd/system/pollux-agent.service"),
    ("systemd/pollux-acme.service", "usr/lib/systemd/system/pollux-acme.service"),
    ("etc/serve.toml", "etc/pollux/serve.toml"),
    ("etc/proxy.toml", "etc/pollux/proxy.toml"),
    ("etc/pool.xml", "etc/pollux/pool.xml"),
    ("etc/pool.env", "etc/pollux/pool.env"),
    ("etc/agent.env", "etc/pollux/agent.env"),
    ("etc/acme.env", "etc/pollux/acme.env"),
    ("site/index.html", "usr/share/pollux/site/index.html"),
];

/// Packs `staged`, which has what is installed below `usr`.
pub(super) fn write(
    root: &Path,
    staged: &Path,
    release: &Release,
    level: &str,
) -> Result<PathBuf, String> {
    for (from, to) in FILES {
        copy(&root.join("xtask/package").join(from), &staged.join(to))?;
    }
    let documents = staged.join("usr/share/doc/pollux");
    copy(&root.join("README.md"), &documents.join("README.md"))?;
    copy(&root.join("CHANGELOG.md"), &documents.join("changelog"))?;
    let copyright = ["LICENSE-MIT", "LICENSE-APACHE"]
        .map(|name| std::fs::read_to_string(root.join(name)).map_err(at(&root.join(name))));
    let [mit, apache] = copyright;
    let copyright =
        format!("Licensed under either of these, at your option.\n\n{}\n\n{}", mit?, apache?);
    let path = documents.join("copyright");
    std::fs::write(&path, copyright).map_err(at(&path))?;

    let control = staged.join("DEBIAN");
    create(&control)?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = String::from_utf8_lossy(&architecture).trim().to_owned();
    let depends = depends(staged)?;
    let kib: u64 = install::files(staged)?
        .iter()
        .filter_map(|name| std::fs::metadata(staged.join(name)).ok())
        .map(|found| found.len().div_ceil(1024))
        .sum();
    let text = control_file(&release.version, &architecture, &depends, kib);
    std::fs::write(control.join("control"), text).map_err(at(&control))?;
    let settings: String = FILES
        .iter()
        .filter(|(_, to)| to.starts_with("etc/"))
        .map(|(_, to)| format!("/{to}\n"))
        .collect();
    std::fs::write(control.join("conffiles"), settings).map_err(at(&control))?;
    let package = release.out.join(format!("pollux_{}_{architecture}.deb", release.version));
    done(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", level, "--build"])
            .arg(staged)
            .arg(&package),
    )?;
    Ok(package)
}

fn control_file(version: &str, architecture: &str, depends: &str, kib: u64) -> String {
    format!(
        "Package: pollux\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: the pollux project <pollux@localhost>\nInstalled-Size: {kib}\nDepends: {depends}\n\
         Recommends: linux-perf\nDescription: event loops for Linux servers, and the laboratory that proves them\n \
         pollux measures which event mechanism of Linux (select, poll, AIO poll, epoll, io_uring)\n \
         serves a load best, puts load on servers, and serves, proxies and runs pools of services\n \
         on any of them.\n"
    )
}

/// The packages of the libraries that programs are linked with, found by dpkg-shlibdeps.
fn depends(staged: &Path) -> Result<String, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    create(&scratch.path().join("debian"))?;
    let control = scratch.path().join("debian/control");
    std::fs::write(&control, "Source: pollux\n\nPackage: pollux\nArchitecture: any\n")
        .map_err(at(&control))?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.current_dir(scratch.path()).args(["-O", "--ignore-missing-info"]);
    for program in std::fs::read_dir(staged.join("usr/bin")).map_err(at(staged))? {
        let program = program.map_err(at(staged))?.path();
        command.arg("-e").arg(std::path::absolute(&program).map_err(at(&program))?);
    }
    let said =
        output(&mut command).map_err(|error| format!("{error}; the package dpkg-dev has it"))?;
    let said = String::from_utf8_lossy(&said);
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).ok_or_else(|| format!("dpkg-shlibdeps said \"{said}\""))
}

/// Unpacks the package into a folder and starts what lies there.
pub(super) fn tried(package: &Path, release: &Release) -> Result<String, String> {
    let root = tempfile::tempdir().map_err(|error| error.to_string())?;
    done(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root.path()))?;
    let count = install::files(root.path())?.len();
    let program = root.path().join("usr/bin/pollux");
    let version = version(&mut Command::new(&program), &release.commit)?;
    for command in ["serve", "proxy"] {
        let settings = root.path().join(format!("etc/pollux/{command}.toml"));
        let text = std::fs::read_to_string(&settings).map_err(at(&settings))?;
        // The folders that the settings name lie in the root where the package was unpacked. Those of sockets and
        // logs are systemd's to make.
        for folder in ["run", "var/log"] {
            let folder = root.path().join(folder).join(format!("pollux-{command}"));
            std::fs::create_dir_all(&folder).map_err(at(&folder))?;
        }
        let here = root.path().display();
        let text = ["/usr/", "/run/", "/var/log/"]
            .iter()
            .fold(text, |text, folder| text.replace(folder, &format!("{here}{folder}")));
        std::fs::write(&settings, text).map_err(at(&settings))?;
        output(Command::new(&program).args([command, "--check", "--config"]).arg(&settings))?;
    }
    let pool = root.path().join("usr/bin/pollux-pool");
    // A test packs one program alone.
    if pool.exists() {
        let settings = root.path().join("etc/pollux/pool.xml");
        output(Command::new(&pool).args(["check", "--no-ask", "--config"]).arg(&settings))?;
    }
    let site = root.path().join("usr/share/pollux/site");
    let mut server = Command::new(&program);
    server.arg("serve").arg(&site).args(["--listen", "127.0.0.1:0"]);
    let page = answer(&mut server)?;
    if !page.contains("This page is served by pollux") {
        return Err(format!("the page of the package is \"{page}\""));
    }
    let units = units(root.path())?;
    Ok(format!(
        "deb     {}, {}: {count} files; {version}; its settings pass --check; it served its page; {units}",
        package.display(),
        size_of(package)?
    ))
}

/// What systemd says of the units, where it is there.
fn units(root: &Path) -> Result<String, String> {
    let units =
        FILES.iter().filter(|(_, to)| to.ends_with(".service")).map(|(_, to)| root.join(to));
    let checked = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output();
    match checked {
        Err(_) => Ok("units not checked: systemd-analyze is missing".to_owned()),
        Ok(output) => {
            // Where no pollux is installed below /usr it says so, which is not a fault of the unit.
            let said = String::from_utf8_lossy(&output.stderr);
            let faults: Vec<_> = said
                .lines()
                .filter(|line| {
                    let is_missing =
                        line.contains("/usr/bin/pollux") && line.contains(" is not executable");
                    line.contains("pollux-") && !is_missing
                })
                .collect();
            if faults.is_empty() {
                Ok("units pass systemd-analyze".to_owned())
            } else {
                Err(faults.join("\n"))
            }
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    place(to, |path| std::fs::copy(from, path).map(drop)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_the_program_alone_is_unpacked_and_serves_its_page() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(program) = crate::package::tests::built("pollux", folder.path()) else {
            return pollux_testing::skip("it needs a build of pollux");
        };
        if ["dpkg-deb", "dpkg-shlibdeps"]
            .iter()
            .any(|tool| Command::new(tool).arg("--version").output().is_err())
        {
            return pollux_testing::skip("it needs dpkg and dpkg-dev");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let staged = folder.path().join("deb");
        copy(&program, &staged.join("usr/bin/pollux")).expect("copied");
        // A development build names no commit.
        let release = Release {
            version: "0.1.0+20261124.test".to_owned(),
            commit: "pollux".to_owned(),
            out: folder.path().to_owned(),
        };
        let package = write(root, &staged, &release, "-z0").expect("made");
        let said = tried(&package, &release).expect("it works");
        println!("{said}");
        let field = |name| output(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
        let text = |name| String::from_utf8(field(name).expect("a field")).expect("text");
        assert_eq!(text("Version"), "0.1.0+20261124.test\n");
        assert!(text("Depends").contains("libc6"), "{}", text("Depends"));
    }
}
