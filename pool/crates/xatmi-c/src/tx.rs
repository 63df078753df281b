//! Transactions by both interfaces: `tpbegin` and its fellows of `atmi.h`, and `tx.h` of X/Open (The TX
//! Specification, C504).
//!
//! C programs call it. The transactions are those of `transactions.rs`; here they end, are the numbers
//! of `tx.h`, and the characteristics that a program sets.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pollux_xatmi::client::Descriptor;

use crate::context::{no_flags, with_context};
use crate::fault::Fault;
use crate::transactions::{self, Transaction, TransactionInfo};
use crate::{caller, fault};

/// What functions of `tx.h` return.
const TX_OK: c_int = 0;
const TX_ROLLBACK: c_int = -2;
const TX_PROTOCOL_ERROR: c_int = -5;
const TX_FAIL: c_int = -7;
const TX_EINVAL: c_int = -8;

/// `transaction_state` of a transaction.
const TX_ACTIVE: c_long = 0;
const TX_TIMEOUT_ROLLBACK_ONLY: c_long = 1;
const TX_ROLLBACK_ONLY: c_long = 2;

/// Bytes of `data` of an XID.
const XID_DATA_BYTES: usize = 128;

/// Format of our identifiers: "PLX".
const FORMAT_ID: c_long = 0x50_4c58;

/// Takes the transaction out; the calls that belong to it are given up.
///
/// # Errors
/// TPEPROTO outside a transaction.
fn end() -> Result<Transaction, Fault> {
    let ended = transactions::end()?;
    for &descriptor in ended.outstanding() {
        // A call that is over already has no descriptor any more.
        let _ = with_context(|client| Ok(client.cancel(Descriptor::from_number(descriptor))));
    }
    Ok(ended)
}

/// Ends the transaction, which commits or aborts.
///
/// # Errors
/// TPEPROTO outside a transaction, TPEABORT with the reason when it could not commit.
fn commit() -> Result<(), Fault> {
    end().and_then(Transaction::commit)
}

/// Ends the transaction; it aborts.
///
/// # Errors
/// TPEPROTO outside a transaction.
pub(crate) fn abort() -> Result<(), Fault> {
    end().map(drop)
}

/// Opens the resources, of which there are none.
#[unsafe(no_mangle)]
pub extern "C" fn tpopen() -> c_int {
    fault::atmi(-1, || {
        transactions::open();
        Ok(0)
    })
}

/// Closes the resources.
#[unsafe(no_mangle)]
pub extern "C" fn tpclose() -> c_int {
    fault::atmi(-1, || transactions::close().map(|()| 0))
}

/// Begins a transaction that must end within `timeout` seconds; 0 means no limit.
#[unsafe(no_mangle)]
pub extern "C" fn tpbegin(timeout: c_ulong, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        no_flags(flags)?;
        transactions::begin(Duration::from_secs(timeout)).map(|()| 0)
    })
}

/// Ends the transaction; TPEABORT when it aborted instead.
#[unsafe(no_mangle)]
pub extern "C" fn tpcommit(flags: c_long) -> c_int {
    /// To return once the decision is logged; there is no log, so it is the same.
    const TPTXCOMMITDLOG: c_long = 4;
    fault::atmi(-1, || {
        no_flags(flags & !TPTXCOMMITDLOG)?;
        in_turn(commit).map(|()| 0)
    })
}

/// Ends the transaction without a commit.
#[unsafe(no_mangle)]
pub extern "C" fn tpabort(flags: c_long) -> c_int {
    fault::atmi(-1, || {
        no_flags(flags)?;
        in_turn(abort).map(|()| 0)
    })
}

/// Bytes of the text of a transaction that was put aside.
const TEXT_BYTES: usize = 64;

/// `TPTRANID`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransactionId {
    text: [u8; TEXT_BYTES],
}

/// What tpscmt set; both come to the same.
static WHEN: AtomicI64 = AtomicI64::new(TP_CMT_COMPLETE);
const TP_CMT_LOGGED: c_long = 4;
const TP_CMT_COMPLETE: c_long = 8;

/// Puts the transaction aside, for any thread of the process.
///
/// # Safety
/// A sound `id` is that of a `TPTRANID` that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsuspend(id: *mut TransactionId, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        no_flags(flags & !TPTXTMSUSPEND)?;
        if !caller::is_sound(id) {
            return Err(Fault::invalid("no memory for the id of the transaction"));
        }
        let number = transactions::suspend()?;
        let mut text = [0; TEXT_BYTES];
        let named = format!("{}.{number}", std::process::id());
        text[..named.len()].copy_from_slice(named.as_bytes());
        // SAFETY: the caller's promise.
        unsafe { caller::write(id, TransactionId { text }) };
        Ok(0)
    })
}

/// To keep the association with a resource, of which there is none.
const TPTXTMSUSPEND: c_long = 0x200;

/// Takes a transaction up again.
///
/// # Safety
/// A sound `id` is that of a `TPTRANID` that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpresume(id: *const TransactionId, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        no_flags(flags & !TPTXTMSUSPEND)?;
        // SAFETY: the caller's promise.
        let id = unsafe { caller::read(id) };
        let id = id.ok_or_else(|| Fault::invalid("there is no id of a transaction"))?;
        let text = id.text.split(|byte| *byte == 0).next().unwrap_or_default();
        let pid = std::process::id().to_string();
        let number = str::from_utf8(text).ok().and_then(|text| text.split_once('.'));
        let number = number.filter(|(of, _)| *of == pid).and_then(|(_, n)| n.parse().ok());
        transactions::resume(number).map(|()| 0)
    })
}

/// Sets whether tpcommit returns once the decision is logged or all is done; what was set before.
#[unsafe(no_mangle)]
pub extern "C" fn tpscmt(when: c_long) -> c_int {
    fault::atmi(-1, || {
        if ![TP_CMT_LOGGED, TP_CMT_COMPLETE].contains(&when) {
            return Err(Fault::invalid(format!("{when}: give TP_CMT_LOGGED or TP_CMT_COMPLETE")));
        }
        Ok(WHEN.swap(when, Ordering::Relaxed) as c_int)
    })
}

/// Most bytes of an id as text, with its NUL; those of a CLIENTID.
const CLIENT_BYTES: usize = 96;

/// Ids of clients and transactions as texts, and back.
///
/// # Safety
/// Sound `text` and `id` are those of the memory that `atmi.h` names, which no other thread uses; what is read ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpconvert(text: *mut c_char, id: *mut c_char, flags: c_long) -> c_int {
    const TO_TEXT: c_long = 1;
    const OF_CLIENT: c_long = 2;
    const OF_TRANSACTION: c_long = 4;
    fault::atmi(-1, || {
        let room = match flags & !TO_TEXT {
            OF_CLIENT => CLIENT_BYTES,
            OF_TRANSACTION => TEXT_BYTES,
            _ => {
                let detail = format!("flags {flags:#x}: give TPCONVCLTID or TPCONVTRANID");
                return Err(Fault::invalid(detail));
            }
        };
        let (from, to) = if flags & TO_TEXT != 0 { (id, text) } else { (text, id) };
        if !caller::is_sound(to) {
            return Err(Fault::invalid("no memory for what is converted"));
        }
        // SAFETY: the caller's promise.
        let known = unsafe { caller::text(from) }.map(CStr::to_bytes_with_nul);
        let known = known.filter(|known| known.len() > 1 && known.len() <= room);
        let known = known.ok_or_else(|| Fault::invalid("there is no id to be converted"))?;
        // SAFETY: an id has so much room by its type, and a text TPCONVMAXSTR, which is more.
        unsafe { caller::bytes_mut(to, known.len()) }.copy_from_slice(known);
        Ok(0)
    })
}

/// 1 within a transaction, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn tpgetlev() -> c_int {
    fault::atmi(-1, || Ok(c_int::from(transactions::seen().is_some())))
}

/// `XID`; without a transaction its format is -1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Xid {
    format_id: c_long,
    global_bytes: c_long,
    branch_bytes: c_long,
    /// `char`, which is signed or not: bytes all the same.
    data: [u8; XID_DATA_BYTES],
}

/// `TXINFO`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TxInfo {
    xid: Xid,
    when_return: c_long,
    transaction_control: c_long,
    transaction_timeout: c_long,
    transaction_state: c_long,
}

thread_local! {
    static IS_CHAINED: Cell<bool> = const { Cell::new(false) };
    static COMMIT_RETURN: Cell<c_long> = const { Cell::new(0) };
    /// Of the transactions that tx_begin starts, in seconds; 0 means no limit.
    static TIMEOUT_S: Cell<c_long> = const { Cell::new(0) };
}

/// Does the work of a function of `tx.h`, which has neither `tperrno` nor `Berror`.
fn answer(work: impl FnOnce() -> c_int) -> c_int {
    let mut answer = TX_FAIL;
    fault::quietly(|| answer = work());
    answer
}

/// The same between tx_open and tx_close.
fn when_open(work: impl FnOnce() -> c_int) -> c_int {
    answer(|| if transactions::is_open() { work() } else { TX_PROTOCOL_ERROR })
}

fn begin() -> c_int {
    let timeout = u64::try_from(TIMEOUT_S.get()).unwrap_or(0);
    match transactions::begin(Duration::from_secs(timeout)) {
        Ok(()) => TX_OK,
        Err(_) => TX_PROTOCOL_ERROR,
    }
}

/// What comes behind the end of a transaction: the next one, if they are chained.
fn ended(answer: c_int) -> c_int {
    if IS_CHAINED.get() {
        // It ended, so nothing keeps another from starting.
        begin();
    }
    answer
}

/// Ends the transaction; another one begins where they are chained.
fn in_turn(end: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    let was_begun = transactions::seen().is_some();
    let done = end();
    if was_begun {
        ended(TX_OK);
    }
    done
}

/// Opens the resources, of which there are none.
#[unsafe(no_mangle)]
pub extern "C" fn tx_open() -> c_int {
    answer(|| {
        transactions::open();
        TX_OK
    })
}

/// Closes the resources; TX_PROTOCOL_ERROR within a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn tx_close() -> c_int {
    answer(|| if transactions::close().is_ok() { TX_OK } else { TX_PROTOCOL_ERROR })
}

/// Begins a transaction; TX_PROTOCOL_ERROR within one, or before tx_open.
#[unsafe(no_mangle)]
pub extern "C" fn tx_begin() -> c_int {
    when_open(begin)
}

/// Ends the transaction; TX_ROLLBACK when it aborted instead.
#[unsafe(no_mangle)]
pub extern "C" fn tx_commit() -> c_int {
    when_open(|| {
        if transactions::seen().is_none() {
            return TX_PROTOCOL_ERROR;
        }
        ended(if commit().is_ok() { TX_OK } else { TX_ROLLBACK })
    })
}

/// Ends the transaction without a commit.
#[unsafe(no_mangle)]
pub extern "C" fn tx_rollback() -> c_int {
    when_open(|| if abort().is_ok() { ended(TX_OK) } else { TX_PROTOCOL_ERROR })
}

/// 1 within a transaction, else 0; `info` gets what there is to know.
///
/// # Safety
/// A sound `info` is that of a `TXINFO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tx_info(info: *mut TxInfo) -> c_int {
    when_open(|| {
        let seen = transactions::seen();
        let known = TxInfo {
            xid: xid(seen),
            when_return: COMMIT_RETURN.get(),
            transaction_control: c_long::from(IS_CHAINED.get()),
            transaction_timeout: TIMEOUT_S.get(),
            transaction_state: state(seen),
        };
        // SAFETY: the caller promises room for it.
        unsafe { caller::write(info, known) };
        c_int::from(seen.is_some())
    })
}

fn state(seen: Option<TransactionInfo>) -> c_long {
    match seen {
        Some(seen) if seen.is_timed_out => TX_TIMEOUT_ROLLBACK_ONLY,
        Some(seen) if seen.is_abort_only => TX_ROLLBACK_ONLY,
        _ => TX_ACTIVE,
    }
}

/// The process and the number of the transaction in it.
fn xid(seen: Option<TransactionInfo>) -> Xid {
    let none = Xid { format_id: -1, global_bytes: 0, branch_bytes: 0, data: [0; XID_DATA_BYTES] };
    let Some(TransactionInfo { number, .. }) = seen else { return none };
    let global = format!("{:08x}{number:016x}", std::process::id());
    let mut data = [0; XID_DATA_BYTES];
    for (place, byte) in data.iter_mut().zip(global.bytes()) {
        *place = byte;
    }
    let global_bytes = c_long::try_from(global.len()).unwrap_or_default();
    Xid { format_id: FORMAT_ID, global_bytes, branch_bytes: 0, data }
}

/// When tx_commit returns: TX_COMMIT_COMPLETED (0) or TX_COMMIT_DECISION_LOGGED (1), which come to the same, as there is no
/// log.
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_commit_return(when: c_long) -> c_int {
    when_open(|| {
        if !(0..=1).contains(&when) {
            return TX_EINVAL;
        }
        COMMIT_RETURN.set(when);
        TX_OK
    })
}

/// Whether the end of a transaction begins the next: TX_CHAINED (1) or TX_UNCHAINED (0).
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_transaction_control(control: c_long) -> c_int {
    when_open(|| {
        if !(0..=1).contains(&control) {
            return TX_EINVAL;
        }
        IS_CHAINED.set(control == 1);
        TX_OK
    })
}

/// How long transactions that begin from now on may take, in seconds; 0 means no limit.
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_transaction_timeout(seconds: c_long) -> c_int {
    when_open(|| {
        if seconds < 0 {
            return TX_EINVAL;
        }
        TIMEOUT_S.set(seconds);
        TX_OK
    })
}
