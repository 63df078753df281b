//! An image after the OCI image format: one layer, its configuration, a manifest and an index, each named
//! by its SHA-256, in one archive. `podman load`, `docker load` and `skopeo copy oci-archive:` read it.
//!
//! Times and owners are fixed, so the same program gives the same image.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pollux_host::Program;
use pollux_xatmi_c::prefix::place;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use super::{DEADLINE, answer, inside, open_to_all, size_of, version};
use crate::install::at;

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Port of the server in the image.
const PORT: u16 = 8080;

/// What an agent without a broker says, and tries again.
const NO_BROKER: &str = "it is tried again until there is a connection";

/// What lies in an image, and its configuration.
pub(super) struct Content {
    /// Places without a leading slash, where each is copied from, and modes.
    files: Vec<(String, PathBuf, u32)>,
    /// The name that it is loaded by.
    name: &'static str,
    entry: &'static str,
    arguments: Vec<String>,
    port: Option<u16>,
}

impl Content {
    /// The program, and a page that it serves until a volume takes its place.
    pub(super) fn of(program: &Path, page: &Path) -> Self {
        let listen = format!("0.0.0.0:{PORT}");
        Self {
            files: vec![
                ("srv/index.html".to_owned(), page.to_owned(), 0o644),
                ("usr/bin/pollux".to_owned(), program.to_owned(), 0o755),
            ],
            name: "pollux:latest",
            entry: "/usr/bin/pollux",
            arguments: ["serve", "/srv", "--listen", &listen].map(str::to_owned).into(),
            port: Some(PORT),
        }
    }

    /// An agent, whose flags follow the name of the image; the broker may stand in the environment.
    pub(super) fn of_agent(program: &Path) -> Self {
        Self {
            files: vec![("usr/bin/pollux-agent".to_owned(), program.to_owned(), 0o755)],
            name: "pollux-agent:latest",
            entry: "/usr/bin/pollux-agent",
            arguments: Vec::new(),
            port: None,
        }
    }
}

/// Writes the image to `path`.
pub(super) fn write(path: &Path, content: &Content, version: &str) -> Result<(), String> {
    let made =
        image(content, version).and_then(|bytes| place(path, |path| std::fs::write(path, &bytes)));
    made.map_err(|error| format!("{}: {error}", path.display()))
}

fn image(content: &Content, version: &str) -> io::Result<Vec<u8>> {
    let layer = layer(content)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    gzip.write_all(&layer)?;
    let packed = gzip.finish()?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let ports: serde_json::Map<String, Value> =
        content.port.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": "65534:65534",
            "ExposedPorts": ports,
            "Entrypoint": [content.entry],
            "Cmd": content.arguments,
            "StopSignal": "SIGTERM",
            "Labels": { "org.opencontainers.image.version": version },
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &packed)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": content.name });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] }))?;

    let mut archive = Builder::new(Vec::new());
    file(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    file(&mut archive, "index.json", &index, 0o644)?;
    for blob in [&config, &manifest, &packed] {
        file(&mut archive, &blob_of(&digest(blob)), blob, 0o644)?;
    }
    archive.into_inner()
}

fn layer(content: &Content) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut folders: Vec<&Path> = content
        .files
        .iter()
        .flat_map(|(name, _, _)| Path::new(name).ancestors().skip(1))
        .filter(|folder| *folder != Path::new(""))
        .collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let mut header = header(0, 0o755);
        header.set_entry_type(EntryType::Directory);
        archive.append_data(&mut header, folder, io::empty())?;
    }
    for (name, from, mode) in &content.files {
        file(&mut archive, name, &std::fs::read(from)?, *mode)?;
    }
    archive.into_inner()
}

fn header(len: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(len);
    header.set_mode(mode);
    header
}

fn file(archive: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64, mode), name, bytes)
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn blob_of(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() })
}

/// Reads an image as an engine does, by its digests; gives its configuration, and unpacks its layers into
/// `root`.
fn unpack(image: &Path, root: &Path) -> Result<Value, String> {
    let mut parts = std::collections::HashMap::new();
    let mut archive = Archive::new(File::open(image).map_err(at(image))?);
    for entry in archive.entries().map_err(at(image))? {
        let mut entry = entry.map_err(at(image))?;
        let name = entry.path().map_err(at(image))?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(at(image))?;
        parts.insert(name, bytes);
    }
    let blob = |of: &Value| {
        let named = of["digest"].as_str().unwrap_or_default();
        let bytes = parts.get(&blob_of(named)).ok_or_else(|| format!("blob {named} is missing"))?;
        let is_right = digest(bytes) == named && of["size"] == bytes.len();
        if is_right { Ok(bytes) } else { Err(format!("blob {named} has another digest or size")) }
    };
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|e| e.to_string());
    let index: Value = read(parts.get("index.json").ok_or("index.json is missing")?)?;
    let manifest: Value = read(blob(&index["manifests"][0])?)?;
    let config: Value = read(blob(&manifest["config"])?)?;
    for (number, layer) in manifest["layers"].as_array().into_iter().flatten().enumerate() {
        let mut bytes = Vec::new();
        let mut unpacking = flate2::read::GzDecoder::new(blob(layer)?.as_slice());
        unpacking.read_to_end(&mut bytes).map_err(at(image))?;
        if config["rootfs"]["diff_ids"][number] != digest(&bytes) {
            return Err(format!("layer {number} has another digest than its configuration says"));
        }
        Archive::new(bytes.as_slice()).unpack(root).map_err(at(root))?;
    }
    Ok(config)
}

/// An image that was unpacked into a root folder of its own.
struct Unpacked {
    root: tempfile::TempDir,
    /// The program, and what its configuration has it called with.
    program: String,
    arguments: Vec<String>,
    version: String,
}

impl Unpacked {
    fn new(image: &Path, commit: &str) -> Result<Self, String> {
        let root = tempfile::tempdir().map_err(|error| error.to_string())?;
        let config = unpack(image, root.path())?;
        open_to_all(root.path())?;
        let words = |key: &str| {
            let all = config["config"][key].as_array().into_iter().flatten();
            all.map(|word| word.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        let entry = words("Entrypoint");
        let arguments = words("Cmd");
        let [program] = entry.as_slice() else { return Err(format!("its entry is {entry:?}")) };
        let version = version(&mut inside(root.path(), &[program.as_str()]), commit)?;
        Ok(Self { program: program.clone(), arguments, version, root })
    }
}

/// Unpacks the image into a root folder and starts it there as its configuration says.
pub(super) fn tried(image: &Path, commit: &str) -> Result<String, String> {
    let Unpacked { root, program, mut arguments, version } = Unpacked::new(image, commit)?;
    // Any free port, as the image's own may be taken here.
    let listen = arguments.last_mut().ok_or("it has no arguments")?;
    *listen = "127.0.0.1:0".to_owned();
    let words: Vec<_> = std::iter::once(&program).chain(&arguments).map(String::as_str).collect();
    let page = answer(&mut inside(root.path(), &words))?;
    if !page.contains("This page is served by pollux") {
        return Err(format!("the page of the image is \"{page}\""));
    }
    Ok(format!(
        "oci     {}, {}: {version}; its layer served its page in a root folder of its own",
        image.display(),
        size_of(image)?
    ))
}

/// The same of the image of an agent: it is started without a broker, for which it waits.
pub(super) fn tried_agent(image: &Path, commit: &str) -> Result<String, String> {
    let Unpacked { root, program, version, .. } = Unpacked::new(image, commit)?;
    let mut agent = inside(root.path(), &[&program, "--name", "image"]);
    agent.args(["--nats", "nats://127.0.0.1:1"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut agent = Program::start(&program, &mut agent).map_err(|error| format!("{error:?}"))?;
    let mut said = String::new();
    loop {
        let line = agent.line_within(DEADLINE).map_err(|error| format!("{error}: {said}"))?;
        let line = line.ok_or_else(|| format!("{program} ended: {said}"))?;
        if line.contains(NO_BROKER) {
            return Ok(format!(
                "oci     {}, {}: {version}; in a root folder of its own it waits for a broker",
                image.display(),
                size_of(image)?
            ));
        }
        said += &line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build of `pollux` with the libraries that it needs, which stand in for a static one.
    fn content(folder: &Path) -> Option<Content> {
        let program = crate::package::tests::built("pollux", folder)?;
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("package/site/index.html");
        Some(with_libraries(Content::of(&program, &page), &program))
    }

    fn with_libraries(mut content: Content, program: &Path) -> Content {
        let needs = std::process::Command::new("ldd").arg(program).output().expect("ldd runs");
        for word in String::from_utf8_lossy(&needs.stdout).split_whitespace() {
            if let Some(name) = word.strip_prefix('/') {
                content.files.push((name.to_owned(), PathBuf::from(word), 0o755));
            }
        }
        content
    }

    #[test]
    fn the_image_of_an_agent_waits_for_a_broker() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image.tar");
        let program = crate::package::tests::built("pollux-agent", folder.path());
        let (Some(program), true) = (program, crate::package::tests::is_root()) else {
            pollux_testing::skip("it needs root, and a build of pollux-agent");
            return;
        };
        let content = with_libraries(Content::of_agent(&program), &program);
        write(&image, &content, "1.2.3").expect("written");
        // A development build names no commit.
        let said = tried_agent(&image, "pollux-agent").expect("it works");
        assert!(said.contains("it waits for a broker"), "{said}");
    }

    #[test]
    fn an_image_is_unpacked_by_its_digests_and_serves_in_a_root_folder_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image.tar");
        let (Some(content), true) = (content(folder.path()), crate::package::tests::is_root())
        else {
            pollux_testing::skip("it needs root, and a build of pollux");
            return;
        };
        write(&image, &content, "1.2.3").expect("written");
        // A development build names no commit.
        let said = tried(&image, "pollux").expect("it works");
        println!("{said}");
        assert!(said.contains("its layer served its page"), "{said}");
    }

    #[test]
    fn the_same_content_makes_the_same_image_and_a_changed_blob_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        let page = folder.path().join("page");
        std::fs::write(&program, "a program").expect("written");
        std::fs::write(&page, "a page").expect("written");
        let content = Content::of(&program, &page);
        let bytes = image(&content, "1").expect("made");
        assert!(image(&content, "1").expect("made") == bytes, "it is the same");
        assert!(image(&content, "2").expect("made") != bytes, "the label differs");

        let path = folder.path().join("image.tar");
        let root = folder.path().join("root");
        std::fs::write(&path, &bytes).expect("written");
        let config = unpack(&path, &root).expect("sound");
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/pollux"]));
        assert_eq!(std::fs::read(root.join("srv/index.html")).expect("there"), b"a page");
        let name = b"pollux:latest";
        let mut wrong = bytes.clone();
        let place = bytes.windows(7).position(|w| w == b"SIGTERM").expect("in the configuration");
        wrong[place] = b'X';
        assert!(bytes.windows(name.len()).any(|w| w == name));
        std::fs::write(&path, &wrong).expect("written");
        let error = unpack(&path, &root).expect_err("changed");
        assert!(error.ends_with("has another digest or size"), "{error}");
    }
}
