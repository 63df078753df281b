//! `pollux serve password` at a terminal, which shows what is typed again afterwards, whatever became of the password.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use pollux_testing::{has, uninterrupted};

/// What a terminal shows where the password is asked for and this is typed, with how that ended and how the terminal is set then.
fn typed(keys: &str) -> String {
    let pollux = env!("CARGO_BIN_EXE_pollux");
    // Ctrl-C is for all that run there.
    let words = format!("trap : INT; {pollux} serve password anna; echo ended=$?; stty -a");
    let mut command = Command::new("timeout");
    command.args(["--foreground", "60", "script", "-qec", &words, "/dev/null"]);
    command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = command.spawn().expect("it runs");
    let mut input = terminal.stdin.take().expect("a pipe");
    let mut output = terminal.stdout.take().expect("a pipe");
    let mut shown = Vec::new();
    let mut part = [0; 1024];
    let mut is_asked = false;
    loop {
        let len = uninterrupted(|| output.read(&mut part)).expect("read");
        if len == 0 {
            break;
        }
        shown.extend_from_slice(&part[..len]);
        if !is_asked && shown.ends_with(b"password: ") {
            is_asked = true;
            input.write_all(keys.as_bytes()).expect("typed");
        }
    }
    drop(input);
    terminal.wait().expect("it ends");
    String::from_utf8(shown).expect("text")
}

#[test]
fn a_terminal_shows_what_is_typed_again_after_a_password_and_after_an_interrupt() {
    if !(has("script") && has("timeout")) {
        return;
    }
    for (keys, ended) in [("geheim\n", "ended=0"), ("geh\u{3}", "ended=130")] {
        let shown = typed(keys);
        assert!(shown.contains(ended), "{keys:?}: {shown}");
        assert!(!shown.contains("geh"), "{keys:?} was shown: {shown}");
        assert_eq!(shown.contains("anna:$argon2id$"), ended == "ended=0", "{keys:?}: {shown}");
        let mut settings = shown.split_whitespace();
        assert!(settings.clone().any(|word| word == "echo"), "{keys:?}: {shown}");
        assert!(!settings.any(|word| word == "-echo"), "{keys:?}: {shown}");
    }
}
