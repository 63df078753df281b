//! `pollux doctor`: reads the machine once, prints what the lab's checks say of it, or the script
//! that mends it.

use std::process::ExitCode;

use pollux_doctor::{Look, Readings};

use crate::args::DoctorFlags;
use crate::demands::{asked, diagnosis};
use crate::output::{self, Failure};

/// Prints the diagnosis; the exit code says whether something blocks what was asked for.
pub(crate) fn run(flags: &DoctorFlags) -> Result<ExitCode, Failure> {
    let diagnosis = diagnosis(&Readings::take(), flags.asked.and_then(asked));
    if flags.fix_script {
        output::result(&diagnosis.fix_script())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = if flags.json {
        serde_json::to_string_pretty(&diagnosis.json()).expect("plain data")
    } else {
        output::shown(&diagnosis.text(Look {
            is_colourful: output::is_colourful(),
            width_chars: output::width_chars(),
        }))
    };
    output::result(&text)?;
    Ok(if diagnosis.is_blocked() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
