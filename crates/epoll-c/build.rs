//! Names the shared library as programs ask the dynamic linker for it.

/// Changes only when old programs would break.
const SONAME: &str = "libpollux_epoll.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo::rustc-env=POLLUX_EPOLL_SONAME={SONAME}");
}
