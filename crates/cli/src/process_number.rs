//! The number of a process on a command line: `pollux run --attach`, `pollux load --server-pid`.

use pollux_settings::{Kind, parsed};

/// PID_MAX_LIMIT of the kernel.
const PIDS_MAX: u32 = 4_194_304;

/// How a setting takes it.
pub(crate) fn pid_kind() -> Kind<u32> {
    parsed("PID", "the number of a process", pid)
}

/// Reads it.
///
/// # Errors
/// It is none, as the name of a program is not.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=PIDS_MAX).contains(number));
    number.ok_or_else(|| "not the number of a process, which `pidof -s NAME` prints".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_is_answered_with_what_prints_its_number() {
        assert_eq!(pid("1"), Ok(1));
        assert_eq!(pid("4194304"), Ok(PIDS_MAX));
        for text in ["nginx", "0", "4194305", "-1", ""] {
            assert!(pid(text).is_err_and(|line| line.contains("pidof -s")), "{text}");
        }
    }
}
