//! `pollux pool call`: one call of a service, with fields from a file or standard input.
//!
//! What comes back is printed in the form in which it would be sent: lines, or JSON.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{Answer, CallError, CallFlags, Client, Outgoing};
use pollux_xatmi::error::Error;
use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{from_json, print, read_printed, to_json};
use pollux_xatmi::view;

use crate::environment;
use crate::flags::ServiceCallFlags;

/// Longest text that is read: more than fields of any message need.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Calls the service, and prints what it answers.
pub(crate) fn run(flags: &ServiceCallFlags) -> Result<ExitCode, Failure> {
    let table = match FieldTable::from_env() {
        Ok(table) => table,
        // Fields go by their numbers then.
        Err(error) if error.problem.is_of_environment() => FieldTable::new(),
        Err(error) => return Err(Failure::failed(error)),
    };
    let request = request(flags, &table)?;
    let mut client = Client::open(&environment()?).map_err(|error| failed(&error))?;
    if let Some(seconds) = flags.timeout {
        client.set_timeout(Duration::from_secs(seconds.into()));
    }
    if flags.is_without_reply {
        let size = request.size();
        let outgoing = Outgoing::of(&request, size);
        let outgoing = outgoing.map_err(|error| failed(&error))?;
        client
            .send_only(&flags.service, outgoing, CallFlags::NONE)
            .map_err(|error| failed(&error))?;
        return Ok(ExitCode::SUCCESS);
    }
    match client.call(&flags.service, &request, CallFlags::NONE) {
        Ok(answer) => {
            show(&answer, &table, flags.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(CallError::Failed(answer)) => {
            show(&answer, &table, flags.json)?;
            let Answer { urcode, .. } = answer;
            Err(Failure::failed(format!(
                "TPESVCFAIL: {} returned TPFAIL with {urcode}",
                flags.service
            )))
        }
        Err(CallError::Error(error)) => Err(failed(&error)),
    }
}

fn failed(error: &Error) -> Failure {
    Failure::failed(format!("{}: {}", error.code().name(), output::error_chain(error)))
}

/// The buffer that is sent.
fn request(flags: &ServiceCallFlags, table: &FieldTable) -> Result<Buffer, Failure> {
    if let Some(text) = &flags.string {
        return Buffer::string(text).map_err(Failure::usage);
    }
    let (name, text) = text(flags)?;
    if text.trim().is_empty() {
        return Buffer::alloc("UBF", "", 0).map_err(Failure::failed);
    }
    let fields = if flags.json {
        from_json(&text, table).map_err(|error| Failure::usage(format!("{name}: {error}")))?
    } else {
        read_printed(&text, table, &view::LINES)
            .map_err(|error| Failure::usage(format!("{name}: {error}")))?
    };
    Ok(fields.into())
}

/// What is to be sent as text, and what it is called in errors.
fn text(flags: &ServiceCallFlags) -> Result<(String, String), Failure> {
    let is_standard_input = flags.fields.as_os_str() == "-";
    let name = if is_standard_input {
        "standard input".to_owned()
    } else {
        flags.fields.display().to_string()
    };
    let wrong = |error: std::io::Error| Failure::failed(format!("{name}: cannot be read: {error}"));
    let mut bytes = Vec::new();
    let read = if is_standard_input {
        std::io::stdin().lock().take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(&flags.fields).map_err(wrong)?;
        file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    read.map_err(wrong)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{name}: more than {TEXT_BYTES_MAX} bytes are not sent"
        )));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::usage(format!("{name}: it is not UTF-8 text")))?;
    Ok((name, text))
}

fn show(answer: &Answer, table: &FieldTable, json: bool) -> Result<(), Failure> {
    let Some(buffer) = &answer.buffer else { return Ok(()) };
    let bytes = &buffer.as_bytes()[..answer.len_bytes];
    let text = match buffer.buffer_type() {
        BufferType::Ubf if json => {
            to_json(buffer.fields().map_err(Failure::failed)?, table).map_err(Failure::failed)?
        }
        BufferType::Ubf => print(buffer.fields().map_err(Failure::failed)?, table, &view::LINES)
            .map_err(Failure::failed)?,
        BufferType::String | BufferType::Json => {
            let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
            String::from_utf8_lossy(text).into_owned()
        }
        _ => bytes.escape_ascii().to_string(),
    };
    if text.is_empty() { Ok(()) } else { output::result(&text) }
}
