//! What the runners set up: the folder of the site, a configuration for each set-up, and what the
//! table's requests look like there. `lockstep.rs` plays on it without a kernel, the
//! second half of this file on real servers.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pollux_engine::{Counter, Driver, GroupError, Moment, Now, Rehearsal};
use pollux_server::config::ServeConfig;
use pollux_server::{HttpSession, Logs, Server, ServerCounters, ServerError, Shared};
use pollux_settings::Given;
use tempfile::TempDir;

use crate::cases::{Case, Setup, cases, find};
use crate::lockstep::{Job, Lockstep};
use crate::sending::{Came, Way, compare, references};
use crate::verdict::Answers;

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
    let now = Now { at: Moment::from_nanos(1), unix_s: MODIFIED_S + 60 };
    Rehearsal::new(shared, now)
}

/// Makes the folder that the table knows.
fn lay_out(root: &Path) {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_S);
    for (path, content) in FILES {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(&path, content).expect("written");
        let file = std::fs::File::options().write(true).open(&path).expect("just written");
        file.set_modified(modified).expect("set");
    }
    let (link, target) = LINK_OUT;
    std::os::unix::fs::symlink(target, root.join(link)).expect("a link");
}

/// The bytes with every date of a Date field overwritten.
pub(crate) fn masked(stream: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"\r\nDate: ";
    let mut masked = stream.to_vec();
    let mut from = 0;
    while let Some(at) = find(&masked[from..], NAME) {
        let start = from + at + NAME.len();
        let end = masked.len().min(start + MODIFIED.len());
        masked[start..end].fill(b'-');
        from = end;
    }
    masked
}

#[test]
fn dates_are_masked_and_nothing_else() {
    let stream = format!("A\r\nDate: {MODIFIED}\r\nB\r\nDate: Sun");
    let expected = format!("A\r\nDate: {}\r\nB\r\nDate: ---", "-".repeat(29));
    assert_eq!(masked(stream.as_bytes()), expected.as_bytes());
}

/// Files, by their path below the directory. All were last modified at [`MODIFIED_S`].
pub(crate) const FILES: &[(&str, &[u8])] = &[
    ("index.html", b"<!doctype html><title>pollux</title>\n"),
    ("hello.txt", HELLO),
    ("empty.txt", b""),
    ("a b.txt", b"a space in the name\n"),
    ("sub/index.html", b"<!doctype html><title>sub</title>\n"),
    ("sub/page.txt", b"a page below\n"),
    ("bare/file.txt", b"its directory has no index\n"),
    ("app.js", b"plain"),
    ("app.js.gz", b"stands for gzip"),
    ("app.js.br", b"stands for brotli"),
    ("app.js.zst", b"stands for zstd"),
    ("only.js", b"no variants"),
];

/// A symbolic link, by its path, and where it leads: out of the directory.
pub(crate) const LINK_OUT: (&str, &str) = ("outside", "../");

/// `hello.txt`: 100 bytes, each ten the same.
pub(crate) const HELLO: &[u8] = b"\
0123456789012345678901234567890123456789\
0123456789012345678901234567890123456789\
01234567890123456789";

/// When the files were modified, in seconds since 1970: the example date of RFC 9110 5.6.7.
pub(crate) const MODIFIED_S: u64 = 784_111_777;

/// The same as a date.
pub(crate) const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The content of a file.
///
/// # Panics
/// When the site has none of that name.
pub(crate) fn content(path: &str) -> &'static [u8] {
    let file = FILES.iter().find(|(name, _)| *name == path);
    file.expect("the cases name files of the site").1
}

#[test]
fn the_site_is_what_the_cases_rely_on() {
    assert_eq!(HELLO.len(), 100);
    assert_eq!(content("empty.txt"), b"");
    assert!(FILES.iter().all(|(path, _)| *path != LINK_OUT.0 && LINK_OUT.1.starts_with("..")));
    assert!(MODIFIED_S == 784_111_777 && MODIFIED.ends_with("08:49:37 GMT"));
}

const EVERY_OFFSET_MAX: usize = 512;
const OFFSETS: usize = 50;
/// Bytes that follow a refused request, twice.
const MORE: usize = 1000;
/// Connections at once. Both ends are in this process, and `select` knows 1024 descriptors.
const BATCH: usize = 100;
/// Drivers at once, for a server and its clients take turns.
const DRIVERS_AT_ONCE: usize = 2;

/// Every case is sent whole over TCP; those that are refused also with more bytes behind them, as
/// by a client that has not seen the refusal yet. Over unix sockets every case is sent whole, byte
/// by byte (in pieces of 997 bytes when it has more than 2048) and split in two. Up to
/// [`EVERY_OFFSET_MAX`] bytes that is at every offset, and most of the table is no longer; longer
/// requests are split at about [`OFFSETS`] offsets and around the end of their first head, for the
/// time: a megabyte has a million offsets. `lockstep.rs` splits more, without a kernel.
///
/// What comes has to be what the rehearsal gave, byte for byte, but for what [`compare`] names.
#[test]
fn every_driver_keeps_the_table_however_it_is_sent() {
    let stage = Stage::new();
    let references = references(&stage);
    let waiting: Mutex<VecDeque<Driver>> = Mutex::new(Driver::ALL.into());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..DRIVERS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no panic under it").pop_front();
                    let Some(driver) = next else { break };
                    let found = faults_of(driver, &stage, &references);
                    faults.lock().expect("no panic under it").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic under it");
    let shown = faults.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults:\n{shown}", faults.len());
}

/// Starts a server with a TCP and a unix address; none where the driver is not available.
pub(crate) fn start(stage: &Stage, setup: Setup, driver: Driver) -> Option<Server> {
    let path = stage.folder().join(format!("{driver}-{setup:?}"));
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let config = stage.config(setup, &format!("poller = \"{driver}\"\n{listen}"));
    match Server::start(&config) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
            pollux_testing::skip(format_args!("{driver}: {reason}"));
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

/// Ends a server, which has to end well.
pub(crate) fn end(driver: Driver, server: Server) {
    server.abort();
    server.join().unwrap_or_else(|error| panic!("{driver}: {error}"));
}

fn faults_of(driver: Driver, stage: &Stage, references: &[Came]) -> Vec<String> {
    let mut faults = Vec::new();
    for setup in SETUPS {
        let Some(server) = start(stage, setup, driver) else { break };
        let [tcp, unix] = server.addresses() else { panic!("two were asked for") };
        let probe_answer = stage.answer_to_probe(setup);
        let scenes = stage.scenes.iter().zip(references);
        let scenes: Vec<_> = scenes.filter(|(scene, _)| scene.case.setup == setup).collect();
        let mut over_tcp = Lockstep::new(&server, tcp, 0, probe_answer);
        faults.extend(play(&mut over_tcp, &jobs(&scenes, |_| vec![Way::Whole])));
        let refused = scenes.iter().filter(|(scene, _)| scene.case.is_refused());
        let refused: Vec<_> = refused.map(|&(scene, came)| (scene.followed(MORE), came)).collect();
        let refused: Vec<_> = refused.iter().map(|(scene, came)| (scene, *came)).collect();
        faults.extend(play(&mut over_tcp, &jobs(&refused, |_| vec![Way::Followed(MORE)])));
        let ways = |scene: &Scene| Way::all(&scene.request, EVERY_OFFSET_MAX, OFFSETS);
        let mut over_unix = Lockstep::new(&server, unix, over_tcp.connects(), probe_answer);
        faults.extend(play(&mut over_unix, &jobs(&scenes, ways)));
        let engine = &server.overview().loops[0].engine;
        let reads = engine.value(Counter::Receives) - engine.value(Counter::ReceivesEmpty);
        let pieces = over_tcp.pieces() + over_unix.pieces();
        assert!(reads >= pieces, "{driver}: {pieces} pieces were read at {reads} times");
        end(driver, server);
    }
    faults.iter().map(|fault| format!("{driver}, {fault}")).collect()
}

/// Plays all jobs, so many at once; what is wrong with what came.
fn play(lockstep: &mut Lockstep<'_>, jobs: &[Job<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for jobs in jobs.chunks(BATCH) {
        for (job, came) in jobs.iter().zip(lockstep.play(jobs)) {
            let Job { scene: Scene { case, .. }, reference, way } = job;
            if let Err(fault) = compare(&way.judged(case), reference, &came) {
                faults.push(format!("{} (RFC {}), {way:?}: {fault}", case.name, case.rfc));
            }
        }
    }
    faults
}

/// The jobs of all scenes; those of as many steps stand together, for they wait for each other.
fn jobs<'a>(scenes: &[(&'a Scene, &'a Came)], ways: impl Fn(&Scene) -> Vec<Way>) -> Vec<Job<'a>> {
    let of = |&(scene, reference): &(&'a Scene, &'a Came)| {
        ways(scene).into_iter().map(move |way| Job { scene, reference, way })
    };
    let mut jobs: Vec<_> = scenes.iter().flat_map(of).collect();
    jobs.sort_by_key(|job| match job.way {
        Way::Pieces(bytes) => job.scene.request.len().div_ceil(bytes),
        Way::Whole | Way::Split(_) | Way::Followed(_) => 0,
    });
    jobs
}
