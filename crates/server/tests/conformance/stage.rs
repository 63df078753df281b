//! What the runners set up: the folder of the site, a configuration for each set-up, and what the
//! table's requests look like there. `rehearsed.rs` and `drivers.rs` play on it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pollux_engine::{Moment, Now, Rehearsal};
use pollux_server::config::ServeConfig;
use pollux_server::{HttpSession, Logs, ServerCounters, Shared};
use pollux_settings::Given;
use tempfile::TempDir;

use crate::answers::Answers;
use crate::case::{Case, Setup, find};
use crate::cases::cases;
use crate::site;

/// Asks for one more answer, and for the end. Every set-up answers 200.
pub(crate) const PROBE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A case as it is sent here.
pub(crate) struct Scene {
    pub(crate) case: Case,
    /// The case's request with the tag of this stage's site.
    pub(crate) request: Vec<u8>,
}

impl Scene {
    /// The same with `more` bytes behind it, twice.
    pub(crate) fn followed(&self, more: usize) -> Self {
        let request = [self.request.clone(), vec![b'z'; 2 * more]].concat();
        Self { case: self.case.clone(), request }
    }
}

/// The folder that is served, and everything that does not depend on the server.
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) scenes: Vec<Scene>,
    /// A rehearsal's configuration and the answer to a probe, by set-up.
    plain: Vec<(Setup, ServeConfig, Vec<u8>)>,
}

/// Every set-up.
pub(crate) const SETUPS: [Setup; 3] = [Setup::Reply, Setup::Echo, Setup::Files];

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        lay_out(&folder.path().join("site"));
        let mut stage = Self { folder, scenes: Vec::new(), plain: Vec::new() };
        let plain = |setup| {
            let config = stage.config(setup, "");
            let mut play = rehearsal(&config);
            play.feed(PROBE);
            (setup, config, masked(&play.take_output()))
        };
        stage.plain = SETUPS.map(plain).to_vec();
        let tag = stage.tag();
        let scene = |case: Case| Scene { request: case.request_with(tag.as_bytes()), case };
        stage.scenes = cases().into_iter().map(scene).collect();
        stage
    }

    /// A place for sockets and other files of a runner.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A server in this set-up, with further settings. Its deadlines are far beyond what any
    /// exchange takes, for they are not the subject here.
    pub(crate) fn config(&self, setup: Setup, more: &str) -> ServeConfig {
        let answer = match setup {
            Setup::Reply => "reply = 128".to_owned(),
            Setup::Echo => "echo = true".to_owned(),
            Setup::Files => {
                format!("dir = {:?}\nprecompressed = true", self.folder().join("site"))
            }
        };
        let text = format!(
            "{answer}\nheader_timeout = \"60s\"\nbody_timeout = \"60s\"\nquiet = true\n{more}"
        );
        Given::from_toml(&text, "conformance").read().expect("right")
    }

    /// A connection of a server in this set-up, without a kernel.
    pub(crate) fn rehearsal(&self, setup: Setup) -> Rehearsal<HttpSession> {
        rehearsal(&self.plain(setup).1)
    }

    /// What a probe is answered with, its date masked.
    pub(crate) fn answer_to_probe(&self, setup: Setup) -> &[u8] {
        &self.plain(setup).2
    }

    fn plain(&self, setup: Setup) -> &(Setup, ServeConfig, Vec<u8>) {
        self.plain.iter().find(|plain| plain.0 == setup).expect("made for every set-up")
    }

    fn tag(&self) -> String {
        let mut play = self.rehearsal(Setup::Files);
        play.feed(b"GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n");
        let answers = Answers::parse(&play.take_output(), &[]).expect("sound");
        answers.whole[0].field("etag").expect("files have a tag").to_owned()
    }
}

fn rehearsal(config: &ServeConfig) -> Rehearsal<HttpSession> {
    let counters: Arc<ServerCounters> = Arc::default();
    let shared = Shared::new(config, counters, &Logs::default()).expect("made");
    let now = Now { at: Moment::from_nanos(1), unix_s: site::MODIFIED_S + 60 };
    Rehearsal::new(shared, now)
}

/// Makes the folder that the table knows.
fn lay_out(root: &Path) {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(site::MODIFIED_S);
    for (path, content) in site::FILES {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(&path, content).expect("written");
        let file = std::fs::File::options().write(true).open(&path).expect("just written");
        file.set_modified(modified).expect("set");
    }
    let (link, target) = site::LINK_OUT;
    std::os::unix::fs::symlink(target, root.join(link)).expect("a link");
}

/// The bytes with every date of a Date field overwritten.
pub(crate) fn masked(stream: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"\r\nDate: ";
    let mut masked = stream.to_vec();
    let mut from = 0;
    while let Some(at) = find(&masked[from..], NAME) {
        let start = from + at + NAME.len();
        let end = masked.len().min(start + site::MODIFIED.len());
        masked[start..end].fill(b'-');
        from = end;
    }
    masked
}

#[test]
fn dates_are_masked_and_nothing_else() {
    let stream = format!("A\r\nDate: {}\r\nB\r\nDate: Sun", site::MODIFIED);
    let expected = format!("A\r\nDate: {}\r\nB\r\nDate: ---", "-".repeat(29));
    assert_eq!(masked(stream.as_bytes()), expected.as_bytes());
}
