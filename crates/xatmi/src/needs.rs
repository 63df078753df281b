//! Do the queues of a pool fit the limits of this machine?
