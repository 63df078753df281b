//! The flags of `build-server` and `build-client`, and of `lay-out`, which installers call.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `pollux pool build-client`
#[derive(Debug, Args)]
pub struct BuildClientFlags {
    /// The program to make
    #[arg(short, long = "output", value_name = "FILE", default_value = "client")]
    pub output: PathBuf,
    /// What a client and a server have.
    #[command(flatten)]
    pub build: BuildFlags,
}

/// `pollux pool build-server`
#[derive(Debug, Args)]
pub struct BuildServerFlags {
    /// The program to make
    #[arg(short, long = "output", value_name = "FILE", default_value = "SERVER")]
    pub output: PathBuf,
    /// Services to offer from the start: A,B (each its own function), A,B:FUNCTION, or @FILE with
    /// one of these in each line; :FUNCTION only links one in
    #[arg(short, long = "services", value_name = "LIST")]
    pub services: Vec<String>,
    /// Keep the source of main, as FILE.main.c beside the program
    #[arg(short, long)]
    pub keep: bool,
    /// What a client and a server have.
    #[command(flatten)]
    pub build: BuildFlags,
}

/// What both have.
#[derive(Debug, Args)]
pub struct BuildFlags {
    /// Sources and objects
    #[arg(value_name = "FILE")]
    pub files: Vec<OsString>,
    /// Sources, objects and flags before the library; several may stand in one, between blanks
    #[arg(short, visible_short_alias = 'a', long, value_name = "FILE", allow_hyphen_values = true)]
    pub first: Vec<String>,
    /// The same, behind the library
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub last: Vec<String>,
    /// Print the compiler's command
    #[arg(short, long)]
    pub verbose: bool,
}

/// `pollux pool lay-out`, for installers: what C programs are built with, below a prefix.
#[derive(Debug, Args)]
pub struct LayOutFlags {
    /// The folder that gets include and lib
    #[arg(value_name = "PREFIX")]
    pub prefix: PathBuf,
    /// The library as cargo built it
    #[arg(long, value_name = "FILE")]
    pub library: PathBuf,
}
