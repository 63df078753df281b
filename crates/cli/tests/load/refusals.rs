//! Wrong input: exit code 2, and words that say what would be right.

use crate::run::{Said, load};

fn refused(flags: &[&str]) -> Said {
    let said = load(flags);
    assert_eq!(said.code, Some(2), "{flags:?}: {said:?}");
    assert_eq!(said.stdout, "", "{flags:?}");
    said
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    let url = "http://127.0.0.1:1/";
    for (flags, words) in [
        (&["127.0.0.1:8080"][..], &["127.0.0.1:8080", "no scheme"][..]),
        (&["ftp://127.0.0.1/"], &["ftp", "http://HOST"]),
        (&["--rate", "fast", url], &["fast", "1000@10s"]),
        (&["--rate", "10@5", url], &["10@5", "unit"]),
        (&["-c", "0", url], &["--connections", "0"]),
        (&["-n", "0", url], &["--requests", "0"]),
        (&["-t", "8", "-c", "4", url], &["--connections", "threads"]),
        (&["-d", "5", url], &["--duration", "10s"]),
        (&["--poller", "kqueue", url], &["kqueue", "epoll-et"]),
        (&["--cpus", "a", url], &["--cpus", "0,2-3"]),
        (&["--source", "::1", url], &["--source", "::1"]),
        (&["-H", "no colon", url], &["--header", "NAME: VALUE"]),
        (&["--body", "@no/such/file", url], &["no/such/file"]),
        (&["--find-capacity", url], &["--slo"]),
        (&["--find-capacity", "--slo", "fast", url], &["p99=5ms"]),
        (&["0@http://127.0.0.1:1/"], &["weight 0"]),
        (&[url, "http://127.0.0.1:2/"], &["different addresses"]),
    ] {
        let said = refused(flags);
        for word in words {
            assert!(said.stderr.contains(word), "{flags:?}: no \"{word}\" in {}", said.stderr);
        }
    }
}

#[test]
fn no_flag_is_ignored_in_silence() {
    let http = "http://127.0.0.1:1/";
    for (flags, named, wanted) in [
        (&["--arrival", "poisson"][..], "--arrival", "--rate"),
        (&["--insecure"], "--insecure", "https"),
        (&["--no-resumption"], "--no-resumption", "https"),
        (&["--cacert", "a.pem"], "--cacert", "https"),
        (&["--drip", "2s"], "--drip", "--slow"),
        (&["--trial", "2s"], "--trial", "--find-capacity"),
        (&["--seed", "7"], "--seed", "--arrival poisson"),
        (&["--no-keepalive", "--pipeline", "4"], "--pipeline", "one request"),
        (&["--requests-per-connection", "3", "--pipeline", "4"], "--pipeline", "3 requests"),
        (&["--rate", "5@9s,6@9s", "-d", "5s", "--warm-up", "0s"], "--rate", "never begin"),
    ] {
        let said = refused(&[flags, &[http]].concat());
        let at = said.stderr.find(&format!("error: {named}: "));
        assert!(at.is_some() && said.stderr.contains(wanted), "{flags:?}: {said:?}");
    }
}

#[test]
fn numbers_and_addresses_are_refused_in_plain_words() {
    let url = "http://127.0.0.1:1/";
    for (flags, words) in [
        (&["-c", "0", url][..], "expected a whole number from 1 to 4,294,967,295"),
        (&["-c", "ten", url], "expected a whole number from 1"),
        (&["-c", "-5", url], "expected a whole number from 1"),
        (&["--pipeline", "2000", url], "expected a whole number from 1 to 1,024"),
        (&["--expect-status", "7", url], "expected a whole number from 100 to 599"),
        (&["--requests-per-connection", "0", url], "expected a whole number from 1"),
        (&["127.0.0.1:8080"], "write http://127.0.0.1:8080"),
        (&["localhost:8080/a"], "write http://localhost:8080/a"),
    ] {
        let said = refused(flags);
        assert!(said.stderr.contains(words), "{flags:?}: {}", said.stderr);
        assert!(!said.stderr.contains("..") && !said.stderr.contains("tip:"), "{}", said.stderr);
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let said = load(&["--help"]);
    assert_eq!(said.code, Some(0));
    for words in ["Examples:", "--find-capacity --slo", "Exit codes:", "130", "[default: 64]"] {
        assert!(said.stdout.contains(words), "no {words}");
    }
    // Without anything: the short help, as an error.
    let said = load(&[]);
    assert!(said.code == Some(2) && said.stderr.contains("--connections"), "{said:?}");
}
