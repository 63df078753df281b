//! Spellings of a path that is not for everybody, from the lists of what went past other proxies, before servers that other
//! people's programs make: each of them reads paths in its own way, and none may be brought to read the path of a stricter
//! route. `route/tests.rs` has what the table says of them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::sites::on_every_driver_with;

/// What only the path of the stricter route may show.
const SECRET: &str = "the secret page";

/// Reads the path as applications of Python do: the target taken apart by the standard library, decoded, dots resolved. With
/// `;` it leaves out parameters first, as servers of Java do.
const PYTHON: &str = r#"
import posixpath, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit
leaves_out = sys.argv[1:] == [";"]
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        paths = [self.path.split("?")[0], urlsplit(self.path).path]
        if leaves_out:
            paths = ["/".join(part.split(";")[0] for part in path.split("/")) for path in paths]
        read = set()
        for path in paths:
            for once in (unquote(path), path):
                for slashes in (once, once.replace("\\", "/")):
                    read.add("/" + posixpath.normpath(slashes).lstrip("/"))
        is_secret = any(path == "/admin" or path.startswith("/admin/") for path in read)
        body = b"the secret page" if is_secret else b"another page"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

const NODE: &str = r#"
const http = require("http"), posix = require("path").posix;
const server = http.createServer((request, response) => {
  const read = new Set();
  const add = (path) => {
    read.add(posix.normalize(path));
    try { read.add(posix.normalize(decodeURIComponent(path))); } catch (_) {}
  };
  add(request.url.split("?")[0]);
  try { add(new URL(request.url, "http://h").pathname); } catch (_) {}
  const isSecret = [...read].some((path) => path === "/admin" || path.startsWith("/admin/"));
  response.end(isSecret ? "the secret page" : "another page");
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"#;

const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	secret := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the secret page") }
	mux := http.NewServeMux()
	mux.HandleFunc("/admin", secret)
	mux.HandleFunc("/admin/", secret)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		read := path.Clean("/" + r.URL.Path)
		if read == "/admin" || strings.HasPrefix(read, "/admin/") {
			secret(w, r)
			return
		}
		io.WriteString(w, "another page")
	})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, mux))
}
"#;

/// Targets, each of which some server has taken for `/admin`, or for something below it.
const TARGETS: [&str; 68] = [
    "/admin",
    "/admin/",
    "/admin/x",
    "/admin?x",
    "/admin/?x",
    "/%61dmin",
    "/%61%64%6d%69%6e",
    "/adm%69n/x",
    "/admi%6E",
    "//admin",
    "///admin//",
    "//y/admin",
    "//y/admin/x",
    "//y:80/admin",
    "//@y/admin",
    "/./admin",
    "/.//admin",
    "/%2e/admin",
    "/%2E%2Fadmin",
    "/x/../admin",
    "/x/./../admin/x",
    "/x/%2e%2e/admin",
    "/x/.%2e/admin",
    "/x/%2e./admin",
    "/x/..//admin",
    "/x//../admin",
    "/x/..%2fadmin",
    "/x%2f..%2fadmin",
    "/x%2F%2e%2e%2Fadmin",
    "/x/..%5cadmin",
    "/x\\..\\admin",
    "/x/..\\admin",
    "/\\admin",
    "\\admin",
    "/..\\admin",
    "/%5cadmin",
    "/../admin",
    "/../../admin",
    "/x/../../admin",
    "/%2e%2e/admin",
    "/..;/admin",
    "/x/..;/admin",
    "/x/..;a=1/admin",
    "/x/..%3b/admin",
    "/x/%2e%2e;/admin",
    "/.;/admin",
    "/;/admin",
    "/;a=1/admin",
    "/admin;",
    "/admin;a=1",
    "/admin;/x",
    "/admin;a=1/x",
    "/admin%3b/x",
    "/adm;in",
    "/admin/.",
    "/admin/./",
    "/admin/..;/x",
    "/admin/x/..",
    "/admin%2f",
    "/admin%2fx",
    "/admin%00",
    "/admin%0a",
    "/admin%09",
    "/admin#x",
    "/x?/../admin",
    "http://www.example.org/admin",
    "http://www.example.org//admin",
    "http://www.example.org/x/../admin/",
];

/// A program that serves, and is ended with this.
struct Program(Child);

impl Program {
    /// Starts it; it writes its port.
    fn start(command: &mut Command) -> (Self, SocketAddr) {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it was found");
        let mut program = Self(child);
        let mut line = String::new();
        let stdout = program.0.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let port: u16 = line.trim().parse().expect("a port");
        (program, SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the server itself says, without a proxy in front.
fn asked(address: SocketAddr, target: &str) -> String {
    let mut client = crate::Client::connect(address);
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: www.example.org\r\nConnection: close\r\n\r\n"
    ));
    client.rest()
}

fn none_is_brought_to_the_secret(address: SocketAddr) {
    assert!(asked(address, "/admin").ends_with(SECRET), "the program itself shows it");
    assert!(asked(address, "/admin/x").ends_with(SECRET), "the program itself shows it");
    assert!(!asked(address, "/other").contains(SECRET));
    let text = format!(
        "[[backend]]\nname = \"app\"\n[[backend.server]]\naddress = \"{address}\"\n\
         [[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/\", backend = \"app\" }}, {{ path = \"/admin/\", backend = \"app\", deny = [\"127.0.0.0/8\"] }} ]"
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let mut passed = 0;
            for target in TARGETS {
                let answer = asked(proxy.address, target);
                assert!(answer.starts_with("HTTP/1.1 "), "{driver} {target}: {answer}");
                assert!(!answer.contains(SECRET), "{driver} {target}: {answer}");
                passed += usize::from(answer.starts_with("HTTP/1.1 200 "));
            }
            // What is refused all the time proves nothing of what is passed on.
            assert!(passed >= 3, "{driver}: {passed}");
            assert!(asked(proxy.address, "/other").contains("another page"), "{driver}");
        },
    );
}

fn write(folder: &Path, name: &str, text: &str) {
    let mut file = std::fs::File::create(folder.join(name)).expect("created");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn no_spelling_brings_a_server_of_python_to_what_is_not_for_everybody() {
    if !pollux_testing::has("python3") {
        return;
    }
    let (_program, address) = Program::start(Command::new("python3").args(["-c", PYTHON]));
    none_is_brought_to_the_secret(address);
}

#[test]
fn no_spelling_brings_a_server_that_leaves_out_parameters_to_what_is_not_for_everybody() {
    if !pollux_testing::has("python3") {
        return;
    }
    let (_program, address) = Program::start(Command::new("python3").args(["-c", PYTHON, ";"]));
    none_is_brought_to_the_secret(address);
}

#[test]
fn no_spelling_brings_a_server_of_node_to_what_is_not_for_everybody() {
    if !pollux_testing::has("node") {
        return;
    }
    let (_program, address) = Program::start(Command::new("node").args(["-e", NODE]));
    none_is_brought_to_the_secret(address);
}

#[test]
fn no_spelling_brings_a_server_of_go_to_what_is_not_for_everybody() {
    if !pollux_testing::has("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "main.go", GO);
    write(folder.path(), "go.mod", "module app\n\ngo 1.21\n");
    let mut build = Command::new("go");
    build.args(["build", "-o", "app", "."]).current_dir(folder.path()).env("GOFLAGS", "-mod=mod");
    assert!(
        build.status().expect("it was found").success(),
        "it is built of the standard library alone"
    );
    let (_program, address) = Program::start(&mut Command::new(folder.path().join("app")));
    none_is_brought_to_the_secret(address);
}
