//! `cargo xtask container`: the tests in a container with the filter of system calls that Podman and Docker have by
//! default, which forbids io_uring, as root with a container's capabilities or as an ordinary user.
//!
//! The container's root folder is this machine's, without a way to write to it; `/tmp` and what lies below `target/tmp`
//! are its own, and so are network, processes and queues. Needs root, runc, and the filter of Debian's
//! golang-github-containers-common.

use std::fs;
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

/// Runs each program of tests, and says at the end which failed: the folder of its crate and its path in each line of
/// standard input.
const RUN_ALL: &str = r#"
failed=
while read -r folder program; do
  cd "$folder" || exit 2
  printf '\n== %s\n' "$program"
  CARGO_MANIFEST_DIR="$folder" "$program" </dev/null 2>&1 || failed="$failed $program"
done
[ -z "$failed" ] && echo 'all programs of tests passed' && exit 0
echo "failed:$failed"
exit 1
"#;

/// Builds the tests that `arguments` name (`cargo test`; the workspace without any), and runs them there.
pub(crate) fn test(root: &Path, arguments: &[String]) -> Result<String, String> {
    let (user, arguments): (Vec<&String>, _) = arguments.iter().partition(|word| *word == "--user");
    let is_root = user.is_empty();
    let programs = programs(root, &arguments)?;
    let bundle = root.join("target/container");
    let rootfs = bundle.join("root");
    fs::create_dir_all(&rootfs).map_err(|error| format!("{}: {error}", rootfs.display()))?;
    fs::create_dir_all(root.join("target/tmp")).map_err(|error| error.to_string())?;
    let profile = fs::read_to_string(PROFILE).map_err(|error| {
        format!("{PROFILE}: {error}; expected Debian's golang-github-containers-common")
    })?;
    let profile = serde_json::from_str(&profile).map_err(|error| format!("{PROFILE}: {error}"))?;
    let config = config(root, &filter(&profile, is_root), is_root);
    let written = fs::write(bundle.join("config.json"), config.to_string());
    written.map_err(|error| format!("{}: {error}", bundle.display()))?;
    // The root folder is mounted where nobody else sees it.
    let start = "mount --make-rprivate / && mount --bind / \"$0/root\" && exec runc run --bundle \"$0\" \"$1\"";
    let name = format!("pollux-tests-{}", std::process::id());
    let mut runc = Command::new("unshare");
    runc.args(["--mount", "sh", "-c", start]).arg(&bundle).arg(name);
    let mut running =
        runc.stdin(Stdio::piped()).spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut list = running.stdin.take().ok_or("standard input is a pipe")?;
    let written = std::io::Write::write_all(&mut list, programs.as_bytes());
    drop(list);
    let status = running.wait().map_err(|error| format!("runc: {error}"))?;
    written.map_err(|error| format!("runc: {error}"))?;
    if status.success() {
        Ok("the tests pass in a container".to_owned())
    } else {
        Err(format!("runc: {status}"))
    }
}

/// A line for each program of tests: the folder of its crate, and its path.
fn programs(root: &Path, arguments: &[&String]) -> Result<String, String> {
    let mut cargo = super::cargo();
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    if arguments.is_empty() {
        cargo.arg("--workspace");
    }
    let built = cargo.args(arguments).current_dir(root).stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!("cargo test --no-run: {}", built.status));
    }
    let mut lines = String::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let is_test =
            message["profile"]["test"] == true && message["target"]["kind"] != json!(["bench"]);
        if let (true, Some(program)) = (is_test, message["executable"].as_str()) {
            let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().unwrap_or(root);
            lines += &format!("{} {program}\n", folder.display());
        }
    }
    Ok(lines)
}

/// The configuration of the container, as OCI's runtime specification has it.
fn config(root: &Path, filter: &Value, is_root: bool) -> Value {
    let held: &[&str] = if is_root { &CAPABILITIES } else { &[] };
    let capabilities = json!({ "bounding": held, "effective": held, "permitted": held });
    let id = if is_root { 0 } else { USER };
    let path = std::env::var("PATH").unwrap_or_default();
    let target = root.join("target");
    let own = |at: &Path| {
        json!({ "destination": at, "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=1777"] })
    };
    let of_kernel = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": kind, "options": options });
    json!({
        "ociVersion": "1.0.2",
        "hostname": "container",
        "root": { "path": "root", "readonly": true },
        "process": {
            "args": ["sh", "-c", RUN_ALL],
            "cwd": root,
            "user": { "uid": id, "gid": id },
            "env": [format!("PATH={path}"), "HOME=/tmp", "LANG=C.UTF-8"],
            "capabilities": capabilities,
        },
        "mounts": [
            of_kernel("/proc", "proc", &[]),
            of_kernel("/dev", "tmpfs", &["nosuid", "mode=755"]),
            of_kernel("/dev/pts", "devpts", &["newinstance", "ptmxmode=0666", "mode=0620"]),
            of_kernel("/dev/shm", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
            of_kernel("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            of_kernel("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            own(Path::new("/tmp")),
            { "destination": root, "type": "bind", "source": root, "options": ["rbind", "ro"] },
            own(&target.join("tmp")),
        ],
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
        let (wanted, unwanted) = (&rule["includes"], &rule["excludes"]);
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
