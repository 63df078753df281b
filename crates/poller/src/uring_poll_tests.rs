//! What is special about the io_uring backend; the rest is in the conformance suite.
