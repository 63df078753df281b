//! The files of NDRX_CCONFIG: what `[@global]` says becomes the environment of the process when this library is loaded,
//! before `main` and so before any thread that might read the environment.
//!
//! `logging` asks for `[@debug]`; `pollux-pool` asks whether the files were sound. A C program finds out by the first
//! function that needs the environment.

use std::sync::OnceLock;

use pollux_xatmi::common_config::CommonConfig;
use pollux_xatmi::environment::Environment;

use crate::fault::Fault;

/// What the dynamic linker calls.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

/// What the files say; none where the environment names none.
///
/// # Errors
/// In words: what is wrong with a file, or that the environment can't be changed any more.
pub fn common_config() -> &'static Result<Option<CommonConfig>, String> {
    static CONFIG: OnceLock<Result<Option<CommonConfig>, String>> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let variable = |name: &str| std::env::var(name).ok();
        let config = CommonConfig::of_environment(&variable)?;
        if let Some(config) = &config {
            apply(config, &variable)?;
        }
        Ok(config)
    })
}

fn apply(config: &CommonConfig, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    let mut variables = config.variables(variable);
    variables.retain(|name, value| variable(name).as_ref() != Some(value));
    if let Some(name) = variables.keys().find(|name| name.is_empty() || name.contains('\0')) {
        return Err(format!("NDRX_CCONFIG: `{name}` is not a name of a variable"));
    }
    if variables.is_empty() {
        return Ok(());
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(format!(
            "NDRX_CCONFIG: the environment of a process with {threads} threads is not changed; load the library before \
             the program starts any"
        ));
    }
    for (name, value) in variables {
        // SAFETY: this is the only thread of the process, so no other one reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// What the environment asks for, which the files are part of.
///
/// # Errors
/// TPEINVAL, what is wrong with a file or a variable.
pub(crate) fn environment() -> Result<Environment, Fault> {
    common_config().as_ref().map_err(Fault::invalid)?;
    Ok(Environment::of_process()?)
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    // A panic would leave through C. What is wrong is reported where the environment is asked for.
    let _ = std::panic::catch_unwind(common_config);
}
