//! The layers: a crate may use only crates of the layers below its own.
//!
//! Read from the manifests, all kinds of dependencies. ARCHITECTURE.md shows the same table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Every crate of the workspace with its layer; `xtask` is outside of them.
const LAYERS: [(&str, u32); 26] = [
    ("pollux-sys", 1),
    ("pollux-settings", 2),
    ("pollux-report", 1),
    ("pollux-stats", 1),
    ("pollux-poller", 2),
    ("pollux-testing", 3),
    ("pollux-conformance", 4),
    ("pollux-host", 2),
    ("pollux-doctor", 4),
    ("pollux-engine", 3),
    ("pollux-http", 3),
    ("pollux-tls", 4),
    ("pollux-async", 4),
    ("pollux-server", 5),
    ("pollux-load", 5),
    ("pollux-xatmi", 4),
    // What is only measured is in the layer below the lab, so that nothing else can use it.
    ("pollux-peer-polling", 5),
    ("pollux-xatmi-c", 5),
    ("pollux-epoll-c", 4),
    ("pollux-run", 3),
    ("pollux-preload", 5),
    ("pollux-lab", 6),
    ("pollux-acme", 6),
    ("pollux-agent", 6),
    ("pollux-pool", 6),
    ("pollux-cli", 7),
];

/// What the tests of every layer may use: the suite of the pollers with its simulated kernel, and what tests share.
const FOR_TESTS: [&str; 2] = ["pollux-testing", "pollux-conformance"];

/// Where the crates lie: those of event mechanisms, and those of the service pool.
const FOLDERS: [&str; 2] = ["crates", "pool/crates"];

/// The folders of all crates, by their paths from the root.
pub(crate) fn crates(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for above in FOLDERS {
        for entry in std::fs::read_dir(root.join(above)).map_err(|error| error.to_string())? {
            found.insert(
                Path::new(above).join(entry.map_err(|error| error.to_string())?.file_name()),
            );
        }
    }
    Ok(found)
}

/// Sentences for every dependency that goes up or sideways, and for crates without a layer.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for folder in crates(root)? {
        let path = root.join(folder).join("Cargo.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        found.extend(breaches_of(&text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    Ok(found)
}

fn breaches_of(manifest: &str) -> Result<Vec<String>, String> {
    let manifest: Table = manifest.parse().map_err(|error| format!("{error}"))?;
    let name = manifest.get("package").and_then(|package| package.get("name"));
    let name = name.and_then(Value::as_str).ok_or("no package.name")?;
    let Some(layer) = layer_of(name) else {
        return Ok(vec![format!("{name} has no layer: give it one in xtask/src/layers.rs")]);
    };
    let mut found = Vec::new();
    for dependency in dependencies(&manifest) {
        if let Some(other) = layer_of(&dependency)
            && other >= layer
        {
            found.push(format!("{name} (layer {layer}) uses {dependency} (layer {other})"));
        }
    }
    Ok(found)
}

fn layer_of(name: &str) -> Option<u32> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// The package names of all dependencies: normal, dev and build, for every target.
fn dependencies(manifest: &Table) -> Vec<String> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(|targets| targets.values());
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let mut names = Vec::new();
    for table in tables {
        for kind in KINDS {
            let Some(list) = table.get(kind).and_then(Value::as_table) else { continue };
            for (name, details) in list {
                let renamed = details.get("package").and_then(Value::as_str);
                let name = renamed.unwrap_or(name);
                if kind != "dev-dependencies" || !FOR_TESTS.contains(&name) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_uses_one_above_its_layer() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        assert_eq!(breaches(root), Ok(Vec::new()));
    }

    #[test]
    fn the_architecture_has_every_crate_on_its_layer() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
        let page = std::fs::read_to_string(page).expect("a page");
        for (name, layer) in LAYERS {
            let name = name.trim_start_matches("pollux-");
            let is_row = |line: &str| {
                line.starts_with(&format!("| {layer} |"))
                    && line
                        .split('|')
                        .nth(2)
                        .is_some_and(|cell| cell.contains(&format!("`{name}`")))
            };
            assert!(page.lines().any(is_row), "no row of layer {layer} has `{name}`");
        }
    }

    /// Programs beside it have the client of the broker, so that `pollux` is built as fast as without it.
    #[test]
    fn pollux_is_built_without_the_client_of_a_broker() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let names = |package: &str| {
            let mut cargo = crate::cargo();
            cargo.args(["tree", "--offline", "--locked", "--edges", "normal,build"]);
            cargo.args(["--prefix", "none", "--format", "{p}", "--package", package]);
            let told = cargo.current_dir(root).output().expect("cargo");
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            let text = String::from_utf8(told.stdout).expect("text");
            let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            text.lines().map(first).collect::<BTreeSet<String>>()
        };
        let clients = ["async-nats", "tokio"];
        let pollux = names("pollux-cli");
        let agent = names("pollux-agent");
        for client in clients {
            assert!(!pollux.contains(client) && agent.contains(client), "{client}");
        }
    }

    #[test]
    fn a_dependency_that_goes_up_is_found_wherever_it_stands() {
        let head = "[package]\nname = \"pollux-poller\"\n";
        for section in ["dependencies", "dev-dependencies", "target.'cfg(loom)'.dependencies"] {
            let manifest = format!("{head}[{section}]\npollux-lab.workspace = true\n");
            let found = breaches_of(&manifest).expect("a manifest");
            assert_eq!(found, ["pollux-poller (layer 2) uses pollux-lab (layer 6)"], "{section}");
        }
    }

    #[test]
    fn a_renamed_dependency_and_a_crate_without_a_layer_are_found() {
        let renamed = "[package]\nname = \"pollux-sys\"\n[dependencies]\nx = { package = \"pollux-cli\", path = \"../cli\" }\n";
        assert_eq!(breaches_of(renamed).expect("a manifest").len(), 1);
        let unknown = "[package]\nname = \"pollux-new\"\n";
        assert!(breaches_of(unknown).expect("a manifest")[0].contains("has no layer"));
    }
}
