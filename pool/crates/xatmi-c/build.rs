//! Compiles the few lines of C: the jump out of a service function, variable arguments, and `main` of
//! a server.

/// What programs ask the dynamic linker for; changes only when old programs would break.
const SONAME: &str = "libpollux_xatmi.so.0";

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo::rustc-env=POLLUX_XATMI_SONAME={SONAME}");
    compiled("c/leave.c").file("c/variadic.c").compile("pollux_leave");
    // Not linked here: servers link it, and `layout.rs` carries it.
    compiled("c/server_main.c")
        .file("c/server_defaults.c")
        .cargo_metadata(false)
        .pic(true)
        .compile("atmisrv");
}

fn compiled(source: &str) -> cc::Build {
    let mut build = cc::Build::new();
    build.file(source).include("include").std("c11").extra_warnings(true).warnings(true);
    build
}
