//! Hands the compiler's version to the environment record.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if let Ok(output) = Command::new(rustc).arg("-V").output() {
        let version = String::from_utf8_lossy(&output.stdout);
        println!("cargo:rustc-env=POLLUX_RUSTC={}", version.trim());
        println!("cargo:rerun-if-changed=build.rs");
    }
}
