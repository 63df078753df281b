//! `--check`: what the settings mean, or everything that is wrong with them.

use std::process::Command;

fn check(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let output = command.args(["serve", "--check"]).args(flags).output().expect("pollux starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn settings_are_checked_and_told_and_nothing_is_listened_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, log) = (folder.path().display().to_string(), folder.path().join("log"));
    // An address that somebody has: nobody wants it now.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let log_text = log.display().to_string();
    let flags = [&*dir, "--listen", &address, "--idle-timeout", "5s", "--access-log", &log_text];
    let (code, said, wrong) = check(&flags);
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert!(said.contains(&format!("listen: {address}\n")), "{said}");
    assert!(said.contains("idle-timeout: 5s\n") && said.contains("answer: files of "), "{said}");
    assert!(!log.exists());
    // What a server has that runs is right, and stays its own.
    let at = |name: &str| format!("{dir}/{name}");
    let (pid_file, control) = (at("pid"), format!("unix:{}", at("control")));
    let flags = ["--reply", "1", "--pid-file", &pid_file, "--control", &control];
    let server = crate::child::Server::start("epoll-et", &flags).expect("it starts");
    let (code, _, wrong) =
        check(&[&flags[..], &["--listen", &server.address.to_string()]].concat());
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    let id = std::fs::read_to_string(&pid_file).expect("written");
    assert_eq!(id.trim(), server.id().to_string());
    server.end();
    assert!(!folder.path().join("pid").exists() && !folder.path().join("control").exists());
}

#[test]
fn what_would_keep_a_server_from_starting_ends_the_check_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    std::fs::write(folder.path().join("file"), "a file").expect("written");
    let occupied = format!("unix:{dir}/file");
    for (flags, told) in [
        (vec!["/no/such/folder"], "the folder \"/no/such/folder\" cannot be served: No such file"),
        (vec![&*dir, "--spa", "no.html"], "the page \"no.html\" cannot be served: no file of "),
        (
            vec![&*dir, "--error-page", "404 /no.html"],
            "the page \"/no.html\" cannot be served: No such",
        ),
        (vec![&*dir, "--cert", "/no.pem", "--key", "/no.key"], "/no.pem: "),
        (vec![&*dir, "--threads", "0"], "--threads"),
        (vec![&*dir, "--listen", "192.0.2.1:80"], "192.0.2.1 is not an address of this machine"),
        (vec![&*dir, "--listen", "unix:/no/such/s"], "unix:/no/such/s cannot be listened on"),
        (
            vec![&*dir, "--access-log", "/no/such/log"],
            "the access log \"/no/such/log\" cannot be opened",
        ),
        (vec![&*dir, "--access-log", &dir], "cannot be opened: Is a directory"),
        (
            vec![&*dir, "--error-log", "/no/such/log"],
            "the error log \"/no/such/log\" cannot be opened",
        ),
        (
            vec![&*dir, "--pid-file", "/no/such/pid"],
            "the pid file \"/no/such/pid\" cannot be written",
        ),
        (vec![&*dir, "--pid-file", &dir], "it is there and not a file"),
        (vec![&*dir, "--control", "unix:/no/such/c"], "unix:/no/such/c cannot be listened on"),
        (vec![&*dir, "--control", &occupied], "a file that is not a socket is here"),
        (vec![&*dir, "--stats", "192.0.2.1:1"], "choose one of its own with --stats"),
    ] {
        let (code, said, wrong) = check(&flags);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{flags:?}: {wrong}");
        assert!(wrong.contains(told), "{flags:?}: {wrong}");
    }
}
