//! What the runners of `lockstep.rs` set up: the folder of the site, a configuration for each set-up, and what the
//! table's requests look like there; the ways in which a request is sent, and which differences between answers
//! they may explain.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pollux_engine::{Moment, Now, Rehearsal};
use pollux_server::config::ServeConfig;
use pollux_server::{HttpSession, Logs, LoopState, ServerCounters};
use pollux_settings::Given;
use tempfile::TempDir;

use crate::cases::{After, Case, Interim, Setup, cases, find};
use crate::verdict::{self, Answers};

/// Asks for one more answer, and for the end. Every set-up answers 200.
pub(crate) const PROBE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// Every set-up.
pub(crate) const SETUPS: [Setup; 3] = [Setup::Reply, Setup::Echo, Setup::Files];

/// Requests up to here are sent byte by byte, longer ones in pieces of [`PIECE_BYTES`].
const BYTE_BY_BYTE_MAX: usize = 2048;
const PIECE_BYTES: usize = 997;
/// Bytes that are sent at most for the evenly spread offsets of one request.
const SPREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

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
    let shared = LoopState::new(config, counters, &Logs::default()).expect("made");
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

/// How a request is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Whole,
    /// In pieces of so many bytes.
    Pieces(usize),
    /// In two, here.
    Split(usize),
    /// Whole, and then so many bytes twice which no answer depends on: what a client sends that has not
    /// seen its refusal yet.
    Followed(usize),
}

impl Way {
    /// Whole, in pieces, and split at every offset; beyond `every_offset_max` bytes the offsets
    /// are about `offsets` evenly spread ones (fewer beyond [`SPREAD_BYTES_MAX`] in all) and those
    /// around the end of the first head.
    pub(crate) fn all(request: &[u8], every_offset_max: usize, offsets: usize) -> Vec<Self> {
        let len = request.len();
        let piece = if len <= BYTE_BY_BYTE_MAX { 1 } else { PIECE_BYTES };
        let offsets = offsets.min(SPREAD_BYTES_MAX.div_ceil(len));
        let stride = if len <= every_offset_max { 1 } else { len.div_ceil(offsets) };
        let mut cuts: Vec<usize> = (1..len).step_by(stride).collect();
        if let Some(end) = find(request, b"\r\n\r\n") {
            cuts.extend(end..(end + 6).min(len));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let splits = cuts.into_iter().filter(|at| *at > 0).map(Self::Split);
        [Self::Whole, Self::Pieces(piece)].into_iter().chain(splits).collect()
    }

    /// What must come of `case` when it is sent in this way: a fault that is read together with
    /// its head is refused, for no answer has begun.
    pub(crate) fn judged(self, case: &Case) -> Case {
        let is_one_read = self == Self::Whole && case.request.len() <= BYTE_BY_BYTE_MAX;
        let after = match case.after {
            After::ClosedOrCut if is_one_read => After::Closed,
            after => after,
        };
        Case { after, ..case.clone() }
    }

    /// The piece of a request of `len` bytes that is sent in step `step`; none behind the last.
    pub(crate) fn piece(self, step: usize, len: usize) -> Option<Range<usize>> {
        let (start, end) = match (self, step) {
            (Self::Whole, 0) => (0, len),
            (Self::Pieces(bytes), step) => (step * bytes, (step + 1) * bytes),
            (Self::Split(at), 0) => (0, at),
            (Self::Split(at), 1) => (at, len),
            (Self::Followed(more), 0) => (0, len - 2 * more),
            (Self::Followed(more), 1 | 2) => (len - (3 - step) * more, len - (2 - step) * more),
            _ => return None,
        };
        (start < len).then_some(start..end.min(len))
    }
}

/// What came of a case, without the answer to the probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    /// Dates masked.
    pub(crate) stream: Vec<u8>,
    pub(crate) has_ended: bool,
    /// The connection broke behind a refusal while the client was still sending.
    pub(crate) has_broken: bool,
}

impl Came {
    /// Takes the answer to the probe off what came up to the end. Without it the connection was
    /// not kept, and all of it belongs to the case.
    pub(crate) fn before_probe(stream: &[u8], probe_answer: &[u8]) -> Self {
        let stream = masked(stream);
        match stream.strip_suffix(probe_answer) {
            Some(own) => Self { stream: own.to_vec(), has_ended: false, has_broken: false },
            None => Self { stream, has_ended: true, has_broken: false },
        }
    }
}

/// What came of each case when it was rehearsed whole: everything else is compared to it.
pub(crate) fn references(stage: &Stage) -> Vec<Came> {
    stage.scenes.iter().map(|scene| crate::lockstep::rehearse(stage, scene, Way::Whole)).collect()
}

/// Judges `came` and compares it to the reference. Most bytes have to be the same; what may
/// differ is said here, and is judged by the case alone or compared without its framing:
///
/// * A body that is broken in its middle, or not whole, may be echoed as far as it was sound
///   when it came, and that depends on how it came.
/// * An echo of a chunked body has the chunks in which it was read.
/// * 100 Continue is left out when the body was there with the head, so it depends on whether
///   it was.
///
/// # Errors
/// What is not as it must be, in words.
pub(crate) fn compare(case: &Case, reference: &Came, came: &Came) -> Result<(), String> {
    if reference == came {
        return Ok(());
    }
    verdict::judge(case, &came.stream, came.has_ended)?;
    if came.has_broken {
        return Err("refused without waiting for a client that is still sending".to_owned());
    }
    let is_cut_anywhere = case.after == After::ClosedOrCut
        || case.after == After::Waiting && case.setup == Setup::Echo;
    if is_cut_anywhere {
        return Ok(());
    }
    if came.has_ended != reference.has_ended {
        return Err(format!("ended: {}, in the rehearsal {}", came.has_ended, reference.has_ended));
    }
    let ours = &reference.stream;
    let theirs = &came.stream;
    let may_differ = framing_may_differ(case, ours);
    let loose = |s| without_framing(case, s);
    if may_differ && loose(ours) == loose(theirs) {
        return Ok(());
    }
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| bytes[at..bytes.len().min(at + 60)].escape_ascii().to_string();
    Err(format!("from byte {at} on: \"{}\", rehearsed \"{}\"", show(theirs), show(ours)))
}

fn framing_may_differ(case: &Case, stream: &[u8]) -> bool {
    let is_chunked = || find(stream, b"\r\nTransfer-Encoding: ").is_some();
    may_get_a_100_continue(case) || case.setup == Setup::Echo && is_chunked()
}

fn may_get_a_100_continue(case: &Case) -> bool {
    case.answers.iter().any(|answer| answer.interim == Interim::May)
}

/// The answers without their chunks, and without what stands before them where it may be left out.
fn without_framing(case: &Case, stream: &[u8]) -> Answers {
    let mut answers = Answers::parse(stream, &case.heads()).expect("judged before");
    if may_get_a_100_continue(case) {
        answers.whole.iter_mut().for_each(|answer| answer.interims = 0);
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Came {
        Came { stream: Vec::new(), has_ended: false, has_broken: false }
    }

    #[test]
    fn every_way_sends_all_bytes_in_order() {
        let request: Vec<u8> = b"GET / HTTP/1.1\r\n\r\n".iter().copied().chain(0..200).collect();
        for every_offset_max in [0, 1000] {
            let ways = Way::all(&request, every_offset_max, 10);
            assert!(ways.len() >= if every_offset_max > 0 { request.len() } else { 14 });
            for way in ways.into_iter().chain([Way::Followed(50)]) {
                let pieces = (0..).map_while(|step| way.piece(step, request.len()));
                let sent: Vec<u8> = pieces.flat_map(|piece| request[piece].to_vec()).collect();
                assert_eq!(sent, request, "{way:?}");
            }
        }
    }

    #[test]
    fn a_difference_is_found_unless_it_may_be() {
        let head = "HTTP/1.1 200 OK\r\nDate: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let came = |body: &str| Came { stream: format!("{head}{body}").into(), ..quiet() };
        let request = "POST / HTTP/1.1\r\n\r\n";
        let echo = crate::cases::case(Setup::Echo, "x", "9112 7.1", request);
        let echo = echo.kept([crate::cases::ok()]);
        let one = came("2\r\nab\r\n0\r\n\r\n");
        let two = came("1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
        assert_eq!(compare(&echo, &one, &two), Ok(()));
        assert!(compare(&echo, &one, &came("2\r\nac\r\n0\r\n\r\n")).is_err());
        let files = Case { setup: Setup::Files, ..echo };
        assert!(compare(&files, &one, &two).is_err());
        assert!(compare(&files, &one, &Came { has_ended: true, ..one.clone() }).is_err());
        assert!(compare(&files, &one, &Came { has_broken: true, ..one.clone() }).is_err());
    }

    #[test]
    fn the_answer_to_the_probe_is_taken_off() {
        let kept = Came::before_probe(b"abcprobe", b"probe");
        assert_eq!(kept, Came { stream: b"abc".to_vec(), ..quiet() });
        assert!(Came::before_probe(b"abc", b"probe").has_ended);
    }
}
