//! Flags of other programs that people try: whose they are, and what takes their place here.
//!
//! One table serves the answer to a wrong command line and the page docs/other-tools.md. Flags that mean one
//! thing there and another here (`-q 100`) are looked for before the command line is read, all others when a flag is
//! not known.

use clap::Command;
use pollux_settings::did_you_mean;

/// A flag of another program.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFlag {
    /// The command that it is tried with and those below, as a usage line has it: `pollux serve`.
    pub command: &'static str,
    /// The flag.
    pub flag: &'static str,
    /// Whose it is, such as `oha's and hey's`; empty where no program is known for it.
    pub of: &'static str,
    /// What takes its place: a flag, or words.
    pub here: &'static str,
    /// Of a flag that is one of pollux as well: which values are meant for the other program.
    value: Option<fn(&str) -> bool>,
}

const fn row(
    command: &'static str,
    flag: &'static str,
    of: &'static str,
    here: &'static str,
) -> ForeignFlag {
    ForeignFlag { command, flag, of, here, value: None }
}

const LOAD: &str = "pollux load";
const SERVE: &str = "pollux serve";
const PROXY: &str = "pollux proxy";
const RUN: &str = "pollux run";
const LAB: &str = "pollux lab";

/// Every flag that is known.
pub const TABLE: &[ForeignFlag] = &[
    ForeignFlag {
        value: Some(is_number),
        ..row(LOAD, "-q", "oha's and hey's", "--rate N (-q is --quiet)")
    },
    ForeignFlag {
        value: Some(is_time),
        ..row(
            LOAD,
            "-t",
            "oha's, hey's and ab's",
            "--timeout TIME, or -d TIME for ab's (-t is --threads)",
        )
    },
    ForeignFlag {
        value: Some(is_body),
        ..row(LOAD, "-d", "oha's, hey's and curl's", "--body TEXT (-d is --duration)")
    },
    row(LOAD, "--latency", "wrk's", "latencies are always shown; --percentiles chooses which"),
    row(
        LOAD,
        "-L",
        "wrk2's and curl's",
        "latencies are always shown, and redirects are not followed",
    ),
    row(LOAD, "-l", "autocannon's", "latencies are always shown; --percentiles chooses which"),
    row(LOAD, "-z", "oha's and hey's", "-d TIME"),
    row(LOAD, "-R", "wrk2's and autocannon's", "--rate N"),
    row(LOAD, "--qps", "fortio's", "--rate N"),
    row(LOAD, "--rps", "k6's", "--rate N"),
    row(LOAD, "-r", "h2load's", "--rate N; errors never end a run, as with ab's -r"),
    row(LOAD, "--stage", "k6's", "--rate 100@10s,200@20s, or --rate 100..5000@60s for a ramp"),
    row(LOAD, "--stages", "k6's", "--rate 100@10s,200@20s, or --rate 100..5000@60s for a ramp"),
    row(
        LOAD,
        "--burst-delay",
        "oha's",
        "--rate N: requests are spread evenly, or --arrival poisson",
    ),
    row(
        LOAD,
        "--burst-rate",
        "oha's",
        "--rate N: requests are spread evenly, or --arrival poisson",
    ),
    row(LOAD, "--vus", "k6's", "-c N"),
    row(LOAD, "--users", "locust's", "-c N"),
    row(LOAD, "--clients", "h2load's", "-c N"),
    row(LOAD, "--concurrency", "hey's", "-c N"),
    row(
        LOAD,
        "--num-conns",
        "httperf's",
        "-n N with --no-keepalive, or --requests-per-connection N",
    ),
    row(LOAD, "--num-calls", "httperf's", "--requests-per-connection N"),
    row(LOAD, "--iterations", "k6's", "-n N"),
    row(LOAD, "--amount", "autocannon's", "-n N"),
    row(LOAD, "-w", "autocannon's", "-t N"),
    row(LOAD, "--workers", "autocannon's and vegeta's", "-t N"),
    row(LOAD, "--pipelining", "autocannon's", "--pipeline N"),
    row(
        LOAD,
        "-p",
        "ab's and autocannon's",
        "--body @FILE for ab's, --pipeline N for autocannon's",
    ),
    row(
        LOAD,
        "-D",
        "oha's, hey's and h2load's",
        "--body @FILE for oha's and hey's, -d TIME for h2load's",
    ),
    row(LOAD, "--data", "curl's", "--body TEXT"),
    row(LOAD, "--data-raw", "curl's", "--body TEXT"),
    row(LOAD, "--data-binary", "curl's", "--body TEXT, or --body @FILE"),
    row(
        LOAD,
        "-m",
        "oha's, hey's and h2load's",
        "-X METHOD for oha's and hey's, --pipeline N for h2load's",
    ),
    row(LOAD, "--request", "curl's", "-X METHOD"),
    row(LOAD, "-i", "ab's and h2load's", "-X HEAD for ab's, --requests-from FILE for h2load's"),
    row(LOAD, "-a", "oha's and hey's", "-u NAME:PASSWORD"),
    row(LOAD, "-A", "ab's and hey's", "-u NAME:PASSWORD for ab's, -H 'Accept: TYPE' for hey's"),
    row(LOAD, "-T", "ab's, oha's and hey's", "-H 'Content-Type: TYPE'"),
    row(LOAD, "-C", "ab's", "-H 'Cookie: NAME=VALUE'"),
    row(LOAD, "--cookie", "curl's", "-H 'Cookie: NAME=VALUE'"),
    row(
        LOAD,
        "--host",
        "oha's and locust's",
        "-H 'Host: NAME' for oha's; the URL stands alone in place of locust's",
    ),
    row(LOAD, "--resolve", "curl's", "--connect-to ADDRESS"),
    row(LOAD, "--unix-socket", "oha's and curl's", "--unix PATH"),
    row(
        LOAD,
        "-k",
        "ab's and curl's",
        "connections are kept by default, as with ab's; --insecure is curl's",
    ),
    row(LOAD, "--disable-keepalive", "oha's and hey's", "--no-keepalive"),
    row(LOAD, "--no-reuse", "", "--no-keepalive"),
    row(LOAD, "--no-connection-reuse", "k6's", "--no-keepalive"),
    row(LOAD, "--keepalive", "vegeta's", "connections are kept by default"),
    row(
        LOAD,
        "--disable-compression",
        "oha's and hey's",
        "no compression is asked for unless -H does so",
    ),
    row(LOAD, "--disable-redirects", "hey's", "redirects are never followed"),
    row(LOAD, "--location", "curl's", "redirects are not followed; the answer counts as it is"),
    row(LOAD, "--max-time", "curl's", "--timeout TIME"),
    row(
        LOAD,
        "--latency-correction",
        "oha's",
        "--rate, which always counts from the intended start",
    ),
    row(LOAD, "--http2", "oha's and curl's", "HTTP/1.1 is the only protocol"),
    row(LOAD, "--h2", "h2load's", "HTTP/1.1 is the only protocol"),
    row(LOAD, "--http-version", "oha's", "HTTP/1.1 is the only protocol"),
    row(
        LOAD,
        "-s",
        "wrk's and ab's",
        "--requests-from FILE in place of wrk's script, --timeout TIME for ab's",
    ),
    row(LOAD, "--script", "wrk's", "--requests-from FILE: there are no scripts"),
    row(LOAD, "--targets", "vegeta's", "--requests-from FILE"),
    row(LOAD, "--input-file", "h2load's", "--requests-from FILE"),
    row(LOAD, "--warm-up-time", "h2load's", "--warm-up TIME"),
    row(LOAD, "-j", "oha's and autocannon's", "--json -"),
    row(LOAD, "-o", "oha's and hey's", "--json FILE, --csv FILE or --html FILE"),
    row(LOAD, "--output-format", "oha's", "--json FILE or --csv FILE"),
    row(LOAD, "--out", "k6's", "--json FILE or --csv FILE"),
    row(LOAD, "-e", "ab's", "--csv FILE"),
    row(LOAD, "-g", "ab's", "--hlog FILE"),
    row(LOAD, "--no-tui", "oha's", "-q"),
    row(LOAD, "-b", "ab's", "buffers of sockets are the kernel's: sysctl net.ipv4.tcp_rmem"),
    row(
        LOAD,
        "-v",
        "ab's",
        "the first wrong answer is shown without a flag; --json FILE has all figures",
    ),
    row(LOAD, "-V", "ab's", "pollux --version"),
    row(LOAD, "-P", "ab's", "there are no proxies between: the URL names the server that is asked"),
    row(
        LOAD,
        "-x",
        "oha's, hey's, curl's and ab's",
        "--connect-to ADDRESS, which asks another server for the URL: there are no forward proxies, and --html FILE in \
         place of ab's",
    ),
    row(
        LOAD,
        "-f",
        "siege's, bombardier's and ab's",
        "--requests-from FILE for siege's, --body @FILE for bombardier's; versions of TLS are agreed with the \
         server",
    ),
    row(LOAD, "-S", "ab's and autocannon's", "--unix PATH for autocannon's; ab's has no use here"),
    row(LOAD, "-4", "curl's", "--connect-to ADDRESS, as in --connect-to 127.0.0.1:8080"),
    row(LOAD, "-6", "curl's", "--connect-to ADDRESS, as in --connect-to '[::1]:8080'"),
    row(
        LOAD,
        "--url",
        "curl's and autocannon's",
        "the URL stands alone, as in pollux load http://127.0.0.1:8080/",
    ),
    row(LOAD, "--tls", "", "TLS is asked for by the URL: https://HOST/"),
    row(LOAD, "--port", "", "the port is part of the URL, as in http://127.0.0.1:8080/"),
    row(SERVE, "--port", "", IN_LISTEN),
    row(SERVE, "-p", "other servers'", IN_LISTEN),
    row(SERVE, "--bind", "python's http.server", IN_LISTEN),
    row(SERVE, "-b", "python's http.server", IN_LISTEN),
    row(SERVE, "-l", "npm serve's", IN_LISTEN),
    row(SERVE, "--host", "", IN_LISTEN),
    row(SERVE, "--address", "", IN_LISTEN),
    row(SERVE, "--tls", "", "TLS takes a certificate: --cert FILE --key FILE"),
    row(SERVE, "--root", "caddy's", "the folder stands alone, as in pollux serve /srv/www"),
    row(
        SERVE,
        "--directory",
        "python's http.server",
        "the folder stands alone, as in pollux serve /srv/www",
    ),
    row(
        SERVE,
        "-d",
        "python's http.server",
        "the folder stands alone, as in pollux serve /srv/www",
    ),
    row(SERVE, "--browse", "caddy's", "--listing"),
    row(
        SERVE,
        "-s",
        "npm serve's",
        "--spa index.html; signals of nginx's -s are sent by kill: SIGHUP reloads",
    ),
    row(SERVE, "--single", "npm serve's", "--spa index.html"),
    row(
        SERVE,
        "--gzip",
        "http-server's",
        "--compress, or --precompressed for files that lie ready",
    ),
    row(SERVE, "--compression", "", "--compress, or --precompressed for files that lie ready"),
    row(SERVE, "--workers", "", "--threads N"),
    row(SERVE, "-t", "nginx's", "--check"),
    row(SERVE, "-c", "nginx's", "--config FILE"),
    row(SERVE, "--log", "", "--access-log FILE"),
    row(PROXY, "--port", "", IN_LISTEN),
    row(PROXY, "-p", "other proxies'", IN_LISTEN),
    row(PROXY, "--bind", "", IN_LISTEN),
    row(PROXY, "--host", "", IN_LISTEN),
    row(PROXY, "--from", "caddy's", "--listen ADDRESS"),
    row(PROXY, "--to", "caddy's", "--backend ADDRESS"),
    row(PROXY, "--upstream", "", "--backend ADDRESS"),
    row(PROXY, "--target", "", "--backend ADDRESS"),
    row(PROXY, "--proxy-pass", "nginx's", "--backend ADDRESS"),
    row(PROXY, "--lb-policy", "caddy's", "--balance HOW"),
    row(PROXY, "--insecure", "caddy's", "--verify none"),
    row(PROXY, "--workers", "", "--threads N"),
    row(PROXY, "-f", "haproxy's", "--config FILE"),
    row(PROXY, "-c", "nginx's and haproxy's", "--config FILE for nginx's, --check for haproxy's"),
    row(PROXY, "-t", "nginx's", "--check"),
    row(PROXY, "-s", "nginx's", "signals are sent by kill: SIGHUP reloads, SIGTERM ends"),
    row(
        PROXY,
        "-D",
        "haproxy's",
        "it runs in the foreground; a unit of systemd is in docs/production.md",
    ),
    row(PROXY, "-sf", "haproxy's", "SIGHUP, which reloads without losing a connection"),
    row(RUN, "-p", "strace's and perf's", "--attach PID"),
    row(RUN, "-f", "strace's", "what the program starts is counted by itself"),
    row(RUN, "-c", "strace's", "calls are counted without a flag"),
    row(
        RUN,
        "-e",
        "strace's and perf's",
        "there is no choice of calls: those of the event loop are counted",
    ),
    row(RUN, "-o", "strace's and perf's", "--json FILE or --report FILE"),
    row(RUN, "-g", "perf's", "places in the source come with advice, without a flag"),
    row(LAB, "--warmup", "hyperfine's", "--ramp-time TIME"),
    row(LAB, "-w", "hyperfine's", "--ramp-time TIME"),
    row(LAB, "--runs", "hyperfine's", "--blocks N"),
    row(LAB, "-r", "hyperfine's and perf's", "--blocks N"),
    row(LAB, "--min-runs", "hyperfine's", "--blocks N"),
    row(LAB, "--max-runs", "hyperfine's", "--max-blocks N"),
    row(LAB, "--command-name", "hyperfine's", "names stand in arms, as in --arm 'NAME=COMMAND'"),
    row(LAB, "--prepare", "hyperfine's", "an arm starts all that it needs: --arm 'NAME=COMMAND'"),
    row(LAB, "--export-json", "hyperfine's", "--json, or result.json in the folder of --out"),
    row(LAB, "--export-markdown", "hyperfine's", "--markdown"),
    row(LAB, "--poller", "", "mechanisms are arms, as in --arm epoll,uring"),
    row(LAB, "--wait", "", "ways of waiting are arms, as in --arm exclusive,epoll"),
    row(LAB, "--peer", "", "other systems are arms, as in --arm epoll,nginx"),
    row(LAB, "--binary", "", "builds are arms, as in --arm old=pollux:PATH"),
];

const IN_LISTEN: &str = "the port is part of --listen, as in --listen 127.0.0.1:8080";

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Digits and a unit behind them.
fn is_time(text: &str) -> bool {
    let unit = text.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    unit.len() < text.len() && matches!(unit, "ms" | "s" | "m" | "h" | "min" | "sec")
}

/// JSON, a form, or a file of either.
fn is_body(text: &str) -> bool {
    text.starts_with(['{', '[', '<', '@', '"']) || text.contains('=')
}

impl ForeignFlag {
    /// Whose it is, and what takes its place.
    fn answer(&self) -> String {
        let here = match self.here.starts_with('-') {
            true => format!("the pollux flag is {}", self.here),
            false => self.here.to_owned(),
        };
        match self.of {
            "" => format!("{}: {here}", self.flag),
            of => format!("{} is {of}; {here}", self.flag),
        }
    }
}

/// What to say of a flag that the command called `path`, such as `pollux lab run`, does not have; nothing where
/// no other program has it either.
#[must_use]
pub fn answer(path: &str, flag: &str) -> Option<String> {
    let is_here = |known: &&ForeignFlag| {
        let rest = path.strip_prefix(known.command);
        known.flag == flag && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    TABLE.iter().find(is_here).map(ForeignFlag::answer)
}

/// What to say of `words`, which stand behind the name of the program, where one of them is a flag that means
/// something else to another program, or has one dash where the flag of `command` has two. Nothing is said of lines
/// that could be right.
#[must_use]
pub fn misread(command: &Command, words: &[String]) -> Option<String> {
    let (mut inner, mut path, mut rest) = (command, command.get_name().to_owned(), words);
    while let Some((word, behind)) = rest.split_first()
        && let Some(found) = inner.find_subcommand(word)
    {
        (inner, rest) = (found, behind);
        path = format!("{path} {word}");
    }
    // Behind the first word without a dash the program that is run has its own flags.
    let is_run = path == RUN;
    for (at, word) in rest.iter().enumerate() {
        if word == "--" || (is_run && !word.starts_with('-')) {
            break;
        }
        if let Some(name) = with_one_dash(word) {
            let long = format!("--{name}");
            let is_own = inner.get_arguments().any(|arg| arg.get_long() == Some(name));
            match answer(&path, &long) {
                Some(answer) => return Some(answer),
                None if is_own => return Some(format!("{word}: expected two dashes, {long}")),
                None => {}
            }
        }
        let value = rest.get(at + 1).map_or("", String::as_str);
        let is_meant = |known: &&ForeignFlag| {
            let Some(is_theirs) = known.value else {
                // All words behind are the program's, so no flag of it is unknown.
                return is_run && known.command == RUN && known.flag == word;
            };
            let attached = word.strip_prefix(known.flag).filter(|text| !text.is_empty());
            known.command == path
                && (attached.is_some_and(is_theirs) || (word == known.flag && is_theirs(value)))
        };
        if let Some(known) = TABLE.iter().find(is_meant) {
            return Some(known.answer());
        }
    }
    None
}

/// The name of a long flag behind one dash, as of Go's flags: `-duration=5s`.
fn with_one_dash(word: &str) -> Option<&str> {
    let name = word.strip_prefix('-')?.split('=').next()?;
    let is_name =
        name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && !name.starts_with('-')).then_some(name)
}

/// Whether a flag that clap takes for similar is near enough to be meant.
#[must_use]
pub fn is_near(flag: &str, similar: &str) -> bool {
    let bare = |flag: &'_ str| flag.trim_start_matches('-').to_owned();
    !did_you_mean(&bare(flag), [&*bare(similar)]).is_empty()
}

/// The table as a page of the documentation has it.
#[must_use]
pub fn reference() -> String {
    let mut page = String::new();
    for command in [LOAD, SERVE, PROXY, RUN, LAB] {
        page += &format!("\n## `{command}`\n\n| flag | of | here |\n|---|---|---|\n");
        for known in TABLE.iter().filter(|known| known.command == command) {
            let of = known.of.trim_end_matches("'s").replace("'s", "").replace("s'", "s");
            page += &format!("| `{}` | {of} | {} |\n", known.flag, known.here.replace('|', "\\|"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        pollux_settings::kept("other-tools.md", "flags", &reference()).expect("that of the table");
    }

    #[test]
    fn a_flag_is_in_the_table_once_for_each_command() {
        for (at, known) in TABLE.iter().enumerate() {
            let same =
                |other: &&ForeignFlag| (other.command, other.flag) == (known.command, known.flag);
            assert!(TABLE[..at].iter().find(same).is_none(), "{} of {}", known.flag, known.command);
        }
    }

    #[test]
    fn a_flag_with_another_meaning_is_known_by_its_value() {
        for (flag, theirs, ours) in [
            ("-q", &["100", "0.5"][..], &["http://h/", "", "-c"][..]),
            ("-t", &["5s", "500ms", "2m"], &["5", "many", "s"]),
            ("-d", &["{\"a\":1}", "@file", "a=b"], &["5s", "soon", "1m30s"]),
        ] {
            let known = TABLE.iter().find(|known| known.flag == flag && known.value.is_some());
            let is_theirs = known.and_then(|known| known.value).expect("it has a value");
            assert!(theirs.iter().all(|value| is_theirs(value)), "{flag}");
            assert!(!ours.iter().any(|value| is_theirs(value)), "{flag}");
        }
    }

    #[test]
    fn only_a_typing_error_is_taken_for_one() {
        for (flag, similar) in [
            ("--latency", "--rate"),
            ("--qps", "--cpus"),
            ("--vus", "--cpus"),
            ("--data", "--duration"),
            ("--no-tui", "--no-resumption"),
            ("--http-version", "--version"),
            ("--upstream", "--upstream-idle-max"),
        ] {
            assert!(!is_near(flag, similar), "{flag}");
        }
        assert!(is_near("--blcoks", "--blocks") && is_near("--conections", "--connections"));
    }
}
