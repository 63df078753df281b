//! `--check`: what the settings of a file mean, or everything that is wrong with them.

use std::process::Command;

/// Exit code, standard output and standard error of a check of this file.
fn check(text: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("p.toml"), text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["proxy", "--config", "p.toml", "--check"]);
    let ended = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

const SOUND: &str = "\
threads = 2
[[frontend]]
listen = [\"127.0.0.1:1\", \"unix:p.sock\"]
backend = \"app\"
[[backend]]
name = \"app\"
balance = \"least\"
health_check = \"http\"
health_path = \"/up\"
[[backend.server]]
address = \"127.0.0.1:2\"
weight = 3
[[backend]]
name = \"other\"
[[backend.server]]
address = \"127.0.0.1:3\"
";

#[test]
fn a_check_says_what_the_proxy_would_do_and_opens_no_address() {
    let (code, plan, errors) = check(SOUND);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for line in [
        "listen on 127.0.0.1:1: HTTP to the backend \"app\"",
        "listen on unix:p.sock: HTTP to the backend \"app\"",
        "backend \"app\": least; GET /up every 2s",
        "  127.0.0.1:2 weight 3",
        "backend \"other\": round-robin; no checks, down for 5s after 3",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\nis not in\n{plan}");
    }
    assert!(plan.contains("2 threads, "), "{plan}");
}

#[test]
fn a_check_opens_certificates() {
    let secured = SOUND
        .replace("backend = \"app\"", "cert = \"no.pem\"\nkey = \"no.key\"\nbackend = \"app\"");
    let (code, plan, errors) = check(&secured);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("no.pem: "), "{errors}");
    let (code, _, errors) = check(&secured.replace("key = \"no.key\"\n", ""));
    assert_eq!(code, Some(2));
    assert!(errors.contains("p.toml:4:8: cert: "), "{errors}");
    let trusting = SOUND.replace("name = \"app\"", "name = \"app\"\ntls = true\nca = \"no.pem\"");
    let (code, plan, errors) = check(&trusting);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("no.pem: "), "{errors}");
}

#[test]
fn a_check_looks_for_the_authorities_that_the_system_trusts() {
    let check = |certificates: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["proxy", "--backend", "127.0.0.1:1", "--tls", "--check"]);
        command.env("SSL_CERT_FILE", certificates).env("SSL_CERT_DIR", "/nonexistent");
        let ended = command.output().expect("it runs");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("a text"))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roots.pem");
    let certified = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("a certificate");
    std::fs::write(&file, certified.cert.pem()).expect("written");
    assert_eq!(check(file.to_str().expect("a text")), (Some(0), String::new()));
    let (code, errors) = check("/dev/null");
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("this system has no certificates of authorities"), "{errors}");
}

#[test]
fn a_check_tells_every_mistake_with_its_line_and_column() {
    let wrong = SOUND
        .replace("weight = 3", "weight = 0")
        .replace("threads = 2", "thread = 2")
        .replace("backend = \"app\"", "backend = \"ap\"");
    let (code, plan, errors) = check(&wrong);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("p.toml:1:1: unknown key \"thread\""), "{errors}");
    assert!(errors.contains("did you mean \"threads\"?"), "{errors}");
    assert!(errors.contains("p.toml:12:10: weight = 0: expected a whole number"), "{errors}");
    // Which names there are is not known while one of the sections is wrong.
    let (code, _, errors) = check(&SOUND.replace("backend = \"app\"", "backend = \"ap\""));
    assert_eq!(code, Some(2));
    let expected = "p.toml:4:11: backend: no [[backend]] is called \"ap\"; did you mean \"app\"?";
    assert!(errors.contains(expected), "{errors}");
}
