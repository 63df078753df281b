//! What the metrics endpoint and the control socket show of a running server.
//!
//! Both read the same counters, live, from threads of their own; no loop is stopped for it but
//! by `show fd`, which needs all of them at rest for a moment.

mod control;
mod metrics;

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use pollux_engine::{Counters, Driver, Group};
use pollux_http::MetricsPage;
use pollux_poller::Waker;

use crate::backends::Backend;
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::certificates::FrontCertificates;
use crate::counters::ServerCounters;
use crate::epochs::EpochUses;
use crate::fault::{BackendCounts, Fault, ProxyCounters};
use crate::handlers::Pages;
use crate::html;
use crate::passwords::Passwords;
use crate::rates::Rates;

pub use control::{ControlSession, ControlShared, pools, servers, set_server};
pub use metrics::{RetiredCounts, metrics};

/// What can be read of one loop while it runs.
#[derive(Clone, Debug)]
pub struct LoopSource {
    /// Connections, bytes, turns.
    pub engine: Arc<Counters>,
    /// Waits and events; none under the completion loop, which has no poller.
    pub poller: Option<Arc<pollux_poller::Counters>>,
    /// Requests and answers.
    pub server: Arc<ServerCounters>,
    /// What only a proxy counts; none in other servers.
    pub proxy: Option<Arc<ProxyCounters>>,
}

/// Asks for the descriptors of all loops: the lines of each, or why there are none.
pub type Descriptors = Box<dyn Fn() -> Result<Vec<Vec<String>>, String> + Send + Sync>;

/// A running server.
pub struct Overview {
    /// When it was started.
    pub started: Instant,
    /// Which loop on which mechanism.
    pub driver: Driver,
    /// What the settings in force say, as name and value.
    pub facts: Mutex<Vec<(String, String)>>,
    /// What the loops said when they started, in the same form.
    pub notes: Vec<(String, String)>,
    /// Its loops, in order.
    pub loops: Vec<LoopSource>,
    /// Where a proxy sends requests; none in other servers.
    pub backends: Arc<[Backend]>,
    /// What the loops of a proxy share of their connections to backends; none in other servers.
    pub upstreams: Option<Arc<SharedUpstreams>>,
    /// How often clients of a proxy may ask; none in other servers.
    pub(crate) rates: Option<Arc<Rates>>,
    /// What checks the passwords of its users.
    pub(crate) passwords: Option<Arc<Passwords>>,
    /// What goes by the settings of each loop, those of before among them.
    pub(crate) epochs: Vec<Arc<EpochUses>>,
    /// What clients are shown in TLS, of each front end that speaks it.
    pub(crate) certificates: Vec<FrontCertificates>,
    /// Looks at the descriptors.
    pub descriptors: Descriptors,
    /// What is known of a master.
    pub supervised: Supervised,
}

impl Overview {
    /// That of a running group; the counters of each loop are of its sessions, and of a proxy.
    pub(crate) fn of_group(
        group: &Group,
        driver: Driver,
        facts: Vec<(String, String)>,
        counters: impl IntoIterator<Item = (Arc<ServerCounters>, Option<Arc<ProxyCounters>>)>,
    ) -> Self {
        let views = group.views();
        let notes: BTreeSet<String> = views.iter().flat_map(|view| view.notes.clone()).collect();
        let loops = views.into_iter().zip(counters).map(|(view, (server, proxy))| LoopSource {
            engine: view.counters,
            poller: view.poller,
            server,
            proxy,
        });
        let dumper = group.dumper();
        Self {
            started: Instant::now(),
            driver,
            facts: Mutex::new(facts),
            notes: notes.into_iter().map(|note| ("note".to_owned(), note)).collect(),
            loops: loops.collect(),
            backends: Arc::default(),
            upstreams: None,
            rates: None,
            passwords: None,
            epochs: Vec::new(),
            certificates: Vec::new(),
            descriptors: Box::new(move || dumper.descriptors().map_err(|error| error.to_string())),
            supervised: Supervised::default(),
        }
    }

    /// The backends of a proxy that may have requests, each with its place.
    pub(crate) fn backends_there(&self) -> impl Iterator<Item = (usize, &Backend)> {
        self.backends.iter().enumerate().filter(|(_, backend)| backend.is_there())
    }

    /// Other settings are in force.
    pub(crate) fn set_facts(&self, facts: Vec<(String, String)>) {
        *self.facts.lock().expect("nothing panics under this lock") = facts;
    }
}

impl Pages for Arc<Overview> {
    fn page(&self, path: Option<&str>) -> Option<(&'static str, String)> {
        const FORMAT: &str = MetricsPage::CONTENT_TYPE;
        const HTML: &str = "text/html; charset=utf-8";
        let is_proxy = self.upstreams.is_some();
        match path? {
            "/metrics" => Some((FORMAT, self.supervised.with_ended(metrics(self)))),
            "/" | "/status" if is_proxy => Some((HTML, STATUS_PAGE.to_owned())),
            "/" | "/status" => Some((HTML, server_page(self))),
            "/status.json" if is_proxy => Some(("application/json", status(self))),
            _ => None,
        }
    }
}

impl fmt::Debug for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overview {{ driver: {}, loops: {} }}", self.driver, self.loops.len())
    }
}

/// What a worker knows of its master.
///
/// The thread that talks to the master writes it, the endpoints read it. In a server without a master
/// nothing is ever written.
#[derive(Default)]
pub struct Supervised {
    ended: Mutex<RetiredCounts>,
    reloads: Mutex<Reloads>,
    /// Reloads that were asked for here.
    asked: AtomicU64,
    /// Those of them that the master knows of.
    message: AtomicU64,
    /// Of the thread that talks to the master.
    waker: OnceLock<Waker>,
    /// Of the loop whose clients wait for an answer.
    asking: OnceLock<Waker>,
}

/// How reloads went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloads {
    /// Those that were asked for here, up to this number, have come to their end.
    pub(crate) answered: u64,
    /// `N done, N failed`.
    pub(crate) counts: String,
    /// Why the last one failed, if it did.
    pub(crate) why: String,
}

impl Supervised {
    /// There is a master: `waker` wakes the thread that talks to it.
    pub(crate) fn begin(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub(crate) fn set_ended(&self, ended: RetiredCounts) {
        *self.ended.lock().expect("nothing panics under this lock") = ended;
    }

    pub(crate) fn set_reloads(&self, reloads: Reloads) {
        *self.known() = reloads;
        if let Some(asking) = self.asking.get() {
            asking.wake();
        }
    }

    /// Clients ask for reloads in the loop of this waker.
    pub(crate) fn asked_by(&self, waker: &Waker) {
        let _ = self.asking.set(waker.clone());
    }

    /// The page of a worker with what others counted that have ended.
    #[must_use]
    pub fn with_ended(&self, page: String) -> String {
        self.ended.lock().expect("nothing panics under this lock").added_to(page)
    }

    /// How reloads went: `N done, N failed`, and why the last one failed.
    #[must_use]
    pub fn reloads(&self) -> String {
        match self.waker.get() {
            None => NO_MASTER.to_owned(),
            Some(_) => {
                let Reloads { counts, why, .. } = &*self.known();
                format!("{counts}\n{why}").trim_end().to_owned()
            }
        }
    }

    /// Has the thread that talks to the master look for what is new.
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Asks the master for a reload; its number tells what became of it.
    ///
    /// # Errors
    /// There is no master; the text says so.
    pub(crate) fn reload(&self) -> Result<u64, &'static str> {
        let waker = self.waker.get().ok_or(NO_MASTER)?;
        let number = self.asked.fetch_add(1, Relaxed) + 1;
        waker.wake();
        Ok(number)
    }

    /// What became of the reload with this number; none while it is under way.
    pub(crate) fn answer(&self, number: u64) -> Option<String> {
        let Reloads { answered, why, .. } = &*self.known();
        (*answered >= number).then(|| match why.as_str() {
            "" => RELOADED.to_owned(),
            why => format!("{NOT_RELOADED}{why}"),
        })
    }

    /// The number of the last reload that was asked for, if one was since the last call.
    pub(crate) fn takes_reload(&self) -> Option<u64> {
        let asked = self.asked.load(Relaxed);
        (self.message.swap(asked, Relaxed) != asked).then_some(asked)
    }

    fn known(&self) -> MutexGuard<'_, Reloads> {
        self.reloads.lock().expect("nothing panics under this lock")
    }
}

/// The answer of the control socket to a reload that went well.
pub const RELOADED: &str = "reloaded";
/// The beginning of its answer to another one; the reason follows.
pub const NOT_RELOADED: &str = "not reloaded, the old settings stay: ";

const NO_MASTER: &str = "n/a: this server has no master";

/// The page. It loads nothing else.
pub const STATUS_PAGE: &str = include_str!("status.html");

/// The page of a server without backends: what `show info` and `show activity` say, made anew every few seconds.
#[must_use]
pub fn server_page(overview: &Overview) -> String {
    let text = format!("{}\n{}", control::info(overview), control::activity(overview));
    let text: String = text.lines().map(|line| html::escaped(line) + "\n").collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"refresh\" content=\"2\"><title>pollux status</title>\
         <style>:root{{color-scheme:light dark}}body{{margin:1.5rem;font:15px/1.45 system-ui,sans-serif}}</style>\
         </head><body><h1>pollux {}</h1><p><a href=\"/metrics\">/metrics</a> for Prometheus</p>\
         <pre>{text}</pre></body></html>\n",
        env!("CARGO_PKG_VERSION"),
    )
}

/// The figures as JSON: numbers are counts since the start, but for `connections`, `active`, `queue` and
/// `idle`; `wait_us` is the time to the first byte of all answers together.
#[must_use]
pub fn status(overview: &Overview) -> String {
    let loops = &overview.loops;
    let proxies = || loops.iter().filter_map(|source| source.proxy.as_ref());
    let requests: u64 = loops.iter().map(|source| source.server.requests_total()).sum();
    let connections: u64 = loops.iter().map(|source| source.engine.open()).sum();
    let mut text = String::new();
    let mut put = |piece: String| text.push_str(&piece);
    put(format!(
        "{{\"version\":{},\"uptime_s\":{:.3},\"poller\":{},\"threads\":{},\"requests\":{requests},\
         \"connections\":{connections},\"servers\":[",
        quoted(env!("CARGO_PKG_VERSION")),
        overview.started.elapsed().as_secs_f64(),
        quoted(&overview.driver.to_string()),
        loops.len(),
    ));
    let mut separator = "";
    for (place, backend) in overview.backends_there() {
        let counts: Vec<_> = proxies().filter_map(|proxy| proxy.backends().get(place)).collect();
        let sum = |read: fn(&BackendCounts) -> u64| counts.iter().map(|of| read(of)).sum::<u64>();
        let view =
            overview.upstreams.as_ref().map(|upstreams| upstreams.view(place)).unwrap_or_default();
        let state = match (backend.is_draining(), backend.is_down()) {
            (true, _) => "drain",
            (false, true) => "down",
            (false, false) => "up",
        };
        put(format!(
            "{}{{\"name\":{},\"state\":\"{state}\",\"weight\":{},\"active\":{},\"queue\":{},\"idle\":{},\
             \"requests\":{},\"failed\":{},\"answered\":{},\"wait_us\":{},\"falls\":{}}}",
            std::mem::replace(&mut separator, ","),
            quoted(&backend.name()),
            backend.weight(),
            sum(BackendCounts::in_use),
            view.waiting,
            view.idle,
            sum(|of| of.begun.value()),
            sum(|of| of.failed.value()),
            sum(|of| of.answered.value()),
            sum(|of| of.wait_us.value()),
            backend.falls(),
        ));
    }
    put("],\"faults\":{".to_owned());
    for (place, fault) in Fault::ALL.into_iter().enumerate() {
        let count: u64 = proxies().map(|proxy| proxy.faults(place)).sum();
        put(format!("{}\"{}\":{count}", if place == 0 { "" } else { "," }, fault.name()));
    }
    put("}}\n".to_owned());
    text
}

/// A string of JSON (RFC 8259 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c < ' ' => write!(quoted, "\\u{:04x}", c as u32).expect("a string"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use pollux_engine::{Address, CloseCause, Now, Rehearsal};
    use pollux_http::{Method, Status};
    use pollux_poller::Mechanism;
    use pollux_settings::Given;

    use super::control::activity;
    use super::*;
    use crate::backends::backends_of;
    use crate::backends::names::Names;
    use crate::backends::names::Resolver;
    use crate::config::{Protocol, ProxyConfig};
    use crate::counters::ServerCounter;
    use crate::rates::RateTables;
    use crate::tls::{Certificate, Keys};
    use crate::{HttpSession, Logs, LoopState};

    fn overview(with_poller: bool) -> Arc<Overview> {
        let source = |requests: usize| {
            let server = ServerCounters::default();
            for _ in 0..requests {
                server.count_request(Method::Get);
                server.count_answer(Status::OK);
            }
            server.add(ServerCounter::TimeoutsIdle, 2);
            server.times().record(1500);
            let poller = with_poller.then(Arc::default);
            LoopSource { engine: Arc::default(), poller, server: Arc::new(server), proxy: None }
        };
        let descriptors = || Ok(vec![vec!["fd 5 readable".to_owned(); 3000], Vec::new()]);
        Arc::new(Overview {
            backends: Arc::default(),
            upstreams: None,
            passwords: None,
            rates: None,
            epochs: Vec::new(),
            certificates: Vec::new(),
            started: Instant::now(),
            driver: Driver::Readiness(Mechanism::EpollEt),
            facts: vec![("listen".to_owned(), "127.0.0.1:1".to_owned())].into(),
            notes: Vec::new(),
            loops: vec![source(3), source(4)],
            descriptors: Box::new(descriptors),
            supervised: Supervised::default(),
        })
    }

    fn ask(play: &mut Rehearsal<ControlSession>, line: &str) -> String {
        play.feed(line.as_bytes());
        String::from_utf8(play.take_output()).expect("text")
    }

    fn control() -> Rehearsal<ControlSession> {
        Rehearsal::new(ControlShared::new(overview(true)), Now::default())
    }

    /// Help and type stand before the lines of each family, once, and every line has a value. Help
    /// is a phrase, without a full stop, and names the unit of a family that has one.
    fn check_format(page: &str) {
        let mut families: Vec<&str> = Vec::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a help text");
                assert!(!families.contains(&name) && !help.is_empty(), "{line}");
                assert!(!help.ends_with('.'), "{line}");
                let help = help.to_lowercase();
                assert_eq!(name.contains("_seconds"), help.contains("seconds"), "{line}");
                assert!(!help.contains("nanoseconds"), "{line}");
                families.push(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest.split(' ').next(), families.last().copied(), "{line}");
            } else if !line.starts_with('#') {
                let family = families.last().expect("a family first");
                assert!(line.starts_with(family), "{line} after {family}");
                let (_, value) = line.rsplit_once(' ').expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn metrics_are_well_formed_and_live() {
        let page = metrics(&overview(true));
        check_format(&page);
        for line in [
            "pollux_http_requests_total{loop=\"0\",method=\"get\"} 3",
            "pollux_http_answers_total{loop=\"1\",class=\"2xx\"} 4",
            "pollux_http_timeouts_idle_total{loop=\"0\"} 2",
            "pollux_loops{poller=\"epoll-et\"} 2",
            "pollux_poller_waits_total{loop=\"1\"} 0",
            "pollux_poller_events_per_wait_bucket{loop=\"0\",le=\"+Inf\"} 0",
            "pollux_loop_work_seconds_total{loop=\"0\"} 0",
        ] {
            assert!(page.lines().any(|other| other == line), "{line} in\n{page}");
        }
    }

    /// A certificate that a server can show, made in this folder.
    fn certificate(folder: &Path) -> Certificate {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("signed");
        let keys = Keys { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        std::fs::write(&keys.cert, cert.pem()).expect("written");
        std::fs::write(&keys.key, key.serialize_pem()).expect("written");
        Certificate::open(keys, []).expect("a certificate and its key")
    }

    /// Everything that a server or a proxy can show, with the labels of its lines.
    fn table(page: &str) -> String {
        let parts = [
            ("Connections and loops", "pollux_loop_"),
            ("Requests", "pollux_http_"),
            ("Proxy", "pollux_proxy_"),
            ("Poller (not with `uring`)", "pollux_poller_"),
        ];
        let part = |name: &str| parts.iter().position(|part| name.starts_with(part.1)).unwrap_or(0);
        let mut rows = parts.map(|(heading, _)| {
            format!("\n### {heading}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
        });
        for family in page.split("# HELP ").skip(1) {
            let (name, rest) = family.split_once(' ').expect("a name");
            let (help, rest) = rest.split_once('\n').expect("a help text");
            let (kind, samples) = rest.split_once('\n').expect("a type");
            let kind = kind.rsplit(' ').next().expect("a type");
            let sample = samples.lines().find(|line| line.starts_with(name)).expect("a value");
            let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            let labels: Vec<_> = labels.filter(|label| *label != "le").collect();
            let labels = labels.join(", ");
            writeln!(rows[part(name)], "| `{name}` | {kind} | {labels} | {help} |")
                .expect("a String");
        }
        rows.concat()
    }

    #[test]
    fn the_page_in_docs_has_every_metric() {
        let any: Address = "127.0.0.1:0".parse().expect("an address");
        let to = "127.0.0.1:1".parse().expect("an address");
        let mut config = ProxyConfig::new(vec![any], vec![to]);
        config.groups[0].servers[0].connections_max = Some(1);
        config.groups[0].protocol = Protocol::H2c;
        let site = "[[site]]\nhost = \"*\"\n[[site.route]]\npath = \"/\"\nreply = 1\n";
        let of_sites: ProxyConfig = Given::from_toml(site, "p.toml").read().expect("right");
        config.sites = of_sites.sites;
        let backends = backends_of(&config);
        let upstreams = SharedUpstreams::new(&config, Arc::clone(&backends));
        upstreams.set_names(Names::new(
            &config,
            &backends,
            &[],
            Resolver::default(),
            &Logs::default(),
        ));
        let proxied = Some(Arc::new(ProxyCounters::new(1).with_routes(1)));
        let server = ServerCounters::default();
        server.times().record(1500);
        let server = Arc::new(server);
        let poller = Some(Arc::default());
        let source = LoopSource { engine: Arc::default(), poller, server, proxy: proxied };
        let folder = tempfile::tempdir().expect("a folder");
        let limit = "[[limit]]\nname = \"few\"\nrate = \"5/m\"\n[[site]]\nhost = \"*\"\n\
                     route = [ { path = \"/\", reply = 1 } ]";
        let limits: ProxyConfig = Given::from_toml(limit, "p.toml").read().expect("right");
        let mut tables = RateTables::default();
        tables.make(&limits.rates).expect("made");
        let file = folder.path().join("staff.users");
        let line = crate::password_line("anna", "geheim").expect("made");
        std::fs::write(&file, line).expect("written");
        let users = format!(
            "[[users]]\nname = \"staff\"\nfile = \"{}\"\n[[site]]\nhost = \"*\"\n\
             route = [ {{ path = \"/\", reply = 1 }} ]",
            file.display()
        );
        let users: ProxyConfig = Given::from_toml(&users, "p.toml").read().expect("right");
        let overview = Overview {
            started: Instant::now(),
            driver: Driver::Readiness(Mechanism::EpollEt),
            facts: Mutex::default(),
            notes: Vec::new(),
            loops: vec![source],
            upstreams: Some(upstreams),
            passwords: Passwords::read(&users.sites.users).expect("read"),
            rates: Some(Arc::new(tables.rates(&limits.rates).expect("opened"))),
            epochs: vec![Arc::default()],
            certificates: vec![FrontCertificates::One(certificate(folder.path()))],
            backends,
            descriptors: Box::new(|| Ok(Vec::new())),
            supervised: Supervised::default(),
        };
        let table = table(&metrics(&overview));
        pollux_settings::kept("reference/metrics.md", "metrics", &table).expect("that of the code");
    }

    #[test]
    fn a_loop_without_a_poller_says_so_instead_of_zero() {
        let page = metrics(&overview(false));
        check_format(&page);
        assert!(page.contains("# pollux_poller_*: n/a") && !page.contains("pollux_poller_waits"));
        assert!(activity(&overview(false)).contains("n/a (the completion loop has no poller)"));
    }

    #[test]
    fn the_metrics_endpoint_answers_only_for_its_page() {
        let mut play: Rehearsal<HttpSession> =
            Rehearsal::new(LoopState::for_status(Box::new(overview(true))), Now::default());
        play.feed(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = String::from_utf8(play.take_output()).expect("text");
        assert!(answer.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        check_format(body);
        for path in ["/", "/status"] {
            play.feed(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let page = String::from_utf8(play.take_output()).expect("text");
            assert!(page.contains("Content-Type: text/html; charset=utf-8\r\n"), "{page}");
            assert!(page.contains("href=\"/metrics\"") && page.contains("poller: "), "{page}");
        }
        play.feed(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(play.take_output().starts_with(b"HTTP/1.1 404 "));
        play.feed(b"POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(play.take_output().starts_with(b"HTTP/1.1 405 "));
    }

    #[test]
    fn commands_are_answered_one_by_one() {
        let mut play = control();
        let answers = ask(&mut play, "show  info\r\nshow activity\n");
        assert!(
            answers.contains("poller: epoll-et\nloops: 2\nlisten: 127.0.0.1:1\n\n"),
            "{answers}"
        );
        let row = answers.lines().find(|line| line.starts_with("requests get")).expect("a row");
        assert_eq!(row.split_whitespace().skip(2).collect::<Vec<_>>(), ["7", "3", "4"]);
        assert!(!answers.contains("requests post"));
        assert!(ask(&mut play, "quit\n").is_empty());
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    #[test]
    fn a_long_answer_comes_whole_before_the_next() {
        let mut play = control();
        let answer = ask(&mut play, "show fd\nhelp\n");
        assert!(answer.starts_with("loop 0: 3000 descriptors\n  fd 5 readable\n"));
        assert!(answer.contains("loop 1: 0 descriptors\n\ncommands:\n"));
    }

    #[test]
    fn an_idle_client_is_closed_but_not_in_the_middle_of_an_answer() {
        let mut play = control();
        play.stall();
        play.feed(b"show fd\n");
        play.pass(Duration::from_secs(301));
        assert_eq!(play.closed(), None);
        play.flow();
        assert!(play.take_output().ends_with(b"loop 1: 0 descriptors\n\n"));
        play.pass(Duration::from_secs(301));
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    #[test]
    fn what_is_not_understood_is_answered_with_help() {
        let mut play = control();
        let answer = ask(&mut play, "show errors\u{1b}[2J\n");
        assert!(answer.starts_with("unknown command \"show errors[2J\"\ncommands:\n"), "{answer}");
        assert!(ask(&mut play, &"x".repeat(2000)).contains("at most 1024"));
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    #[test]
    fn names_stay_within_their_quotes() {
        assert_eq!(quoted("unix:/a\"b\\c\n"), "\"unix:/a\\\"b\\\\c\\u000a\"");
    }
}
