//! Compiles the few lines of C: the jump out of a service function, variable arguments, and `main` of
//! a server.

/// What programs ask the dynamic linker for; changes only when old programs would break.
const SONAME: &str = "libpollux_xatmi.so.0";

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo::rustc-env=POLLUX_XATMI_SONAME={SONAME}");
    // An exception of C++ that a program's function lets out finds no way past these frames, so that the program says
    // which one it was and ends, as it would below a main of C.
    compiled("c/leave.c")
        .flag("-fno-asynchronous-unwind-tables")
        .flag("-fno-unwind-tables")
        .flag("-fno-exceptions")
        .flag("-fno-optimize-sibling-calls")
        .flag("-fno-omit-frame-pointer")
        .compile("pollux_leave");
    compiled("c/variadic.c").compile("pollux_variadic");
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
