//! How long programs are waited for that are started or ended, in one table, from the shortest on.
//!
//! Each is many times what the slowest took that was seen, on a machine where other things run: who waits so long has
//! met a program that will never come. What a measurement grants a turn or a run stands where that is ordered.

use std::time::Duration;

/// What a process has written, until it is read, once the process has ended: another one may have its streams open.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// A process that is asked to end, until it has; then it is killed.
pub const PROCESS_ENDS: Duration = Duration::from_secs(3);

/// A program that is asked for its version, until it has said it.
pub const VERSION_SAID: Duration = Duration::from_secs(5);

/// A server of pollux, until it says where it listens.
pub const SERVER_LISTENS: Duration = Duration::from_secs(10);

/// Workers and callers of a herd that are asked to end: each ends the call under way.
pub const WORKERS_END: Duration = Duration::from_secs(10);

/// A service pool with all of its workers, until it has started or ended; 250 take a fraction of a second.
pub const POOL_SETTLES: Duration = Duration::from_secs(20);

/// A bare server that tries its own form, until it has.
pub const FORM_TRIED: Duration = Duration::from_secs(20);

/// Any server, until it answers: one of a user may have much to read before.
pub const SERVER_ANSWERS: Duration = Duration::from_secs(30);

/// All workers of a herd, until they wait; a hundred times what one takes.
pub const WORKERS_WAIT: Duration = Duration::from_secs(60);

/// A build of pollux that is measured by another one, until it is set up: less than the next one, in which this is.
pub const BUILD_READY: Duration = Duration::from_secs(60);

/// What is measured in turns, until it is set up: tens of thousands of connections take some seconds.
pub const SUBJECT_READY: Duration = Duration::from_secs(90);
