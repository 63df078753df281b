//! `cargo xtask container`: the tests in a container with the filter of system calls that Podman and Docker have by
//! default, which forbids io_uring, as root with a container's capabilities or as an ordinary user.
//!
//! The container's root folder is this machine's, without a way to write to it; `/tmp` and what is written to the target
//! folder are its own, and so are network, processes and queues. cargo is there, without a network. Needs root, runc,
//! overlayfs, and the filter of Debian's golang-github-containers-common.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

/// The filter, as the programs that start containers share it.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

/// What root has in a container by default.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The user of `--user`, whom no system has.
const USER: u32 = 12_345;

/// The home of either user.
const HOME: &str = "/tmp";

/// Runs each program of tests with the words of this script: of each line of standard input its name, the folder, the
/// name and the version of its package.
const RUN_ALL: &str = r#"
failed=
while read -r program folder name version; do
  cd "$folder" || exit 2
  printf '\n== %s\n' "$program"
  CARGO_MANIFEST_DIR="$folder" CARGO_PKG_NAME="$name" CARGO_PKG_VERSION="$version" \
    "$program" "$@" </dev/null 2>&1 || failed="$failed $program"
done
[ -z "$failed" ] && exit 0
echo "failed:$failed"
exit 1
"#;

/// Mounts what the container sees where nobody else does, and starts it: this machine's root folder, and a target
/// folder over that of the workspace, whose files its user owns and which goes with the container.
const START: &str = r#"
bundle=$0 name=$1 target=$2 user=$3
mount --make-rprivate / && mount --bind / "$bundle/root" && mount -t tmpfs tmpfs "$bundle/own" || exit
cd "$bundle/own" && mkdir upper work target || exit
mount -t overlay -o "lowerdir=$target,upperdir=upper,workdir=work,metacopy=on" overlay target || exit
rm -rf target/tmp && mkdir target/tmp && chown -R "$user:$user" target && exec runc run --bundle "$bundle" "$name"
"#;

/// Builds the tests that `arguments` name (`cargo test`; the workspace without any), and runs them there.
pub(crate) fn test(root: &Path, arguments: &[String]) -> Result<String, String> {
    let mut asked = Asked::read(arguments);
    asked.toolchain = toolchain(root)?;
    let programs = programs(root, &asked.built)?;
    let bundle = root.join("target/container");
    for folder in ["root", "own"] {
        let folder = bundle.join(folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let profile = fs::read_to_string(PROFILE).map_err(|error| {
        format!("{PROFILE}: {error}; expected Debian's golang-github-containers-common")
    })?;
    let profile = serde_json::from_str(&profile).map_err(|error| format!("{PROFILE}: {error}"))?;
    let config = config(root, &filter(&profile, asked.is_root), &asked);
    let written = fs::write(bundle.join("config.json"), config.to_string());
    written.map_err(|error| format!("{}: {error}", bundle.display()))?;
    let name = format!("pollux-tests-{}", std::process::id());
    let mut runc = Command::new("unshare");
    runc.args(["--mount", "sh", "-c", START]).arg(&bundle).arg(name).arg(root.join("target"));
    runc.arg(asked.id().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = runc.spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut list = running.stdin.take().ok_or("standard input is a pipe")?;
    let written = list.write_all(programs.as_bytes());
    drop(list);
    let mut tally = Tally::default();
    let said = running.stdout.take().ok_or("standard output is a pipe")?;
    for line in BufReader::new(said).split(b'\n') {
        let line = line.map_err(|error| format!("runc: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.read(&line);
    }
    let status = running.wait().map_err(|error| format!("runc: {error}"))?;
    written.map_err(|error| format!("runc: {error}"))?;
    if status.success() && tally.failed == 0 {
        Ok(format!("in a container: {tally}"))
    } else {
        Err(format!("in a container: {tally}\nrunc: {status}"))
    }
}

/// What the command was asked for.
struct Asked<'a> {
    is_root: bool,
    /// Arguments of `cargo test` that choose what is built.
    built: Vec<&'a str>,
    /// Arguments of each program of tests: the name that was asked for, and what stood behind `--`.
    programs: Vec<&'a str>,
    toolchain: PathBuf,
}

impl<'a> Asked<'a> {
    fn read(arguments: &'a [String]) -> Self {
        let mut words = arguments.iter().map(String::as_str);
        let mut asked = Self {
            is_root: true,
            built: Vec::new(),
            programs: Vec::new(),
            toolchain: PathBuf::new(),
        };
        while let Some(word) = words.next() {
            match word {
                "--user" => asked.is_root = false,
                "--" => break,
                word if word.starts_with('-') => {
                    asked.built.push(word);
                    if WITH_A_VALUE.contains(&word) {
                        asked.built.extend(words.next());
                    }
                }
                name => asked.programs.push(name),
            }
        }
        asked.programs.extend(words);
        asked
    }

    fn id(&self) -> u32 {
        if self.is_root { 0 } else { USER }
    }
}

/// Options of `cargo test` whose value is the next word.
const WITH_A_VALUE: [&str; 14] = [
    "-p",
    "--package",
    "--exclude",
    "--test",
    "--bin",
    "--example",
    "--bench",
    "-F",
    "--features",
    "-j",
    "--jobs",
    "--profile",
    "--target",
    "--config",
];

/// What the programs of tests said of themselves.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    programs: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
    /// Lines of `pollux_testing::skip`.
    skips: u32,
    /// Tests that failed, with their program.
    names: Vec<String>,
    program: String,
    /// What stands behind the last heading of failures: names, or what the failed ones said.
    listed: Vec<String>,
}

impl Tally {
    fn read(&mut self, line: &str) {
        if let Some(program) = line.strip_prefix("== ") {
            self.programs += 1;
            let file = program.rsplit('/').next().unwrap_or(program);
            // cargo puts a hash behind the name.
            self.program = file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned();
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let listed = std::mem::take(&mut self.listed).into_iter();
            if result.starts_with("FAILED") {
                self.names.extend(listed.map(|name| format!("{} {name}", self.program)));
            }
            let count = |what: &str| {
                let words = result.split([' ', ';']).collect::<Vec<_>>();
                let found = words.windows(2).find(|pair| pair[1] == what);
                found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
            self.ignored += count("ignored");
        } else if line == "failures:" {
            self.listed.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            self.listed.push(name.to_owned());
        }
        // It may stand behind the name of a test that runs alone.
        self.skips += line.matches("skipped: ").count() as u32;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, passed, failed, ignored, skips, names, .. } = self;
        write!(f, "{programs} programs of tests, {passed} tests passed, {failed} failed, ")?;
        write!(f, "{ignored} ignored, {skips} lines say what was skipped")?;
        names.iter().try_for_each(|name| write!(f, "\nfailed: {name}"))
    }
}

/// A line for each program of tests: its path, the folder, the name and the version of its package.
fn programs(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let packages = packages(root)?;
    let mut cargo = super::cargo();
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    if arguments.is_empty() {
        cargo.arg("--workspace");
    }
    let built = output(cargo.args(arguments).current_dir(root))?;
    let mut lines = String::new();
    for line in built.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let is_test =
            message["profile"]["test"] == true && message["target"]["kind"] != json!(["bench"]);
        if let (true, Some(program)) = (is_test, message["executable"].as_str()) {
            let of = |package: &&Value| package["id"] == message["package_id"];
            let package = packages.iter().find(of).ok_or_else(|| format!("no package: {line}"))?;
            let word = |name: &str| package[name].as_str().unwrap_or_default();
            let folder = Path::new(word("manifest_path")).parent().unwrap_or(root).display();
            lines += &format!("{program} {folder} {} {}\n", word("name"), word("version"));
        }
    }
    Ok(lines)
}

/// The folder of the compiler and of cargo, which rustup may have as a link.
fn toolchain(root: &Path) -> Result<PathBuf, String> {
    let folder = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
    fs::canonicalize(folder.trim()).map_err(|error| format!("{}: {error}", folder.trim()))
}

/// The packages of the workspace, as `cargo metadata` has them.
fn packages(root: &Path) -> Result<Vec<Value>, String> {
    let mut cargo = super::cargo();
    cargo.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(root);
    let metadata = serde_json::from_str::<Value>(&output(&mut cargo)?);
    let mut metadata = metadata.map_err(|error| format!("cargo metadata: {error}"))?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        other => Err(format!("cargo metadata: expected packages, found {other}")),
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The configuration of the container, as OCI's runtime specification has it.
fn config(root: &Path, filter: &Value, asked: &Asked<'_>) -> Value {
    let held: &[&str] = if asked.is_root { &CAPABILITIES } else { &[] };
    let capabilities = json!({ "bounding": held, "effective": held, "permitted": held });
    let target = root.join("target");
    let mut words = vec!["sh", "-c", RUN_ALL, "sh"];
    words.extend(&asked.programs);
    let of_kernel = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": kind, "options": options });
    let bound = |at: &Path, source: &Path, options: &[&str]| json!({ "destination": at, "type": "bind", "source": source, "options": options });
    let mut mounts = vec![
        of_kernel("/proc", "proc", &[]),
        of_kernel("/dev", "tmpfs", &["nosuid", "mode=755"]),
        of_kernel("/dev/pts", "devpts", &["newinstance", "ptmxmode=0666", "mode=0620"]),
        of_kernel("/dev/shm", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
        of_kernel("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        of_kernel("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        of_kernel("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
        bound(root, root, &["rbind", "ro"]),
        bound(&target, &target.join("container/own/target"), &["bind"]),
    ];
    // Where an ordinary user can't reach them they lie in the home of root.
    let mut path = std::env::var("PATH").unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    for (name, folder) in [(".cargo", cargo_home), (".toolchain", Some(asked.toolchain.clone()))] {
        if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
            let seen = Path::new(HOME).join(name);
            mounts.push(bound(&seen, &folder, &["rbind", "ro"]));
            path = format!("{}:{path}", seen.join("bin").display());
        }
    }
    let variables = [format!("PATH={path}"), format!("HOME={HOME}"), "LANG=C.UTF-8".to_owned()];
    json!({
        "ociVersion": "1.0.2",
        "hostname": "container",
        "root": { "path": "root", "readonly": true },
        "process": {
            "args": words,
            "cwd": root,
            "user": { "uid": asked.id(), "gid": asked.id() },
            "env": variables,
            "capabilities": capabilities,
        },
        "mounts": mounts,
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" },
                { "type": "mount" }, { "type": "cgroup" },
            ],
            "seccomp": filter,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

/// The filter in the form of the runtime specification: the rules that hold for these capabilities and this machine.
fn filter(profile: &Value, is_root: bool) -> Value {
    let held: &[&str] = if is_root { &CAPABILITIES } else { &[] };
    let names = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let machine = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let holds = |rule: &&Value| {
        let has = |capability: &String| held.contains(&capability.as_str());
        let wanted = &rule["includes"];
        let unwanted = &rule["excludes"];
        let machines = (names(&wanted["arches"]), names(&unwanted["arches"]));
        names(&wanted["caps"]).iter().all(has)
            && !names(&unwanted["caps"]).iter().any(has)
            && (machines.0.is_empty() || machines.0.iter().any(|own| own == machine))
            && !machines.1.iter().any(|own| own == machine)
    };
    let rules = profile["syscalls"].as_array().into_iter().flatten().filter(holds);
    let rules = rules.map(|rule| {
        let known = ["names", "action", "errnoRet", "args"];
        let parts = known.into_iter().filter(|part| !rule[part].is_null());
        Value::Object(
            parts.map(|part| (part.to_owned(), rule[part].clone())).collect::<Map<_, _>>(),
        )
    });
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "syscalls": rules.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_as_for_cargo_test() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let given =
            words("-p pollux-cli --user --test run past --no-default-features -- --nocapture -p");
        let asked = Asked::read(&given);
        assert!(!asked.is_root);
        assert_eq!(asked.built, ["-p", "pollux-cli", "--test", "run", "--no-default-features"]);
        assert_eq!(asked.programs, ["past", "--nocapture", "-p"]);
        assert_eq!((Asked::read(&[]).is_root, Asked::read(&[]).built.len()), (true, 0));
    }

    #[test]
    fn what_programs_say_is_counted_and_failures_are_named() {
        let said = "\
== /w/target/debug/deps/run-0123abcd
skipped: uring: a seccomp filter forbids it (servers::redis_serves)
test servers::redis_serves ... ok
test past ... FAILED
failures:

---- past stdout ----
    at some place

failures:
    passing::past
    past

test result: FAILED. 1 passed; 2 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s
== /w/target/debug/deps/pollux_sys-4567
    4 of 4 scripts
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        let mut tally = Tally::default();
        said.lines().for_each(|line| tally.read(line));
        assert_eq!(
            tally.to_string(),
            "2 programs of tests, 41 tests passed, 2 failed, 2 ignored, 1 lines say what was skipped\n\
             failed: run passing::past\nfailed: run past"
        );
    }

    #[test]
    fn rules_hold_for_the_capabilities_and_the_machine_that_they_name() {
        let profile = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
            "syscalls": [
                { "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [] },
                { "names": ["chroot"], "action": "SCMP_ACT_ALLOW", "includes": { "caps": ["CAP_SYS_CHROOT"] } },
                { "names": ["chroot"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
                  "excludes": { "caps": ["CAP_SYS_CHROOT"] } },
                { "names": ["s390_pci_mmio_read"], "action": "SCMP_ACT_ALLOW", "includes": { "arches": ["s390x"] } },
            ],
        });
        let of = |is_root| filter(&profile, is_root)["syscalls"].clone();
        let read = json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [] });
        let allowed = json!({ "names": ["chroot"], "action": "SCMP_ACT_ALLOW" });
        let refused = json!({ "names": ["chroot"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 });
        assert_eq!(of(true), json!([read, allowed]));
        assert_eq!(of(false), json!([read, refused]));
    }
}
