//! The bank of the test of 2015 on a service pool: its server, and one of its customers.
//!
//! The manager of a pool starts the server as a script that runs `pollux lab herd-server`, which calls [`serve`];
//! each caller has a [`Customer`]. A call is a typed buffer each way, like that of the
//! original: a number of an account and a currency; what may be spent beside them. Accounts are not kept:
//! the balance follows from the number, so that every answer can be checked.

use std::ffi::OsString;

use pollux_settings::command::output::error_chain;
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallFlags, Client, Outgoing};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::ubf::{FieldId, FieldType, UbfError, UbfMut};
use pollux_xatmi::worker::{Done, Incoming, Worker};

use super::callers::Failure as Reason;

const SERVICE: &str = "BALANCE";
/// Size of all buffers, as in the original's client.
const BUFFER_BYTES: usize = 1024;
const CURRENCY: &str = "USD";
const T_ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);
const T_ACCCUR: FieldId = FieldId::new(FieldType::String, 1002);
const T_AMTAVL: FieldId = FieldId::new(FieldType::Double, 1003);

/// Serves until the manager ends it, whose words to it are `words`.
///
/// # Errors
/// [`Error`] where no manager started this process, or what it needs cannot be obtained.
pub(super) fn serve(words: impl Iterator<Item = OsString>) -> Result<(), Error> {
    let worker = Worker::from_environment()?;
    let registry = worker.registry();
    let offer = |_: &[OsString]| {
        registry.advertise(SERVICE, "balance", balance).map_err(|error| error.to_string())
    };
    worker.run(words, offer, || {}).map(drop)
}

/// The service function.
fn balance(request: Incoming) -> Done {
    let Some(mut buffer) = request.buffer else { return Done::failure(None) };
    match answered(&mut buffer) {
        Ok(true) => Done::success(buffer),
        Ok(false) | Err(_) => Done::failure(buffer),
    }
}

/// Puts the balance in; false for a currency that is not kept.
fn answered(buffer: &mut Buffer) -> Result<bool, Error> {
    let mut fields = buffer.fields_mut()?;
    let balance = balance_of(fields.fields().bytes(T_ACCNUM, 0).map_err(damaged)?);
    let is_kept = fields.fields().bytes(T_ACCCUR, 0).map_err(damaged)? == CURRENCY.as_bytes();
    fields.change(T_AMTAVL, 0, balance).map_err(damaged)?;
    Ok(is_kept)
}

/// Another one for each account, below the precision of a double.
fn balance_of(account: &[u8]) -> f64 {
    let mix = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    f64::from(account.iter().fold(7, mix)) / 100.0
}

fn damaged(error: UbfError) -> Error {
    Error::new(Code::System, error.to_string())
}

/// A thread of the client: it has an account and asks for its balance.
#[derive(Debug)]
pub(super) struct Customer {
    client: Client,
    account: String,
    balance: f64,
    request: Buffer,
    answer: Buffer,
}

impl Customer {
    /// Joins the pool of `environment` as customer `number`.
    pub(super) fn open(environment: &Environment, number: usize) -> Result<Self, Reason> {
        let account = format!("ACC{:011}", number + 1);
        let buffer = || Buffer::new(BufferType::Ubf, "", BUFFER_BYTES).map_err(Error::from);
        let opened = Client::open(environment).and_then(|client| {
            let balance = balance_of(account.as_bytes());
            Ok(Self { client, balance, request: buffer()?, answer: buffer()?, account })
        });
        opened.map_err(|error| failed(&error))
    }

    /// One call: the request is filled anew, as the original does.
    pub(super) fn ask(&mut self) -> Result<(), Reason> {
        let answered = self.ask_balance().map_err(|error| failed(&error))?;
        if answered != self.balance {
            let wanted = self.balance;
            let account = &self.account;
            return Err(format!("{account} has {wanted}, and the answer says {answered}").into());
        }
        Ok(())
    }

    fn ask_balance(&mut self) -> Result<f64, Error> {
        let mut fields = UbfMut::init(self.request.as_bytes_mut()).map_err(damaged)?;
        fields.add(T_ACCNUM, self.account.as_str()).map_err(damaged)?;
        fields.add(T_ACCCUR, CURRENCY).map_err(damaged)?;
        let request = Outgoing::of(&self.request, 0)?;
        let room = self.answer.as_bytes_mut();
        let arrived = self.client.call_into(SERVICE, request, CallFlags::NONE, |arriving| {
            room.get_mut(..arriving.len_bytes)
                .ok_or_else(|| Error::new(Code::System, "the answer is longer than the request"))
        })?;
        if arrived.is_failure {
            return Err(Error::new(Code::ServiceFailed, "the bank has no balance to tell"));
        }
        self.answer.received(arrived.payload.len_bytes)?;
        self.answer.fields()?.double(T_AMTAVL, 0).map_err(damaged)
    }
}

fn failed(error: &Error) -> Reason {
    format!("a call to the pool: {}", error_chain(error)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(account: &str, currency: &str) -> Result<(bool, f64), Error> {
        let mut buffer = Buffer::new(BufferType::Ubf, "", BUFFER_BYTES)?;
        let mut fields = buffer.fields_mut()?;
        fields.add(T_ACCNUM, account).map_err(damaged)?;
        fields.add(T_ACCCUR, currency).map_err(damaged)?;
        let is_kept = answered(&mut buffer)?;
        Ok((is_kept, buffer.fields()?.double(T_AMTAVL, 0).map_err(damaged)?))
    }

    #[test]
    fn every_account_has_a_balance_of_its_own_in_one_currency() {
        let balances: Vec<f64> = (1..=64)
            .map(|number| asked(&format!("ACC{number:011}"), CURRENCY).expect("asked").1)
            .collect();
        let mut distinct = balances.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        assert_eq!(distinct.len(), balances.len());
        assert!(!asked("ACC00000000001", "LVL").expect("asked").0);
    }

    #[test]
    fn a_request_without_an_account_is_refused() {
        let mut empty = Buffer::new(BufferType::Ubf, "", BUFFER_BYTES).expect("a buffer");
        assert!(answered(&mut empty).is_err());
        let mut text = Buffer::string("ACC").expect("a text");
        assert!(answered(&mut text).is_err());
    }
}
