//! What stands in buffers and messages: written, read back, damaged, and checked as the fuzz targets do.

mod checks;
mod ubf;
mod ubf_model;
mod wire;
