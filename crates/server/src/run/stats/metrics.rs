//! The counters in the text format of Prometheus (version 0.0.4), with help and type lines.
//!
//! A pure function; the metrics endpoint sends what it gives. Counters that a loop does not have
//! are left out, with a comment that says why: a missing value is not 0.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;

use pollux_engine::{CloseCause, Counter};
use pollux_http::MetricsPage;
use pollux_http::h2::ErrorCode;
use pollux_poller::HISTOGRAM_BUCKETS;

use crate::backends::pool::PoolView;
use crate::certificates::FrontCertificates;
use crate::counters::{CLASSES, METHODS, REFUSALS, ServerCounter};
use crate::fault::{BackendCounts, Fault, ProxyCounter, ROUTES_COUNTED_MAX, StreamCounts};
use crate::passwords::PasswordCount;
use crate::run::stats::{LoopSource, Overview};

/// Most certificates that the page has a line of.
const CERTIFICATES_SHOWN_MAX: usize = 1000;

/// The whole page.
#[must_use]
pub fn metrics(overview: &Overview) -> String {
    let mut page = Page { text: MetricsPage::new(""), loops: &overview.loops };
    page.family("pollux_build_info", "gauge", "Version of the server");
    page.line("pollux_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    page.family("pollux_uptime_seconds", "gauge", "Seconds since the server was started");
    page.line("pollux_uptime_seconds", &[], overview.started.elapsed().as_secs_f64());
    page.family("pollux_loops", "gauge", "Event loops, by mechanism");
    page.line("pollux_loops", &[("poller", &overview.driver)], overview.loops.len());
    page.engine();
    page.poller();
    page.http();
    page.certificates(overview);
    page.limits(overview);
    page.passwords(overview);
    page.proxy();
    page.backends(overview);
    page.routes(overview);
    page.epochs(overview);
    page.backends_http2(overview);
    page.lookups(overview);
    page.pools(overview);
    page.request_times();
    page.text.text()
}

struct Page<'a> {
    text: MetricsPage,
    loops: &'a [LoopSource],
}

impl Page<'_> {
    fn engine(&mut self) {
        for &counter in Counter::ALL {
            let help = counter.about();
            // Prometheus counts time in seconds.
            if let Some(stem) = counter.name().strip_suffix("_ns") {
                let name = format!("pollux_loop_{stem}_seconds_total");
                let help = help.replace("Nanoseconds", "Seconds");
                self.each_loop(&name, "counter", &help, |source| {
                    source.engine.value(counter) as f64 / 1e9
                });
            } else {
                let name = format!("pollux_loop_{}_total", counter.name());
                self.each_loop(&name, "counter", help, |source| source.engine.value(counter));
            }
        }
        let help = "Connections that are open";
        self.each_loop("pollux_connections_open", "gauge", help, |source| source.engine.open());
        let name = "pollux_connections_closed_total";
        self.family(name, "counter", "Connections that were closed, by cause");
        for (index, source) in self.loops.iter().enumerate() {
            for &cause in CloseCause::ALL {
                let labels: [(&str, &dyn Display); 2] =
                    [("loop", &index), ("cause", &cause.name())];
                self.line(name, &labels, source.engine.closed(cause));
            }
        }
    }

    fn poller(&mut self) {
        let snapshots: Vec<_> =
            self.loops.iter().map(|source| source.poller.as_ref().map(|p| p.snapshot())).collect();
        let Some(first) = snapshots.iter().flatten().next() else {
            self.text.comment("pollux_poller_*: n/a, the completion loop has no poller");
            return;
        };
        for (place, (name, _)) in first.named().into_iter().enumerate() {
            let metric = format!("pollux_poller_{name}_total");
            self.family(&metric, "counter", &format!("The poller's {}", name.replace('_', " ")));
            for (index, snapshot) in snapshots.iter().enumerate() {
                if let Some(snapshot) = snapshot {
                    self.line(&metric, &[("loop", &index)], snapshot.named()[place].1);
                }
            }
        }
        self.family("pollux_poller_events_per_wait", "histogram", "Events that a wait delivered");
        for (index, snapshot) in snapshots.iter().enumerate() {
            if let Some(snapshot) = snapshot {
                self.histogram(index, &snapshot.events_per_wait, snapshot.events);
            }
        }
    }

    /// Buckets of 0, 1, 2–3, 4–7, … events, added up as Prometheus wants them.
    fn histogram(&mut self, index: usize, buckets: &[u64; HISTOGRAM_BUCKETS], sum: u64) {
        let name = "pollux_poller_events_per_wait";
        let mut below = 0;
        for (power, waits) in buckets.iter().enumerate() {
            below += waits;
            let most = if power + 1 == buckets.len() {
                "+Inf".to_owned()
            } else {
                ((1_u64 << power) - 1).to_string()
            };
            self.line(&format!("{name}_bucket"), &[("loop", &index), ("le", &most)], below);
        }
        self.line(&format!("{name}_sum"), &[("loop", &index)], sum);
        self.line(&format!("{name}_count"), &[("loop", &index)], below);
    }

    fn http(&mut self) {
        let others = ["other".to_owned()];
        let statuses: Vec<String> = REFUSALS.iter().map(u16::to_string).chain(others).collect();
        let statuses: Vec<&str> = statuses.iter().map(String::as_str).collect();
        self.labelled("requests", "Requests, by method", "method", &METHODS, |source, place| {
            source.server.requests(place)
        });
        let help = "Answers that have left, or were cut, by class of status";
        self.labelled("answers", help, "class", &CLASSES, |s, place| s.server.answers(place));
        let help = "Requests that were refused, by status";
        self.labelled("refusals", help, "status", &statuses, |s, place| s.server.refused(place));
        let codes: [&str; ErrorCode::NAMED] =
            std::array::from_fn(|code| ErrorCode::of(code as u32).name());
        let help = "Streams of HTTP/2 that were reset by the server, by code";
        self.labelled("http2_resets_sent", help, "code", &codes, |s, code| {
            s.server.resets_sent(code)
        });
        let help = "Streams of HTTP/2 that clients reset, by code";
        self.labelled("http2_resets_received", help, "code", &codes, |s, code| {
            s.server.resets_received(code)
        });
        let help = "GOAWAYs that were sent to clients of HTTP/2, by code";
        self.labelled("http2_goaways", help, "code", &codes, |s, code| s.server.goaways(code));
        let help = "Streams of HTTP/2 that are open";
        self.each_loop("pollux_http_http2_streams_open", "gauge", help, |source| {
            source.server.streams_open()
        });
        for &counter in ServerCounter::ALL {
            let name = format!("pollux_http_{}_total", counter.name());
            self.each_loop(&name, "counter", counter.about(), |source| {
                source.server.value(counter)
            });
        }
    }

    /// When what clients are shown expires; of very many those that do first.
    fn certificates(&mut self, overview: &Overview) {
        let all = overview.certificates.iter().flat_map(FrontCertificates::expiries);
        // Front ends may have one in common.
        let ends: BTreeMap<PathBuf, u64> = all.collect();
        let mut ends: Vec<(PathBuf, u64)> = ends.into_iter().collect();
        if ends.is_empty() {
            return;
        }
        ends.sort_by_key(|(_, end)| *end);
        let name = "pollux_certificate_expires_seconds";
        let help = "When the certificate in a file expires, in seconds since 1970";
        self.family(name, "gauge", help);
        for (path, end) in ends.iter().take(CERTIFICATES_SHOWN_MAX) {
            self.line(name, &[("cert", &path.display())], *end);
        }
    }

    /// What limits on how often clients may ask have refused.
    fn limits(&mut self, overview: &Overview) {
        let limits = overview.rates.iter().flat_map(|rates| rates.all());
        if limits.clone().next().is_none() {
            self.text.comment("pollux_proxy_limit_*: n/a, there is no [[limit]]");
            return;
        }
        for (place, (name, help)) in [
            ("refused", "Requests that a limit refused, by its name"),
            ("excused", "Requests that it would have refused, were it no dry run"),
            ("evictions", "Clients that it forgot too early, for want of room"),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("pollux_proxy_limit_{name}_total");
            self.family(&name, "counter", help);
            for limit in limits.clone() {
                self.line(&name, &[("limit", &limit.name())], limit.counts()[place]);
            }
        }
    }

    /// What became of passwords, where sites have users.
    fn passwords(&mut self, overview: &Overview) {
        let Some(passwords) = &overview.passwords else {
            self.text.comment("pollux_proxy_password*: n/a, there are no [[users]]");
            return;
        };
        let name = "pollux_proxy_passwords_total";
        let help = "Passwords of users of sites, by what became of them: taken by an earlier check (kept), checked (right, wrong), \
                    or not (throttled, queue_full, abandoned by their clients)";
        self.family(name, "counter", help);
        for (count, what) in PasswordCount::ALL {
            self.line(name, &[("verdict", &what)], passwords.count(count));
        }
        let name = "pollux_proxy_password_checks_waiting";
        self.family(name, "gauge", "Checks of passwords that wait for a thread");
        self.line(name, &[], passwords.waiting());
    }

    /// What only a proxy counts.
    fn proxy(&mut self) {
        if self.loops.iter().all(|source| source.proxy.is_none()) {
            return;
        }
        for &counter in ProxyCounter::ALL {
            let name = format!("pollux_proxy_{}_total", counter.name());
            self.each_loop(&name, "counter", counter.about(), |source| {
                source.proxy.as_ref().map_or(0, |proxy| proxy.value(counter))
            });
        }
        let help =
            "Bytes that streams of HTTP/2 hold for backends and clients that have not taken them";
        self.each_loop("pollux_proxy_http2_waiting_bytes", "gauge", help, |source| {
            source.proxy.as_ref().map_or(0, |proxy| proxy.held_bytes())
        });
        let name = "pollux_proxy_faults_total";
        self.family(name, "counter", "Requests that failed, by fault; its first word is to blame");
        for (index, source) in self.loops.iter().enumerate() {
            let Some(proxy) = &source.proxy else { continue };
            for (place, fault) in Fault::ALL.into_iter().enumerate() {
                let labels: [(&str, &dyn Display); 2] =
                    [("loop", &index), ("fault", &fault.name())];
                self.line(name, &labels, proxy.faults(place));
            }
        }
    }

    /// The backends of a proxy.
    fn backends(&mut self, overview: &Overview) {
        type Read = fn(&BackendCounts) -> u64;
        let families: [(&str, &str, &str, Read); 3] = [
            ("requests_total", "counter", "Requests given to a backend", |of| of.begun.value()),
            ("failed_total", "counter", "Requests that failed by its fault", |of| {
                of.failed.value()
            }),
            ("in_use", "gauge", "Requests that it has", BackendCounts::in_use),
        ];
        for (name, kind, help, read) in families {
            let name = format!("pollux_proxy_backend_{name}");
            self.family(&name, kind, help);
            for (index, source) in self.loops.iter().enumerate() {
                let Some(proxy) = &source.proxy else { continue };
                for (place, backend) in overview.backends_there() {
                    let counts = &proxy.backends()[place];
                    let labels: [(&str, &dyn Display); 2] =
                        [("loop", &index), ("backend", &backend.name())];
                    self.line(&name, &labels, read(counts));
                }
            }
        }
        if !overview.backends.is_empty() {
            let name = "pollux_proxy_backend_up";
            self.family(name, "gauge", "Whether a backend is taken for up");
            for (_, backend) in overview.backends_there() {
                let labels: [(&str, &dyn Display); 1] = [("backend", &backend.name())];
                self.line(name, &labels, u64::from(!backend.is_down()));
            }
        }
    }

    /// What the routes of sites have answered, where there are some.
    fn routes(&mut self, overview: &Overview) {
        let Some(upstreams) = &overview.upstreams else { return };
        let names = upstreams.routes.names();
        if names.is_empty() {
            return;
        }
        let name = "pollux_route_answers_total";
        let help = "Answers of a route of a site, by the class of their status; a body that is sent back apart";
        self.family(name, "counter", help);
        for (index, source) in self.loops.iter().enumerate() {
            let Some(proxy) = &source.proxy else { continue };
            for (place, counts) in proxy.routes().take(names.len()).enumerate() {
                let (site, route) = match place {
                    ROUTES_COUNTED_MAX => ("", "other"),
                    _ => names[place].parts(),
                };
                for (class, code) in CLASSES.iter().enumerate().filter(|(_, code)| **code != "1xx")
                {
                    let labels: [(&str, &dyn Display); 4] =
                        [("loop", &index), ("site", &site), ("route", &route), ("code", code)];
                    self.line(name, &labels, counts.answers(class));
                }
            }
        }
    }

    /// Settings by which requests go.
    fn epochs(&mut self, overview: &Overview) {
        if overview.epochs.is_empty() {
            return;
        }
        let name = "pollux_proxy_settings";
        let help = "Settings by which requests go: those of now, and earlier ones that some keep to their end";
        self.family(name, "gauge", help);
        for (index, epochs) in overview.epochs.iter().enumerate() {
            self.line(name, &[("loop", &index)], epochs.count());
        }
    }

    /// Connections of HTTP/2 to backends, where some speak it.
    fn backends_http2(&mut self, overview: &Overview) {
        type Read = fn(&BackendCounts) -> u64;
        type ReadCode = fn(&StreamCounts, usize) -> u64;
        let Some(upstreams) = &overview.upstreams else { return };
        let speaks = |place: usize| upstreams.pool.counts_requests(place);
        if !overview.backends_there().any(|(place, _)| speaks(place)) {
            let why = "pollux_proxy_backend_http2_*: n/a, no backend has protocol h2 or h2c";
            self.text.comment(why);
            return;
        }
        let families: [(&str, &str, &str, Read); 4] = [
            ("connections_total", "counter", "Connections of HTTP/2 to a backend", |of| {
                of.http2_opened.value()
            }),
            ("connections_open", "gauge", "Those that are open", BackendCounts::http2_connections),
            ("streams_total", "counter", "Streams that were begun on them", |of| {
                of.streams_begun.value()
            }),
            ("streams_open", "gauge", "Those that are open", BackendCounts::streams),
        ];
        for (name, kind, help, read) in families {
            let name = format!("pollux_proxy_backend_http2_{name}");
            self.family(&name, kind, help);
            for (index, source) in self.loops.iter().enumerate() {
                let Some(proxy) = &source.proxy else { continue };
                for (place, backend) in overview.backends_there().filter(|(at, _)| speaks(*at)) {
                    let labels: [(&str, &dyn Display); 2] =
                        [("loop", &index), ("backend", &backend.name())];
                    self.line(&name, &labels, read(&proxy.backends()[place]));
                }
            }
        }
        let families: [(&str, &str, ReadCode); 4] = [
            (
                "resets_sent",
                "Streams to backends that were reset by the proxy, by code",
                |of, code| of.resets_sent[code].value(),
            ),
            (
                "resets_received",
                "Streams to backends that these have reset, by code",
                |of, code| of.resets_received[code].value(),
            ),
            ("goaways_sent", "GOAWAYs that were sent to backends, by code", |of, code| {
                of.goaways_sent[code].value()
            }),
            ("goaways_received", "GOAWAYs of backends, by code", |of, code| {
                of.goaways_received[code].value()
            }),
        ];
        for (name, help, read) in families {
            let name = format!("pollux_proxy_backend_http2_{name}_total");
            self.family(&name, "counter", help);
            for (index, source) in self.loops.iter().enumerate() {
                let Some(proxy) = &source.proxy else { continue };
                for code in 0..ErrorCode::NAMED {
                    let label = ErrorCode::of(code as u32).name();
                    let labels: [(&str, &dyn Display); 2] = [("loop", &index), ("code", &label)];
                    self.line(&name, &labels, read(proxy.streams(), code));
                }
            }
        }
    }

    /// Lookups of the names of backends, where they have any.
    fn lookups(&mut self, overview: &Overview) {
        let names = overview.upstreams.as_ref().and_then(|upstreams| upstreams.names());
        let Some((lookups, failed)) = names.map(|names| names.counts()) else { return };
        let name = "pollux_proxy_lookups_total";
        self.family(name, "counter", "Lookups of the names of backends");
        self.line(name, &[], lookups);
        let name = "pollux_proxy_lookups_failed_total";
        self.family(name, "counter", "Those of them that failed; the addresses of before stay");
        self.line(name, &[], failed);
    }

    /// What all loops of a proxy share of their connections to backends.
    fn pools(&mut self, overview: &Overview) {
        type Read = fn(PoolView) -> Option<u64>;
        let Some(upstreams) = &overview.upstreams else { return };
        let families: [(&str, &str, Read); 4] = [
            ("idle", "Connections that are kept without a request", |view| Some(view.idle as u64)),
            ("waiting", "Requests that wait for a connection", |view| Some(view.waiting as u64)),
            ("open", "Connections to a backend that has a most of them", |view| {
                view.open.map(u64::from)
            }),
            ("open_max", "The most of them", |view| view.open_max.map(u64::from)),
        ];
        for (name, help, read) in families {
            let name = format!("pollux_proxy_backend_{name}");
            self.family(&name, "gauge", help);
            for (place, backend) in overview.backends_there() {
                let Some(value) = read(upstreams.view(place)) else { continue };
                let labels: [(&str, &dyn Display); 1] = [("backend", &backend.name())];
                self.line(&name, &labels, value);
            }
        }
    }

    /// Time of requests inside the loops, where it is counted.
    fn request_times(&mut self) {
        let name = "pollux_http_request_seconds";
        if self.loops.iter().all(|source| source.server.times().count() == 0) {
            self.text.comment("pollux_http_request_seconds: n/a without --request-times");
            return;
        }
        self.family(name, "histogram", "Seconds from a head that is here to an answer handed over");
        for (index, source) in self.loops.iter().enumerate() {
            let times = source.server.times();
            let count = times.count();
            for (end_ns, below) in times.below() {
                let end_s = end_ns as f64 / 1e9;
                let labels: [(&str, &dyn Display); 2] = [("loop", &index), ("le", &end_s)];
                self.line(&format!("{name}_bucket"), &labels, below);
            }
            let labels: [(&str, &dyn Display); 2] = [("loop", &index), ("le", &"+Inf")];
            self.line(&format!("{name}_bucket"), &labels, count);
            self.line(&format!("{name}_sum"), &[("loop", &index)], times.sum_ns() as f64 / 1e9);
            self.line(&format!("{name}_count"), &[("loop", &index)], count);
        }
    }

    fn labelled(
        &mut self,
        stem: &str,
        help: &str,
        label: &str,
        values: &[&str],
        read: impl Fn(&LoopSource, usize) -> u64,
    ) {
        let name = format!("pollux_http_{stem}_total");
        self.family(&name, "counter", help);
        for (index, source) in self.loops.iter().enumerate() {
            for (place, value) in values.iter().enumerate() {
                self.line(&name, &[("loop", &index), (label, value)], read(source, place));
            }
        }
    }

    fn each_loop<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        read: impl Fn(&LoopSource) -> V,
    ) {
        self.family(name, kind, help);
        for (index, source) in self.loops.iter().enumerate() {
            self.line(name, &[("loop", &index)], read(source));
        }
    }

    /// Help is a phrase: what counters say about themselves are sentences.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.text.family(name, kind, help);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.line(name, labels, value);
    }
}

/// The label of a loop, and what stands for those that have ended.
const LOOP: &str = "loop=\"";
const ENDED: &str = "loop=\"ended\"";

/// Sums of counters, by family and by name with labels.
///
/// Counters of workers that have ended, or are about to: carried over to the one that runs, so that
/// a reload or a crash makes no counter go back.
///
/// Read from the pages that they last made and summed up over their loops; on the page of the running
/// worker they stand behind its own loops as `loop="ended"`. Gauges are not carried: what has ended
/// holds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetiredCounts {
    families: BTreeMap<String, BTreeMap<String, f64>>,
}

impl RetiredCounts {
    /// What a page of metrics says, in the text format of Prometheus. Lines of another form are
    /// passed over.
    #[must_use]
    pub fn of_page(page: &str) -> Self {
        let mut ended = Self::default();
        ended.add_page(page);
        ended
    }

    /// Adds what a page says.
    pub fn add_page(&mut self, page: &str) {
        let mut family = None;
        for line in page.lines() {
            if let Some(message) = line.strip_prefix("# TYPE ") {
                let (name, kind) = message.split_once(' ').unwrap_or((message, ""));
                family = matches!(kind, "counter" | "histogram").then(|| name.to_owned());
            }
            let Some(family) = family.as_ref().filter(|_| !line.starts_with('#')) else { continue };
            let Some((key, value)) = line.rsplit_once(' ') else { continue };
            let Some(value) = value.parse().ok().filter(|value: &f64| *value != 0.0) else {
                continue;
            };
            let sums = self.families.entry(family.clone()).or_default();
            *sums.entry(without_loop(key)).or_default() += value;
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// The page of a running worker, with these behind its own.
    #[must_use]
    pub fn added_to(&self, page: String) -> String {
        if self.is_empty() {
            return page;
        }
        let mut text = String::with_capacity(page.len() * 2);
        let mut family = "";
        for line in page.lines() {
            if let Some(message) = line.strip_prefix("# HELP ") {
                self.write(family, &mut text);
                family = message.split(' ').next().unwrap_or_default();
            }
            writeln!(text, "{line}").expect("a string");
        }
        self.write(family, &mut text);
        text
    }

    /// As a page of its own that [`RetiredCounts::of_page`] reads.
    #[must_use]
    pub fn page(&self) -> String {
        let mut text = String::new();
        for family in self.families.keys() {
            writeln!(text, "# TYPE {family} counter").expect("a string");
            self.write(family, &mut text);
        }
        text
    }

    fn write(&self, family: &str, text: &mut String) {
        for (key, value) in self.families.get(family).into_iter().flatten() {
            writeln!(text, "{key} {value}").expect("a string");
        }
    }
}

/// The name with labels, whose loop is the one that has ended.
fn without_loop(key: &str) -> String {
    match key.split_once(LOOP) {
        None => key.to_owned(),
        Some((before, rest)) => {
            let after = rest.split_once('"').map_or("", |(_, after)| after);
            format!("{before}{ENDED}{after}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP a_total Things
# TYPE a_total counter
a_total{loop=\"0\"} 3
a_total{loop=\"1\"} 4
# HELP open Now
# TYPE open gauge
open{loop=\"0\"} 9
# HELP b_total Others
# TYPE b_total counter
b_total{loop=\"0\",kind=\"x\"} 0
b_total{loop=\"0\",kind=\"y\"} 2
# n/a: c
# HELP t_seconds Times
# TYPE t_seconds histogram
t_seconds_bucket{loop=\"0\",le=\"+Inf\"} 5
t_seconds_sum{loop=\"0\"} 0.5
";

    #[test]
    fn counters_of_what_has_ended_add_up_and_gauges_do_not() {
        let mut ended = RetiredCounts::of_page(PAGE);
        ended.add_page(PAGE);
        let page = ended.added_to(PAGE.to_owned());
        for line in [
            "a_total{loop=\"1\"} 4\na_total{loop=\"ended\"} 14\n# HELP open",
            "open{loop=\"0\"} 9\n# HELP b_total",
            "b_total{loop=\"ended\",kind=\"y\"} 4\n",
            "t_seconds_bucket{loop=\"ended\",le=\"+Inf\"} 10\n",
            "t_seconds_sum{loop=\"ended\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\nis not in\n{page}");
        }
        assert!(!page.contains("kind=\"x\"} 0\nb_total{loop=\"ended\",kind=\"x\""), "{page}");
        // What was carried is carried on with the page that has it.
        assert_eq!(RetiredCounts::of_page(&ended.page()), ended);
        let once = RetiredCounts::of_page(PAGE);
        assert_eq!(RetiredCounts::of_page(&once.added_to(PAGE.to_owned())), ended);
        assert_eq!(RetiredCounts::default().added_to(PAGE.to_owned()), PAGE);
    }
}
