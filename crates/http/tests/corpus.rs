//! Runs the checks of the fuzz targets over their corpus, on the stable compiler.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/body.rs"]
mod body;
#[path = "../../../fuzz/checks/conditions.rs"]
mod conditions;
#[path = "../../../fuzz/checks/path.rs"]
mod path;
#[path = "../../../fuzz/checks/proxy_header.rs"]
mod proxy_header;
#[path = "../../../fuzz/checks/request.rs"]
mod request;
#[path = "../../../fuzz/checks/response.rs"]
mod response;

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 20;

#[test]
fn every_request_of_the_corpus_holds() {
    replay("request", request::holds);
}

#[test]
fn every_response_of_the_corpus_holds() {
    replay("response", response::holds);
}

#[test]
fn every_body_of_the_corpus_holds() {
    replay("body", body::holds);
}

#[test]
fn every_path_of_the_corpus_holds() {
    replay("path", path::holds);
}

#[test]
fn every_condition_of_the_corpus_holds() {
    replay("conditions", conditions::holds);
}

#[test]
fn every_proxy_header_of_the_corpus_holds() {
    replay("proxy_header", proxy_header::holds);
}

fn replay(target: &str, holds: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(files.len() >= FILES_MIN, "{} files in the corpus of {target}", files.len());
    for file in files {
        let data = fs::read(&file).expect("readable");
        let name = file.display();
        let outcome = std::panic::catch_unwind(|| holds(&data));
        assert!(outcome.is_ok(), "{name} broke its check; the reason stands above");
    }
}
