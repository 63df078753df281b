//! Answers requests with the files below one folder.
//!
//! | asked for | answer |
//! |---|---|
//! | a file | 200, 206, 304, 412 or 416 by its tag and date |
//! | a folder without the slash | 301 to the one with it |
//! | a folder with the slash | its `index.html`, else its listing when that is on, else 403 |
//! | a name that starts with a dot, or a link to one | 404, whether it exists or not; `.well-known` is served |
//!
//! Tags are made of modification time in nanoseconds, size and inode: strong, unless the file
//! changed in the last two seconds, for then a second change may hide behind the same time; a modification time
//! that was set ahead says nothing of that, so the time of the last change of anything has to agree. With
//! `--precompressed` the file beside it that the client likes best is sent in its place, unless
//! it is older. Opening and reading small files blocks the loop as long as the disk takes.
//!
//! The served folder stays open; ten times a second, and where something is missing in a folder that was
//! removed, its path is looked up again, and another folder that stands there is served from then on.
use std::cell::RefCell;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, FileRange, Moment, Now};
use pollux_http::{
    Acceptable, ByteRange, ContentCoding, DateCache, EntityTag, FilePath, HeadWriter, Outcome,
    Representation, Request, Status, evaluate,
};
use pollux_settings::command::output::error_chain;

use rustix::io::Errno;

use crate::coding::{Coding, FORMS};
use crate::config::descriptors::remedy_for;
use crate::config::{FIELDS_BYTES_MAX, Files};
use crate::counters::ServerCounter;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Left, Unsent, read_exactly};
use crate::head::media_types::content_type;
use crate::head::shared_fields::Common;
use crate::log::{Event, Logs};
use crate::refusal::Refusal;
use crate::{ServerCounters, ServerError};
use folder::{Found, Meta, Opened, Refused, Root};
use forms::{Compressed, Compressor, Key, is_worth};

mod folder;
mod forms;

/// Parts up to this size are read into the output behind their head; the loop sends the others.
const READ_BYTES_MAX: u64 = 32 * 1024;
/// The head of a file's answer is shorter than this.
const HEAD_BYTES_MAX: usize = 1024;
/// Longest target that a redirect leads to: that of a target of 8 KiB, each byte of its path encoded.
pub(crate) const LOCATION_BYTES_MAX: usize = 24 * 1024;
/// How often it is looked whether another folder stands at the path of the served one.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest file that the kernel makes when it is read: the loop waits meanwhile.
const MADE_BYTES_MAX: usize = 4 << 20;
/// What is read of it at once.
const MADE_PIECE_BYTES: usize = 64 * 1024;
/// Longest tag: three numbers of 64 bits and more in hex, the name of a coding, and three dashes.
const TAG_BYTES_MAX: usize = 72;
/// Longest answer to a challenge: a token, and the hash of a key.
const CHALLENGE_BYTES_MAX: u64 = 1024;
/// Longest token.
const TOKEN_BYTES_MAX: usize = 256;
/// The file that is shown for a folder.
const INDEX: &[u8] = b"index.html";

/// A folder that is served, and how.
#[derive(Debug)]
pub(crate) struct Folder {
    root: RefCell<Served>,
    /// Most rows of a listing, where there are listings.
    listing_max: Option<usize>,
    has_precompressed: bool,
    /// The compressed files, where that is done.
    compressor: Option<RefCell<Compressor>>,
    /// The file that is sent for pages that do not exist.
    spa: Option<Box<[u8]>>,
    /// Whether nothing is served but short files whose names are tokens.
    are_challenges: bool,
    /// Whether files go through another protocol, so that the loop can't send them.
    reads_all: bool,
    logs: Logs,
    counters: Arc<ServerCounters>,
    /// Where paths are decoded.
    decoded: Box<[u8]>,
}

/// The folder, and how it was found when its path was last looked up.
#[derive(Debug)]
struct Served {
    root: Root,
    looked: Moment,
    /// Why nothing that can be served stood there, as it was reported.
    missed: Option<String>,
}

impl Served {
    /// Takes the folder that stands at the path now.
    fn look(&mut self, now: Now, logs: &Logs) {
        self.looked = now.at;
        let before = self.missed.take();
        let path = self.root.path().to_owned();
        let path = path.display();
        match self.root.look() {
            Found::Same => {}
            Found::Other(root) => {
                self.root = root;
                logs.errors.report(Event::FolderReplaced, now.unix_s, || {
                    format!("the folder {path} was replaced: the new one is served")
                });
            }
            Found::Nothing(error) => {
                // Removed at first, and out of reach once it is made anew: the remedy is another.
                let why = missed(&error, self.root.is_removed());
                if before.as_ref() != Some(&why) {
                    logs.errors.report(Event::FolderMissed, now.unix_s, || why.clone());
                }
                self.missed = Some(why);
            }
        }
    }
}

/// That nothing can be served at the path of the folder any more.
fn missed(error: &ServerError, is_removed: bool) -> String {
    let error_kind = match error {
        ServerError::Root { cause, .. } => cause.kind(),
        _ => io::ErrorKind::Other,
    };
    let remedy = match error_kind {
        io::ErrorKind::PermissionDenied => {
            "; let the server's user read it; where the sandbox does not reach it, restart the server, or \
             start it with --sandbox-path and the folder that it lies in"
        }
        _ => "",
    };
    let meanwhile = if is_removed {
        "every request is answered with 404 until it can be"
    } else {
        "the one that stood there is served on until it can be"
    };
    format!("{}{remedy}; {meanwhile}", error_chain(error))
}

/// A file that is to be sent, and what its head says.
struct OpenFile<'p> {
    file: Opened,
    /// Where it was found; its end tells the content type.
    path: &'p [u8],
    coding: Option<ContentCoding>,
}

impl Folder {
    /// Room that any answer needs.
    pub(crate) const ROOM_BYTES: usize =
        READ_BYTES_MAX as usize + HEAD_BYTES_MAX + FIELDS_BYTES_MAX;

    pub(crate) fn open(
        files: &Files,
        logs: &Logs,
        counters: &Arc<ServerCounters>,
        target_bytes_max: usize,
    ) -> Result<Self, ServerError> {
        let Files { root: folder, listing_max, has_precompressed, compresses, spa, .. } = files;
        let decoded = vec![0; target_bytes_max].into();
        let root = Root::open(folder)?;
        let spa = spa.as_ref().map(|page| page.as_os_str().as_encoded_bytes().to_vec());
        let spa = spa.map(Vec::into_boxed_slice);
        if let Some(page) = &spa
            && !root.find(page).is_ok_and(|found| !found.meta.is_folder)
        {
            let why = format!("no file below {} that may be served", folder.display());
            let path = files.spa.as_ref().map(|page| folder.join(page)).unwrap_or_default();
            let cause = io::Error::other(why);
            return Err(ServerError::Page { path, cause });
        }
        let listing_max = *listing_max;
        let has_precompressed = *has_precompressed;
        let served = Served { root, looked: Moment::from_nanos(0), missed: None };
        Ok(Self {
            root: RefCell::new(served),
            listing_max,
            has_precompressed,
            compressor: compresses.then(RefCell::default),
            spa,
            are_challenges: files.are_challenges,
            reads_all: false,
            logs: logs.clone(),
            counters: Arc::clone(counters),
            decoded,
        })
    }

    /// Whether files are read into the output whatever their size, as it goes through another protocol; says what was
    /// so before.
    pub(crate) fn set_reads_all(&mut self, reads_all: bool) -> bool {
        std::mem::replace(&mut self.reads_all, reads_all)
    }

    /// Answers a GET or HEAD; of a route, which has read the path, for what is left of that.
    pub(crate) fn answer(
        &mut self,
        actions: &mut Actions<'_>,
        common: &Common,
        now: Now,
        request: &Request<'_>,
        routed: Option<Routed<'_>>,
        context: Context,
    ) -> Answered {
        let served = self.root.get_mut();
        if now.at >= served.looked + LOOK_EVERY {
            served.look(now, &self.logs);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let now_s = now.unix_s;
        let reply = Reply { folder: self, common, now, now_s, request, routed, context };
        let answered = reply.answer(actions, &mut decoded);
        self.decoded = decoded;
        answered
    }

    /// Opens what `path` names, in the folder that takes the place of one that was removed too.
    fn find(&self, path: &[u8], now: Now) -> Result<Opened, Refused> {
        let mut served = self.root.borrow_mut();
        match served.root.find(path) {
            Err(Refused::Missing | Refused::Forbidden) if served.root.is_removed() => {
                served.look(now, &self.logs);
                if served.root.is_removed() {
                    Err(Refused::Missing)
                } else {
                    served.root.find(path)
                }
            }
            found => found,
        }
    }
}

/// The path of the file that is shown for a folder.
fn index_of(folder: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    [folder, slash, INDEX].concat()
}

/// Makes the answer to one request.
struct Reply<'a> {
    folder: &'a Folder,
    common: &'a Common,
    now: Now,
    now_s: u64,
    request: &'a Request<'a>,
    routed: Option<Routed<'a>>,
    context: Context,
}

/// What a route has made of the path of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    /// What is left of it: begins with a slash.
    pub(crate) path: &'a str,
    /// What was taken away from its beginning, as it is sent.
    pub(crate) prefix: &'a str,
}

impl Reply<'_> {
    fn find(&self, path: &[u8]) -> Result<Opened, Refused> {
        self.folder.find(path, self.now)
    }

    fn answer(&self, actions: &mut Actions<'_>, decoded: &mut [u8]) -> Answered {
        let path = match self.routed {
            Some(routed) => routed.path,
            None => self.request.target.path().unwrap_or("/"),
        };
        let path = match FilePath::decode(path, decoded) {
            Ok(path) => path,
            Err(rejection) => {
                let page = self.page(actions, rejection.status);
                return Answered { refusal: Refusal::of_path(&rejection), ..page };
            }
        };
        if self.folder.are_challenges {
            return self.challenge(actions, path.relative, path.is_directory);
        }
        // What most folders are asked for: found without a look at the folder.
        if path.is_directory {
            let index = index_of(path.relative);
            if let Ok(file) = self.find(&index)
                && !file.meta.is_folder
            {
                return self.file(actions, OpenFile { file, path: &index, coding: None });
            }
        }
        match self.find(path.relative) {
            Err(Refused::Missing) => self.missing(actions, path.relative),
            Err(refused) => self.refuse(actions, refused, path.relative),
            Ok(opened) if opened.meta.is_folder && path.is_directory => {
                self.folder(actions, &opened, path.relative)
            }
            Ok(opened) if opened.meta.is_folder => self.redirect(actions, path.relative),
            // A file is not a folder, whatever the slash behind it says.
            Ok(_) if path.is_directory => self.missing(actions, path.relative),
            Ok(file) => self.file(actions, OpenFile { file, path: path.relative, coding: None }),
        }
    }

    /// Answers a challenge: whatever else lies in the folder is nobody's.
    fn challenge(&self, actions: &mut Actions<'_>, path: &[u8], is_folder: bool) -> Answered {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_named = (1..=TOKEN_BYTES_MAX).contains(&path.len()) && path.iter().all(is_token);
        let found = if is_named && !is_folder { self.find(path) } else { Err(Refused::Missing) };
        match found {
            Ok(file) if !file.meta.is_folder && file.meta.len_bytes <= CHALLENGE_BYTES_MAX => {
                self.file(actions, OpenFile { file, path, coding: None })
            }
            Ok(_) | Err(Refused::Missing) => self.page(actions, Status::NOT_FOUND),
            Err(refused) => self.refuse(actions, refused, path),
        }
    }

    /// There is no such file: of an application in one page this may be a place within it, unless its
    /// name says what kind of file it would be, or a part of its path begins with a dot: it is
    /// hidden, or `.well-known`, where programs ask and not people.
    fn missing(&self, actions: &mut Actions<'_>, path: &[u8]) -> Answered {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut parts = path.split(|byte| *byte == b'/');
        let is_place = !name.contains(&b'.') && !parts.any(|part| part.starts_with(b"."));
        let page = self.folder.spa.as_deref().filter(|_| is_place);
        let Some(page) = page else { return self.page(actions, Status::NOT_FOUND) };
        match self.find(page) {
            Ok(file) if !file.meta.is_folder => {
                self.file(actions, OpenFile { file, path: page, coding: None })
            }
            Ok(_) => self.page(actions, Status::NOT_FOUND),
            Err(refused) => self.refuse(actions, refused, page),
        }
    }

    fn folder(&self, actions: &mut Actions<'_>, folder: &Opened, path: &[u8]) -> Answered {
        let index = index_of(path);
        match self.find(&index) {
            Ok(file) if !file.meta.is_folder => {
                self.file(actions, OpenFile { file, path: &index, coding: None })
            }
            Ok(_) | Err(Refused::Missing) => match self.folder.listing_max {
                Some(rows_max) => self.listing(actions, folder, path, rows_max),
                None => self.page(actions, Status::FORBIDDEN),
            },
            Err(refused) => self.refuse(actions, refused, &index),
        }
    }

    fn listing(
        &self,
        actions: &mut Actions<'_>,
        folder: &Opened,
        path: &[u8],
        rows_max: usize,
    ) -> Answered {
        let follow = |name: &str| {
            let path = [path, b"/", name.as_bytes()].concat();
            let path = path.strip_prefix(b"/").unwrap_or(&path);
            self.find(path).ok().map(|found| found.meta)
        };
        let name = String::from_utf8_lossy(path);
        match folder::page(folder.fd.as_fd(), &name, rows_max, follow) {
            Ok(page) => {
                let content_type = "text/html; charset=utf-8";
                answer::document(actions, self.common, self.context, content_type, page)
            }
            Err(errno) => self.refuse(actions, Refused::of_use(errno), path),
        }
    }

    /// To the same folder with its slash. Made from the decoded path, so that it cannot lead to
    /// another host (`//host/..`).
    fn redirect(&self, actions: &mut Actions<'_>, path: &[u8]) -> Answered {
        let mut location = self.routed.map_or_else(String::new, |routed| routed.prefix.to_owned());
        for segment in path.split(|byte| *byte == b'/') {
            location.push('/');
            location.push_str(&folder::percent_encoded(segment));
        }
        location.push('/');
        if let Some(query) = self.request.target.query() {
            location.push('?');
            location.push_str(query);
        }
        // The limit of targets may be beyond the room.
        if location.len() > LOCATION_BYTES_MAX {
            let refusal = Refusal::LongLocation;
            return self.page(actions, refusal.status()).refused(refusal);
        }
        let status = Status::MOVED_PERMANENTLY;
        answer::page(actions, self.common, self.context, status, |head| {
            head.field("Location", location.as_bytes());
        })
    }

    fn file(&self, actions: &mut Actions<'_>, plain: OpenFile<'_>) -> Answered {
        let found = self.best_form(plain);
        if found.file.is_perhaps_made
            && let Some(answered) = self.made(actions, &found)
        {
            return answered;
        }
        let meta = found.file.meta;
        let is_weak = meta.may_change_within(self.now_s);
        let modified_s = meta.modified_s.min(self.now_s);
        if let Some(answered) = self.compressed(actions, &found, is_weak) {
            return answered;
        }
        let mut tag_bytes = [0; TAG_BYTES_MAX];
        let tag = tag(&mut tag_bytes, &meta, "");
        let representation = Representation {
            etag: Some(EntityTag { is_weak, opaque: tag }),
            modified_s: Some(meta.changed_by_s(self.now_s)),
            len_bytes: meta.len_bytes,
        };
        let facts = Facts {
            path: found.path,
            coding: found.coding,
            modified_s,
            whole_bytes: meta.len_bytes,
            tag,
            is_weak,
            has_vary: self.folder.has_precompressed || self.may_be_compressed(&found),
        };
        match evaluate(self.request.method, self.request.fields, &representation) {
            Outcome::Whole => {
                let whole = ByteRange { offset: 0, len_bytes: meta.len_bytes };
                self.part(actions, Status::OK, whole, &facts, found.file.fd)
            }
            Outcome::Part(part) => {
                self.part(actions, Status::PARTIAL_CONTENT, part, &facts, found.file.fd)
            }
            Outcome::NotModified => {
                let status = Status::NOT_MODIFIED;
                let add = |head: &mut HeadWriter<'_>| facts.write_validators(head);
                answer::empty(actions, self.common, self.context, status, add)
            }
            Outcome::PreconditionFailed => self.page(actions, Status::PRECONDITION_FAILED),
            Outcome::Unsatisfiable => {
                let status = Status::RANGE_NOT_SATISFIABLE;
                answer::page(actions, self.common, self.context, status, |head| {
                    head.content_range_unsatisfied(meta.len_bytes);
                })
            }
        }
    }

    /// Answers with a file that the kernel makes when it is read (`/proc`, `/sys`): its length is another one
    /// than it has, so it is read to its end, and nothing is said that would hold for the next time. Nothing
    /// where its length is true.
    #[cold]
    fn made(&self, actions: &mut Actions<'_>, found: &OpenFile<'_>) -> Option<Answered> {
        let bytes = match read_to_end(&found.file.fd, MADE_BYTES_MAX) {
            Ok(bytes) if bytes.len() as u64 == found.file.meta.len_bytes => return None,
            Ok(bytes) => bytes,
            Err(errno) => {
                let refused = match errno {
                    // Readable, by its permissions, but not to everybody, or not now.
                    Errno::ACCESS | Errno::PERM | Errno::AGAIN => Refused::Forbidden,
                    errno => Refused::of_use(errno),
                };
                return Some(self.refuse(actions, refused, found.path));
            }
        };
        let content_type = content_type(found.path);
        Some(answer::document(actions, self.common, self.context, content_type, bytes))
    }

    /// Whether other clients get the file compressed.
    fn may_be_compressed(&self, found: &OpenFile<'_>) -> bool {
        let is_worth = || is_worth(content_type(found.path), found.file.meta.len_bytes);
        self.folder.compressor.is_some() && found.coding.is_none() && is_worth()
    }

    /// Answers with the file in a coding that the client takes; nothing when it gets the file as it is.
    /// Parts are of the file as it is, and one that may still change is not kept.
    fn compressed(
        &self,
        actions: &mut Actions<'_>,
        found: &OpenFile<'_>,
        is_weak: bool,
    ) -> Option<Answered> {
        let compressor = self.folder.compressor.as_ref()?;
        let is_part = self.request.fields.first("range").is_some();
        if is_weak || is_part || !self.may_be_compressed(found) {
            return None;
        }
        let coding = Acceptable::of(self.request.fields).best(&FORMS)?;
        let meta = found.file.meta;
        let key = Key { meta, coding: Coding::from_content_coding(coding)? };
        let read = || {
            let mut bytes = vec![0; usize::try_from(meta.len_bytes).expect("small")];
            read_exactly(&found.file.fd, &mut bytes, 0).map(|()| bytes)
        };
        let count = |counter| self.folder.counters.add(counter, 1);
        let bytes = match compressor.borrow_mut().get(key, self.now_s, read) {
            Ok(Compressed::Kept(bytes)) => bytes,
            Ok(Compressed::Made(bytes)) => {
                count(ServerCounter::Compressions);
                bytes
            }
            Ok(Compressed::Useless) => return None,
            Ok(Compressed::NoTime | Compressed::BufferFull) => {
                count(ServerCounter::CompressionsPutOff);
                return None;
            }
            Err(errno) => return Some(self.refuse(actions, Refused::of_use(errno), found.path)),
        };
        let mut tag_bytes = [0; TAG_BYTES_MAX];
        let len_bytes = bytes.len() as u64;
        let modified_s = meta.modified_s.min(self.now_s);
        let facts = Facts {
            path: found.path,
            coding: Some(coding),
            modified_s,
            whole_bytes: len_bytes,
            tag: tag(&mut tag_bytes, &meta, coding.name()),
            is_weak: false,
            has_vary: true,
        };
        let representation = Representation {
            etag: Some(EntityTag { is_weak: false, opaque: facts.tag }),
            modified_s: Some(meta.changed_by_s(self.now_s)),
            len_bytes,
        };
        Some(match evaluate(self.request.method, self.request.fields, &representation) {
            Outcome::NotModified => {
                let add = |head: &mut HeadWriter<'_>| facts.write_validators(head);
                answer::empty(actions, self.common, self.context, Status::NOT_MODIFIED, add)
            }
            Outcome::PreconditionFailed => self.page(actions, Status::PRECONDITION_FAILED),
            Outcome::Whole | Outcome::Part(_) | Outcome::Unsatisfiable => {
                count(ServerCounter::CompressedSent);
                self.kept(actions, &facts, bytes)
            }
        })
    }

    /// Sends a file that is in memory.
    fn kept(&self, actions: &mut Actions<'_>, facts: &Facts<'_>, bytes: Arc<[u8]>) -> Answered {
        let status = Status::OK;
        let mut head = self.common.begin(actions.spare(), status, self.context.asked);
        facts.write(&mut head);
        head.content_length(facts.whole_bytes);
        self.context.persistence.write(&mut head);
        let head_bytes = head.finish().expect("a head fits into a call");
        actions.advance(head_bytes);
        if self.context.is_head {
            return Answered::whole(status, 0);
        }
        let mut unsent = Unsent::repeated(bytes, facts.whole_bytes);
        let is_all_sent = unsent.send(actions).expect("it is in memory");
        let left = if is_all_sent { Left::Nothing } else { Left::Unsent(Box::new(unsent)) };
        Answered::new(status, facts.whole_bytes, left)
    }

    /// The form beside the plain file that the client likes best, when it is not out of date.
    fn best_form<'p>(&self, plain: OpenFile<'p>) -> OpenFile<'p> {
        if !self.folder.has_precompressed {
            return plain;
        }
        let acceptable = Acceptable::of(self.request.fields);
        let mut ready = FORMS.to_vec();
        while let Some(coding) = acceptable.best(&ready)
            && let Some(suffix) = suffix(coding)
        {
            let name = [plain.path, suffix].concat();
            if let Ok(file) = self.find(&name)
                && !file.meta.is_folder
                && file.meta.modified_s >= plain.file.meta.modified_s
            {
                return OpenFile { file, path: plain.path, coding: Some(coding) };
            }
            ready.retain(|other| *other != coding);
        }
        plain
    }

    /// Sends a part of a file, or all of it.
    fn part(
        &self,
        actions: &mut Actions<'_>,
        status: Status,
        part: ByteRange,
        facts: &Facts<'_>,
        file: OwnedFd,
    ) -> Answered {
        let mut head = self.common.begin(actions.spare(), status, self.context.asked);
        facts.write(&mut head);
        if status == Status::PARTIAL_CONTENT {
            head.content_range(part, facts.whole_bytes);
        }
        head.content_length(part.len_bytes);
        self.context.persistence.write(&mut head);
        let head_bytes = head.finish().expect("a head fits into a call");
        if self.context.is_head || part.len_bytes == 0 {
            actions.advance(head_bytes);
            return Answered::whole(status, 0);
        }
        let body_bytes = part.len_bytes;
        if body_bytes > READ_BYTES_MAX {
            actions.advance(head_bytes);
            let range = FileRange { file, offset: part.offset, len: body_bytes };
            let left = if self.folder.reads_all {
                Left::Unsent(Box::new(Unsent::file(range)))
            } else {
                actions.send_file(range);
                Left::File
            };
            return Answered::new(status, body_bytes, left);
        }
        let body =
            &mut actions.spare()[head_bytes..][..usize::try_from(body_bytes).expect("small")];
        match read_exactly(&file, body, part.offset) {
            Ok(()) => {
                let body_bytes = body.len();
                actions.advance(head_bytes + body_bytes);
                Answered::whole(status, part.len_bytes)
            }
            // Nothing was sent yet, so the client can still get an error.
            Err(errno) => self.refuse(actions, Refused::of_use(errno), facts.path),
        }
    }

    /// Answers that there is nothing to serve; the error log gets what is not the client's doing.
    #[cold]
    fn refuse(&self, actions: &mut Actions<'_>, refused: Refused, path: &[u8]) -> Answered {
        let path = path.escape_ascii();
        let report = |event, text: &dyn Fn() -> String| {
            self.folder.logs.errors.report(event, self.now_s, text);
        };
        let status = match refused {
            Refused::Missing => Status::NOT_FOUND,
            Refused::Forbidden => Status::FORBIDDEN,
            Refused::Exhausted(errno) => {
                report(Event::FileRefused, &|| {
                    let error = io::Error::from(errno);
                    format!("/{path} was answered with 503: {error}{}", remedy_for(&error))
                });
                let refusal = Refusal::NoDescriptor;
                refusal.count(&self.folder.counters);
                let status = refusal.status();
                let page = answer::page(actions, self.common, self.context, status, |head| {
                    head.field("Retry-After", b"1");
                });
                return page.refused(refusal);
            }
            Refused::Broken(errno) => {
                report(Event::FileFailed, &|| {
                    format!("/{path} was answered with 500: {}", io::Error::from(errno))
                });
                Status::INTERNAL_ERROR
            }
        };
        self.page(actions, status)
    }

    fn page(&self, actions: &mut Actions<'_>, status: Status) -> Answered {
        answer::page(actions, self.common, self.context, status, |_| {})
    }
}

/// What the head of a file's answer says.
struct Facts<'a> {
    path: &'a [u8],
    coding: Option<ContentCoding>,
    /// Never in the future of the answer's own date (RFC 9110 8.8.2.1).
    modified_s: u64,
    whole_bytes: u64,
    tag: &'a [u8],
    is_weak: bool,
    has_vary: bool,
}

impl Facts<'_> {
    fn write(&self, head: &mut HeadWriter<'_>) {
        head.field("Content-Type", content_type(self.path).as_bytes());
        if let Some(coding) = self.coding {
            head.field("Content-Encoding", coding.name().as_bytes());
        }
        let modified = DateCache::new(self.modified_s);
        head.field("Last-Modified", modified.text()).field("Accept-Ranges", b"bytes");
        self.write_validators(head);
    }

    fn write_validators(&self, head: &mut HeadWriter<'_>) {
        let mut quoted = [0; TAG_BYTES_MAX + 4];
        let prefix = if self.is_weak { "W/" } else { "" };
        let mut rest = &mut quoted[..];
        rest.write_all(prefix.as_bytes()).expect("the longest tag fits");
        rest.write_all(b"\"").expect("the longest tag fits");
        rest.write_all(self.tag).expect("the longest tag fits");
        rest.write_all(b"\"").expect("the longest tag fits");
        let left = rest.len();
        head.field("ETag", &quoted[..quoted.len() - left]);
        if self.has_vary {
            head.field("Vary", b"Accept-Encoding");
        }
    }
}

/// The tag of a file, or of what the coding of this name made of it.
fn tag<'t>(bytes: &'t mut [u8; TAG_BYTES_MAX], meta: &Meta, coding: &str) -> &'t [u8] {
    let time_ns = u128::from(meta.modified_s) * 1_000_000_000 + u128::from(meta.modified_ns);
    let mut rest = &mut bytes[..];
    write!(rest, "{time_ns:x}-{:x}-{:x}", meta.len_bytes, meta.inode).expect("numbers fit");
    if !coding.is_empty() {
        write!(rest, "-{coding}").expect("a short name fits");
    }
    let left = rest.len();
    &bytes[..TAG_BYTES_MAX - left]
}

/// Reads a file from its beginning to its end.
///
/// # Errors
/// It can't be read; it has more than `most` bytes, with `EFBIG`.
fn read_to_end(file: &OwnedFd, most: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        bytes.resize(before + MADE_PIECE_BYTES, 0);
        let read = match rustix::io::pread(file, &mut bytes[before..], before as u64) {
            Err(Errno::INTR) => 0,
            Ok(0) => {
                bytes.truncate(before);
                return Ok(bytes);
            }
            Ok(read) => read,
            Err(errno) => return Err(errno),
        };
        bytes.truncate(before + read);
        if bytes.len() > most {
            return Err(Errno::FBIG);
        }
    }
}

/// How the name of a file in that form ends; none for the plain one.
fn suffix(coding: ContentCoding) -> Option<&'static [u8]> {
    match coding {
        ContentCoding::Brotli => Some(b".br"),
        ContentCoding::Zstd => Some(b".zst"),
        ContentCoding::Gzip => Some(b".gz"),
        ContentCoding::Identity => None,
    }
}

#[cfg(test)]
mod tests;
